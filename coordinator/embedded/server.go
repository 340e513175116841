//go:build !shmonly && !noetcdserver

package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
)

// maxSocketPath is how long the path of a Unix socket may be.
const maxSocketPath = 107

// A Server is a running etcd of one member.
type Server struct {
	etcd     *embed.Etcd
	endpoint string
}

// Start starts a server, and returns when it serves. ctx bounds that.
func Start(ctx context.Context, o Options) (*Server, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	client := filepath.Join(dir, "etcd.sock")
	if len(client) > maxSocketPath {
		return nil, fmt.Errorf("embedded etcd: the path %s is too long for a socket: at most %d bytes", client, maxSocketPath)
	}
	cfg := config(dir, &o)
	listen := o.Listen
	if listen == "" {
		listen = "unix://" + client
		_ = os.Remove(client) // of a server that was killed
	}
	u, err := url.Parse(listen)
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: listen address: %w", err)
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*u}, []url.URL{*u}
	e, err := startEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	s := &Server{etcd: e, endpoint: listen}
	if o.Listen != "" {
		s.endpoint = u.Scheme + "://" + e.Clients[0].Addr().String() // with the port that it got
	}
	select {
	case <-e.Server.ReadyNotify():
		return s, nil
	case err = <-e.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(fmt.Errorf("embedded etcd: %w", err), s.Close())
}

// startEtcd returns the panic of an etcd that cannot write its directory as an error.
func startEtcd(cfg *embed.Config) (e *embed.Etcd, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v: is there room in %s, and may this user write to it?", p, cfg.Dir)
		}
	}()
	return embed.StartEtcd(cfg)
}

func config(dir string, o *Options) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "data")
	peer := url.URL{Scheme: "unix", Path: filepath.Join(dir, "peer.sock")}
	_ = os.Remove(peer.Path)
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ElectionMs = uint(cmp.Or(o.Election, 100*time.Millisecond).Milliseconds())
	cfg.TickMs = max(cfg.ElectionMs/10, 1)
	cfg.UnsafeNoFsync = !o.Durable
	if o.Cert != "" {
		cfg.ClientTLSInfo = transport.TLSInfo{CertFile: o.Cert, KeyFile: o.Key, TrustedCAFile: o.CA, ClientCertAuth: true}
	}
	cfg.LogLevel = "panic" // each Close would be an error
	// The database is small, and old revisions are not asked for.
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = "revision", "1000"
	cfg.EnableGRPCGateway = false
	return cfg
}

// Endpoint returns the URL of the server, for clients on this machine.
func (s *Server) Endpoint() string { return s.endpoint }

// Close stops the server. Its data stay.
func (s *Server) Close() error {
	s.etcd.Close()
	return nil
}
