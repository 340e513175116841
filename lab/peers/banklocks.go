package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/declock/declock"
	"github.com/go-redsync/redsync/v4"
	redsyncgo "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// A custody is the lock of a customer that is held. Its token grows with every exclusive grant of that lock; 0: there is none.
type custody struct {
	token  uint64
	unlock func(context.Context) error
}

// A keeper is a client of the locks of all customers.
type keeper struct {
	lock  func(ctx context.Context, customer int, shared bool) (custody, error)
	close func()
}

// A bankLock is what keeps the clients of a bank apart.
type bankLock struct {
	name           string
	fenced, halves bool
	// lease is how long the lock of a client lasts that is killed, or stands still.
	lease time.Duration
	open  func(ctx context.Context, o *bankOptions, lease time.Duration) (func(context.Context) (keeper, error), func(), error)
}

var bankLocks = []bankLock{
	{name: "declock", fenced: true, lease: 2 * time.Second, open: openDeclock("declock")},
	{name: "declock-tf", fenced: true, lease: 2 * time.Second, open: openDeclock("declock-tf")},
	{name: "declock, no tokens", lease: 2 * time.Second, open: openDeclock("declock")},
	{name: "redsync", lease: 8 * time.Second, open: openRedsync()},
	{name: "redsync, tuned", lease: time.Second, open: openRedsync(redsync.WithRetryDelay(time.Millisecond))},
	{name: "etcd", fenced: true, lease: 2 * time.Second, open: openEtcd},
	{name: "etcd, no tokens", lease: 2 * time.Second, open: openEtcd},
	// What the check must find.
	{name: "declock, two writes", halves: true, lease: 2 * time.Second, open: openDeclock("declock")},
	{name: "no lock", open: openNothing},
}

// openDeclock makes this process a compute node, with a session for each client. Each policy has locks of its own.
func openDeclock(policy string) func(context.Context, *bankOptions, time.Duration) (func(context.Context) (keeper, error), func(), error) {
	return func(ctx context.Context, o *bankOptions, lease time.Duration) (func(context.Context) (keeper, error), func(), error) {
		c, err := declock.Open(ctx, o.cluster+"&dead-after="+lease.String(), declock.WithPolicy(policy))
		if err != nil {
			return nil, nil, err
		}
		table, err := c.Locks(ctx, fmt.Sprintf("bank-%d-%s", o.customers, policy), o.customers)
		if err != nil {
			return nil, nil, errors.Join(err, c.Close())
		}
		return func(context.Context) (keeper, error) {
			s, err := c.Session()
			return keeper{func(ctx context.Context, customer int, shared bool) (custody, error) {
				lock := s.Lock
				if shared {
					lock = s.RLock
				}
				g, err := lock(ctx, table.At(customer))
				if err != nil {
					return custody{}, err
				}
				return custody{uint64(g.Token()), func(context.Context) error { return g.Unlock() }}, nil
			}, func() { _ = s.Close() }}, err
		}, func() { _ = c.Close() }, nil
	}
}

// openRedsync is redsync on the Redis that has the data, as in ShiftLock's paper. It has no shared holders and no tokens, and tries until it has the lock.
func openRedsync(more ...redsync.Option) func(context.Context, *bankOptions, time.Duration) (func(context.Context) (keeper, error), func(), error) {
	return func(_ context.Context, o *bankOptions, lease time.Duration) (func(context.Context) (keeper, error), func(), error) {
		pool := redis.NewClient(&redis.Options{Addr: o.redis, PoolSize: o.clients})
		rs := redsync.New(redsyncgo.NewPool(pool))
		more := append([]redsync.Option{redsync.WithTries(1 << 30), redsync.WithExpiry(lease)}, more...)
		return func(context.Context) (keeper, error) {
			return keeper{func(ctx context.Context, customer int, _ bool) (custody, error) {
				m := rs.NewMutex(fmt.Sprintf("lock:%d", customer), more...)
				return custody{0, func(ctx context.Context) error { _, err := m.UnlockContext(ctx); return err }}, m.LockContext(ctx)
			}, func() {}}, nil
		}, func() { _ = pool.Close() }, nil
	}
}

// openEtcd is the mutex of etcd's client, with a session (a lease) for each client. It has no shared holders. The revision at which it was granted is its token.
func openEtcd(_ context.Context, o *bankOptions, lease time.Duration) (func(context.Context) (keeper, error), func(), error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{o.etcd}, DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) (keeper, error) {
		s, err := concurrency.NewSession(c, concurrency.WithTTL(int(lease/time.Second)), concurrency.WithContext(ctx))
		return keeper{func(ctx context.Context, customer int, _ bool) (custody, error) {
			m := concurrency.NewMutex(s, fmt.Sprintf("/bank/%d", customer))
			if err := m.Lock(ctx); err != nil {
				return custody{}, err
			}
			return custody{uint64(m.Header().Revision), m.Unlock}, nil
		}, func() { _ = s.Close() }}, err
	}, func() { _ = c.Close() }, nil
}

func openNothing(context.Context, *bankOptions, time.Duration) (func(context.Context) (keeper, error), func(), error) {
	return func(context.Context) (keeper, error) {
		return keeper{func(context.Context, int, bool) (custody, error) {
			return custody{0, func(context.Context) error { return nil }}, nil
		}, func() {}}, nil
	}, func() {}, nil
}
