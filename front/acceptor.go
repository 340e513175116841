package front

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed: Serve of an Acceptor that has been shut down.
var ErrClosed = errors.New("front: server closed")

// An Acceptor accepts connections, serves each by a goroutine of its own, and ends them. Its fields are set before its first use.
type Acceptor struct {
	// Begin returns what serves a connection until its end, and closes it. The connection ends soon after a read has met its deadline.
	Begin    func(net.Conn) (serve func())
	MaxConns int
	Refuse   string // what a connection is told if there are MaxConns already
	Log      *slog.Logger

	Accepted, Rejected atomic.Uint64

	mu        sync.Mutex
	listeners map[io.Closer]struct{}
	conns     map[net.Conn]struct{}
	draining  bool
	running   sync.WaitGroup // connections and listeners
}

// Serve serves the connections of a listener until Shutdown, and returns ErrClosed then. They are over TLS if secret is not nil.
func (a *Acceptor) Serve(l net.Listener, secret *tls.Config) error {
	if !a.listen(l) {
		_ = l.Close()
		return ErrClosed
	}
	defer a.unlisten(l)
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

// listen notes what Shutdown has to close, and reports whether there was none yet.
func (a *Acceptor) listen(l io.Closer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.draining {
		return false
	}
	if a.listeners == nil {
		a.listeners, a.conns = map[io.Closer]struct{}{}, map[net.Conn]struct{}{}
	}
	a.listeners[l] = struct{}{}
	a.running.Add(1)
	return true
}

func (a *Acceptor) unlisten(l io.Closer) {
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
	refused := len(a.conns) >= a.MaxConns || a.draining
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

// Open returns how many connections there are.
func (a *Acceptor) Open() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.conns)
}

// ReadBy bounds the next read of a connection, unless the server is being shut down: then it has a deadline already.
func (a *Acceptor) ReadBy(nc net.Conn, t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.draining {
		_ = nc.SetReadDeadline(t)
	}
}

// WriteBy bounds the next write of a connection, as ReadBy does the next read.
func (a *Acceptor) WriteBy(nc net.Conn, t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.draining {
		_ = nc.SetWriteDeadline(t)
	}
}

// drainTimeout bounds how long a client may take to read its last answers.
const drainTimeout = 5 * time.Second

// Shutdown closes the listeners, lets the requests that have arrived be answered and closes the connections. When ctx ends,
// connections are closed whatever they do; their operations may still be under way.
func (a *Acceptor) Shutdown(ctx context.Context) error {
	a.mu.Lock()
	a.draining = true
	for l := range a.listeners {
		_ = l.Close()
	}
	now := time.Now()
	for nc := range a.conns {
		_ = nc.SetReadDeadline(now) // it ends when it has nothing to do
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
		_ = nc.Close()
	}
	return ctx.Err()
}
