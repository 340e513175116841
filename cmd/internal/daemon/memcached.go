package daemon

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/front/memcached"
	"github.com/declock/declock/internal/secure"
	"github.com/declock/declock/objstore"
)

// A Memcached says how a compute node serves clients of memcached.
type Memcached struct {
	Listen string // HOST:PORT, or the path of a unix socket; empty: not at all
	UDP    string // HOST:PORT; empty: not over UDP
	Store  string
	// Users is a file of those that may connect, with their passwords; empty: anybody may.
	Users string
	// TLS are certificate and key, if clients connect over TLS, and the CA of theirs, if they must have one.
	TLS         secure.Files
	MaxConns    int
	IdleTimeout time.Duration
}

// Check refuses what makes no sense, and files that cannot be read.
func (m *Memcached) Check() error {
	if m.Listen == "" && (m.UDP != "" || m.Users != "" || m.TLS.Given()) {
		return exit.Errorf(exit.Usage, "--memcached-udp, --memcached-auth and --memcached-tls-.. need --memcached")
	}
	if m.Users != "" && m.UDP != "" {
		return exit.Errorf(exit.Usage, "--memcached-auth and --memcached-udp exclude each other: nobody can say over UDP who it is")
	}
	_, err := m.server(nil)
	return err
}

// server returns a server as the settings say.
func (m *Memcached) server(log *slog.Logger) (_ *memcached.Server, err error) {
	o := memcached.Options{Store: m.Store, AuthFile: m.Users, MaxConns: m.MaxConns, IdleTimeout: m.IdleTimeout, Log: log}
	if m.Users != "" {
		o.Protocol = "ascii"
	}
	if m.TLS.Given() {
		if o.TLS, err = m.TLS.Server(); err != nil {
			return nil, err
		}
	}
	return memcached.New(o)
}

// drainFor is how long connections may take to end when the compute node is stopped.
const drainFor = 10 * time.Second

// A frontEnd serves clients of memcached.
type frontEnd struct {
	d   *CN
	srv *memcached.Server
	l   net.Listener
}

// serveMemcached listens, if the compute node is to serve clients of memcached; else it returns nil.
func (d *CN) serveMemcached() (*frontEnd, error) {
	m := d.cfg.Memcached
	if m.Listen == "" {
		return nil, nil
	}
	network := "tcp"
	if strings.Contains(m.Listen, "/") {
		network = "unix"
	}
	l, err := net.Listen(network, m.Listen)
	if err != nil {
		return nil, exit.Errorf(exit.InUse, "cannot serve clients of memcached at %s: %w", m.Listen, err)
	}
	srv, err := m.server(d.cfg.Log)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	f := &frontEnd{d: d, srv: srv, l: l}
	go f.ended(func() error { return srv.Serve(l) })
	if m.UDP != "" {
		u, err := net.ListenPacket("udp", m.UDP)
		if err != nil {
			f.close()
			return nil, exit.Errorf(exit.InUse, "cannot serve clients of memcached over UDP at %s: %w", m.UDP, err)
		}
		go f.ended(func() error { return srv.ServePacket(u) })
	}
	return f, nil
}

// ended says so if a listener does not serve any more.
func (f *frontEnd) ended(serve func() error) {
	if err := serve(); !errors.Is(err, memcached.ErrServerClosed) {
		f.d.cfg.Log.Error("memcached: not serving any more", "error", err.Error())
	}
}

// bytesPerItem is what the index expects an item to have, about: more of smaller ones find room in overflow blocks.
const bytesPerItem = 1 << 10

// attach has clients served with the cluster that was joined.
func (f *frontEnd) attach() error {
	if f == nil {
		return nil
	}
	var memory uint64
	for _, r := range f.d.cluster.Node().Regions() {
		memory += r.Size()
	}
	return f.srv.Attach(f.d.cluster, objstore.Config{Objects: max(memory/bytesPerItem, 1<<12)})
}

// detach has clients served no more, until attach. They stay connected.
func (f *frontEnd) detach() {
	if f != nil {
		f.srv.Detach()
	}
}

// close lets the requests that have arrived be answered, and ends.
func (f *frontEnd) close() {
	if f == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainFor)
	defer cancel()
	if err := f.srv.Shutdown(ctx); err != nil {
		f.d.cfg.Log.Warn("memcached: connections cut", "error", err.Error())
	}
}

// addr returns where it listens.
func (f *frontEnd) addr() string {
	if f == nil {
		return ""
	}
	return cmp.Or(f.l.Addr().String(), f.d.cfg.Memcached.Listen)
}
