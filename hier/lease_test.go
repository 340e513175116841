package hier_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// A stillNode is a rig in which node 0 stands still from 100 us to 1 ms, and its lease runs out meanwhile. When it goes on, nothing has ended its holds yet: what its clients do
// comes before the news, and before what wakes at the end of the lease.
func stillNode(t *testing.T, policy string) *rig {
	r := newRig(t, 1, 3, policy, cql.Layout{CapacityBits: 4, VersionBits: 16}, replicated, unsynced, silent, simulated(sim.Config{NewsDelay: 20 * us}))
	r.nodes[0].OnFenced = nil
	r.c.At(100*us, func() {
		r.c.Pause(r.nodes[0])
		r.c.Detach(sim.OfCN(r.nodes[0].ID()), 2*ms)
	})
	r.c.At(200*us, func() { r.c.Fence(r.nodes[0]) })
	r.c.At(ms, func() { r.c.Resume(r.nodes[0]) })
	return r
}

// lapsedError checks that an operation says that its lock is lost, or that the node is cut off.
func lapsedError(t *testing.T, what string, err error, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s after the end of the lease: %v, and not %v", what, err, want)
	}
}

// A compute node that stood still beyond its lease hands a lock of a replicated memory node to none of its clients: another node has it by then. The release says so.
func TestLapsedHandover(t *testing.T) {
	for _, policy := range []string{"declock", "declock-tf"} {
		for _, mode := range []lock.Mode{lock.Exclusive, lock.Shared} {
			r := stillNode(t, policy)
			var w witness
			r.client(0, "holder", func(k *hier.Locker) {
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				w.enter(t, &h)
				at(k, 90*us)
				w.exit(&h) // another may be granted it while the node stands still
				at(k, 500*us)
				lapsedError(t, "release", k.Release(&h, nil), lock.ErrLost)
			})
			r.client(0, "waiter", func(k *hier.Locker) {
				at(k, 50*us)
				var h lock.Hold
				lapsedError(t, "grant", k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: mode}), fabric.ErrFenced)
			})
			r.client(1, "other", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 250*us, 900*us) })
			r.run()
			if w.grants != 2 {
				t.Errorf("%s, %v: %d grants", policy, mode, w.grants)
			}
		}
	}
}

// Nor is a client granted the lock that was handed over just before the node stood still.
func TestLapsedOnTheWay(t *testing.T) {
	r := stillNode(t, "declock")
	r.client(0, "holder", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		at(k, 100*us-1)
		must(t, k.Release(&h, nil))
	})
	r.client(0, "waiter", func(k *hier.Locker) {
		at(k, 50*us)
		var h lock.Hold
		lapsedError(t, "grant", k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive}), fabric.ErrFenced)
	})
	r.run()
}

// A holder that asks hears that its lock is lost.
func TestLapsedHolderAsks(t *testing.T) {
	r := stillNode(t, "declock")
	r.client(0, "holder", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		if k.Lost(&h) {
			t.Error("lost before the end of the lease")
		}
		at(k, 1100*us)
		if !k.Lost(&h) {
			t.Error("the lease has run out, and the lock is not lost")
		}
		lapsedError(t, "release", k.Release(&h, nil), lock.ErrLost)
	})
	r.run()
}

// No client joins the readers of a node that stood still beyond its lease.
func TestLapsedReaders(t *testing.T) {
	r := stillNode(t, "declock")
	r.client(0, "reader", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Shared)
		at(k, 1100*us)
		lapsedError(t, "release", k.Release(&h, nil), lock.ErrLost)
	})
	r.client(0, "another", func(k *hier.Locker) {
		at(k, 500*us)
		var h lock.Hold
		lapsedError(t, "joining", k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Shared}), fabric.ErrFenced)
	})
	r.run()
}

// The grant of a message that came while the node stood still is none.
func TestLapsedGrant(t *testing.T) {
	r := stillNode(t, "cql")
	var w witness
	r.client(1, "holder", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 0, 150*us) })
	r.client(0, "waiter", func(k *hier.Locker) {
		at(k, 50*us)
		var h lock.Hold
		lapsedError(t, "grant", k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive}), fabric.ErrFenced)
	})
	r.client(2, "other", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 250*us, 1100*us) })
	r.run()
	if w.grants != 2 {
		t.Errorf("%d grants", w.grants)
	}
}

// A node notices the end of its lease though nothing that it does shows it: holders are notified.
func TestLapsedHolderIsNotified(t *testing.T) {
	r := stillNode(t, "declock")
	r.nodes[0].OnFenced = r.tables[0].Fenced
	var lost []lock.Loss
	r.tables[0].OnLoss = func(l lock.Loss) { lost = append(lost, l) }
	r.client(0, "holder", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		at(k, 1500*us)
		if len(lost) != 1 || lost[0].Lock != r.lock(0) {
			t.Errorf("losses: %v", lost)
		}
		lapsedError(t, "release", k.Release(&h, nil), lock.ErrLost)
	})
	r.run()
}
