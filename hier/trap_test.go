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

// The traps of the protocol. Each test is of the sentence above it.

// watch counts messages by kind, and keeps what a test asks for.
type watch struct {
	sent map[fabric.MsgKind]int
	see  func(e *sim.Event)
}

func (w *watch) Observe(e *sim.Event) {
	if e.Step == sim.StepSend {
		w.sent[e.Msg.Kind]++
	}
	if w.see != nil {
		w.see(e)
	}
}

func newWatch() *watch { return &watch{sent: map[fabric.MsgKind]int{}} }

// hold acquires at a time, holds until another, and releases.
func (r *rig) hold(k *hier.Locker, w *witness, i int, m lock.Mode, from, until fabric.Time) (granted fabric.Time) {
	r.t.Helper()
	at(k, from)
	var h lock.Hold
	acquire(r.t, k, &h, r.lock(i), m)
	granted = k.Port().Now()
	w.enter(r.t, &h)
	at(k, until)
	w.exit(&h)
	must(r.t, k.Release(&h, nil))
	return granted
}

// soon checks that something happened within 20 us of a time.
func (r *rig) soon(what string, got, after fabric.Time) {
	r.t.Helper()
	if got < after || got > after+20*us {
		r.t.Errorf("%s at %d ns, want within 20 us after %d", what, got, after)
	}
}

// "The head slot is anonymous among shared holders: any of them may release first."
func TestTrapAnonymousHead(t *testing.T) {
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		r := newRig(t, 1, 4, "cql", small)
		var w witness
		for i := range 3 {
			r.client(i, name(i, 0), func(k *hier.Locker) {
				r.hold(k, &w, 0, lock.Shared, fabric.Time(i)*5*us, 100*us+fabric.Time(order[i])*50*us)
			})
		}
		r.client(3, "writer", func(k *hier.Locker) {
			got := r.hold(k, &w, 0, lock.Exclusive, 50*us, 300*us)
			r.soon(fmt.Sprintf("order %v: writer", order), got, 200*us)
		})
		r.run()
		if n := r.led(); n != 0 {
			t.Errorf("order %v: %d resets", order, n)
		}
	}
}

// "Between a writer's release FAA and its READ of the queue, immediately granted
// readers can enter and leave; entries behind the head may be reused. Reuse of slot
// h+1 means the head has passed it, so its occupant was a reader."
func TestTrapReadersBetweenReleaseAndRead(t *testing.T) {
	for _, c := range []struct {
		name    string
		waiters int // readers that wait for the writer
		passers int // readers that come and leave between its FAA and its READ
		ranges  int // grants by range that are expected, to each of 5 nodes
	}{
		{"nobody passes", 1, 0, 0},
		{"slots of the passers only", 1, 2, 0},
		{"slot of the one reader", 1, 3, 5},
		{"slot of the first of two", 2, 2, 5},
		{"slot of the second of two", 2, 3, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := newWatch()
			r := newRig(t, 1, 5, "cql", small, simulated(sim.Config{Observer: seen}))
			var w witness
			r.c.Go(r.nodes[0], "w", func(p fabric.Port) {
				k := r.hooked(0, p, &hookPort{do: splitRelease(func(p fabric.Port) { _ = p.Pause(1000 * us) })})
				r.hold(k, &w, 0, lock.Exclusive, 0, 100*us)
			})
			for i := range c.waiters {
				r.client(1+i, fmt.Sprintf("r%d", i), func(k *hier.Locker) {
					got := r.hold(k, &w, 0, lock.Shared, 10*us+fabric.Time(i)*10*us, 1500*us)
					r.soon("reader", got, 1000*us)
				})
			}
			r.client(3, "passer", func(k *hier.Locker) {
				for i := range c.passers {
					from := 200*us + fabric.Time(i)*50*us
					r.soon("passer", r.hold(k, &w, 0, lock.Shared, from, from+20*us), from)
				}
			})
			// x uses the slot of the first reader's round again: it waits, and writes its entry.
			r.client(4, "x", func(k *hier.Locker) {
				got := r.hold(k, &w, 0, lock.Exclusive, 800*us, 2000*us)
				r.soon("next writer", got, 1500*us)
			})
			r.run()
			if n := seen.sent[fabric.MsgCQL+1]; n != c.ranges {
				t.Errorf("%d messages that grant a range, want %d", n, c.ranges)
			}
			if n := r.led(); n != 0 {
				t.Errorf("%d resets", n)
			}
		})
	}
}

// "A reader that releases counts valid WRITER entries within [head, head+size) of the
// header it got; entries beyond are not its business."
func TestTrapReaderCountsWritersOfItsHeader(t *testing.T) {
	r := newRig(t, 1, 3, "cql", small)
	var w witness
	r.c.Go(r.nodes[0], "reader", func(p fabric.Port) {
		k := r.hooked(0, p, &hookPort{do: splitRelease(func(p fabric.Port) { _ = p.Pause(200 * us) })})
		r.hold(k, &w, 0, lock.Shared, 0, 100*us)
	})
	// w1 is in the reader's header; its entry comes after the reader's READ.
	r.c.Go(r.nodes[1], "w1", func(p fabric.Port) {
		k := r.hooked(1, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
			if ops[0].Kind == fabric.OpWrite {
				_ = p.Pause(300 * us)
			}
			return p.Do(ops)
		}})
		r.soon("w1", r.hold(k, &w, 0, lock.Exclusive, 50*us, 400*us), 300*us)
	})
	// w2 comes after the reader's FAA, and its entry is there at the READ.
	r.client(2, "w2", func(k *hier.Locker) {
		r.soon("w2", r.hold(k, &w, 0, lock.Exclusive, 150*us, 500*us), 400*us)
	})
	r.run()
	if n := r.led(); n != 0 {
		t.Errorf("%d resets", n)
	}
}

// "A waiter's entry WRITE must have completed before it answers a reset signal."
func TestTrapEntryWriteBeforeResetAnswer(t *testing.T) {
	for _, policy := range []string{"cql", "declock-tf"} {
		seen := newWatch()
		r := newRig(t, 1, 3, policy, small, simulated(sim.Config{Observer: seen}))
		var w witness
		var written, reset fabric.Time
		seen.see = func(e *sim.Event) {
			if e.Step == sim.StepEffect && e.Op.Kind == fabric.OpWrite && e.Op.Addr == r.lock(0).Add(16) && e.Op.Buf == nil {
				written = e.Time
			}
			if e.Step == sim.StepEffect && e.Op.Kind == fabric.OpWrite && e.Op.Addr == r.lock(0).Add(8) && e.Client.IsAgent() {
				reset = e.Time
			}
		}
		r.client(0, "holder", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 0, 60*us) })
		r.c.Go(r.nodes[1], "waiter", func(p fabric.Port) {
			k := r.hooked(1, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
				if ops[0].Kind == fabric.OpWrite {
					_ = p.Pause(200 * us)
				}
				return p.Do(ops)
			}})
			r.hold(k, &w, 0, lock.Exclusive, 20*us, 400*us)
		})
		r.c.Go(r.nodes[2], "asks", func(p fabric.Port) {
			_ = p.Pause(50 * us)
			r.askReset(2, p, 0, cql.Corruption)
		})
		r.c.At(190*us, func() {
			if _, _, _, id := r.header(0); id != 3 {
				t.Errorf("%s: reset ID %d while a WRITE is under way, want 3", policy, id)
			}
		})
		r.run()
		if written == 0 || reset <= written {
			t.Errorf("%s: entry written at %d, queue reset at %d", policy, written, reset)
		}
	}
}

// "Versions after a reset must differ from any that a late WRITE can still
// carry. Do not restart qhead at 0 with version 1: carry the version on."
func TestTrapLateWriteAfterReset(t *testing.T) {
	r := newRig(t, 1, 3, "cql", small)
	var w witness
	r.client(0, "a", func(k *hier.Locker) {
		r.hold(k, &w, 0, lock.Exclusive, 0, 100*us)
		r.hold(k, &w, 0, lock.Exclusive, 300*us, 500*us)
	})
	var late fabric.Addr
	var entry [8]byte
	r.client(1, "b", func(k *hier.Locker) {
		at(k, 20*us)
		r.hold(k, &w, 0, lock.Exclusive, 20*us, 200*us)
	})
	r.c.At(40*us, func() { // b's entry, as its NIC might deliver it again
		late = r.lock(0).Add(16)
		r.c.Peek(late, entry[:])
		if entry == ([8]byte{}) {
			t.Error("b has written no entry")
		}
	})
	r.c.Go(r.nodes[2], "asks", func(p fabric.Port) {
		_ = p.Pause(50 * us)
		r.askReset(2, p, 0, cql.Corruption)
	})
	r.c.At(290*us, func() {
		head, _, _, _ := r.header(0)
		if head < r.cfg.Layout.Capacity() {
			t.Errorf("head %d after a reset: the index began anew", head)
		}
	})
	r.c.Go(r.nodes[2], "c", func(p fabric.Port) {
		k := r.hooked(2, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
			if ops[0].Kind == fabric.OpWrite {
				// All slots but ours have the late entry, and ours too, until we write.
				for i := range r.cfg.Layout.Capacity() {
					r.c.Poke(r.lock(0).Add(8+8*i), entry[:])
				}
				_ = p.Pause(600 * us)
			}
			return p.Do(ops)
		}})
		r.soon("c", r.hold(k, &w, 0, lock.Exclusive, 400*us, 700*us), 600*us)
	})
	r.run()
	if n := r.led(); n != 1 {
		t.Errorf("%d resets, want 1", n)
	}
}

// "A waiter that is cancelled cannot leave the middle of the queue: its CN's agent
// takes the grant when it comes and passes it on, or another local waiter of that CN
// inherits it. The caller returns at once."
func TestTrapCancelledInTheMiddle(t *testing.T) {
	for _, inherited := range []bool{false, true} {
		r := newRig(t, 1, 3, "declock-tf", small)
		var w witness
		r.client(0, "a", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 0, 200*us) })
		r.client(1, "b", func(k *hier.Locker) {
			at(k, 20*us)
			var h lock.Hold
			err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Deadline: 100 * us})
			if !errors.Is(err, lock.ErrTimeout) {
				t.Errorf("b: %v", err)
			}
			r.soon("b's return", k.Port().Now(), 100*us)
		})
		next := 200 * us
		if inherited {
			next = 300 * us
			r.client(1, "b2", func(k *hier.Locker) {
				r.soon("b2", r.hold(k, &w, 0, lock.Exclusive, 25*us, 300*us), 200*us)
				if n := k.Stats().AcquireOps; n != 0 {
					t.Errorf("b2 used %d operations to acquire what its node had", n)
				}
			})
		}
		r.client(2, "c", func(k *hier.Locker) {
			r.soon("c", r.hold(k, &w, 0, lock.Exclusive, 50*us, 400*us), next)
		})
		r.run()
		if n := r.agents[1].Resets().Adopted; n != 1 {
			t.Errorf("the agent adopted %d grants, want 1", n)
		}
		if n := r.led(); n != 0 {
			t.Errorf("%d resets", n)
		}
	}
}

// "Version wrap with stale entries": the last round of a version cycle is never
// used, and the reset at its end clears the queue.
func TestTrapVersionWrap(t *testing.T) {
	y := cql.Layout{CapacityBits: 1, VersionBits: 2}
	seen := newWatch()
	r := newRig(t, 1, 2, "cql", y, simulated(sim.Config{Observer: seen}))
	seen.see = func(e *sim.Event) {
		if e.Step != sim.StepEffect || e.Op.Kind != fabric.OpWrite || e.Op.Addr != r.lock(0) {
			return
		}
		for i := range y.Capacity() { // a reset ends
			if v := r.c.PeekWord(r.lock(0).Add(8 + 8*i)); v != 0 {
				t.Errorf("entry %v is left at the end of a reset", cql.Entry(v))
			}
		}
	}
	var w witness
	var wraps, last uint64
	for cn := range 2 {
		r.client(cn, name(cn, 0), func(k *hier.Locker) {
			var h lock.Hold
			for range 60 {
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				w.enter(t, &h)
				head, _, _, _ := r.header(0)
				if y.Version(head) == 1<<y.VersionBits-1 {
					t.Errorf("index %d is held: version %d must not be used", head, y.Version(head))
				}
				if cycle := head >> 1 / 3; cycle != last {
					wraps++
					last = cycle
				}
				w.exit(&h)
				must(t, k.Release(&h, nil))
			}
		})
	}
	r.run()
	if wraps < 10 {
		t.Errorf("%d version cycles", wraps)
	}
	if n := r.led(); n < wraps {
		t.Errorf("%d resets in %d version cycles", n, wraps)
	}
}

// "A local release that has not completed while the same CN's next acquire
// overtakes it on another QP: two entries of one CN."
func TestTrapReleaseOvertakenByAcquire(t *testing.T) {
	r := newRig(t, 1, 1, "declock-tf", small)
	var w witness
	r.c.Go(r.nodes[0], "a", func(p fabric.Port) {
		k := r.hooked(0, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
			if isRelease(ops) {
				_ = p.Pause(200 * us)
			}
			return p.Do(ops)
		}})
		r.hold(k, &w, 0, lock.Exclusive, 0, 50*us)
	})
	r.client(0, "b", func(k *hier.Locker) {
		at(k, 60*us)
		var h lock.Hold
		if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Shared, Try: true}); !errors.Is(err, lock.ErrBusy) {
			t.Errorf("Try while the lock is being released: %v", err)
		}
		r.soon("b", r.hold(k, &w, 0, lock.Exclusive, 100*us, 300*us), 200*us)
	})
	for i := range fabric.Time(40) {
		r.c.At(i*10*us, func() {
			if _, size, _, _ := r.header(0); size > 1 {
				t.Errorf("at %d us: the one node is %d times in the queue", i*10, size)
			}
		})
	}
	r.run()
}

// "Prefetched remote timestamps that return after the lock has changed hands:
// guard with a generation number."
func TestTrapStalePrefetch(t *testing.T) {
	r := newRig(t, 1, 2, "declock-tf", small)
	var w witness
	r.client(0, "a", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Shared, 0, 50*us) })
	r.client(0, "c", func(k *hier.Locker) {
		r.soon("c", r.hold(k, &w, 0, lock.Exclusive, 10*us, 500*us), 80*us)
		if n := k.Stats().HandoversLocal; n != 1 {
			t.Errorf("%d local handovers: a timestamp of the tenure before was believed", n)
		}
	})
	r.client(1, "remote", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 20*us, 80*us) })
	r.c.Go(r.nodes[0], "b", func(p fabric.Port) {
		k := r.hooked(0, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
			err := p.Do(ops)
			if ops[0].Kind == fabric.OpRead && p.Now() < 300*us {
				_ = p.Pause(300 * us) // the prefetch comes late
			}
			return err
		}})
		r.soon("b", r.hold(k, &w, 0, lock.Exclusive, 30*us, 600*us), 500*us)
		if n := k.Stats().Prefetches; n != 1 {
			t.Errorf("b prefetched %d times", n)
		}
	})
	r.run()
}

// "Timestamp wrap: 16 bits of microseconds, half-range rule (32 ms)." The client that asked first is
// first, also when the stamps wrap between the two.
func TestTrapTimestampWrap(t *testing.T) {
	wrap := 65536 * us
	for _, localFirst := range []bool{false, true} {
		for _, base := range []fabric.Time{wrap - 10*ms, wrap - 30*us, wrap + 5*us, wrap - 25*ms} {
			r := newRig(t, 1, 2, "declock-tf", small, unsynced)
			var w witness
			local, remote := base, base+60*us
			if base == wrap-25*ms {
				remote = base + 30*ms // nearly half a range
			}
			if !localFirst {
				local, remote = remote, local
			}
			end := max(local, remote) + 100*us
			var order []string
			r.client(0, "a", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, base-100*us, end) })
			r.client(0, "local", func(k *hier.Locker) {
				r.hold(k, &w, 0, lock.Exclusive, local, end+50*us)
				order = append(order, "local")
			})
			r.client(1, "remote", func(k *hier.Locker) {
				r.hold(k, &w, 0, lock.Exclusive, remote, end+50*us)
				order = append(order, "remote")
			})
			// One more that looks at the remote queue, after both.
			r.client(0, "looks", func(k *hier.Locker) {
				r.hold(k, &w, 0, lock.Exclusive, max(local, remote)+50*us, end+50*us)
			})
			r.run()
			want := "remote"
			if localFirst {
				want = "local"
			}
			if order[0] != want {
				t.Errorf("local at %d us, remote at %d us: order %v", local/us, remote/us, order)
			}
		}
	}
}

// "A grant carries a fencing token: it grows with every exclusive grant of that
// lock, across resets" and across local handovers. (The witness checks.)
func TestTrapFencingTokens(t *testing.T) {
	for _, policy := range hier.PolicyNames() {
		y := cql.Layout{CapacityBits: 4, VersionBits: 16}
		r := newRig(t, 7, 3, policy, y)
		var w witness
		remaining := 12
		for cn := range 3 {
			for i := range 4 {
				r.client(cn, name(cn, i), func(k *hier.Locker) {
					var h lock.Hold
					for n := range 40 {
						m := lock.Exclusive
						if k.Port().Rand()%4 == 0 {
							m = lock.Shared
						}
						acquire(t, k, &h, r.lock(0), m)
						w.enter(t, &h)
						if n%8 == i {
							r.askReset(cn, k.Port(), 0, cql.Corruption)
						}
						sleep(k, fabric.Time(k.Port().Rand()%2000))
						w.exit(&h)
						must(t, k.Release(&h, nil))
					}
					remaining--
				})
			}
		}
		r.run()
		if remaining != 0 || w.grants != 12*40 || r.led() < 10 {
			t.Errorf("%s: %d clients remain, %d grants, %d resets", policy, remaining, w.grants, r.led())
		}
	}
}

// "Writers starve in the paper's timestamp hierarchy (one lock, one CN writing, seven CNs
// reading). Bound the shared tenure."
func TestTrapWritersStarve(t *testing.T) {
	const end = 3 * ms
	for _, policy := range []string{"paper-tf", "paper-pf", "declock-tf", "declock-pf"} {
		r := newRig(t, 3, 8, policy, cql.Layout{CapacityBits: 3, VersionBits: 16}, simulated(sim.Config{MaxEvents: 50e6}))
		var w witness
		writes, reads := 0, 0
		for cn := range 8 {
			for i := range 16 {
				r.client(cn, name(cn, i), func(k *hier.Locker) {
					m := lock.Shared
					if cn == 0 {
						m = lock.Exclusive
					}
					buf := k.Port().Alloc(8)
					var h lock.Hold
					for k.Port().Now() < end {
						must(t, k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: m, Reads: []fabric.Op{fabric.Read(r.data(0), buf)}}))
						w.enter(t, &h)
						w.exit(&h)
						if m == lock.Shared {
							reads++
						} else if k.Port().Now() < end {
							writes++
						}
						must(t, k.Release(&h, nil))
					}
				})
			}
		}
		r.run()
		t.Logf("%s: in %d ms %d writes, %d reads", policy, end/ms, writes, reads)
		if bounded := policy[0] == 'd'; bounded && writes < 30 {
			t.Errorf("%s: %d writes", policy, writes)
		}
	}
}
