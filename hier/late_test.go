package hier_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// askReset has the agent of a node reset a lock, as one whose operation had an unknown outcome would.
func askReset(r *rig, node int, k *hier.Locker, l fabric.Addr) {
	var s lock.Stats
	cql.NewClient(k.Port(), r.nodes[node], r.cfg.Layout, r.cfg.CQL, &s).AskReset(l, 0, cql.UnknownOutcome)
}

// wantLeft reports an error if a node does not say within a second that it has left some locks.
func wantLeft(t *testing.T, k *hier.Locker, some func(fabric.Addr) bool) {
	t.Helper()
	var begun uint64
	for range 1000 {
		if k.Left(&begun, some) {
			return
		}
		sleep(k, ms)
	}
	t.Errorf("cn%d has not left", k.Port().ID().CN())
}

// Node 1 leads a reset. Node 2 has answered, and reminds node 1 of it while its messages to node 1 are held up for 5 s; node 3 answers last, and the
// reset ends. All nodes have left the lock; its memory becomes something else. Then the reminder arrives: it changes nothing there.
func TestLateReminderResetsNothing(t *testing.T) {
	r := newRig(t, 1, 3, "declock", small, unsynced, silent)
	l := r.lock(0)
	r.client(2, "reads for long", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, l, lock.Shared)
		at(k, 60*ms)
		must(t, k.Release(&h, nil))
		at(k, 1100*ms)
		wantLeft(t, k, anyLock)
	})
	r.client(1, "reads", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, l, lock.Shared)
		at(k, 5*ms)
		must(t, k.Release(&h, nil))
		at(k, 6*ms) // refused, and waits for the end of the reset
		acquire(t, k, &h, l, lock.Exclusive)
		must(t, k.Release(&h, nil))
		at(k, 1100*ms)
		wantLeft(t, k, anyLock)
	})
	r.client(0, "asks", func(k *hier.Locker) {
		at(k, 2*ms)
		askReset(r, 0, k, l)
		at(k, 1100*ms)
		wantLeft(t, k, anyLock)
	})
	r.c.At(10*ms, func() { r.c.Delay(sim.OfCN(2), sim.OfCN(1), 5000*ms, 1000*ms) })
	const words, theirs = 5, 0x7777777777777777
	r.c.At(2000*ms, func() { // the first word would be the header of a lock that is free
		var b [8 * words]byte
		for i := 8; i < len(b); i++ {
			b[i] = 0x77
		}
		r.c.Poke(l, b[:])
	})
	must(t, r.c.RunUntil(8000*ms))
	for i := uint64(0); i < words; i++ {
		want := uint64(theirs)
		if i == 0 {
			want = 0
		}
		if w := r.c.PeekWord(l.Add(8 * i)); w != want {
			t.Errorf("word %d of the new owner is %#x, want %#x", i, w, want)
		}
	}
}

// abandonedOverRestart makes a rig in which a client of node 0 gives up its wait for a lock, and the memory node restarts with its memory when the grant
// is on its way: that comes at 14 ms.
func abandonedOverRestart(t *testing.T, opts ...option) *rig {
	t.Helper()
	var r *rig
	delays := wrapped(func(p fabric.Port) fabric.Port {
		if p.ID().CN() != 2 || p.ID().IsAgent() {
			return p
		}
		return &hookPort{Port: p, send: func(p fabric.Port, to fabric.ClientID, m *fabric.Message) error {
			if m.Kind == kindGrant {
				r.c.Delay(sim.OfCN(2), sim.OfCN(1), 10*ms, p.Now()+ms)
				r.c.At(5*ms, func() { r.c.RestartServer(r.mn) })
			}
			return p.Send(to, m)
		}}
	})
	r = newRig(t, 1, 2, "declock", small, append(opts, unsynced, silent, delays)...)
	r.client(1, "holder", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		at(k, 4*ms)
		must(t, k.Release(&h, nil))
	})
	r.client(0, "gives up", func(k *hier.Locker) {
		at(k, ms)
		var h lock.Hold
		if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Deadline: 3 * ms}); !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("with a deadline: %v", err)
		}
	})
	return r
}

// Another client of node 0 tries the lock before the grant comes: it takes the abandoned ticket over, is refused, and must not leave the
// ticket in the queue for ever.
func TestTryTakesTicketOver(t *testing.T) {
	r := abandonedOverRestart(t)
	r.client(0, "tries", func(k *hier.Locker) {
		var h lock.Hold
		try := func() error { return k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Try: true}) }
		at(k, 6*ms)
		if err := try(); !errors.Is(err, lock.ErrBusy) {
			t.Errorf("first try: %v", err)
		}
		at(k, 1000*ms)
		if err := try(); err != nil {
			t.Errorf("a second later: %v", err)
			return
		}
		must(t, k.Release(&h, nil))
	})
	must(t, r.c.RunUntil(2000*ms))
	r.wantFree(0)
}

// Node 0's agent takes the grant, and is the first of its node to notice the restart: it must have the lock reset, for no client of the node comes again.
func TestAgentNoticesRestartFirst(t *testing.T) {
	r := abandonedOverRestart(t, func(r *rig) { r.cfg.Verify = func(fabric.MemID) (uint32, error) { return 0, nil } })
	must(t, r.c.RunUntil(1000*ms))
	r.wantFree(0)
}

// A reset waits for a holder of node 0 when the memory is lost, and node 0's agent attaches to the new memory. The holder releases: the reset of before
// keeps node 0 no longer.
func TestHolderOfLostMemoryLeaves(t *testing.T) {
	gen := uint32(0)
	r := newRig(t, 1, 2, "declock", small, unsynced, silent, func(r *rig) {
		r.cfg.Verify = func(fabric.MemID) (uint32, error) { return gen, nil }
	})
	r.c.At(3*ms, func() { gen++; r.c.RestartMN(r.mn) })
	use := func(k *hier.Locker) {
		_ = k.Attach(r.mn) // says that what was there is lost
		var h lock.Hold
		acquire(t, k, &h, r.lock(1).In(1), lock.Exclusive)
		must(t, k.Release(&h, nil))
	}
	r.client(0, "holder", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		at(k, 10*ms)
		if err := k.Release(&h, nil); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release of a lock in lost memory: %v", err)
		}
		at(k, 20*ms)
		use(k)
		wantLeft(t, k, anyLock)
	})
	r.client(0, "user", func(k *hier.Locker) {
		at(k, 5*ms)
		use(k)
	})
	r.client(1, "asks", func(k *hier.Locker) {
		at(k, 2*ms)
		askReset(r, 1, k, r.lock(0))
		at(k, 1500*ms)
	})
	must(t, r.c.RunUntil(2000*ms))
}

// Node 0's agent cannot look at the new memory for a moment, when the signal of node 1's reset there comes: it answers all the same, for it knows what its
// own node has.
func TestSignalIsAnsweredWhileMemoryIsUnreachable(t *testing.T) {
	gen, fail := uint32(0), false
	r := newRig(t, 1, 2, "declock", small, unsynced, silent, func(r *rig) {
		r.cfg.Verify = func(fabric.MemID) (uint32, error) {
			if fail {
				return 0, fmt.Errorf("%w: cut off", fabric.ErrNodeDown)
			}
			return gen, nil
		}
	})
	r.c.At(3*ms, func() { gen++; r.c.RestartMN(r.mn) })
	l := r.lock(0).In(1)
	r.client(1, "asks", func(k *hier.Locker) {
		at(k, 4*ms)
		_ = k.Attach(r.mn) // says that what was there is lost
		var h lock.Hold
		acquire(t, k, &h, l, lock.Exclusive)
		must(t, k.Release(&h, nil))
		fail = true
		at(k, 5*ms)
		askReset(r, 1, k, l)
		at(k, 6*ms)
		fail = false
		at(k, 1000*ms)
		wantLeft(t, k, anyLock)
		must(t, k.Acquire(&h, &lock.Request{Lock: l, Mode: lock.Exclusive, Try: true}))
		must(t, k.Release(&h, nil))
	})
	must(t, r.c.RunUntil(3000*ms))
}

// A memory node goes for good while a node owes an answer to a reset there. Locks on another memory node are left all the same.
func TestResetOnOneMemoryNodeKeepsNoOther(t *testing.T) {
	r := newRig(t, 1, 2, "declock", small, unsynced, silent, wrapped(func(p fabric.Port) fabric.Port {
		if p.ID() != fabric.AgentOf(1) {
			return p
		}
		return &hookPort{Port: p, do: func(p fabric.Port, ops []fabric.Op) error {
			if ops[0].Addr.MN() == 1 {
				return &fabric.ChainError{Op: ops[0], Err: fabric.ErrNodeDown}
			}
			return p.Do(ops)
		}}
	}))
	gone := r.c.AddMN(1 << 20)
	l := fabric.At(gone, locksAt)
	elsewhere := func(a fabric.Addr) bool { return a.MN() == r.mn }
	r.c.Go(r.nodes[0], "holder", func(p fabric.Port) {
		hook := &hookPort{}
		k := r.hooked(0, p, hook)
		var h lock.Hold
		acquire(t, k, &h, l, lock.Exclusive)
		hook.do = func(_ fabric.Port, ops []fabric.Op) error {
			return &fabric.ChainError{Op: ops[0], Err: fabric.ErrUnknownOutcome}
		}
		if err := k.Release(&h, nil); err == nil {
			t.Error("released")
		}
		hook.do = nil
		at(k, 1000*ms)
		wantLeft(t, k, elsewhere)
	})
	r.client(1, "asks", func(k *hier.Locker) {
		at(k, 2*ms)
		askReset(r, 1, k, l)
		at(k, 1000*ms)
		wantLeft(t, k, elsewhere)
	})
	r.c.At(10*ms, func() { r.c.KillMN(gone) })
	must(t, r.c.RunUntil(3000*ms))
}
