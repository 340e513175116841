package memcached

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A fake answers commands of memcached's text protocol as a test wants it.
type fake struct {
	ln net.Listener
	mu sync.Mutex
	// answer, if it returns not "", is the whole answer to a command. "!" drops the connection.
	answer func(cmd string) string
}

// ordinary are the fake's answers to commands of which the test says nothing.
var ordinary = map[string]string{"version": "VERSION fake\r\n", "gets": "END\r\n", "set": "STORED\r\n", "delete": "NOT_FOUND\r\n", "incr": "NOT_FOUND\r\n"}

func startFake(t testing.TB) *fake {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{ln: ln, answer: func(string) string { return "" }}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				f.serve(conn)
			}()
		}
	}()
	t.Cleanup(func() { ln.Close() })
	return f
}

func (f *fake) answers(answer func(cmd string) string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func (f *fake) serve(conn net.Conn) {
	r := bufio.NewReaderSize(conn, 1<<16)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		w := strings.Fields(line)
		if len(w) >= 5 { // it has data
			n, _ := strconv.Atoi(w[4])
			if _, err := r.Discard(n + 2); err != nil {
				return
			}
		}
		f.mu.Lock()
		text := f.answer(w[0])
		f.mu.Unlock()
		switch text {
		case "!":
			return
		case "":
			text = ordinary[w[0]]
		}
		if _, err := io.WriteString(conn, text); err != nil {
			return
		}
	}
}
