//go:build !noetcdserver

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// An etcdMembers is an etcd of some members, in this process.
type etcdMembers struct {
	list      []*embed.Etcd
	endpoints []string
}

// startMembers starts an etcd of n members, which are as by default but for their logs.
func startMembers(ctx context.Context, dir string, n int, durable bool) (m etcdMembers, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return m, err
	}
	var initial []string
	var peers, clients []url.URL
	for i := range 2 * n {
		l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
		if err != nil {
			return m, err
		}
		l.Close()
		u := url.URL{Scheme: "http", Host: l.Addr().String()}
		if i < n {
			peers, initial = append(peers, u), append(initial, fmt.Sprintf("m%d=%s", i, u.String()))
		} else {
			clients = append(clients, u)
		}
	}
	for i := range n {
		cfg := embed.NewConfig()
		cfg.Name, cfg.Dir, cfg.InitialCluster = fmt.Sprintf("m%d", i), filepath.Join(dir, fmt.Sprint(i)), strings.Join(initial, ",")
		cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = peers[i:i+1], peers[i:i+1]
		cfg.ListenClientUrls, cfg.AdvertiseClientUrls = clients[i:i+1], clients[i:i+1]
		cfg.UnsafeNoFsync, cfg.LogLevel, cfg.EnableGRPCGateway = !durable, "panic", false
		e, err := embed.StartEtcd(cfg)
		if err != nil {
			return m, fmt.Errorf("etcd: %w", err)
		}
		m.list, m.endpoints = append(m.list, e), append(m.endpoints, clients[i].String())
	}
	for _, e := range m.list {
		select {
		case <-e.Server.ReadyNotify():
		case err := <-e.Err():
			return m, fmt.Errorf("etcd: %w", err)
		case <-time.After(time.Minute):
			return m, errors.New("etcd does not begin to serve within a minute")
		case <-ctx.Done():
			return m, errors.Join(errors.New("etcd does not begin to serve"), context.Cause(ctx))
		}
	}
	return m, nil
}

func (m etcdMembers) stop() {
	for _, e := range m.list {
		e.Close()
	}
}
