package hier_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// Locks of dead nodes must come free in the time of a recheck (100 ms), long before
// ResetAfterNs (10 s) has passed.
const soon = 200 * fabric.Millisecond

// A node crashes with a lock that no client waits for: the next client that wants it gets it soon.
func TestCrashedHolderOfAnIdleLock(t *testing.T) {
	for _, policy := range []string{"cql", "declock"} {
		r := newRig(t, 1, 2, policy, cql.Layout{CapacityBits: 2, VersionBits: 16})
		r.client(0, "holder", func(k *hier.Locker) {
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			sleep(k, fabric.Second)
		})
		r.c.At(fabric.Millisecond, func() { r.c.Kill(r.nodes[0]) })
		r.client(1, "next", func(k *hier.Locker) {
			at(k, 50*fabric.Millisecond) // the death is long known
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			if took := k.Port().Now() - 50*fabric.Millisecond; took > soon {
				t.Errorf("%s: waited %d ms", policy, took/fabric.Millisecond)
			}
			must(t, k.Release(&h, nil))
		})
		if err := r.c.Run(); err != nil {
			t.Fatal(err)
		}
	}
}

// A client comes when the crash of the holder's node is long known, and gives up; no other client wants the lock. The client's ticket, and its ID, are
// not kept until one does.
func TestGiveUpBehindCrashedNode(t *testing.T) {
	for _, policy := range []string{"cql", "declock"} {
		for _, mode := range []lock.Mode{lock.Shared, lock.Exclusive} {
			r := newRig(t, 1, 2, policy, cql.Layout{CapacityBits: 2, VersionBits: 16})
			r.client(0, "holder", func(k *hier.Locker) {
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				sleep(k, fabric.Second)
			})
			r.c.At(fabric.Millisecond, func() { r.c.Kill(r.nodes[0]) })
			r.client(1, "gives up", func(k *hier.Locker) {
				at(k, 50*fabric.Millisecond)
				var h lock.Hold
				if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: mode, Deadline: 10 * us}); !errors.Is(err, lock.ErrTimeout) {
					t.Errorf("%s %v: %v", policy, mode, err)
				}
			})
			if err := r.c.RunUntil(51 * fabric.Millisecond); err != nil {
				t.Fatal(err)
			}
			if left, ids := r.tables[1].Len(), r.nodes[1].Abandoned(); left+ids != 0 {
				t.Errorf("%s %v: %d local locks and %d client IDs are left", policy, mode, left, ids)
			}
		}
	}
}

// A node dies while it waits; a survivor queues behind it after the death is
// known. The grant that cannot be sent makes the lock be reset.
func TestCrashedWaiterInTheQueue(t *testing.T) {
	r := newRig(t, 1, 3, "declock", cql.Layout{CapacityBits: 2, VersionBits: 16})
	r.client(0, "holder", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		at(k, 60*fabric.Millisecond)
		must(t, k.Release(&h, nil))
	})
	r.client(1, "dies", func(k *hier.Locker) {
		at(k, 100*fabric.Microsecond)
		var h lock.Hold
		_ = k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive})
	})
	r.c.At(fabric.Millisecond, func() { r.c.Kill(r.nodes[1]) })
	r.client(2, "behind", func(k *hier.Locker) {
		at(k, 50*fabric.Millisecond)
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		if took := k.Port().Now() - 50*fabric.Millisecond; took > soon {
			t.Errorf("waited %d ms", took/fabric.Millisecond)
		}
		must(t, k.Release(&h, nil))
	})
	if err := r.c.Run(); err != nil {
		t.Fatal(err)
	}
}

// A node that joins and leaves is no death: nothing is reset.
func TestLeavingIsNoCrash(t *testing.T) {
	r := newRig(t, 1, 3, "declock", cql.Layout{CapacityBits: 2, VersionBits: 16})
	for cn := range 2 {
		r.client(cn, name(cn, 0), func(k *hier.Locker) {
			var h lock.Hold
			for range 300 {
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				sleep(k, 5*fabric.Microsecond)
				must(t, k.Release(&h, nil))
			}
		})
	}
	r.c.At(fabric.Millisecond, func() { must(t, r.nodes[2].Close()) })
	r.run()
	if n := r.led(); n != 0 {
		t.Errorf("%d resets", n)
	}
}

// A reader that gives up does not let another reader in that waits, as it must,
// behind a writer of another node (the bounded policies).
func TestLeaverKeepsTheOrder(t *testing.T) {
	for _, policy := range []string{"declock", "declock-pf", "declock-tf"} {
		r := newRig(t, 1, 2, policy, cql.Layout{CapacityBits: 2, VersionBits: 16}, unsynced)
		var writer, third fabric.Time
		r.client(0, "first", func(k *hier.Locker) {
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Shared)
			at(k, 2*fabric.Millisecond)
			must(t, k.Release(&h, nil))
		})
		r.client(1, "writer", func(k *hier.Locker) {
			at(k, 100*fabric.Microsecond)
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			writer = k.Port().Now()
			must(t, k.Release(&h, nil))
		})
		r.client(0, "opener", func(k *hier.Locker) { // opens the window in which readers join without looking
			at(k, 1100*fabric.Microsecond)
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Shared)
			at(k, 2*fabric.Millisecond)
			must(t, k.Release(&h, nil))
		})
		r.client(0, "leaver", func(k *hier.Locker) {
			at(k, 1200*fabric.Microsecond)
			var h lock.Hold
			req := lock.Request{Lock: r.lock(0), Mode: lock.Shared, Deadline: 1500 * fabric.Microsecond}
			if err := k.Acquire(&h, &req); err == nil {
				t.Errorf("%s: a reader passed a writer that waits", policy)
				must(t, k.Release(&h, nil))
			}
		})
		r.client(0, "third", func(k *hier.Locker) {
			at(k, 1300*fabric.Microsecond)
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Shared)
			third = k.Port().Now()
			must(t, k.Release(&h, nil))
		})
		r.run()
		if writer == 0 || third < writer {
			t.Errorf("%s: the third reader got the lock at %d ns, the writer at %d ns", policy, third, writer)
		}
	}
}

// A release that the fabric fails leaves a ticket that the header counts; a reader's may lie before the head. A client that
// comes next is granted soon.
func TestReleaseThatFailed(t *testing.T) {
	for _, mode := range []lock.Mode{lock.Exclusive, lock.Shared} {
		r := newRig(t, 1, 3, "declock-tf", small, silent)
		failed := false
		r.c.Go(r.nodes[0], "fails", func(p fabric.Port) {
			k := r.hooked(0, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
				if p.Now() > 90*us && !failed && ops[0].Kind == fabric.OpFAA {
					failed = true
					return &fabric.ChainError{Index: 0, Op: ops[0], Err: fabric.ErrNodeDown} // the connection is away for a moment
				}
				return p.Do(ops)
			}})
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), mode)
			at(k, 100*us)
			if err := k.Release(&h, nil); !errors.Is(err, fabric.ErrNodeDown) || !strings.Contains(err.Error(), fmt.Sprintf("token %v", h.Token)) {
				t.Errorf("%v: Release: %v", mode, err)
			}
		})
		if mode == lock.Shared {
			r.client(1, "reader", func(k *hier.Locker) { // it takes the head past the other
				at(k, 50*us)
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Shared)
				at(k, 60*us)
				must(t, k.Release(&h, nil))
			})
		}
		r.client(2, "writer", func(k *hier.Locker) {
			at(k, 20*ms)
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			if took := k.Port().Now() - 20*ms; took > soon {
				t.Errorf("%v: the next waited %d ms", mode, took/ms)
			}
			must(t, k.Release(&h, nil))
		})
		r.run()
	}
}

// A node that joins after a death finds the dead one's locks as soon as the others.
func TestJoinAfterACrash(t *testing.T) {
	r := newRig(t, 1, 2, "declock", cql.Layout{CapacityBits: 2, VersionBits: 16})
	r.client(0, "holder", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		sleep(k, fabric.Second)
	})
	r.c.At(ms, func() { r.c.Kill(r.nodes[0]) })
	r.c.At(50*ms, func() {
		p, err := hier.ParsePolicy("declock")
		must(t, err)
		r.addNode(p)
		r.client(2, "late", func(k *hier.Locker) {
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			if took := k.Port().Now() - 50*ms; took > soon {
				t.Errorf("waited %d ms", took/ms)
			}
			must(t, k.Release(&h, nil))
		})
	})
	r.client(1, "idle", func(k *hier.Locker) { at(k, 60*ms) })
	if err := r.c.Run(); err != nil {
		t.Fatal(err)
	}
}
