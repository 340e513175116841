package front

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed: Serve of an Acceptor that has been shut down.
var ErrClosed = errors.New("front: server closed")

// An Acceptor accepts connections, serves each by a goroutine of its own, and ends them. Its fields are set before its first use.
type Acceptor struct {
	// Begin returns what serves a connection until its end, and closes it. It reads by Read, and the connection ends soon after that has met a deadline.
	Begin    func(net.Conn) (serve func())
	MaxConns int
	Refuse   string // what a connection is told if there are MaxConns already
	Log      *slog.Logger

	Accepted, Rejected atomic.Uint64

	mu        sync.Mutex
	listeners map[Listener]struct{}
	conns     map[net.Conn]struct{}
	draining  atomic.Bool
	until     time.Time      // it is: requests are read until then
	running   sync.WaitGroup // connections and listeners
}

// Serve serves the connections of a listener until Shutdown, and returns ErrClosed then. They are over TLS if secret is not nil.
func (a *Acceptor) Serve(l net.Listener, secret *tls.Config) error {
	if !a.Listen(l) {
		_ = l.Close()
		return ErrClosed
	}
	defer a.Unlisten(l)
	for wait := time.Millisecond; ; {
		nc, err := l.Accept()
		if err == nil {
			wait = time.Millisecond
			a.accept(nc, secret)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return ErrClosed
		}
		var e net.Error
		if !errors.As(err, &e) {
			return err
		}
		a.Log.Warn("cannot accept a connection", "error", err.Error()) // too many files are open, or the like
		time.Sleep(wait)
		wait = min(2*wait, time.Second)
	}
}

// A Listener is what clients reach.
type Listener interface {
	io.Closer
	Addr() net.Addr
}

// Listen notes what Shutdown has to close, and to wait for until Unlisten, and reports whether there was none yet. Serve calls it.
func (a *Acceptor) Listen(l Listener) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.draining.Load() {
		return false
	}
	if a.listeners == nil {
		a.listeners, a.conns = map[Listener]struct{}{}, map[net.Conn]struct{}{}
	}
	a.listeners[l] = struct{}{}
	a.running.Add(1)
	return true
}

// Unlisten closes a listener.
func (a *Acceptor) Unlisten(l Listener) {
	a.mu.Lock()
	delete(a.listeners, l)
	a.mu.Unlock()
	_ = l.Close()
	a.running.Done()
}

// accept begins to serve a connection, unless there are too many.
func (a *Acceptor) accept(nc net.Conn, secret *tls.Config) {
	served := nc
	if secret != nil {
		served = tls.Server(nc, secret)
	}
	a.mu.Lock()
	refused := len(a.conns) >= a.MaxConns || a.draining.Load()
	if !refused {
		a.conns[served] = struct{}{}
		a.running.Add(1)
	}
	a.mu.Unlock()
	if refused {
		a.Rejected.Add(1)
		_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(nc, a.Refuse)
		_ = nc.Close()
		return
	}
	a.Accepted.Add(1)
	serve := a.Begin(served)
	go func() {
		defer a.running.Done()
		serve()
		a.mu.Lock()
		delete(a.conns, served)
		a.mu.Unlock()
	}()
}

// Idle reports whether a read or write has failed with err because the client was idle: Shutdown sets deadlines, too.
func (a *Acceptor) Idle(err error, idle time.Duration) bool {
	return idle > 0 && errors.Is(err, os.ErrDeadlineExceeded) && !a.draining.Load()
}

// Open returns how many connections there are.
func (a *Acceptor) Open() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.conns)
}

// Listeners returns where clients reach the server.
func (a *Acceptor) Listeners() (list []net.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for l := range a.listeners {
		list = append(list, l.Addr())
	}
	return list
}

// Read reads from a connection, which may be idle for some time; 0: for ever. While the server is being shut down it reads what has arrived.
func (a *Acceptor) Read(nc net.Conn, b []byte, idle time.Duration) (n int, err error) {
	was := a.draining.Load()
	a.BeforeRead(nc, idle)
	n, err = nc.Read(b)
	if n == 0 && !was && a.draining.Load() && errors.Is(err, os.ErrDeadlineExceeded) { // Shutdown has ended it: it reads nothing then, whatever has arrived
		a.BeforeRead(nc, idle)
		n, err = nc.Read(b)
	}
	return n, err
}

// BeforeRead bounds the next read, or wait for one. Read calls it.
func (a *Acceptor) BeforeRead(nc net.Conn, idle time.Duration) {
	if idle == 0 && !a.draining.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	by := time.Now().Add(idle)
	if a.draining.Load() {
		if by = time.Now().Add(drainRead); by.After(a.until) {
			by = a.until
		}
	}
	_ = nc.SetReadDeadline(by)
}

// WriteBy bounds the next write of a connection, unless the server is being shut down: then it has a deadline already.
func (a *Acceptor) WriteBy(nc net.Conn, t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.draining.Load() {
		_ = nc.SetWriteDeadline(t)
	}
}

const (
	// drainTimeout bounds how long a client may take to read its last answers.
	drainTimeout = 5 * time.Second
	// drainRead is how long a connection waits for a request, again and again until drainRequests.
	drainRead     = 20 * time.Millisecond
	drainRequests = 250 * time.Millisecond
)

// Shutdown closes the listeners, lets the requests that have arrived be answered and closes the connections. When ctx ends,
// connections are closed whatever they do; their operations may still be under way.
func (a *Acceptor) Shutdown(ctx context.Context) error {
	a.mu.Lock()
	now := time.Now()
	a.until = now.Add(drainRequests)
	a.draining.Store(true)
	for l := range a.listeners {
		_ = l.Close()
	}
	for nc := range a.conns {
		_ = nc.SetReadDeadline(now)
		_ = nc.SetWriteDeadline(now.Add(drainTimeout))
	}
	a.mu.Unlock()
	over := make(chan struct{})
	go func() {
		a.running.Wait()
		close(over)
	}()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for nc := range a.conns {
		go nc.Close() // it waits for what a Direct has under way
	}
	return ctx.Err()
}
