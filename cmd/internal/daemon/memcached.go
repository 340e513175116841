package daemon

import (
	"log/slog"
	"net"
	"time"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/front/memcached"
	"github.com/declock/declock/internal/secure"
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

// serveMemcached listens, if the compute node is to serve clients of memcached.
func (d *CN) serveMemcached() error {
	m := &d.cfg.Memcached
	if m.Listen == "" {
		return nil
	}
	srv, err := m.server(d.cfg.Log)
	if err != nil {
		return err
	}
	if err := d.front("memcached", m.Listen, srv); err != nil || m.UDP == "" {
		return err
	}
	u, err := net.ListenPacket("udp", m.UDP)
	if err != nil {
		return exit.Errorf(exit.InUse, "cannot serve clients of memcached over UDP at %s: %w", m.UDP, err)
	}
	go d.fronts[len(d.fronts)-1].ended(func() error { return srv.ServePacket(u) })
	return nil
}
