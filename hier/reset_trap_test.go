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

// Traps of resets and of lost messages. Each test is of one sentence.

var small = cql.Layout{CapacityBits: 2, VersionBits: cql.MaxVersionBits}

const us, ms = fabric.Microsecond, fabric.Millisecond

// A waiter whose grant and whose abort cross holds the lock; the abort that is
// left in its inbox is not for its next wait on the same lock (paper 4.4:
// "Clients waiting for the lock abort", and only of the reset's own ticket).
func TestTrapAbortOfAnOlderWait(t *testing.T) {
	r := newRig(t, 1, 3, "declock-tf", small)
	r.client(0, "a", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		at(k, 20*us)
		must(t, k.Release(&h, nil))
		at(k, 200*us)
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		at(k, 300*us)
		must(t, k.Release(&h, nil))
	})
	// b is slow between the receipt of the grant and what it does with it.
	slow := &hookPort{recv: func(p fabric.Port, d fabric.Time) (fabric.Message, error) {
		m, err := p.Recv(d)
		if err == nil && m.Kind == kindGrant && p.Now() < 100*us {
			_ = p.Pause(p.Now() + 50*us)
		}
		return m, err
	}}
	r.c.Go(r.nodes[1], "b", func(p fabric.Port) {
		k := r.hooked(1, p, slow)
		var h lock.Hold
		at(k, 10*us)
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		must(t, k.Release(&h, nil))
		at(k, 250*us)
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		if now := p.Now(); now > 400*us {
			t.Errorf("granted at %d us, a released at 300", now/us)
		}
		must(t, k.Release(&h, nil))
		if n := k.Stats().Aborts; n != 0 {
			t.Errorf("%d acquisitions aborted", n)
		}
	})
	r.c.Go(r.nodes[2], "c", func(p fabric.Port) {
		_ = p.Pause(40 * us)
		r.askReset(2, p, 0, cql.Corruption)
	})
	r.run()
	if n := r.led(); n != 1 {
		t.Errorf("%d resets, want the one that was asked for", n)
	}
}

// A reader's grant is lost with the node that owed it. Other readers go on
// entering and leaving, so that the head passes the reader by more than a round:
// it holds the lock all the same, and must learn of it (invariant 3). So must
// those of its node who wait behind it, when it has given up meanwhile.
func TestTrapLostGrantOfReader(t *testing.T) {
	for _, gaveUp := range []bool{false, true} {
		r := newRig(t, 1, 4, "declock-tf", small)
		r.c.Go(r.nodes[0], "w", func(p fabric.Port) {
			var h lock.Hold
			k := r.hooked(0, p, &hookPort{do: splitRelease(func(fabric.Port) { r.c.Kill(r.nodes[0]) })})
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			at(k, 20*us)
			_ = k.Release(&h, nil)
		})
		done := false
		r.client(1, "r", func(k *hier.Locker) {
			at(k, 10*us)
			var h lock.Hold
			req := lock.Request{Lock: r.lock(0), Mode: lock.Shared}
			if gaveUp {
				req.Deadline = ms
				if err := k.Acquire(&h, &req); !errors.Is(err, lock.ErrTimeout) {
					t.Errorf("got %v, want a timeout", err)
				}
				return
			}
			must(t, k.Acquire(&h, &req))
			must(t, k.Release(&h, nil))
			done = true
		})
		if gaveUp {
			r.client(1, "r2", func(k *hier.Locker) {
				at(k, 15*us)
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Shared)
				must(t, k.Release(&h, nil))
				done = true
			})
		}
		for cn := 2; cn < 4; cn++ {
			r.client(cn, name(cn, 1), func(k *hier.Locker) {
				var h lock.Hold
				for n := 0; !done && k.Port().Now() < fabric.Second; n++ {
					at(k, 30*us+fabric.Time(n)*20*us)
					acquire(t, k, &h, r.lock(0), lock.Shared)
					must(t, k.Release(&h, nil))
				}
				if now := k.Port().Now(); now > 30*ms {
					t.Errorf("gave up %v: the reader got the lock at %d ms only, its node learned of the death at 10 ms", gaveUp, now/ms)
				}
			})
		}
		if err := r.c.Run(); err != nil {
			t.Fatal(err)
		}
		if !done {
			t.Error("the reader never got the lock")
		}
	}
}

// The same without a death: the notification is late or lost, and the waiter
// looks for itself after RecheckNs. The head has passed it by many rounds.
func TestTrapRecheckFarBehindHead(t *testing.T) {
	r := newRig(t, 1, 3, "declock-tf", small, waits(ms, 100*ms))
	r.c.Go(r.nodes[0], "w", func(p fabric.Port) {
		var h lock.Hold
		k := r.hooked(0, p, &hookPort{send: func(p fabric.Port, to fabric.ClientID, m *fabric.Message) error {
			if m.Kind == kindGrant {
				return nil // lost
			}
			return p.Send(to, m)
		}})
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		at(k, 20*us)
		must(t, k.Release(&h, nil))
	})
	done := false
	r.client(1, "r", func(k *hier.Locker) {
		at(k, 10*us)
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Shared)
		if now := k.Port().Now(); now > 2*ms {
			t.Errorf("granted at %d us, the recheck was due at 1000", now/us)
		}
		must(t, k.Release(&h, nil))
		done = true
	})
	r.client(2, "s", func(k *hier.Locker) {
		var h lock.Hold
		for n := 0; !done && n < 20000; n++ {
			at(k, 30*us+fabric.Time(n)*20*us)
			acquire(t, k, &h, r.lock(0), lock.Shared)
			must(t, k.Release(&h, nil))
		}
	})
	r.run()
	if !done {
		t.Error("the reader never got the lock")
	}
	if n := r.led(); n != 0 {
		t.Errorf("%d resets", n)
	}
}

// The grant of a waiter that leaves comes to the agent first ("early"), and
// then a reset aborts the ticket. The mark of the early grant must not be
// taken for one of the node's next ticket: that would be a second holder.
func TestTrapEarlyGrantThenReset(t *testing.T) {
	r := newRig(t, 1, 3, "declock-tf", small)
	var w witness
	r.client(0, "a", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		at(k, 100*us)
		must(t, k.Release(&h, nil)) // the grant goes to b's agent
		at(k, 170*us)
		acquire(t, k, &h, r.lock(0), lock.Exclusive) // after the reset, before b2
		w.enter(t, &h)
		at(k, 900*us)
		w.exit(&h)
		if err := k.Release(&h, nil); err != nil {
			t.Errorf("release: %v", err)
		}
	})
	// b stops between Abandon and what follows, while its agent gets the grant
	// and the reset signal.
	r.c.Go(r.nodes[1], "b", func(p fabric.Port) {
		k := r.hooked(1, p, &hookPort{abandon: func(p fabric.Port) error {
			err := p.Abandon()
			_ = p.Pause(160 * us)
			return err
		}})
		at(k, 10*us)
		var h lock.Hold
		if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Deadline: 90 * us}); !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("b: %v, want a timeout", err)
		}
	})
	// b2, whom b's ticket is passed on to, lets a go first.
	r.c.Go(r.nodes[1], "b2", func(p fabric.Port) {
		k := r.hooked(1, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
			if ops[0].Kind == fabric.OpFAA {
				_ = p.Pause(p.Now() + 60*us)
			}
			return p.Do(ops)
		}})
		at(k, 20*us)
		var h lock.Hold
		if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Deadline: 400 * us}); !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("b2: %v, want a timeout: a holds the lock", err)
		}
	})
	r.client(1, "b3", func(k *hier.Locker) {
		at(k, 200*us)
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		w.enter(t, &h)
		at(k, 1000*us)
		w.exit(&h)
		must(t, k.Release(&h, nil))
	})
	r.c.Go(r.nodes[2], "c", func(p fabric.Port) {
		_ = p.Pause(120 * us)
		r.askReset(2, p, 0, cql.Corruption)
	})
	r.run()
	if n := r.led(); n != 1 {
		t.Errorf("%d resets, want the one that was asked for", n)
	}
}

// A reset whose last step fails at the fabric is not the end of the lock: its
// resetter runs, so no node would take over; it must be reminded (appendix A,
// invariant 1.1: the reset process terminates).
func TestTrapResetStuckAtLiveResetter(t *testing.T) {
	for _, outcome := range []struct {
		name string
		kind fabric.OpKind // of the agent's operation that fails
		done bool          // it takes ticket all the same
		err  error
	}{
		{"last step refused", fabric.OpWrite, false, fabric.ErrNodeDown},
		{"last step unknown and done", fabric.OpWrite, true, fabric.ErrUnknownOutcome},
		{"last step unknown and not done", fabric.OpWrite, false, fabric.ErrUnknownOutcome},
		{"first step unknown and done", fabric.OpCAS, true, fabric.ErrUnknownOutcome},
		{"first step unknown and not done", fabric.OpCAS, false, fabric.ErrUnknownOutcome},
		{"first step refused", fabric.OpCAS, false, fabric.ErrNodeDown},
	} {
		t.Run(outcome.name, func(t *testing.T) {
			failed := false
			r := newRig(t, 1, 3, "declock-tf", small, waits(ms, 5*ms), silent, wrapped(func(p fabric.Port) fabric.Port {
				return &hookPort{Port: p, do: func(p fabric.Port, ops []fabric.Op) error {
					if !p.ID().IsAgent() || ops[0].Kind != outcome.kind || ops[0].Addr.Offset() < locksAt || failed {
						return p.Do(ops)
					}
					if outcome.done {
						if err := p.Do(ops); err != nil || ops[0].Kind == fabric.OpCAS && !ops[0].Swapped() {
							return err
						}
					}
					failed = true
					return &fabric.ChainError{Index: 0, Op: ops[0], Err: outcome.err}
				}}
			}))
			var w witness
			for cn := range 3 {
				r.client(cn, name(cn, 1), func(k *hier.Locker) {
					var h lock.Hold
					if cn == 2 {
						at(k, 10*us)
						r.askReset(2, k.Port().(*hookPort).Port, 0, cql.Corruption)
					}
					for range 20 {
						acquire(t, k, &h, r.lock(0), lock.Exclusive)
						w.enter(t, &h)
						sleep(k, 3*us)
						w.exit(&h)
						must(t, k.Release(&h, nil))
					}
					if now := k.Port().Now(); now > 100*ms {
						t.Errorf("%v took %d ms", k.Port().ID(), now/ms)
					}
				})
			}
			r.run()
			if !failed {
				t.Error("no operation failed")
			}
			r.wantFree(0)
		})
	}
}

// The memory node dies while one client of a node waits in the remote queue and
// another behind it: both get an answer.
func TestTrapMemoryNodeCrashesUnderWaiters(t *testing.T) {
	r := newRig(t, 1, 2, "declock-tf", small, waits(ms, 100*ms), silent)
	answers := 0
	r.client(0, "a", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		at(k, 10*ms)
		if err := k.Release(&h, nil); err == nil {
			t.Error("release on a dead memory node succeeded")
		}
		answers++
	})
	for i := range 4 {
		r.client(1, name(1, i), func(k *hier.Locker) {
			at(k, 10*us+fabric.Time(i)*us)
			var h lock.Hold
			if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Mode(i % 2)}); err == nil {
				t.Error("acquired on a dead memory node")
			}
			answers++
		})
	}
	r.c.At(100*us, func() { r.c.KillMN(r.mn) })
	if err := r.c.RunUntil(fabric.Second); err != nil {
		t.Fatal(err)
	}
	if answers != 5 {
		t.Errorf("%d of 5 clients got an answer", answers)
	}
	r.idle()
}

// READs and WRITEs that the fabric refuses before it posts anything: the FAA of their
// chain has not been executed, and must not be undone.
func TestTrapChainRefusedBeforePosting(t *testing.T) {
	plain := sim.CX4()
	plain.Masked = false
	for _, policy := range []string{"cql", "declock-tf"} {
		r := newRig(t, 1, 2, policy, small, simulated(sim.Config{NIC: plain}))
		mn2 := r.c.AddMN(1 << 20)
		r.client(0, "a", func(k *hier.Locker) {
			buf := k.Port().Alloc(64)
			var h lock.Hold
			for _, bad := range []struct {
				op   fabric.Op
				want error
			}{
				{fabric.Read(r.data(0), make([]byte, 8)), fabric.ErrBadBuffer},
				{fabric.Load(r.data(0).Add(4)), fabric.ErrMisaligned},
				{fabric.Read(fabric.At(mn2, 0), buf), fabric.ErrBadChain},
				{fabric.Op{Kind: 77, Addr: r.data(0)}, fabric.ErrBadChain},
				{fabric.Op{Kind: fabric.OpMaskedFAA, Addr: r.data(0), Wide: new(fabric.Wide)}, fabric.ErrUnsupported},
			} {
				for _, try := range []bool{false, true} {
					err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Try: try, Reads: []fabric.Op{fabric.Read(r.data(0), buf), bad.op}})
					if !errors.Is(err, bad.want) || h.Held {
						t.Errorf("%v: %v, held %v", bad.op, err, h.Held)
					}
					if head, size, writers, reset := r.header(0); size != 0 || writers != 0 || reset != 0 {
						t.Fatalf("%v: lock spoilt: head %d size %d writers %d reset %d", bad.op, head, size, writers, reset)
					}
				}
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				if err := k.Release(&h, []fabric.Op{bad.op}); !errors.Is(err, bad.want) {
					t.Errorf("release with %v: %v", bad.op, err)
				}
				r.wantFree(0)
			}
		})
		r.run()
		if n := r.led(); n != 0 {
			t.Errorf("%d resets", n)
		}
	}
}

// A prefetch that comes back when the head is far away, or that finds
// garbage, ends soon: it looks at no more entries than the queue has.
func TestTrapPrefetchFarAhead(t *testing.T) {
	r := newRig(t, 1, 1, "declock-tf", small, simulated(sim.Config{MaxEvents: 1e6}))
	r.client(0, "a", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		r.setHeader(0, r.cfg.Layout.Header(1<<40, 1, 1, 0))
		at(k, 50*us)
		r.setHeader(0, r.cfg.Layout.Header(0, 1, 1, 0))
		must(t, k.Release(&h, nil))
	})
	r.client(0, "b", func(k *hier.Locker) {
		at(k, 20*us)
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive) // prefetches
		must(t, k.Release(&h, nil))
	})
	r.run()
}

// The grant of a ticket whose client has left is lost too: a waiter behind it on
// its node looks after it, for no other does.
func TestTrapLostGrantOfAnAbandonedTicket(t *testing.T) {
	r := newRig(t, 1, 2, "declock-tf", small, waits(ms, 100*ms))
	r.c.Go(r.nodes[0], "w", func(p fabric.Port) {
		var h lock.Hold
		k := r.hooked(0, p, &hookPort{send: func(p fabric.Port, to fabric.ClientID, m *fabric.Message) error {
			if m.Kind == kindGrant {
				return nil // lost
			}
			return p.Send(to, m)
		}})
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		at(k, 200*us)
		must(t, k.Release(&h, nil))
	})
	r.client(1, "b", func(k *hier.Locker) {
		at(k, 10*us)
		var h lock.Hold
		if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Deadline: 100 * us}); !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("b: %v", err)
		}
	})
	r.client(1, "b2", func(k *hier.Locker) {
		at(k, 20*us)
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		if now := k.Port().Now(); now > 2*ms {
			t.Errorf("granted at %d us, the recheck was due at 1000", now/us)
		}
		must(t, k.Release(&h, nil))
	})
	r.run()
	if n := r.led(); n != 0 {
		t.Errorf("%d resets", n)
	}
}

// The signal of a reset may come again when that is long over, just before the signal of the next: who
// is frozen by the first takes part in the second all the same, with the tickets of the second. (Otherwise a reader that has
// its index, and writes its entry, is forgotten by the second, and later takes the head that has passed it for its grant.)
func TestTrapSignalOfAnOlderReset(t *testing.T) {
	const kindReset = fabric.MsgCQL + 2
	resets := 0
	r := newRig(t, 1, 3, "declock-tf", small, waits(ms, 100*ms), wrapped(func(p fabric.Port) fabric.Port {
		return &hookPort{Port: p, recv: func(p fabric.Port, d fabric.Time) (fabric.Message, error) {
			m, err := p.Recv(d)
			if err == nil && p.ID() == fabric.AgentOf(2) && m.Kind == kindReset {
				if resets++; resets == 2 {
					_ = p.Pause(130 * us) // the agent is slow
				}
			}
			return m, err
		}}
	}))
	var w witness
	hold := func(k *hier.Locker, mode lock.Mode, until fabric.Time) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), mode)
		w.enter(t, &h)
		at(k, until)
		w.exit(&h)
		must(t, k.Release(&h, nil))
	}
	r.client(0, "first", func(k *hier.Locker) {
		at(k, 50*us)
		r.askReset(0, k.Port().(*hookPort).Port, 0, cql.Corruption)
		r.askReset(0, k.Port().(*hookPort).Port, 0, cql.NodeFailure) // its signals are sent again
		at(k, 100*us)
		hold(k, lock.Exclusive, 300*us)
	})
	r.c.Go(r.nodes[1], "reader", func(p fabric.Port) {
		k := r.hooked(1, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
			if ops[0].Kind == fabric.OpWrite {
				_ = p.Pause(160 * us) // between FAA and WRITE
			}
			return p.Do(ops)
		}})
		at(k, 115*us)
		hold(k, lock.Shared, 0)
	})
	r.client(2, "second", func(k *hier.Locker) {
		at(k, 122*us)
		r.askReset(2, k.Port().(*hookPort).Port, 0, cql.Corruption)
		at(k, 400*us)
		hold(k, lock.Exclusive, 3*ms)
	})
	r.run()
	if resets < 3 || r.led() < 2 {
		t.Errorf("%d signals, %d resets: not the scene", resets, r.led())
	}
}

// Two agents pass locks on for clients that gave up, each to a client of the other's node that was refused, so that its entry never comes. The
// request for the reset that would end such a wait lies in the inbox of the other agent: neither may wait.
func TestTrapAgentsAwaitRefusedClients(t *testing.T) {
	r := newRig(t, 1, 2, "cql", cql.Layout{CapacityBits: 2, VersionBits: 2}, unsynced)
	const exhausted = 8
	for i := range 2 {
		r.setHeader(i, r.cfg.Layout.Header(exhausted-2, 0, 0, 0))
		here, there := i, 1-i
		r.client(here, "holds "+name(i, 0), func(k *hier.Locker) {
			var h lock.Hold
			acquire(t, k, &h, r.lock(i), lock.Exclusive)
			at(k, 50*us)
			must(t, k.Release(&h, nil))
		})
		r.client(there, "gives up "+name(i, 0), func(k *hier.Locker) {
			at(k, 5*us)
			var h lock.Hold
			if err := k.Acquire(&h, &lock.Request{Lock: r.lock(i), Mode: lock.Exclusive, Deadline: 20 * us}); !errors.Is(err, lock.ErrTimeout) {
				t.Errorf("with a deadline: %v", err)
			}
		})
		r.client(here, "is refused "+name(i, 0), func(k *hier.Locker) {
			at(k, 52500) // its FAA is before that of the agent, and its request comes when the agent of its node has the other lock
			var h lock.Hold
			acquire(t, k, &h, r.lock(i), lock.Exclusive)
			if now := k.Port().Now(); now > 150*us {
				t.Errorf("lock %d is granted at %d us: the agents have waited for each other", i, now/us)
			}
			must(t, k.Release(&h, nil))
		})
	}
	r.run()
	if n := r.led(); n != 2 {
		t.Errorf("%d resets, want one of each lock", n)
	}
	for i := range 2 {
		r.wantFree(i)
	}
}
