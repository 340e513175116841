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

// A client gives up while another node holds the lock, and its node leaves: the grant that comes for its ticket would go to no client. Others
// get the lock at once all the same, whether they wait behind the ticket or come later, and whether another node has the number by then.
func TestLeaveWithAnAbandonedTicket(t *testing.T) {
	for _, policy := range []string{"cql", "declock", "declock-tf", "remote-prefer"} {
		for _, mode := range []lock.Mode{lock.Shared, lock.Exclusive} {
			for _, behind := range []bool{false, true} {
				for _, again := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s %v, behind %v, again %v", policy, mode, behind, again), func(t *testing.T) {
						leaveWithATicket(t, policy, mode, behind, again)
					})
				}
			}
		}
	}
}

func leaveWithATicket(t *testing.T, policy string, mode lock.Mode, behind, again bool) {
	const unlocked = 5 * ms
	r := newRig(t, 1, 3, policy, small, unsynced, waits(ms, fabric.Forever/4))
	r.left = func(n *sim.Node, clean bool) {
		if !clean || r.tables[0].Len() != 0 {
			t.Errorf("left with %d local locks, %v", r.tables[0].Len(), clean)
		}
		must(t, n.Close())
		if again {
			p, _ := hier.ParsePolicy(policy)
			r.addNode(p)
			if id := r.nodes[3].ID(); id != n.ID() {
				t.Errorf("number %v again, after %v", id, n.ID())
			}
		}
	}
	var w witness
	r.client(1, "holds", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		w.enter(t, &h)
		at(k, unlocked)
		w.exit(&h)
		must(t, k.Release(&h, nil))
	})
	r.client(0, "gives up", func(k *hier.Locker) {
		at(k, 20*us)
		var h lock.Hold
		if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: mode, Deadline: 50 * us}); !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("with a deadline: %v", err)
		}
		at(k, 100*us)
		must(t, k.Port().Close())
		r.nodes[0].Agent().Interrupt()
	})
	r.client(2, "gets it", func(k *hier.Locker) {
		at(k, 80*us)
		if !behind {
			at(k, unlocked+ms)
		}
		begun := k.Port().Now()
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		if took := k.Port().Now() - max(begun, unlocked); took > 50*ms {
			t.Errorf("granted after %d us", took/us)
		}
		w.enter(t, &h)
		sleep(k, us)
		w.exit(&h)
		must(t, k.Release(&h, nil))
	})
	r.run()
	r.wantFree(0)
}

// A ticket that cannot be given back, because the memory node does not answer, has the node leave as one that has crashed.
func TestLeaveOfANodeThatCannotGiveBack(t *testing.T) {
	r := newRig(t, 1, 2, "declock", small, unsynced, silent, waits(ms, fabric.Forever/4))
	left := fabric.Time(0)
	r.left = func(n *sim.Node, clean bool) {
		if left = r.c.Now(); clean {
			t.Error("nothing is left, it says")
		}
		must(t, n.Fail())
	}
	r.client(1, "holds", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		at(k, fabric.Second)
	})
	r.client(0, "gives up", func(k *hier.Locker) {
		at(k, 20*us)
		var h lock.Hold
		if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Deadline: 50 * us}); !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("with a deadline: %v", err)
		}
		r.c.KillMN(r.mn)
		must(t, k.Port().Close())
		r.nodes[0].Agent().Interrupt()
	})
	if err := r.c.Run(); err != nil {
		t.Fatal(err)
	}
	if left < hier.LeaveNs || left > hier.LeaveNs+10*ms {
		t.Errorf("left after %d us", left/us)
	}
	if lost := r.nodes[1].View().Lost; lost != 1 {
		t.Errorf("the others have lost %d nodes", lost)
	}
}

// A client is closed while it waits: its ticket is given back when the node leaves.
func TestLeaveAfterAWaiterWasClosed(t *testing.T) {
	for _, policy := range []string{"cql", "declock"} {
		r := newRig(t, 1, 2, policy, small, unsynced, waits(ms, fabric.Forever/4))
		r.left = func(n *sim.Node, clean bool) {
			if !clean {
				t.Error("something is left")
			}
			must(t, n.Close())
			r.left = nil
			p, _ := hier.ParsePolicy(policy)
			r.addNode(p) // else the releasing node finds that no node has the number
		}
		r.client(1, "holds", func(k *hier.Locker) {
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			at(k, 5*ms)
			must(t, k.Release(&h, nil))
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			if now := k.Port().Now(); now > 50*ms {
				t.Errorf("granted at %d us", now/us)
			}
			must(t, k.Release(&h, nil))
		})
		r.client(0, "closed", func(k *hier.Locker) {
			at(k, 20*us)
			r.c.At(50*us, func() { _ = k.Port().Close() })
			r.c.At(100*us, r.nodes[0].Agent().Interrupt)
			var h lock.Hold
			if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive}); !errors.Is(err, fabric.ErrClosed) || h.Held {
				t.Errorf("while it is closed: %v", err)
			}
		})
		r.run()
		r.wantFree(0)
	}
}
