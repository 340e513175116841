package hier_test

import (
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// Section 4.4 and appendix B: resets that meet, that wait, and whose resetter crashes.

// Several nodes have the same lock, and different ones, reset at once, over the same survivors;
// holders let them wait. No agent waits for another's answer, so none is stuck.
func TestResetsCross(t *testing.T) {
	for _, c := range []struct {
		name  string
		locks int // node i asks for resets of locks i, i+1, .. modulo locks
	}{{"one lock", 1}, {"two locks", 2}, {"three locks", 3}} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(10) {
				r := newRig(t, seed, 3, "declock-tf", small)
				ws := make([]witness, c.locks)
				for cn := range 3 {
					r.client(cn, name(cn, 0), func(k *hier.Locker) {
						for n := range 20 {
							r.hold(k, &ws[(cn+n)%c.locks], (cn+n)%c.locks, lock.Mode(n%2), 0, k.Port().Now()+10*us)
						}
					})
					r.c.Go(r.nodes[cn], "asks", func(p fabric.Port) {
						for n := range 5 {
							_ = p.Pause(fabric.Time(50+n*100) * us)
							for l := range c.locks {
								r.askReset(cn, p, (cn+l)%c.locks, cql.Corruption)
							}
						}
					})
				}
				r.run()
				if n := r.led(); n < uint64(4*c.locks) || n > uint64(15*c.locks) {
					t.Errorf("seed %d: %d resets led for %d wishes", seed, n, 15*c.locks)
				}
				for l := range c.locks {
					r.wantFree(l)
				}
			}
		})
	}
}

// "Clients holding the lock respond to the signal after releasing the lock": the
// reset waits as long as that takes, and all who wait for its end get the lock.
func TestResetWaitsForHolder(t *testing.T) {
	r := newRig(t, 1, 3, "declock-tf", small, unsynced)
	var w witness
	r.client(0, "holder", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 0, 30*ms) })
	granted := 0
	for cn := 1; cn < 3; cn++ {
		for i := range 3 {
			r.client(cn, name(cn, i), func(k *hier.Locker) {
				if got := r.hold(k, &w, 0, lock.Mode(i%2), 10*us, 0); got < 30*ms || got > 33*ms {
					t.Errorf("granted at %d us", got/us)
				}
				granted++
			})
		}
	}
	r.c.Go(r.nodes[2], "asks", func(p fabric.Port) {
		_ = p.Pause(100 * us)
		r.askReset(2, p, 0, cql.Corruption)
	})
	r.c.At(29*ms, func() {
		if _, _, _, id := r.header(0); id != 3 {
			t.Errorf("reset ID %d while the holder holds", id)
		}
	})
	r.run()
	if granted != 6 || r.led() != 1 {
		t.Errorf("%d granted, %d resets", granted, r.led())
	}
}

// "If the client executing the reset process has failed, the surviving clients attempt to initiate a
// new reset process": the resetter is killed at every moment of its reset, and the second
// one as well; the holder has crashed in half of the cases.
func TestResetterCrashes(t *testing.T) {
	taken := uint64(0)
	for _, holderCrashes := range []bool{false, true} {
		for _, second := range []fabric.Time{0, 3 * us, 9 * us} {
			for step := 500 * fabric.Nanosecond; step < 16*us; step += 700 {
				r := newRig(t, 1, 5, "declock-tf", cql.Layout{CapacityBits: 3, VersionBits: 16}, unsynced, silent,
					waits(500*us, 20*ms), simulated(sim.Config{DetectDelay: 200 * us, Late: sim.LateKeep}))
				var w witness
				r.client(0, "holder", func(k *hier.Locker) {
					if holderCrashes {
						var h lock.Hold
						acquire(t, k, &h, r.lock(0), lock.Exclusive)
						at(k, 60*us)
						r.c.Kill(r.nodes[0])
						sleep(k, us)
						return
					}
					r.hold(k, &w, 0, lock.Exclusive, 0, 5*ms) // beyond the takeover
				})
				granted := 0
				for cn := 1; cn < 5; cn++ {
					r.client(cn, name(cn, 0), func(k *hier.Locker) {
						r.hold(k, &w, 0, lock.Exclusive, 10*us, 0)
						granted++
					})
				}
				r.c.Go(r.nodes[3], "asks", func(p fabric.Port) {
					_ = p.Pause(100 * us)
					r.askReset(3, p, 0, cql.Corruption)
				})
				r.c.At(100*us+step, func() { r.c.Kill(r.nodes[3]) })
				if second > 0 {
					// The node that takes over when the first crash is detected crashes soon after.
					r.c.At(300*us+step+second, func() {
						_, _, _, id := r.header(0)
						if id == 0 || id == 4 {
							id = 3
						}
						r.c.Kill(r.nodes[id-1])
					})
				}
				if err := r.c.Run(); err != nil {
					t.Fatalf("holder crashes %v, resetter killed after %d ns, second after %d: %v", holderCrashes, step, second, err)
				}
				if granted < 2 {
					t.Errorf("holder crashes %v, resetter killed after %d ns, second after %d: %d granted", holderCrashes, step, second, granted)
				}
				for _, a := range r.agents {
					taken += a.Resets().TakenOver
				}
				r.c.Close()
				if t.Failed() {
					return
				}
			}
		}
	}
	if taken < 20 {
		t.Errorf("only %d resets were taken over", taken)
	}
	t.Logf("%d resets taken over", taken)
}

// A holder crashes: all clients that wait for its locks, on any node, get them soon after the crash is known,
// and not only after a timeout.
func TestHolderCrashes(t *testing.T) {
	for _, policy := range []string{"cql", "declock-tf"} {
		r := newRig(t, 1, 3, policy, cql.Layout{CapacityBits: 4, VersionBits: 16}, unsynced)
		ws := make([]witness, 4)
		for l := range 4 {
			r.client(0, name(0, l), func(k *hier.Locker) {
				var h lock.Hold
				acquire(t, k, &h, r.lock(l), lock.Mode(l%2))
				_, _ = k.Port().Recv(fabric.Forever) // for ever
			})
			for cn := 1; cn < 3; cn++ {
				for i := range 2 {
					r.client(cn, name(cn, l), func(k *hier.Locker) {
						got := r.hold(k, &ws[l], l, lock.Exclusive, 20*us+fabric.Time(i)*us, 0)
						if got < 10*ms || got > 14*ms {
							t.Errorf("%s: granted at %d us, the death is known at 10 ms", policy, got/us)
						}
					})
				}
			}
		}
		r.c.At(50*us, func() { r.c.Kill(r.nodes[0]) })
		if err := r.c.Run(); err != nil {
			t.Fatal(err)
		}
	}
}

// A node that is paused for so long that it is declared dead does no harm when it
// wakes up: it is fenced, and learns it from its next operation.
func TestZombie(t *testing.T) {
	for when := 30 * us; when < 45*us; when += 900 {
		r := newRig(t, 1, 3, "declock-tf", small, unsynced, silent, waits(500*us, 5*ms))
		var w witness
		refused := false
		r.client(0, "zombie", func(k *hier.Locker) {
			var h lock.Hold
			for {
				if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive}); err != nil {
					refused = true
					return
				}
				sleep(k, 2*us)
				if err := k.Release(&h, nil); err != nil {
					refused = true
					return
				}
			}
		})
		grants := 0
		for cn := 1; cn < 3; cn++ {
			r.client(cn, name(cn, 0), func(k *hier.Locker) {
				at(k, ms) // the zombie sleeps now, and is fenced
				for range 20 {
					r.hold(k, &w, 0, lock.Exclusive, 0, k.Port().Now()+200*us)
					grants++
				}
			})
		}
		r.c.At(when, func() { r.c.Pause(r.nodes[0]) })
		r.c.At(900*us, func() { r.c.Fence(r.nodes[0]) })
		r.c.At(3*ms, func() { r.c.Resume(r.nodes[0]) })
		if err := r.c.Run(); err != nil {
			t.Fatalf("paused at %d ns: %v", when, err)
		}
		if !refused || grants != 40 {
			t.Errorf("paused at %d ns: zombie refused %v, %d grants of the others", when, refused, grants)
		}
	}
}

// A node that joins while a reset is under way waits for its end.
func TestJoinDuringReset(t *testing.T) {
	r := newRig(t, 1, 2, "declock-tf", small, unsynced)
	var w witness
	r.client(0, "holder", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 0, 500*us) })
	r.c.Go(r.nodes[1], "asks", func(p fabric.Port) {
		_ = p.Pause(100 * us)
		r.askReset(1, p, 0, cql.Corruption)
	})
	r.c.At(200*us, func() {
		p, _ := hier.ParsePolicy("declock-tf")
		r.addNode(p)
		r.client(2, "joined", func(k *hier.Locker) {
			if got := r.hold(k, &w, 0, lock.Exclusive, 0, 0); got < 500*us || got > 3*ms {
				t.Errorf("granted at %d us", got/us)
			}
		})
	})
	r.run()
	if r.led() != 1 {
		t.Errorf("%d resets", r.led())
	}
}
