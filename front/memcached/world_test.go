package memcached

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/declock/declock"
)

// openCluster opens a private cluster.
func openCluster(t testing.TB, opts ...declock.Option) *declock.Cluster {
	t.Helper()
	c, err := declock.Open(t.Context(), "shm:", append(opts, declock.WithMemory(128<<20))...)
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
		if err := <-served; err != ErrServerClosed {
			t.Error("serve:", err)
		}
	})
	return s, l.Addr().String()
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

// send sends a request.
func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// want sends a request, and compares the answer.
func (c *client) want(request, answer string) {
	c.t.Helper()
	c.send(request)
	got := make([]byte, len(answer))
	if n, err := io.ReadFull(c.r, got); err != nil || string(got) != answer {
		c.t.Fatalf("%.80q is answered %q (%v), want %q", request, got[:n], err, answer)
	}
}

// line sends a request, and returns the first line of the answer.
func (c *client) line(request string) string {
	c.t.Helper()
	c.send(request)
	line, err := c.r.ReadString('\n')
	if err != nil {
		c.t.Fatalf("%.80q: %v", request, err)
	}
	return line
}

// ended reports whether the server closes the connection.
func (c *client) ended() bool {
	_, err := c.r.ReadByte()
	return err == io.EOF
}

// dialTLS connects over TLS.
func dialTLS(t testing.TB, address string, cfg *tls.Config) *client {
	t.Helper()
	cfg = cfg.Clone()
	cfg.InsecureSkipVerify = true
	nc, err := tls.Dial("tcp", address, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	return &client{t, nc, bufio.NewReader(nc)}
}
