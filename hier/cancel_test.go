package hier_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// A wait ends at its deadline, or by an interrupt, at every moment: the caller
// returns at once, does not hold, and the lock goes on. The scene has every wait
// point of an acquisition: FAA, WRITE, the remote queue, the local queue, chosen to acquire,
// parked by a reset.
func TestGiveUpAtEveryMoment(t *testing.T) {
	for _, policy := range []string{"cql", "declock-tf", "declock-pf", "remote-prefer"} {
		for _, interrupt := range []bool{false, true} {
			gaveUp := 0
			for when := fabric.Time(500); when < 120*us; when += 1300 {
				r := newRig(t, 3, 3, policy, cql.Layout{CapacityBits: 3, VersionBits: 16}, unsynced)
				var w witness
				for cn := range 3 {
					for i := range 2 {
						r.client(cn, name(cn, i), func(k *hier.Locker) {
							for n := range 4 {
								r.hold(k, &w, 0, lock.Mode((n+cn+i)%2), 0, k.Port().Now()+3*us)
								if n == 1 && cn == 2 && i == 0 {
									r.askReset(cn, k.Port(), 0, cql.Corruption)
								}
							}
						})
					}
				}
				r.client(1, "impatient", func(k *hier.Locker) {
					p := k.Port()
					if interrupt {
						r.c.At(when, p.Interrupt)
					}
					for n := range 6 {
						var h lock.Hold
						req := lock.Request{Lock: r.lock(0), Mode: lock.Mode(n % 2)}
						if !interrupt {
							req.Deadline = when
						}
						err := k.Acquire(&h, &req)
						switch {
						case err == nil:
							w.enter(t, &h)
							sleep(k, 2*us)
							w.exit(&h)
							must(t, k.Release(&h, nil))
						case interrupt && errors.Is(err, lock.ErrCanceled), !interrupt && errors.Is(err, lock.ErrTimeout):
							gaveUp++
							if now := p.Now(); h.Held || now > when+15*us && n == 0 {
								t.Errorf("gave up at %d ns, returned at %d, held %v", when, now, h.Held)
							}
							p.ClearInterrupt()
							if !interrupt {
								return
							}
						default:
							t.Errorf("%v", err)
						}
					}
				})
				r.c.Go(r.nodes[0], "end", func(p fabric.Port) { _ = p.Pause(5 * ms) }) // orphans go
				r.run()
				r.wantFree(0)
				r.c.Close()
				if t.Failed() {
					t.Fatalf("%s, interrupt %v, gave up at %d ns", policy, interrupt, when)
				}
			}
			if gaveUp < 20 {
				t.Errorf("%s, interrupt %v: gave up %d times only", policy, interrupt, gaveUp)
			}
		}
	}
}

// Try gives ErrBusy in every state of a lock that is not free for the mode, leaves no
// trace, and never waits for others.
func TestTryInEveryState(t *testing.T) {
	for _, policy := range []string{"cql", "declock-tf"} {
		r := newRig(t, 1, 3, policy, small, unsynced)
		var w witness
		try := func(k *hier.Locker, m lock.Mode, want bool, state string) {
			t.Helper()
			before := k.Port().Now()
			_, size, writers, _ := r.header(0)
			var h lock.Hold
			err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: m, Try: true})
			if want && err != nil || !want && !errors.Is(err, lock.ErrBusy) {
				t.Errorf("%s: Try of a lock that is %s: %v", policy, state, err)
			}
			if d := k.Port().Now() - before; d > 10*us {
				t.Errorf("%s: Try of a lock that is %s took %d ns", policy, state, d)
			}
			if err == nil {
				w.enter(t, &h)
				w.exit(&h)
				must(t, k.Release(&h, nil))
			}
			if _, s, n, _ := r.header(0); s != size || n != writers {
				t.Errorf("%s: Try of a lock that is %s left a trace", policy, state)
			}
		}
		r.client(0, "holder", func(k *hier.Locker) {
			r.hold(k, &w, 0, lock.Shared, 100*us, 200*us)
			r.hold(k, &w, 0, lock.Exclusive, 300*us, 500*us)
			r.hold(k, &w, 0, lock.Shared, 600*us, 800*us)
			r.hold(k, &w, 0, lock.Exclusive, 900*us, 1100*us)
		})
		r.client(2, "waiter", func(k *hier.Locker) {
			r.hold(k, &w, 0, lock.Exclusive, 400*us, 520*us)
			r.hold(k, &w, 0, lock.Exclusive, 700*us, 820*us)
		})
		r.c.Go(r.nodes[2], "asks", func(p fabric.Port) {
			_ = p.Pause(1000 * us)
			r.askReset(2, p, 0, cql.Corruption)
		})
		for cn := range 2 { // on the holder's node, and on another
			r.client(cn, name(cn, 9), func(k *hier.Locker) {
				off := fabric.Time(cn) * 20 * us
				at(k, 50*us+off)
				try(k, lock.Exclusive, true, "free")
				try(k, lock.Shared, true, "free")
				at(k, 150*us+off)
				try(k, lock.Shared, true, "held shared")
				try(k, lock.Exclusive, false, "held shared")
				at(k, 350*us+off)
				try(k, lock.Shared, false, "held exclusive")
				try(k, lock.Exclusive, false, "held exclusive")
				at(k, 450*us+off)
				try(k, lock.Shared, false, "held exclusive, and a writer waits")
				at(k, 750*us+off)
				if cn == 1 || policy == "cql" { // the paper's local readers join
					try(k, lock.Shared, false, "held shared, and a writer waits")
				}
				try(k, lock.Exclusive, false, "held shared, and a writer waits")
				at(k, 1050*us+off)
				try(k, lock.Shared, false, "being reset")
				try(k, lock.Exclusive, false, "being reset")
				at(k, 1300*us+off)
				try(k, lock.Exclusive, true, "free after the reset")
			})
		}
		r.run()
		r.wantFree(0)
	}
}

// A Hold that holds nothing cannot be released, and one that holds cannot acquire.
func TestMisuse(t *testing.T) {
	for _, policy := range []string{"cql", "declock-tf"} {
		r := newRig(t, 1, 1, policy, small)
		r.client(0, "a", func(k *hier.Locker) {
			var h lock.Hold
			misused := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, lock.ErrMisuse) {
					t.Errorf("%s: %v", what, err)
				}
			}
			misused("release of a fresh Hold", k.Release(&h, nil))
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			misused("Acquire with a Hold that holds", k.Acquire(&h, &lock.Request{Lock: r.lock(1)}))
			must(t, k.Release(&h, nil))
			misused("second release", k.Release(&h, nil))
			foreign := lock.Hold{Lock: r.lock(0), Held: true, Aux: "another mechanism's"}
			misused("release of a foreign Hold", k.Release(&foreign, nil))
			misused("misaligned lock", k.Acquire(&h, &lock.Request{Lock: r.lock(0).Add(4)}))
			misused("too many READs", k.Acquire(&h, &lock.Request{Lock: r.lock(0), Reads: make([]fabric.Op, lock.MaxPiggyback+1)}))
			// After all that the Hold works.
			acquire(t, k, &h, r.lock(0), lock.Shared)
			must(t, k.Release(&h, nil))
		})
		r.run()
		r.wantFree(0)
	}
}

// A READ that comes with an acquire and fails leaves the lock free; an operation that
// comes with a release and fails leaves it released: however the lock was got and is
// given up.
func TestPiggybackFails(t *testing.T) {
	for _, policy := range []string{"cql", "declock-tf"} {
		r := newRig(t, 1, 2, policy, small, unsynced)
		outside := fabric.At(r.mn, 64<<20)
		var w witness
		failing := func(k *hier.Locker, m lock.Mode, from fabric.Time) {
			at(k, from)
			buf := k.Port().Alloc(16)
			var h lock.Hold
			err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: m, Reads: []fabric.Op{fabric.Read(r.data(0), buf[:8]), fabric.Read(outside, buf[8:])}})
			if !errors.Is(err, fabric.ErrOutOfBounds) || h.Held {
				t.Errorf("%s: acquire at %d us with a READ out of bounds: %v", policy, from/us, err)
			}
		}
		release := func(k *hier.Locker, m lock.Mode, from, until fabric.Time) {
			at(k, from)
			buf := k.Port().Alloc(8)
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), m)
			w.enter(t, &h)
			at(k, until)
			w.exit(&h)
			first := fabric.Load(r.data(0))
			before := []fabric.Op{first, fabric.Write(outside, buf), fabric.Store(r.data(0), 666)}
			if err := k.Release(&h, before); !errors.Is(err, fabric.ErrOutOfBounds) || h.Held {
				t.Errorf("%s: release at %d us with a WRITE out of bounds: %v", policy, until/us, err)
			}
		}
		r.client(0, "a", func(k *hier.Locker) {
			failing(k, lock.Exclusive, 0) // at once
			failing(k, lock.Shared, 20*us)
			at(k, 90*us)
			r.wantFree(0)
			r.hold(k, &w, 0, lock.Exclusive, 100*us, 200*us)
			release(k, lock.Exclusive, 300*us, 400*us) // to no client
			at(k, 450*us)
			r.wantFree(0)
			release(k, lock.Exclusive, 500*us, 600*us) // to the own node, and to the other
		})
		r.client(0, "a2", func(k *hier.Locker) {
			failing(k, lock.Exclusive, 110*us) // from the own node
			r.soon("a2", r.hold(k, &w, 0, lock.Exclusive, 520*us, 700*us), 600*us)
		})
		r.client(1, "b", func(k *hier.Locker) {
			failing(k, lock.Shared, 120*us) // from another node
			r.soon("b", r.hold(k, &w, 0, lock.Exclusive, 540*us, 800*us), 700*us)
		})
		r.run()
		r.wantFree(0)
		if v := r.c.PeekWord(r.data(0)); v != 0 {
			t.Errorf("what came after the failed WRITE was executed: %d", v)
		}
		if n := r.led(); n != 0 {
			t.Errorf("%s: %d resets", policy, n)
		}
	}
}

// A client may hold several locks, and wait for one while it holds others.
func TestSeveralLocks(t *testing.T) {
	for _, policy := range hier.PolicyNames() {
		r := newRig(t, 4, 3, policy, cql.Layout{CapacityBits: 4, VersionBits: 4})
		ws := make([]witness, 6)
		for cn := range 3 {
			for i := range 3 {
				r.client(cn, name(cn, i), func(k *hier.Locker) {
					var hs [6]lock.Hold
					for range 25 {
						mask := k.Port().Rand() % 64
						for l := range hs { // in order: no deadlock
							if mask>>l&1 != 0 {
								acquire(t, k, &hs[l], r.lock(l), lock.Mode(k.Port().Rand()%2))
								ws[l].enter(t, &hs[l])
							}
						}
						for l := range hs {
							if mask>>l&1 != 0 {
								ws[l].exit(&hs[l])
								must(t, k.Release(&hs[l], nil))
							}
						}
					}
				})
			}
		}
		r.run()
		for l := range ws {
			r.wantFree(l)
		}
	}
}

// A deadline that has passed: no waiting, but a lock that is free is got.
func TestDeadlineInThePast(t *testing.T) {
	for _, policy := range []string{"cql", "declock-tf"} {
		r := newRig(t, 1, 2, policy, small, unsynced)
		r.client(0, "holder", func(k *hier.Locker) {
			var w witness
			r.hold(k, &w, 0, lock.Exclusive, 0, 300*us)
		})
		for cn := range 2 {
			r.client(cn, name(cn, 1), func(k *hier.Locker) {
				at(k, 100*us)
				var h lock.Hold
				for _, d := range []fabric.Time{1, 50 * us, 100 * us} {
					if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Deadline: d}); !errors.Is(err, lock.ErrTimeout) {
						t.Errorf("%s: %v", policy, err)
					}
				}
				// A free lock is got, however late.
				if err := k.Acquire(&h, &lock.Request{Lock: r.lock(1 + cn), Mode: lock.Exclusive, Deadline: 1}); err != nil {
					t.Errorf("%s: free lock: %v", policy, err)
				}
				must(t, k.Release(&h, nil))
			})
		}
		r.c.Go(r.nodes[0], "end", func(p fabric.Port) { _ = p.Pause(ms) })
		r.run()
		r.wantFree(0)
	}
}
