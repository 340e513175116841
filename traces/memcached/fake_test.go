package memcached

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/declock/declock/objstore"
	"github.com/declock/declock/traces/internal/mapcache"
)

// A fake speaks memcached's text protocol over a map.
type fake struct {
	store *mapcache.Store
	ln    net.Listener
	wg    sync.WaitGroup
	mu    sync.Mutex
	// answer, if it returns not "", stands for the whole answer to a command. "!" drops the connection.
	answer func(cmd string) string
}

func startFake(t testing.TB, network, address string) *fake {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{store: mapcache.New(), ln: ln, answer: func(string) string { return "" }}
	f.store.MaxValue = 1 << 20
	f.wg.Add(1)
	go func() {
		defer f.wg.Done()
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			f.wg.Add(1)
			go func() {
				defer f.wg.Done()
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
	r, cache := bufio.NewReaderSize(conn, 1<<16), f.store.Client()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		w := strings.Fields(line)
		var data []byte
		if len(w) >= 5 {
			n, _ := strconv.Atoi(w[4])
			data = make([]byte, n+2)
			if _, err := io.ReadFull(r, data); err != nil {
				return
			}
			data = data[:n]
		}
		f.mu.Lock()
		text := f.answer(w[0])
		f.mu.Unlock()
		if text == "!" {
			return
		}
		if text == "" {
			text = command(cache, w, data)
		}
		if _, err := io.WriteString(conn, text); err != nil {
			return
		}
	}
}

func command(c *mapcache.Client, w []string, data []byte) string {
	key := []byte{}
	if len(w) > 1 {
		key = []byte(w[1])
	}
	num := func(i int) uint64 { n, _ := strconv.ParseUint(w[i], 10, 64); return n }
	switch w[0] {
	case "version":
		return "VERSION fake\r\n"
	case "flush_all":
		return "OK\r\n"
	case "gets":
		it, err := c.Get(key)
		if err != nil {
			return "END\r\n"
		}
		return fmt.Sprintf("VALUE %s %d %d %d\r\n%s\r\nEND\r\n", key, it.Flags, len(it.Value), it.CAS, it.Value)
	case "delete":
		return answer(c.Delete(key), "DELETED", "")
	case "touch":
		return answer(c.Touch(key, uint32(num(2))), "TOUCHED", "")
	case "incr", "decr":
		op := c.Incr
		if w[0] == "decr" {
			op = c.Decr
		}
		n, err := op(key, num(2))
		return answer(err, fmt.Sprint(n), "")
	}
	o := objstore.Options{Flags: uint32(num(2)), TTL: uint32(num(3))}
	switch w[0] {
	case "set":
		return answer(c.Set(key, data, o), "STORED", "")
	case "add":
		return answer(c.Add(key, data, o), "STORED", "NOT_STORED")
	case "replace":
		return answer(c.Replace(key, data, o), "STORED", "NOT_STORED")
	case "append":
		return answer(c.Append(key, data), "STORED", "NOT_STORED")
	case "prepend":
		return answer(c.Prepend(key, data), "STORED", "NOT_STORED")
	case "cas":
		return answer(c.CompareAndSwap(key, data, o, num(5)), "STORED", "")
	}
	return "ERROR\r\n"
}

func answer(err error, good, notStored string) string {
	text := good
	switch {
	case err == nil:
	case errors.Is(err, objstore.ErrNotNumber):
		text = "CLIENT_ERROR cannot increment or decrement non-numeric value"
	case errors.Is(err, objstore.ErrValueSize):
		text = "SERVER_ERROR object too large for cache"
	case notStored != "":
		text = notStored
	case errors.Is(err, objstore.ErrExists):
		text = "EXISTS"
	default:
		text = "NOT_FOUND"
	}
	return text + "\r\n"
}
