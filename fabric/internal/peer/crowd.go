package peer

import (
	"net"
	"slices"
	"sync"
)

const (
	// MaxStrangers is how many connections may be unauthenticated at a time.
	MaxStrangers = 256
	// maxOfSource is how many of them may come from one address.
	maxOfSource = MaxStrangers / 4
)

// A Crowd is the connections that are not authenticated yet. A new one is always let in: where there are too
// many, the oldest of the address that has most of them is closed for it. So a program that opens connections and leaves them idle keeps out
// no node at another address, and at its own address only nodes that take longer to authenticate than its next maxOfSource connections take to
// be opened. The zero value is empty. Any goroutine may use it.
type Crowd struct {
	mu     sync.Mutex
	list   []stranger // the oldest first
	closed bool
}

type stranger struct {
	conn   net.Conn
	source string
}

// sourceOf returns where a connection comes from: an address without a port.
func sourceOf(c net.Conn) string {
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return c.RemoteAddr().String()
	}
	return host
}

// Enter takes a connection in. It returns false after Close.
func (w *Crowd) Enter(c net.Conn) bool {
	source := sourceOf(c)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	count := map[string]int{}
	most := ""
	for _, s := range w.list {
		if count[s.source]++; count[s.source] > count[most] {
			most = s.source
		}
	}
	switch {
	case count[source] >= maxOfSource:
		w.evict(source)
	case len(w.list) >= MaxStrangers:
		w.evict(most)
	}
	w.list = append(w.list, stranger{c, source})
	return true
}

// evict closes the oldest connection of an address; mu is held.
func (w *Crowd) evict(source string) {
	for i, s := range w.list {
		if s.source == source {
			w.list = append(w.list[:i:i], w.list[i+1:]...)
			_ = s.conn.Close()
			return
		}
	}
}

// Leave takes a connection out: it is authenticated, or it is over. It returns false if it has been closed for another, or by Close.
func (w *Crowd) Leave(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := len(w.list)
	w.list = slices.DeleteFunc(w.list, func(s stranger) bool { return s.conn == c })
	return len(w.list) < before
}

// Close closes all connections, and lets none in any more.
func (w *Crowd) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, s := range w.list {
		_ = s.conn.Close()
	}
}

// Closed reports whether Close was called.
func (w *Crowd) Closed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}
