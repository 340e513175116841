package hier_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// kindQuiesced is of the message that a participant sends to its agent when it has let go of a lock that is being reset (package cql).
const kindQuiesced = fabric.MsgCQL + 6

// A reset concerns the tickets below the index that it names. The signal may come late: a holder or waiter with that index is of
// after the reset.
func TestFreezeLeavesTicketsOfAfterTheReset(t *testing.T) {
	r := newRig(t, 1, 1, "declock", small, unsynced)
	r.setHeader(0, r.cfg.Layout.Header(7, 0, 0, 0))
	quiesced := 0
	r.c.Go(r.nodes[0], "holder", func(p fabric.Port) {
		k := r.hooked(0, p, &hookPort{send: countQuiesced(&quiesced)})
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		if busy, _ := r.agents[0].Freeze(r.lock(0), 7, nil); busy != 0 {
			t.Errorf("a reset of indices below 7 waits for %d holders of index 7", busy)
		}
		if busy, _ := r.agents[0].Freeze(r.lock(0), 8, nil); busy != 1 {
			t.Errorf("a reset of indices below 8 waits for %d holders of index 7", busy)
		}
		must(t, k.Release(&h, nil))
	})
	r.run()
	if quiesced != 1 {
		t.Errorf("%d holders let go", quiesced)
	}
}

func countQuiesced(n *int) func(p fabric.Port, to fabric.ClientID, m *fabric.Message) error {
	return func(p fabric.Port, to fabric.ClientID, m *fabric.Message) error {
		if m.Kind == kindQuiesced {
			*n++
		}
		return p.Send(to, m)
	}
}

// A client of the node that acquires a lock anew after a reset does not answer for that reset again: another one of the same lock
// would count it for a holder of its own.
func TestQuiescedOnceForAReset(t *testing.T) {
	r := newRig(t, 1, 1, "declock", small, unsynced)
	quiesced := 0
	for i := range 3 {
		r.c.Go(r.nodes[0], name(0, i), func(p fabric.Port) {
			k := r.hooked(0, p, &hookPort{send: countQuiesced(&quiesced)})
			at(k, fabric.Time(i)*10*us)
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			if i == 0 {
				at(k, 50*us) // the others wait here
				if busy, _ := r.agents[0].Freeze(r.lock(0), 1, nil); busy != 1 {
					t.Errorf("%d busy", busy)
				}
			}
			must(t, k.Release(&h, nil))
		})
	}
	r.run()
	if quiesced != 1 {
		t.Errorf("%d let go of a lock that one held", quiesced)
	}
	r.wantFree(0)
}

// The grant of all readers up to an index comes while one of them writes its entry: it is granted as soon as it has written it, and does
// not wait until it looks at the lock again.
func TestGrantWhileTheEntryIsWritten(t *testing.T) {
	r := newRig(t, 1, 1, "declock", small, unsynced)
	y := r.cfg.Layout
	r.setHeader(0, y.Header(0, 1, 1, 0)) // a writer that no node has
	r.c.Go(r.nodes[0], "reader", func(p fabric.Port) {
		k := r.hooked(0, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
			if err := p.Do(ops); err != nil || len(ops) != 1 || ops[0].Kind != fabric.OpWrite {
				return err
			}
			r.setHeader(0, y.Header(1, 1, 0, 0)) // the writer has released the lock
			r.agents[0].Granted(r.lock(0), 1, 2)
			return nil
		}})
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Shared)
		if now := k.Port().Now(); now > ms {
			t.Errorf("granted at %d us", now/us)
		}
		must(t, k.Release(&h, nil))
	})
	r.run()
	r.wantFree(0)
}

// While a reset waits for a node to let go, no reader joins those who hold the lock, whether it comes then or has waited before:
// readers in turn would keep the reset waiting for ever.
func TestNoReaderJoinsInAReset(t *testing.T) {
	for _, waited := range []bool{false, true} {
		t.Run(map[bool]string{false: "comes", true: "has waited"}[waited], func(t *testing.T) {
			r := newRig(t, 1, 1, "paper-pf", small, unsynced)
			freeze := func() {
				if busy, _ := r.agents[0].Freeze(r.lock(0), 1, nil); busy != 1 {
					t.Errorf("%d busy", busy)
				}
			}
			released := fabric.Time(0)
			r.c.Go(r.nodes[0], "holder", func(p fabric.Port) {
				k := r.hooked(0, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
					err := p.Do(ops)
					if waited && p.Now() < 20*us { // it has the lock, and does not know yet
						_ = p.Pause(40 * us)
						freeze()
					}
					return err
				}})
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Shared)
				if !waited {
					freeze()
				}
				at(k, 100*us)
				released = k.Port().Now()
				must(t, k.Release(&h, nil))
			})
			r.client(0, "reader", func(k *hier.Locker) {
				at(k, 30*us)
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Shared)
				if released == 0 {
					t.Errorf("a reader got the lock at %d us, in the reset", k.Port().Now()/us)
				}
				must(t, k.Release(&h, nil))
			})
			r.run()
			r.wantFree(0)
		})
	}
}

// A holder whose operations failed leaves no note: what it says of the memory may not be so.
func TestNoHandoffOfAFailedRelease(t *testing.T) {
	r := newRig(t, 1, 1, "declock", valueLayout, unsynced)
	fails := false
	r.c.Go(r.nodes[0], "before", func(p fabric.Port) {
		k := r.hooked(0, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
			if fails {
				fails = false
				return fabric.ErrNodeDown
			}
			return p.Do(ops)
		}})
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		at(k, 20*us)
		h.Handoff, fails = []byte{1}, true
		if err := k.Release(&h, []fabric.Op{fabric.Store(r.data(0), 1)}); !errors.Is(err, fabric.ErrNodeDown) {
			t.Errorf("released: %v", err)
		}
	})
	r.client(0, "next", func(k *hier.Locker) {
		at(k, 10*us)
		var h lock.Hold
		q := lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Handoff: make([]byte, 8)}
		must(t, k.Acquire(&h, &q))
		if q.HandoffLen != 0 {
			t.Errorf("a note of %d bytes of a holder whose operations failed", q.HandoffLen)
		}
		must(t, k.Release(&h, nil))
	})
	r.run()
}

// The memory node restarts between the grant and its arrival at the client: the client does not hold a lock of before the
// restart, of which no client was notified. It begins again.
func TestGrantFromBeforeARestart(t *testing.T) {
	for _, policy := range []string{"declock", "paper-tf", "cql"} {
		t.Run(policy, func(t *testing.T) {
			r := newRig(t, 1, 1, policy, small, unsynced, silent, waits(200*us, 10*ms))
			first := true
			r.c.Go(r.nodes[0], "client", func(p fabric.Port) {
				k := r.hooked(0, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
					err := p.Do(ops)
					if first {
						first = false
						_ = p.Pause(100 * us)
					}
					return err
				}})
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				must(t, k.Port().Do([]fabric.Op{fabric.Store(r.data(0), 1)}))
				must(t, k.Release(&h, nil))
			})
			r.restartAt(20*us, true)
			r.client(0, "another", func(k *hier.Locker) { // it notices
				at(k, 50*us)
				var h lock.Hold
				acquire(t, k, &h, r.lock(1), lock.Exclusive)
				must(t, k.Release(&h, nil))
			})
			r.run()
			if err := r.c.RunUntil(r.c.Now() + 20*ms); err != nil {
				t.Fatal(err)
			}
			r.wantFree(0)
		})
	}
}

// A memory node restarts with its memory while a client waits for a lock that no client will release. Another client of its node comes to
// know of the restart: the agent has the lock reset within milliseconds, long before the one that waits looks at the lock again.
func TestWaiterHearsOfARestart(t *testing.T) {
	for _, policy := range []string{"declock", "cql"} {
		t.Run(policy, func(t *testing.T) {
			r := newRig(t, 1, 1, policy, small, unsynced, silent)
			r.setHeader(0, r.cfg.Layout.Header(0, 1, 1, 0)) // a writer that no node has
			r.client(0, "waits", func(k *hier.Locker) {
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				if now := k.Port().Now(); now > 30*ms {
					t.Errorf("granted at %d us", now/us)
				}
				must(t, k.Release(&h, nil))
			})
			r.restartAt(5*ms, true)
			r.client(0, "another", func(k *hier.Locker) {
				var h lock.Hold
				acquire(t, k, &h, r.lock(1), lock.Exclusive)
				must(t, k.Release(&h, nil))
				at(k, 6*ms)
				must(t, k.Attach(r.mn)) // like a client that reads without a lock
			})
			r.run()
			r.wantFree(0)
		})
	}
}
