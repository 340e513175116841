package declock

import (
	"context"
	"sync"

	"github.com/declock/declock/lock"
)

// shellNames is the table of [Cluster.Named], and of `declock lock`.
const shellNames = "shell"

// A Named is the lock of a name: see [Cluster.Named]. Any goroutine may use it.
type Named struct {
	c    *Cluster
	name string
}

// Named returns the lock of a name, as in c.Named("orders/17").Lock(ctx), which needs no table: it is that of the name in the table "shell" of [Cluster.Names], which `declock lock` uses as well.
func (c *Cluster) Named(name string) Named { return Named{c, name} }

// Lock is [Names.Lock].
func (n Named) Lock(ctx context.Context) (Guard, error) {
	return n.acquire(ctx, lock.Request{Mode: lock.Exclusive})
}

// RLock is [Names.RLock].
func (n Named) RLock(ctx context.Context) (Guard, error) {
	return n.acquire(ctx, lock.Request{Mode: lock.Shared})
}

// TryLock is [Names.TryLock].
func (n Named) TryLock(ctx context.Context) (Guard, error) {
	return n.acquire(ctx, lock.Request{Mode: lock.Exclusive, Try: true})
}

// TryRLock is [Names.TryRLock].
func (n Named) TryRLock(ctx context.Context) (Guard, error) {
	return n.acquire(ctx, lock.Request{Mode: lock.Shared, Try: true})
}

// Locker returns the lock as a sync.Locker, as [Cluster.Locker] does that of a LockID.
func (n Named) Locker() sync.Locker { return &locker{lock: n.Lock} }

func (n Named) acquire(ctx context.Context, r lock.Request) (Guard, error) {
	x := n.c.named.Load()
	if x == nil || x.locks.dropped.Load() {
		var err error
		if x, err = n.c.Names(ctx, shellNames, 0); err != nil {
			return Guard{}, err
		}
		n.c.named.Store(x)
	}
	return x.acquire(ctx, n.name, r)
}
