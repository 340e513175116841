package memcached

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/front"
	"github.com/declock/declock/front/item"
	"github.com/declock/declock/objstore"
)

// Version is the version of memcached whose protocols, texts and limits a Server has.
const Version = "1.6.18"

// Options of a Server. The zero value is good.
type Options struct {
	// Store is the name of the store that is served, and of a second one behind it, with ".control" added; empty is "memcached". What else is
	// in the store is not there for clients.
	Store string
	// MaxItem bounds an item: its key, value and 56 bytes. 0 is 1 MiB, as memcached's -I.
	MaxItem int
	// MaxConns bounds the connections; 0 is 1024, as memcached's -c.
	MaxConns int
	// IdleTimeout is after how long a connection without requests is closed; 0 is never.
	IdleTimeout time.Duration
	// TLS, if not nil, is for stream connections.
	TLS *tls.Config
	// Log gets errors that are no client's; nil: none.
	Log *slog.Logger
	// AuthFile, if not empty, names a file with lines of USER:PASSWORD. A connection begins with one of them then, in the ASCII protocol.
	AuthFile string
	// Protocol is that of all clients, "ascii" or "binary"; empty: each client's first byte says.
	Protocol string
	// NoFlush and NoDump refuse flush_all, and listings of keys.
	NoFlush, NoDump bool
	// Shutdown is called by a client's shutdown command; nil: there is none.
	Shutdown func()
	// Settings are what stats settings answers besides, or in place of what it would.
	Settings map[string]string
	// Debug allows clients to move the clock, as memcached's own tests do.
	Debug bool
}

// A Server serves a store to clients of memcached. It is made by New, has Serve called for each listener, and a cluster by Attach.
type Server struct {
	o                  Options
	started            time.Time
	users              *front.Users // nil: anybody
	accept             front.Acceptor
	home               atomic.Pointer[home] // nil: it is detached
	flushes            *item.Flushes
	moved              atomic.Int64 // seconds by which clients have moved the clock
	counted            counted
	getTime, storeTime front.Timer
	verbose            atomic.Uint32

	prefixes prefixes
	uses     uses
	second   atomic.Uint32 // of the store's clock, about

	mu       sync.Mutex
	conns    map[*conn]struct{} // for stats conns
	stop     context.CancelFunc // ends watching
	watching sync.WaitGroup
}

// ErrServerClosed: Serve of a server that has been shut down.
var ErrServerClosed = front.ErrClosed

// New returns a server, or ErrAuthFile. It answers requests with an error until it has a cluster.
func New(o Options) (*Server, error) {
	if o.Store == "" {
		o.Store = "memcached"
	}
	if o.MaxItem == 0 {
		o.MaxItem = 1 << 20
	}
	if o.MaxConns == 0 {
		o.MaxConns = 1024
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, started: time.Now(), conns: map[*conn]struct{}{}}
	s.accept = front.Acceptor{Begin: s.begin, MaxConns: o.MaxConns, Refuse: "ERROR Too many open connections\r\n", Log: o.Log}
	s.flushes = item.NewFlushes(s.useControl)
	s.uses.init()
	if o.AuthFile != "" {
		var err error
		if s.users, err = front.ReadUsers(o.AuthFile); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// MaxMemory returns how much memory connections have together, about, when clients have the server hold as much as it lets them: an item that arrives, and answers of as much, each.
func (s *Server) MaxMemory() int64 { return int64(s.o.MaxConns) * 2 * int64(s.o.MaxItem) }

// Attach gives the server a cluster to serve the store of, which it opens; or makes, as cfg says. As many requests are worked on at a time as the cluster has
// sessions (declock.WithSessions).
func (s *Server) Attach(c *declock.Cluster, cfg declock.StoreConfig) error {
	if cfg.MaxValue == 0 {
		cfg.MaxValue = uint32(min(s.o.MaxItem, objstore.MaxValueBytes))
	}
	h := &home{o: &s.o, flushes: s.flushes, cluster: c, cfg: cfg}
	if err := h.open(); err != nil {
		return fmt.Errorf("memcached: attach: %w", err)
	}
	s.flushes.Forget() // it may be another cluster
	s.home.Store(h)
	if _, err := s.flushes.Read(context.Background()); err != nil {
		s.home.Store(nil)
		return fmt.Errorf("memcached: attach: %w", err)
	}
	watch, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.watching.Go(func() { s.flushes.Watch(watch) })
	return nil
}

// Detach takes the cluster away from the server, before it is closed. Connections stay open, and requests are answered with an error until the next Attach.
func (s *Server) Detach() {
	h := s.home.Swap(nil)
	if h == nil {
		return
	}
	s.stop()
	h.leave()
	s.watching.Wait()
}

// clock is the server's clock.
func (s *Server) clock() time.Duration { return time.Since(s.started) }

// Serve serves the connections of a listener until Shutdown, and returns ErrServerClosed then.
func (s *Server) Serve(l net.Listener) error { return s.accept.Serve(l, s.o.TLS) }

// ServePlain is Serve without TLS.
func (s *Server) ServePlain(l net.Listener) error { return s.accept.Serve(l, nil) }

// begin begins a connection.
func (s *Server) begin(nc net.Conn) func() {
	c := newConn(s, nc)
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	return func() {
		c.serve()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}
}

// Shutdown closes the listeners, lets the requests that have arrived be answered, closes the connections and detaches the cluster. When ctx ends,
// connections are closed whatever they do; their operations may still be under way.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.accept.Shutdown(ctx)
	s.Detach() // an operation that waits for a memory node ends with the cluster, and its connection after that
	return err
}
