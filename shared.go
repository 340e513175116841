package declock

import (
	"context"
	"errors"
	"sync/atomic"
)

// A shared is what stores and trees have for goroutines without a session of their own: each operation takes one from the cluster's pool.
type shared[K collectionClient] struct {
	c        *Cluster
	number   uint64        // of no other store or tree of this process
	notified atomic.Uint32 // losses that a client has been notified of
	losses   func() uint32
	open     func(*Session) (K, error)
	trim     func(K) // gives up the memory of large values, after an operation; nil: there is none
	count    func(K) // takes over what a client that is not in use has counted; nil: nothing
}

// A pooledClient is one of a worker.
type pooledClient struct {
	collectionClient
	count func()
}

func (k pooledClient) close() {
	k.count()
	k.Close()
}

// lastShared is the number of the last one that was made.
var lastShared atomic.Uint64

// share makes x that of a store or tree, whose losses are counted by losses, and whose clients open opens.
func (x *shared[K]) share(c *Cluster, losses func() uint32, open func(*Session) (K, error)) {
	x.c, x.number, x.losses, x.open = c, lastShared.Add(1), losses, open
}

// do calls f with a client that no other goroutine uses meanwhile. The end of ctx ends the wait for a session, and what f waits for.
func (x *shared[K]) do(ctx context.Context, f func(K) error) error {
	w, err := x.c.work.take(ctx)
	if err != nil {
		return err
	}
	return x.with(ctx, w, f)
}

// apart is do with a session that is opened for f alone, and is none of the pool's: what f waits for may use those.
func (x *shared[K]) apart(ctx context.Context, f func(K) error) error {
	w := &worker{home: &pool{c: x.c}}
	if err := w.renew(ctx); err != nil {
		return err
	}
	defer w.end(ctx)
	return x.with(ctx, w, f)
}

// with is do with a worker that has been taken.
func (x *shared[K]) with(ctx context.Context, w *worker, f func(K) error) (err error) {
	begun, err := w.s.s.Begin(ctx)
	if err != nil {
		w.home.give(w)
		return err
	}
	var k pooledClient
	defer func() { err = x.end(ctx, w, k, begun, err) }() // also when f panics
	if k, err = x.client(w); err != nil {
		return err
	}
	return f(k.collectionClient.(K))
}

// end ends what do has begun, and returns its error.
func (x *shared[K]) end(ctx context.Context, w *worker, k pooledClient, begun int, err error) error {
	if w.s.use.Busy() { // f has panicked in the middle of an operation
		w.home.lose()
		return err
	}
	if begun != 0 {
		err = w.s.s.End(ctx, begun, err)
	}
	opened := k.collectionClient != nil
	switch {
	case err == nil:
	case errors.Is(err, ErrMemoryLost):
		x.notified.Store(x.losses())
	case opened && dropped(err):
		k.close()
		delete(w.clients, x.number)
	}
	if opened && x.trim != nil && (err == nil || !errors.Is(err, ErrClosed)) {
		x.trim(k.collectionClient.(K)) // whatever came of it: a value that was not stored has needed memory, too
	}
	w.home.give(w)
	return err
}

// client returns a worker's client. A loss that has been reported before is not again, by the client that is the first to work on what is left.
func (x *shared[K]) client(w *worker) (pooledClient, error) {
	if k, ok := w.clients[x.number]; ok {
		return k, nil
	}
	known := x.losses()
	reported := x.notified.Load() == known
	k, err := x.open(w.s)
	if reported && errors.Is(err, ErrMemoryLost) && x.losses() == known {
		k, err = x.open(w.s)
	}
	if err != nil {
		return pooledClient{}, err
	}
	pooled := pooledClient{k, func() {
		if x.count != nil {
			x.count(k)
		}
	}}
	w.clients[x.number] = pooled
	return pooled, nil
}
