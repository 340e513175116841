package declock

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/lock"
)

// Lock acquires a lock exclusively, for any goroutine: it takes a session from a pool, which the Guard keeps until Unlock, by this or another goroutine. If
// ctx ends first, the error is that of [Session.Lock], and the lock is not held, now or later.
//
// As with a sync.Mutex, to lock what the goroutine holds already is to wait for ever, or until ctx ends. If WithLockSessions has been reached, Lock waits for a session first:
// see ErrNoSession.
func (c *Cluster) Lock(ctx context.Context, id LockID) (Guard, error) {
	return c.acquire(ctx, id, lock.Request{Mode: lock.Exclusive})
}

// RLock is [Cluster.Lock], shared with others.
func (c *Cluster) RLock(ctx context.Context, id LockID) (Guard, error) {
	return c.acquire(ctx, id, lock.Request{Mode: lock.Shared})
}

// TryLock acquires a lock exclusively if it is free: else lock.ErrBusy. ctx bounds the wait for a session.
func (c *Cluster) TryLock(ctx context.Context, id LockID) (Guard, error) {
	return c.acquire(ctx, id, lock.Request{Mode: lock.Exclusive, Try: true})
}

// TryRLock acquires a lock shared unless it is held, or waited for, exclusively: then lock.ErrBusy. ctx bounds the wait for a session.
func (c *Cluster) TryRLock(ctx context.Context, id LockID) (Guard, error) {
	return c.acquire(ctx, id, lock.Request{Mode: lock.Shared, Try: true})
}

func (c *Cluster) acquire(ctx context.Context, id LockID, r lock.Request) (Guard, error) {
	w, err := c.guards.take(ctx)
	if err != nil {
		return Guard{}, err
	}
	g, err := w.s.acquire(ctx, id, r)
	if err != nil {
		c.guards.give(w)
		return g, err
	}
	g.serial |= pooled
	return g, nil
}

// LockAll acquires several locks, all or none, as [Session.LockAll] does, for any goroutine. Guards.Unlock releases them, by this or another
// goroutine. ctx bounds the wait for a session, and timeouts run from then on.
func (c *Cluster) LockAll(ctx context.Context, wants ...Want) (Guards, error) {
	w, err := c.guards.take(ctx)
	if err != nil {
		return Guards{}, err
	}
	g, err := w.s.LockAll(ctx, wants...)
	if err != nil {
		c.guards.give(w)
		return g, err
	}
	g.w, g.unlocked = w, new(atomic.Bool)
	return g, nil
}

// Locker returns a lock as a sync.Locker: for what takes one, such as sync.NewCond. It waits for as long as it takes. Lock and Unlock panic with the error of
// [Cluster.Lock] and [Guard.Unlock] where these fail, as when the lock has been lost: programs that go on then use these.
func (c *Cluster) Locker(id LockID) sync.Locker {
	return &locker{lock: func(ctx context.Context) (Guard, error) { return c.Lock(ctx, id) }}
}

type locker struct {
	lock func(context.Context) (Guard, error)
	held Guard // guarded by the lock
}

// Lock implements sync.Locker.
func (l *locker) Lock() {
	g, err := l.lock(context.Background())
	if err != nil {
		panic(err)
	}
	l.held = g
}

// Unlock implements sync.Locker.
func (l *locker) Unlock() {
	g := l.held
	l.held = Guard{}
	if err := g.Unlock(); err != nil {
		panic(err)
	}
}
