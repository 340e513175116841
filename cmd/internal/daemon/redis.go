package daemon

import (
	"log/slog"
	"time"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/front/redis"
	"github.com/declock/declock/internal/secure"
)

// A Redis says how a compute node serves clients of Redis.
type Redis struct {
	Listen string // HOST:PORT, or the path of a unix socket; empty: not at all
	Store  string
	// Users is a file of those that may connect, with their passwords; empty: anybody may.
	Users string
	// TLS are certificate and key, if clients connect over TLS, and the CA of theirs, if they must have one.
	TLS         secure.Files
	MaxConns    int
	MaxValue    uint64
	IdleTimeout time.Duration
	NoEvict     bool
}

// Check refuses what makes no sense, and files that cannot be read.
func (r *Redis) Check() error {
	if r.Listen == "" && (r.Users != "" || r.TLS.Given()) {
		return exit.Errorf(exit.Usage, "--redis-auth and --redis-tls-.. need --redis")
	}
	_, err := r.server(nil)
	return err
}

// server returns a server as the settings say.
func (r *Redis) server(log *slog.Logger) (_ *redis.Server, err error) {
	o := redis.Options{Store: r.Store, AuthFile: r.Users, MaxConns: r.MaxConns, MaxValue: int(r.MaxValue), IdleTimeout: r.IdleTimeout, NoEvict: r.NoEvict, Log: log}
	if r.TLS.Given() {
		if o.TLS, err = r.TLS.Server(); err != nil {
			return nil, err
		}
	}
	return redis.New(o)
}

// serveRedis listens, if the compute node is to serve clients of Redis.
func (d *CN) serveRedis() error {
	r := &d.cfg.Redis
	if r.Listen == "" {
		return nil
	}
	srv, err := r.server(d.cfg.Log)
	if err != nil {
		return err
	}
	return d.front("redis", r.Listen, srv)
}
