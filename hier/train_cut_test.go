package hier_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// A link between two compute nodes is cut for good. The lock goes on all the same: the client that waits behind it finds out after three looks, and the reset
// goes through the other nodes.
func TestTrainOverCutLink(t *testing.T) {
	const recheck, forever = fabric.Millisecond, 100 * fabric.Second
	for _, policy := range []string{"declock", "declock+no-train+train", "declock+no-train"} {
		for _, ways := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, %d ways", policy, ways), func(t *testing.T) {
				longest := fabric.Time(0)
				for pair := range trainNodes * trainNodes {
					from, to := pair/trainNodes, pair%trainNodes
					if from == to || ways == 2 && from > to {
						continue
					}
					longest = max(longest, cutLink(t, policy, from, to, ways, recheck, forever))
				}
				if longest > 3*recheck+20*ms {
					t.Errorf("the longest wait takes %d us", longest/us)
				}
			})
		}
	}
}

// cutLink has all nodes acquire a lock three times each while a link is cut, and returns the longest wait.
func cutLink(t *testing.T, policy string, from, to, ways int, recheck, until fabric.Time) (longest fabric.Time) {
	t.Helper()
	r := newRig(t, 1, trainNodes, policy, roomy, unsynced, waits(recheck, 10*fabric.Second), simulated(sim.Config{}))
	var w witness
	done := 0
	for cn := range trainNodes {
		r.client(cn, name(cn, 0), func(k *hier.Locker) {
			at(k, fabric.Time(3*cn)*us)
			for round := range 3 {
				var h lock.Hold
				began := k.Port().Now()
				acquire(t, k, &h, r.lock(0), modesOfTrain[cn])
				longest = max(longest, k.Port().Now()-began)
				w.enter(t, &h)
				if cn == 0 && round == 0 {
					at(k, 60*us)
				}
				sleep(k, 3*us)
				w.exit(&h)
				must(t, k.Release(&h, nil))
			}
			done++
		})
	}
	r.c.At(50*us, func() {
		a, b := sim.OfCN(fabric.CNID(from+1)), sim.OfCN(fabric.CNID(to+1))
		r.c.Cut(a, b, until)
		if ways == 2 {
			r.c.Cut(b, a, until)
		}
	})
	must(t, r.c.RunUntil(2*fabric.Second))
	if done != trainNodes {
		t.Errorf("cn%d to cn%d: %d of %d nodes are done", from+1, to+1, done, trainNodes)
	}
	r.c.Close()
	return longest
}

// A waiter that stood still makes up for all looks that it has missed, one right after another: that the node before it, which is slow, has not answered in
// between is no cut link.
func TestWaiterThatStoodStill(t *testing.T) {
	r := newRig(t, 1, 2, "declock", roomy, unsynced)
	plain, err := hier.ParsePolicy("declock+no-train") // it asks no one itself
	must(t, err)
	r.addNode(plain)
	var w witness
	r.client(0, "holder", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 0, 2*fabric.Second) })
	r.client(2, "before", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 10*us, 0) })
	r.client(1, "waiter", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 100*us, 0) })
	r.c.Delay(sim.OfCN(3), sim.OfCN(2), ms, 3*fabric.Second)
	r.c.At(50*ms, func() { r.c.Pause(r.nodes[1]) })
	r.c.At(650*ms, func() { r.c.Resume(r.nodes[1]) })
	r.run()
	if n := r.led(); n != 0 {
		t.Errorf("%d resets", n)
	}
}

// A waiter that stands still holds nobody up before its turn, however long the head stands still.
func TestLastOfQueueStandsStill(t *testing.T) {
	for _, policy := range []string{"declock", "declock+no-train"} {
		r := newRig(t, 1, 5, policy, roomy, unsynced)
		var granted [5]fabric.Time
		for cn := range 5 {
			r.client(cn, name(cn, 0), func(k *hier.Locker) {
				at(k, fabric.Time(cn)*100*us)
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				if granted[cn] = k.Port().Now(); cn == 0 {
					sleep(k, 400*ms)
				}
				must(t, k.Release(&h, nil))
			})
		}
		r.c.At(5*ms, func() { r.c.Pause(r.nodes[4]) })
		r.c.At(2005*ms, func() { r.c.Resume(r.nodes[4]) })
		r.run()
		if granted[3] > 401*ms || r.led() > 0 {
			t.Errorf("%s: granted at %v ns, %d resets: those before the one that stands still waited for it", policy, granted, r.led())
		}
	}
}

// Critical sections are longer than the time between looks at a head, and no link is cut: no reset is needed.
func TestLongSectionsCostNoReset(t *testing.T) {
	for _, readers := range []uint64{0, 30} {
		r := newRig(t, readers, 5, "declock", roomy, unsynced)
		for cn := range 5 {
			r.client(cn, name(cn, 0), func(k *hier.Locker) {
				for k.Port().Now() < 15*fabric.Second {
					var h lock.Hold
					m := lock.Exclusive
					if k.Port().Rand()%100 < readers {
						m = lock.Shared
					}
					acquire(t, k, &h, r.lock(0), m)
					if m == lock.Exclusive {
						sleep(k, fabric.Time(k.Port().Rand()%300)*ms)
					}
					must(t, k.Release(&h, nil))
				}
			})
		}
		r.run()
		if n := r.led(); n > 0 {
			t.Errorf("%d %% readers: %d resets", readers, n)
		}
	}
}

// A member of a train has given up, and its grant is behind a link that is cut: its node has no client that looks for it, and all nodes answer the clients that
// wait behind. The lock goes on when one of these has waited for so long that it has any lock reset (docs/limits.md).
func TestAbandonedBehindCutLink(t *testing.T) {
	const reset = 50 * ms
	r := newRig(t, 1, 4, "declock", roomy, unsynced, waits(ms, reset))
	var w witness
	r.client(0, "holds", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 0, 60*us) })
	r.client(1, "first", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 5*us, us) })
	r.client(2, "gives up", func(k *hier.Locker) {
		at(k, 10*us)
		var h lock.Hold
		if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Deadline: 200 * us}); !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("with a deadline: %v", err)
		}
	})
	var granted fabric.Time
	r.client(3, "behind", func(k *hier.Locker) {
		at(k, 15*us)
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		granted = k.Port().Now()
		w.enter(t, &h)
		w.exit(&h)
		must(t, k.Release(&h, nil))
	})
	r.c.Cut(sim.OfCN(2), sim.OfCN(3), fabric.Second)
	must(t, r.c.RunUntil(500*ms))
	if granted == 0 || granted > reset+20*ms || r.led() != 1 {
		t.Errorf("granted at %d us, %d resets", granted/us, r.led())
	}
	r.wantFree(0)
}
