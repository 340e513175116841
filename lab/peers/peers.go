package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/declock/declock"
	_ "github.com/declock/declock/overtcp"
	"github.com/go-redsync/redsync/v4"
	redsyncgo "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// A peer is a lock service.
type peer struct {
	name string
	// open returns a client of a lock, by number.
	open  func(ctx context.Context, lock int) (client, error)
	close func()
}

// A client acquires and releases one lock.
type client struct {
	lock, unlock func(context.Context) error
	close        func()
}

func connect(ctx context.Context, o *options) ([]*peer, error) {
	var ours []*peer
	for _, w := range []struct {
		name    string
		nodes   int
		address string
	}{{"declock", 1, o.cluster}, {"declock-2cn", 2, o.cluster}, {"declock-local", 1, o.cluster + "&local=true"}, {"declock-2cn-local", 2, o.cluster + "&local=true"}} {
		p, err := declockPeer(ctx, w.name, w.nodes, w.address, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		ours = append(ours, p)
	}
	e, err := etcdPeer(o)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	// Redsync's own delay between tries is 50 to 250 ms. A shorter one costs the server more, and gets contended locks faster.
	return append(ours, redsyncPeer("redsync", o), redsyncPeer("redsync-1ms", o, redsync.WithRetryDelay(time.Millisecond)), e), nil
}

// declockPeer is some compute nodes, in this process, with clients in turns; the memory node is a process of its own. Clients of
// one node hand a lock to each other without the network; those of two send messages over the loopback. By the address they reach the memory over the loopback, too, or by their own CPUs.
func declockPeer(ctx context.Context, name string, nodes int, address string, o *options) (*peer, error) {
	p := &peer{name: name}
	var closes []func()
	p.close = func() {
		for _, f := range closes {
			f()
		}
	}
	clusters, tables := make([]*declock.Cluster, nodes), make([]*declock.Locks, nodes)
	for i := range nodes {
		c, err := declock.Open(ctx, address)
		if err != nil {
			p.close()
			return nil, err
		}
		closes = append(closes, func() { _ = c.Close() })
		if tables[i], err = c.Locks(ctx, "peers", o.clients+1); err != nil {
			p.close()
			return nil, err
		}
		clusters[i] = c
	}
	opened := 0
	p.open = func(ctx context.Context, lock int) (client, error) {
		i := opened % nodes
		opened++
		locks := tables[i]
		s, err := clusters[i].Session()
		if err != nil {
			return client{}, err
		}
		var g declock.Guard
		return client{
			lock:   func(ctx context.Context) (err error) { g, err = s.Lock(ctx, locks.At(lock)); return err },
			unlock: func(context.Context) error { return g.Unlock() },
			close:  func() { _ = s.Close() },
		}, nil
	}
	return p, nil
}

// redsyncPeer is redsync on one Redis server, with a connection for each client. It tries until it has the lock.
func redsyncPeer(name string, o *options, more ...redsync.Option) *peer {
	pool := redis.NewClient(&redis.Options{Addr: o.redis, PoolSize: o.clients, MinIdleConns: o.clients})
	rs := redsync.New(redsyncgo.NewPool(pool))
	return &peer{name: name, close: func() { _ = pool.Close() }, open: func(_ context.Context, lock int) (client, error) {
		m := rs.NewMutex(fmt.Sprintf("%s-%d", name, lock), append([]redsync.Option{redsync.WithTries(1 << 30)}, more...)...)
		return client{
			lock: m.LockContext,
			unlock: func(ctx context.Context) error {
				if ok, err := m.UnlockContext(ctx); err != nil || !ok {
					return errors.Join(err, errors.New("the lock was lost"))
				}
				return nil
			},
			close: func() {},
		}, nil
	}}
}

// etcdPeer is the mutex of etcd's client, with a session (a lease) for each client.
func etcdPeer(o *options) (*peer, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{o.etcd}, DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	return &peer{name: "etcd", close: func() { _ = c.Close() }, open: func(ctx context.Context, lock int) (client, error) {
		s, err := concurrency.NewSession(c, concurrency.WithTTL(60), concurrency.WithContext(ctx))
		if err != nil {
			return client{}, err
		}
		m := concurrency.NewMutex(s, fmt.Sprintf("/peers/%d", lock))
		return client{lock: m.Lock, unlock: m.Unlock, close: func() { _ = s.Close() }}, nil
	}}, nil
}
