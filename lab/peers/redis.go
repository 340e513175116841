package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
)

// A redisServer is one that we have started: on the loopback and a unix socket, without persistence.
type redisServer struct {
	addr string
	unix string // path of the socket
	cmd  *exec.Cmd
	dir  string
}

// startRedis starts redis-server, with more flags.
func startRedis(ctx context.Context, more ...string) (*redisServer, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("no redis-server on PATH (Debian: apt-get install redis-server); or give --redis HOST:PORT: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &redisServer{addr: l.Addr().String()}
	_, port, _ := net.SplitHostPort(s.addr)
	_ = l.Close()
	if s.dir, err = os.MkdirTemp("", "declock-peers"); err != nil {
		return nil, err
	}
	s.unix = filepath.Join(s.dir, "redis.sock")
	s.cmd = exec.Command(program, append([]string{"--bind", "127.0.0.1", "--port", port, "--unixsocket", s.unix, "--save", "", "--appendonly", "no", "--dir", s.dir}, more...)...)
	if err := s.cmd.Start(); err != nil {
		_ = os.RemoveAll(s.dir)
		return nil, err
	}
	c := redis.NewClient(&redis.Options{Addr: s.addr})
	defer c.Close()
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err = c.Ping(ctx).Err(); err == nil {
			return s, nil
		}
		if ctx.Err() != nil || time.Now().After(limit) {
			s.stop()
			return nil, fmt.Errorf("redis-server does not answer: %w", err)
		}
	}
}

func (s *redisServer) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// redisVersion is what the server says of itself.
func redisVersion(ctx context.Context, addr string) string {
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	return cmp.Or(c.InfoMap(ctx, "server").Item("Server", "redis_version"), "unknown")
}
