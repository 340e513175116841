package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/front/redis"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	wire "github.com/redis/go-redis/v9"
)

// serveRedis serves clients of Redis at two addresses, as two compute nodes of one cluster would.
func serveRedis(t *testing.T) (clients [2]*wire.Client) {
	t.Helper()
	c, err := declock.Open(t.Context(), "shm:", declock.WithMemory(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range clients {
		s, err := redis.New(redis.Options{})
		if err == nil {
			err = s.Attach(c, declock.StoreConfig{Objects: 1000})
		}
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go s.Serve(l)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := s.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		})
		clients[i] = wire.NewClient(&wire.Options{Addr: l.Addr().String()})
		t.Cleanup(func() { clients[i].Close() })
	}
	return clients
}

// redsync works on front/redis as it is: its locks exclude each other, whichever server they ask, and only the holder releases and extends them.
func TestRedsync(t *testing.T) {
	var locks [2]*redsync.Redsync
	for i, c := range serveRedis(t) {
		locks[i] = redsync.New(goredis.NewPool(c))
	}
	one, two := locks[0].NewMutex("lock", redsync.WithExpiry(time.Minute)), locks[1].NewMutex("lock", redsync.WithTries(1))
	var taken *redsync.ErrTaken
	if err := one.Lock(); err != nil {
		t.Fatal(err)
	}
	if err := two.Lock(); !errors.As(err, &taken) {
		t.Errorf("a lock that is held: %v", err)
	}
	if ok, err := one.Extend(); !ok || err != nil {
		t.Errorf("extend: %v, %v", ok, err)
	}
	if until := time.Until(one.Until()); until < 55*time.Second {
		t.Errorf("extended for %v", until)
	}
	if ok, err := two.Unlock(); ok {
		t.Errorf("released by another: %v", err)
	}
	if ok, err := one.Unlock(); !ok || err != nil {
		t.Errorf("unlock: %v, %v", ok, err)
	}
	if ok, err := one.Unlock(); ok || !errors.Is(err, redsync.ErrLockAlreadyExpired) {
		t.Errorf("unlock twice: %v, %v", ok, err)
	}
	again := locks[0].NewMutex("again", redsync.WithSetNXOnExtend(), redsync.WithExpiry(50*time.Millisecond))
	if err := again.Lock(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(60 * time.Millisecond)
	if ok, err := again.Extend(); !ok || err != nil {
		t.Errorf("extend what has expired: %v, %v", ok, err)
	}

	sum := 0 // guarded by the lock
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			m := locks[i%2].NewMutex("sum", redsync.WithTries(10_000), redsync.WithRetryDelay(time.Millisecond))
			for range 20 {
				if err := m.Lock(); err != nil {
					t.Error(err)
					return
				}
				sum++
				if ok, err := m.Unlock(); !ok || err != nil {
					t.Error("unlock:", ok, err)
					return
				}
			}
		})
	}
	all.Wait()
	if sum != 160 {
		t.Errorf("counted to %d under the lock, want 160", sum)
	}
}

// go-redis speaks RESP3, and pipelines.
func TestGoRedis(t *testing.T) {
	c, ctx := serveRedis(t)[0], t.Context()
	pipe := c.Pipeline()
	for range 100 {
		pipe.Incr(ctx, "n")
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Get(ctx, "n").Int(); n != 100 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := c.Get(ctx, "none").Err(); err != wire.Nil {
		t.Errorf("of none: %v", err)
	}
	if err := c.Set(ctx, "k", "v", 1500*time.Millisecond).Err(); err != nil {
		t.Error(err)
	}
	if ttl, err := c.PTTL(ctx, "k").Result(); err != nil || ttl > 1500*time.Millisecond || ttl < time.Second {
		t.Errorf("PTTL %v, %v", ttl, err)
	}
	var keys []string
	for it := c.Scan(ctx, 0, "*", 10).Iterator(); it.Next(ctx); {
		keys = append(keys, it.Val())
	}
	if len(keys) != 2 {
		t.Errorf("scan: %q", keys)
	}
	if _, err := c.TxPipelined(ctx, func(p wire.Pipeliner) error { return p.Set(ctx, "k", "tx", 0).Err() }); err == nil {
		t.Error("a transaction is served")
	}
	if v, err := c.Get(ctx, "k").Result(); v == "tx" {
		t.Errorf("a part of a transaction was done: %v", err)
	}
	if err := c.MSet(ctx, "a", "1", "b", "2").Err(); err != nil {
		t.Error(err)
	}
	if v, err := c.MGet(ctx, "a", "x", "b").Result(); err != nil || len(v) != 3 || v[0] != "1" || v[1] != nil || v[2] != "2" {
		t.Errorf("MGET: %v, %v", v, err)
	}
}
