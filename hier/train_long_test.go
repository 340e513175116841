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

// many has room for the longest trains of thirty compute nodes.
var many = cql.Layout{CapacityBits: 6, VersionBits: 27}

// longest is how many members a train has at most: the list of the others takes two messages.
const longest = 25

// Trains of as many members as there can be, whose lists take two messages: all are granted the lock, in turn, and one FAA takes them off. A value
// goes with the lock: the list has less room beside it.
func TestLongTrains(t *testing.T) {
	for _, policy := range []string{"declock+no-train+train", "declock", "declock-pf+train"} {
		for words := range 4 {
			t.Run(fmt.Sprintf("%s, %d words", policy, words), func(t *testing.T) {
				const nodes, rounds = 29, 4
				o := &trains{layout: many}
				r := newRig(t, 1, nodes, policy, many, unsynced, simulated(sim.Config{Observer: o}))
				var w witness
				writes := uint64(0)
				for cn := range nodes {
					r.client(cn, name(cn, 0), func(k *hier.Locker) {
						at(k, fabric.Time(cn)*us)
						c := r.counter(k, 0, lock.Exclusive)
						c.v.Buf = c.v.Buf[:8*max(1, words)]
						for round := range rounds {
							// The first holder has no value: what it grants has a long list, also where values go with the lock.
							plain := words == 0 || round == 0 && cn == 0
							if c.r.Mode = lock.Exclusive; (cn+round)%4 == 3 {
								c.r.Mode = lock.Shared
							}
							if plain {
								must(t, k.Acquire(&c.h, &c.r))
							} else {
								must(t, k.AcquireValue(&c.h, &c.r, &c.v))
							}
							w.enter(t, &c.h)
							if plain && round == 0 && cn == 0 {
								at(k, 200*us)
							} else {
								sleep(k, us)
							}
							w.exit(&c.h)
							if plain {
								must(t, k.Release(&c.h, nil))
								continue
							}
							if c.r.Mode == lock.Exclusive {
								writes++
								c.set(c.get() + 1)
							}
							must(t, k.ReleaseValue(&c.h, &c.v, nil))
						}
					})
				}
				r.run()
				r.wantFree(0)
				if n := r.led(); n > 0 || w.grants != nodes*rounds {
					t.Errorf("%d resets, %d grants", n, w.grants)
				}
				if o.all != longest {
					t.Errorf("the longest train has %d members, want %d", o.all, longest)
				}
				if got := r.word(0); got != writes {
					t.Errorf("counted to %d of %d", got, writes)
				}
			})
		}
	}
}

// A compute node that knows that another has crashed forms no trains of locks that may be that one's, until they have been reset.
func TestNoTrainsAfterACrash(t *testing.T) {
	for _, crash := range []bool{false, true} {
		o := &trains{layout: many}
		r := newRig(t, 1, 6, "declock+no-train+train", many, unsynced, simulated(sim.Config{DetectDelay: 100 * us, NewsDelay: 20 * us, Observer: o}))
		if crash {
			r.c.At(us, func() { r.c.Kill(r.nodes[5]) })
		}
		for cn := range 5 {
			r.client(cn, name(cn, 0), func(k *hier.Locker) {
				at(k, 500*us)
				for range 10 {
					var h lock.Hold
					acquire(t, k, &h, r.lock(0), lock.Exclusive)
					must(t, k.Release(&h, nil))
				}
			})
		}
		must(t, r.c.Run())
		r.wantFree(0)
		if formed := o.formed > 0; formed == crash || r.led() > 0 {
			t.Errorf("crash %v: %d trains, %d resets", crash, o.formed, r.led())
		}
	}
}

// More compute nodes live than a queue has entries: no trains are formed.
func TestNoTrainsOfTooManyNodes(t *testing.T) {
	y := cql.Layout{CapacityBits: 3, VersionBits: 27}
	o := &trains{layout: y}
	r := newRig(t, 1, 12, "declock+no-train+train", y, unsynced, simulated(sim.Config{Observer: o}))
	for cn := range 6 {
		r.client(cn, name(cn, 0), func(k *hier.Locker) {
			for range 10 {
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				must(t, k.Release(&h, nil))
			}
		})
	}
	r.run()
	r.wantFree(0)
	if o.formed > 0 {
		t.Errorf("%d trains", o.formed)
	}
}

// The next member of a train is known to have crashed when the lock is passed to it, and no client waits: the lock is reset all the same. One
// that only tries it would find it taken for ever.
func TestTrainToCrashedNode(t *testing.T) {
	for _, last := range []lock.Mode{lock.Exclusive, lock.Shared} {
		r := newRig(t, 1, 4, "declock", roomy, unsynced, silent, simulated(sim.Config{DetectDelay: 100 * us, NewsDelay: 20 * us}))
		for cn := range 4 {
			r.client(cn, name(cn, 0), func(k *hier.Locker) {
				at(k, fabric.Time(cn)*5*us)
				var h lock.Hold
				m := lock.Exclusive
				if cn == 2 {
					m = last
				}
				acquire(t, k, &h, r.lock(0), m)
				if cn == 3 { // it is killed before, or waits for the reader that is
					must(t, k.Release(&h, nil))
					return
				}
				at(k, []fabric.Time{50 * us, ms, 2 * ms, 0}[cn])
				must(t, k.Release(&h, nil))
			})
		}
		r.c.At(60*us, func() {
			r.c.Kill(r.nodes[2])
			r.c.Kill(r.nodes[3])
		})
		must(t, r.c.RunUntil(30*ms))
		r.wantFree(0)
	}
}

// A release in a train fails before it has written the value back: the next holder finds what is in memory.
func TestTrainAfterAFailedRelease(t *testing.T) {
	for _, policy := range []string{"declock+no-train+train", "declock"} {
		o := &trains{layout: roomy}
		r := newRig(t, 1, 4, policy, roomy, unsynced, silent, simulated(sim.Config{Observer: o}))
		failed, grants := false, 0
		for cn := range 4 {
			r.client(cn, name(cn, 0), func(k *hier.Locker) {
				at(k, fabric.Time(cn)*5*us)
				c := r.counter(k, 0, lock.Exclusive)
				c.v.Buf = c.v.Buf[:8] // beside a longer one a train has less room
				must(t, k.AcquireValue(&c.h, &c.r, &c.v))
				grants++
				if got := r.word(0); c.get() != got {
					t.Errorf("%s: %s finds %d, memory has %d", policy, name(cn, 0), c.get(), got)
				}
				c.set(c.get() + 1)
				if cn == 0 {
					at(k, 60*us)
				}
				if cn == 1 {
					bad := []fabric.Op{fabric.Load(fabric.At(r.mn, 1<<40))}
					if err := k.ReleaseValue(&c.h, &c.v, bad); err == nil || errors.Is(err, fabric.ErrUnknownOutcome) {
						t.Errorf("a release with an operation that fails: %v", err)
					}
					failed = true
					return
				}
				must(t, k.ReleaseValue(&c.h, &c.v, nil))
			})
		}
		must(t, r.c.Run())
		if !failed || grants != 4 || o.formed == 0 {
			t.Errorf("%s: %d grants, %d trains", policy, grants, o.formed)
		}
		r.wantFree(0)
	}
}

// The memory node restarts while the lock goes from one member of a train to the next, which no operation there shows. Once its compute node knows, a client is
// not granted the lock of before, and one that releases it is notified that it was lost.
func TestTrainIntoAnotherEpoch(t *testing.T) {
	again, lost := 0, 0
	for when := 96 * us; when < 108*us; when += 500 {
		r := newRig(t, 1, 4, "declock+no-train+train", roomy, unsynced, silent, waits(500*us, 5*ms))
		epoch := r.nodes[0].MemoryEpoch(r.mn)
		for cn := range 4 {
			r.client(cn, name(cn, 0), func(k *hier.Locker) {
				buf := k.Port().Alloc(8)
				at(k, fabric.Time(cn)*5*us)
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				knows := r.nodes[cn].MemoryEpoch(r.mn) != epoch
				err := k.Port().Do([]fabric.Op{fabric.Read(r.data(0), buf)})
				switch stale := errors.Is(err, fabric.ErrStaleEpoch); {
				case stale && knows:
					t.Errorf("restart at %d: %s is granted the lock of before", when, name(cn, 0))
				case !stale && knows:
					again++
				}
				before := r.nodes[cn].MemoryEpoch(r.mn)
				at(k, []fabric.Time{50 * us, 100 * us, 0, 0}[cn])
				knows = r.nodes[cn].MemoryEpoch(r.mn) != before
				switch err := k.Release(&h, nil); {
				case knows && !errors.Is(err, lock.ErrLost):
					t.Errorf("restart at %d: %s releases the lock of before: %v", when, name(cn, 0), err)
				case knows:
					lost++
				}
			})
		}
		r.c.At(when, func() { r.c.RestartServer(r.mn) })
		must(t, r.c.RunUntil(30*ms))
		r.wantFree(0)
	}
	if again == 0 || lost == 0 {
		t.Errorf("%d grants in the new epoch, %d releases of the lock of before", again, lost)
	}
}
