package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/front"
)

// openCluster opens a private cluster.
func openCluster(t testing.TB) *declock.Cluster {
	t.Helper()
	c, err := declock.Open(t.Context(), "shm:", declock.WithMemory(128<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// startServer starts a server of a cluster, and returns where it listens. It is shut down with the test.
func startServer(t testing.TB, c *declock.Cluster, o Options) (*Server, string) {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Attach(c, declock.StoreConfig{Objects: 10_000}); err != nil {
		t.Fatal(err)
	}
	return s, listenFor(t, s)
}

// listenFor has a server serve, and returns where. It is shut down with the test.
func listenFor(t testing.TB, s *Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error("shutdown:", err)
		}
		if err := <-served; !errors.Is(err, front.ErrClosed) {
			t.Error("serve:", err)
		}
	})
	return l.Addr().String()
}

// A client is a connection to a server.
type client struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, address string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	return &client{t, nc, bufio.NewReader(nc)}
}

// request is a request of words.
func request(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

// send sends bytes.
func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// do sends a request, and returns the answer as people read it: texts, numbers as :1, null as nil, arrays as [a b].
func (c *client) do(words ...string) string {
	c.t.Helper()
	c.send(request(words...))
	return c.answer()
}

// answer reads an answer.
func (c *client) answer() string {
	c.t.Helper()
	text, err := readAnswer(c.r)
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

func readAnswer(r *bufio.Reader) (string, error) {
	l, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	l = strings.TrimSuffix(l, "\r\n")
	n, _ := strconv.Atoi(l[1:])
	switch l[0] {
	case '+':
		return l[1:], nil
	case '$', '=':
		if n < 0 {
			return "nil", nil
		}
		b := make([]byte, n+2)
		_, err := io.ReadFull(r, b)
		return string(b[:n]), err
	case '_':
		return "nil", nil
	case '*', '%':
		if l[0] == '%' {
			n *= 2
		}
		var parts []string
		for range n {
			p, err := readAnswer(r)
			if err != nil {
				return "", err
			}
			parts = append(parts, p)
		}
		return l[:1] + fmt.Sprint(parts), nil
	}
	return l, nil
}

// want does a request written as a line of words, and compares the answer.
func (c *client) want(line, answer string) {
	c.t.Helper()
	if got := c.do(strings.Fields(line)...); got != answer {
		c.t.Errorf("%s is answered %q, want %q", line, got, answer)
	}
}

// ended reports whether the server closes the connection.
func (c *client) ended() bool {
	_, err := c.r.ReadByte()
	return err == io.EOF
}
