package redis

import (
	"context"
	"crypto/tls"
	"errors"
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

// Version is the version of Redis whose protocols and texts a Server has.
const Version = "7.0.15"

// Options of a Server. The zero value is good.
type Options struct {
	// Store is the name of the store that is served, and of a second one behind it, with ".control" added; empty is "redis". That of servers of
	// package memcached may be served as well. What else is in the store is not there for clients.
	Store string
	// MaxValue bounds a value in bytes; 0 is 1 MiB. It is less if the store was made for less.
	MaxValue int
	// MaxConns bounds the connections; 0 is 10,000, as Redis's maxclients.
	MaxConns int
	// MaxBuffers bounds the memory that all connections together have for requests and answers of more than 64 KiB; 0 is 1 GiB. A connection that would
	// exceed it is closed.
	MaxBuffers int64
	// IdleTimeout is after how long a connection without requests is closed; 0 is never.
	IdleTimeout time.Duration
	// NoEvict: sets fail when memory is full, and no key is lost that has not expired, as locks want it.
	NoEvict bool
	// TLS, if not nil, is for connections.
	TLS *tls.Config
	// Log gets errors that are no client's; nil: none.
	Log *slog.Logger
	// AuthFile, if not empty, names a file with lines of USER:PASSWORD. A connection begins with AUTH or HELLO then; AUTH PASSWORD is of the user default.
	AuthFile string
}

// A Server serves a store to clients of Redis. It is made by New, has Serve called for each listener, and a cluster by Attach.
type Server struct {
	o        Options
	started  time.Time
	users    *front.Users // nil: anybody
	accept   front.Acceptor
	store    atomic.Pointer[attached]
	scripts  scripts
	lastID   atomic.Int64
	buffers  atomic.Int64
	counted  counted
	ops      context.Context // of operations on the store
	cancel   context.CancelFunc
	mu       sync.Mutex
	sessions map[*conn]struct{} // connections, for CLIENT LIST
}

// attached is a cluster that the server has.
type attached struct {
	items *item.Items
	most  int // bytes of a value
}

// errDetached: the server has no cluster.
var errDetached = errors.New("redis: not a member of a cluster")

// New returns a server, or front.ErrUsers. It answers requests with an error until it has a cluster.
func New(o Options) (*Server, error) {
	if o.Store == "" {
		o.Store = "redis"
	}
	if o.MaxValue == 0 {
		o.MaxValue = 1 << 20
	}
	if o.MaxConns == 0 {
		o.MaxConns = 10_000
	}
	if o.MaxBuffers == 0 {
		o.MaxBuffers = 1 << 30
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.MaxValue = min(o.MaxValue, objstore.MaxValueBytes-item.HeadSize)
	s := &Server{o: o, started: time.Now(), sessions: map[*conn]struct{}{}}
	s.ops, s.cancel = context.WithCancel(context.Background())
	s.accept = front.Acceptor{Begin: s.begin, MaxConns: o.MaxConns, Refuse: "-ERR max number of clients reached\r\n", Log: o.Log}
	if o.AuthFile != "" {
		var err error
		if s.users, err = front.ReadUsers(o.AuthFile); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// idleMemory is what a connection has that counts for nothing in Options.MaxBuffers, mostly.
const idleMemory = 16 << 10

// MaxMemory returns how much memory connections have together, about, when clients have the server hold as much as it lets them.
func (s *Server) MaxMemory() int64 { return s.o.MaxBuffers + int64(s.o.MaxConns)*idleMemory }

// attachTimeout bounds the opening of the stores.
const attachTimeout = 10 * time.Second

// Attach gives the server a cluster to serve the store of, which it opens; or makes, as cfg says.
func (s *Server) Attach(c *declock.Cluster, cfg declock.StoreConfig) error {
	if cfg.MaxValue == 0 {
		cfg.MaxValue = uint32(s.o.MaxValue + item.HeadSize)
	}
	cfg.NoEvict = cfg.NoEvict || s.o.NoEvict
	ctx, cancel := context.WithTimeout(s.ops, attachTimeout)
	defer cancel()
	x, err := item.Open(ctx, c, s.o.Store, cfg)
	if err != nil {
		return fmt.Errorf("redis: attach: %w", err)
	}
	s.store.Store(&attached{items: x, most: min(s.o.MaxValue, x.MaxValue())})
	return nil
}

// Detach takes the cluster away from the server, before it is closed. Connections stay open, and requests are answered with an error until the next Attach.
func (s *Server) Detach() {
	if a := s.store.Swap(nil); a != nil {
		a.items.Close()
	}
}

// most returns the size of the largest value.
func (s *Server) most() int {
	if a := s.store.Load(); a != nil {
		return a.most
	}
	return s.o.MaxValue
}

// Serve serves the connections of a listener until Shutdown, and returns front.ErrClosed then.
func (s *Server) Serve(l net.Listener) error { return s.accept.Serve(l, s.o.TLS) }

// begin begins a connection.
func (s *Server) begin(nc net.Conn) func() {
	c := newConn(s, nc)
	s.mu.Lock()
	s.sessions[c] = struct{}{}
	s.mu.Unlock()
	return func() {
		c.serve()
		s.mu.Lock()
		delete(s.sessions, c)
		s.mu.Unlock()
	}
}

// Shutdown closes the listeners, lets the requests that have arrived be answered, closes the connections and detaches the cluster. When ctx ends,
// connections are closed and their operations given up.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.accept.Shutdown(ctx)
	s.cancel()
	s.Detach()
	return err
}
