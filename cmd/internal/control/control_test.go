package control

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/traces/replay"
)

// echo is a handler that reports what it was asked.
type echo struct{ started, canceled chan struct{} }

func (e *echo) Status() *Status { return &Status{Node: "cn7"} }

func (e *echo) Replay(ctx context.Context, spec *Replay, job *Job) (*Result, error) {
	if spec.Clients == 0 {
		return nil, exit.Errorf(exit.Usage, "no clients")
	}
	job.Warming(Progress{Warmed: 1})
	if job.Ready(ctx, Progress{Warmed: 2}) {
		close(e.started)
		job.Progress(Progress{Ops: 3})
		if spec.Requests == 0 {
			<-ctx.Done()
		}
	}
	if ctx.Err() != nil {
		close(e.canceled)
	}
	return &Result{Replay: &replay.Result{Clients: spec.Clients}}, nil
}

func newEcho() *echo { return &echo{started: make(chan struct{}), canceled: make(chan struct{})} }

// listen serves on a socket with a path too long for a socket address.
func listen(t *testing.T, h Handler) (path string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 25))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, SocketName("cn7"))
	s := NewServer(h)
	if err := s.Listen(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", st, err)
	}
	return path
}

func dial(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Dial(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// next demands a reply of a type.
func next(t *testing.T, c *Client, what string) *Reply {
	t.Helper()
	r, err := c.Next()
	if err != nil || r.Type != what {
		t.Fatalf("got %+v, %v; want %s", r, err, what)
	}
	return r
}

func TestStatus(t *testing.T) {
	c := dial(t, listen(t, newEcho()))
	s, err := c.Status(context.Background())
	if err != nil || s.Node != "cn7" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestReplayToItsEnd(t *testing.T) {
	c := dial(t, listen(t, newEcho()))
	if err := c.Send(Request{Op: OpReplay, Replay: &Replay{Clients: 5, Requests: 1}}); err != nil {
		t.Fatal(err)
	}
	next(t, c, TypeWarming)
	next(t, c, TypeReady)
	if err := c.Send(Request{Op: OpStart}); err != nil {
		t.Fatal(err)
	}
	next(t, c, TypeProgress)
	if r := next(t, c, TypeResult); r.Result.Replay.Clients != 5 {
		t.Errorf("%+v", r.Result)
	}
}

func TestReplayCanceled(t *testing.T) {
	for name, end := range map[string]func(c *Client){
		"by request":    func(c *Client) { _ = c.Send(Request{Op: OpCancel}) },
		"by connection": func(c *Client) { c.Close() },
		"by rubbish":    func(c *Client) { _, _ = c.l.conn.Write([]byte("{]\n")) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newEcho()
			c := dial(t, listen(t, h))
			if err := c.Send(Request{Op: OpReplay, Replay: &Replay{Clients: 1}}); err != nil {
				t.Fatal(err)
			}
			next(t, c, TypeWarming)
			next(t, c, TypeReady)
			_ = c.Send(Request{Op: OpStart})
			next(t, c, TypeProgress)
			end(c)
			select {
			case <-h.canceled:
			case <-time.After(time.Minute):
				t.Fatal("not canceled")
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	path := listen(t, newEcho())
	for _, c := range []struct {
		line string
		code exit.Code
	}{
		{`{"v":3,"op":"dance"}`, exit.Mismatch},
		{`{"v":3,"op":"replay"}`, exit.Mismatch},
		{`{"v":1,"op":"status"}`, exit.Mismatch},
		{`not json`, exit.Mismatch},
		{`[]`, exit.Mismatch},
		{`{"v":3,"op":"replay","replay":{}}`, exit.Usage},
	} {
		cl := dial(t, path)
		if _, err := cl.l.conn.Write([]byte(c.line + "\n")); err != nil {
			t.Fatal(err)
		}
		if r, err := cl.Next(); err == nil || exit.Of(err) != c.code {
			t.Errorf("%s: %+v, %v; want code %v", c.line, r, err, c.code)
		}
	}
}

func TestLinesAreBounded(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	go func() {
		block := bytes.Repeat([]byte("x"), 1<<16)
		for {
			if _, err := b.Write(block); err != nil {
				return
			}
		}
	}()
	var r Reply
	err := newLines(a).read(&r)
	if err == nil || exit.Of(err) != exit.Mismatch {
		t.Errorf("%v", err)
	}
}

func TestSweepRemovesStaleSocketsOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "declock-x")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(dir, SocketName("cn1"))
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	s := NewServer(newEcho())
	live := filepath.Join(dir, SocketName("cn2"))
	if err := s.Listen(live); err != nil {
		t.Fatal(err)
	}
	if removed := Sweep(dir); len(removed) != 1 || removed[0] != dead {
		t.Errorf("removed %v", removed)
	}
	if got := Sockets(dir); len(got) != 1 || got[0] != live {
		t.Errorf("left %v", got)
	}
	s.Close()
	Sweep(dir)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the empty directory stays: %v", err)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"v":3,"op":"status"}` + "\n"))
	f.Add([]byte(`{"v":3,"op":"replay","replay":{"clients":1}}` + "\n"))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, b := net.Pipe()
		go func() {
			_, _ = b.Write(data)
			b.Close()
		}()
		h := newEcho()
		s := NewServer(h)
		done := make(chan struct{})
		go func() { s.Serve(a); close(done) }()
		<-done
		s.Close()
	})
}
