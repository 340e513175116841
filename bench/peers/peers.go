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
	d, err := declockPeer(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("declock: %w", err)
	}
	e, err := etcdPeer(o)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	// Redsync's own delay between tries is 50 to 250 ms. A shorter one costs the server more, and gets contended locks faster.
	return []*peer{d, redsyncPeer("redsync", o), redsyncPeer("redsync-1ms", o, redsync.WithRetryDelay(time.Millisecond)), e}, nil
}

// declockPeer is one compute node, in this process; the memory node is another.
func declockPeer(ctx context.Context, o *options) (*peer, error) {
	c, err := declock.Open(ctx, o.cluster)
	if err != nil {
		return nil, err
	}
	locks, err := c.Locks(ctx, "peers", o.clients+1)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &peer{name: "declock", close: func() { _ = c.Close() }, open: func(ctx context.Context, lock int) (client, error) {
		s, err := c.Session()
		if err != nil {
			return client{}, err
		}
		var g declock.Guard
		return client{
			lock:   func(ctx context.Context) (err error) { g, err = s.Lock(ctx, locks.At(lock)); return err },
			unlock: func(context.Context) error { return g.Unlock() },
			close:  func() { _ = s.Close() },
		}, nil
	}}, nil
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
