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

// A fault is what happens to one chain on lock memory.
type fault int

const (
	refused     fault = iota // ErrNodeDown: nothing was executed
	unknownLost              // ErrUnknownOutcome: nothing was executed, no client knows
	unknownDone              // ErrUnknownOutcome: all was executed, no client knows
	lastRefused              // the last operation of the chain was not executed
	numFaults
)

func (f fault) String() string {
	return [...]string{"refused", "unknown, not done", "unknown, done", "last operation refused"}[f]
}

const faultsEnd = 40 * ms

// An injector fails the k-th chain on a lock, counted over all clients and agents.
type injector struct {
	kind   fault
	at     int // 0: none
	more   int // and each more-th after it; 0: no more
	chains int
	failed string // the last
	count  int
}

func (in *injector) do(p fabric.Port, ops []fabric.Op) error {
	if len(ops) == 0 || ops[0].Addr.Offset() < locksAt || p.Now() > faultsEnd {
		return p.Do(ops)
	}
	in.chains++
	if past := in.chains - in.at; past != 0 && (in.at == 0 || in.more == 0 || past < 0 || past%in.more != 0) {
		return p.Do(ops)
	}
	in.count++
	in.failed = fmt.Sprintf("%v %v by %v at %d ns", in.kind, ops[0], p.ID(), p.Now())
	err := &fabric.ChainError{Op: ops[0], Err: fabric.ErrUnknownOutcome}
	switch in.kind {
	case refused:
		err.Err = fabric.ErrNodeDown
	case lastRefused:
		n := len(ops) - 1
		if e := p.Do(ops[:n]); e != nil {
			return e
		}
		err.Index, err.Op, err.Err = n, ops[n], fabric.ErrNodeDown
	case unknownDone:
		if e := p.Do(ops); e != nil {
			return e
		}
	}
	return err
}

// faultRun is a short contention on one lock, during which one chain fails.
// Every client gets an answer; none holds beside a writer; and at the end, when
// no more faults come, every client is granted the lock, and it is free.
func faultRun(t *testing.T, seed uint64, policy string, in *injector) {
	r := newRig(t, seed, 3, policy, cql.Layout{CapacityBits: 3, VersionBits: 16}, unsynced, silent, waits(200*us, ms),
		wrapped(func(p fabric.Port) fabric.Port { return &hookPort{Port: p, do: in.do} }))
	var w witness
	granted, answers := 0, 0
	for cn := range 3 {
		for i := range 2 {
			r.client(cn, name(cn, i), func(k *hier.Locker) {
				buf := k.Port().Alloc(8)
				var h lock.Hold
				round := func(n int, last bool) {
					req := lock.Request{Lock: r.lock(0), Mode: lock.Mode((n + i) % 2)}
					if n%3 == 1 && !last {
						req.Deadline = k.Port().Now() + 12*us
					}
					if n%3 == 2 {
						req.Reads = []fabric.Op{fabric.Read(r.data(0), buf)}
					}
					answers++
					if err := k.Acquire(&h, &req); err != nil {
						if h.Held {
							t.Errorf("held after %v", err)
						}
						if last {
							t.Errorf("after the faults: %v", err)
						}
						return
					}
					w.enter(t, &h)
					if last {
						granted++
					}
					sleep(k, 2*us)
					w.exit(&h)
					var before []fabric.Op
					if n%3 == 2 && req.Mode == lock.Exclusive {
						before = []fabric.Op{fabric.Write(r.data(0), buf)}
					}
					if err := k.Release(&h, before); err != nil && last {
						t.Errorf("release after the faults: %v", err)
					}
				}
				for n := range 4 {
					round(n, false)
				}
				at(k, faultsEnd+10*ms)
				round(0, true)
				round(2, true)
			})
		}
	}
	r.run()
	if granted != 12 || answers != 36 {
		t.Errorf("%d of 12 grants after the faults, %d of 36 answers", granted, answers)
	}
	r.wantFree(0)
	r.c.Close()
	if t.Failed() {
		t.Fatalf("seed %d, %s, from chain %d of %d, every %d: %d faults, the last %s", seed, policy, in.at, in.chains, in.more, in.count, in.failed)
	}
}

// A failure at the k-th operation, for all k.
func TestFaultAtEveryOperation(t *testing.T) {
	for _, policy := range []string{"cql", "declock-tf", "declock-pf", "local-bound", "declock+no-train+train", "declock"} {
		t.Run(policy, func(t *testing.T) {
			clean := &injector{}
			faultRun(t, 5, policy, clean)
			for kind := range numFaults {
				for k := 1; k <= clean.chains; k++ {
					faultRun(t, 5, policy, &injector{kind: kind, at: k})
				}
			}
			t.Logf("%d chains, each failed in %d ways", clean.chains, numFaults)
		})
	}
}

// One failure after the other: the mending of the first fails too. (Not all the time: acquisitions
// of unknown outcome count as participants until a reset, and the header can count 2^(c+1)-1.)
func TestFaultsInARow(t *testing.T) {
	for _, policy := range []string{"cql", "declock-tf", "declock"} {
		for seed := range uint64(150) {
			in := &injector{kind: fault(seed % uint64(numFaults)), at: 1 + int(seed*7%40), more: 4 + int(seed/4%9)}
			faultRun(t, seed, policy, in)
		}
	}
}

// READs of the queue that tear at every 8 bytes, between others' writes: versions tell.
func TestTornReads(t *testing.T) {
	for _, policy := range []string{"cql", "declock-tf", "paper-pf", "declock"} {
		for seed := range uint64(5) {
			y := cql.Layout{CapacityBits: 4, VersionBits: 16}
			r := newRig(t, seed, 4, policy, y, simulated(sim.Config{Tear: sim.Tear{Prob: 1, Grain: 8, Window: 3 * us}}))
			var w witness
			for cn := range 4 {
				for i := range 3 {
					r.client(cn, name(cn, i), func(k *hier.Locker) {
						var h lock.Hold
						for range 60 {
							acquire(t, k, &h, r.lock(0), lock.Mode(k.Port().Rand()%2))
							w.enter(t, &h)
							w.exit(&h)
							must(t, k.Release(&h, nil))
						}
					})
				}
			}
			r.run()
			if n := r.led(); n != 0 {
				t.Errorf("%s, seed %d: %d resets", policy, seed, n)
			}
		}
	}
}

// A compute node is killed at every moment of a contention: the others get the lock
// in the end, also if it was the resetter, and what it had under way is done or not.
func TestKillAtEveryMoment(t *testing.T) {
	for _, late := range []sim.LateOps{sim.LateDrop, sim.LateKeep} {
		for when := 20 * us; when < 80*us; when += 1700 {
			r := newRig(t, 2, 3, "declock-tf", small, unsynced, silent, waits(200*us, ms),
				simulated(sim.Config{Late: late, DetectDelay: 300 * us}))
			var w witness
			grants := 0
			inside := [3]lock.Hold{}
			for cn := range 3 {
				for i := range 2 {
					r.client(cn, name(cn, i), func(k *hier.Locker) {
						var h lock.Hold
						for n := range 12 {
							acquire(t, k, &h, r.lock(0), lock.Mode((n+i)%2))
							w.enter(t, &h)
							if cn == 1 {
								inside[i] = h
							}
							grants++
							if cn == 1 && n == 2 && i == 0 {
								r.askReset(1, k.Port(), 0, cql.Corruption)
							}
							sleep(k, 2*us)
							w.exit(&h)
							inside[i].Held = inside[i].Held && cn != 1
							must(t, k.Release(&h, nil))
						}
					})
				}
			}
			r.c.At(when, func() {
				r.c.Kill(r.nodes[1])
				for i := range inside {
					if inside[i].Held { // the dead hold nothing
						w.exit(&inside[i])
					}
				}
			})
			if err := r.c.Run(); err != nil {
				t.Fatalf("killed at %d ns, late operations %v: %v", when, late, err)
			}
			if grants < 48 {
				t.Errorf("killed at %d ns: %d grants", when, grants)
			}
			if t.Failed() {
				t.Fatalf("killed at %d ns, late operations %v", when, late)
			}
		}
	}
}

// What the fabric says comes through, and the lock is not held.
func TestErrorsAreOfTheFabric(t *testing.T) {
	r := newRig(t, 1, 1, "declock-tf", small, unsynced, silent)
	r.client(0, "a", func(k *hier.Locker) {
		var h lock.Hold
		for _, l := range []fabric.Addr{fabric.At(r.mn, 64<<20), fabric.At(9, 0)} {
			err := k.Acquire(&h, &lock.Request{Lock: l})
			if !errors.Is(err, fabric.ErrOutOfBounds) && !errors.Is(err, fabric.ErrNodeDown) || h.Held {
				t.Errorf("%v: %v", l, err)
			}
		}
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		r.c.Fence(r.nodes[0])
		if err := k.Release(&h, nil); !errors.Is(err, fabric.ErrFenced) || h.Held {
			t.Errorf("release by a fenced node: %v", err)
		}
		if err := k.Acquire(&h, &lock.Request{Lock: r.lock(1)}); !errors.Is(err, fabric.ErrFenced) {
			t.Errorf("acquire by a fenced node: %v", err)
		}
	})
	r.run()
}

// Only the READ of a release fails: the lock is released, so the notification is owed, and
// comes at once from a second READ; not when the waiter looks for itself.
func TestReleaseWhoseReadFails(t *testing.T) {
	r := newRig(t, 1, 2, "declock-tf", small, unsynced)
	var w witness
	r.c.Go(r.nodes[0], "a", func(p fabric.Port) {
		k := r.hooked(0, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
			if !isRelease(ops) {
				return p.Do(ops)
			}
			if err := p.Do(ops[:1]); err != nil {
				return err
			}
			return &fabric.ChainError{Index: 1, Op: ops[1], Err: fabric.ErrUnknownOutcome}
		}})
		r.hold(k, &w, 0, lock.Exclusive, 0, 100*us)
	})
	r.client(1, "b", func(k *hier.Locker) { r.soon("b", r.hold(k, &w, 0, lock.Exclusive, 20*us, 200*us), 100*us) })
	r.run()
	if n := r.led(); n != 0 {
		t.Errorf("%d resets", n)
	}
}
