package hier_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// roomy has room for trains of nine members of eight compute nodes.
var roomy = cql.Layout{CapacityBits: 4, VersionBits: 27}

// The holder of a train's first member writes in a chain of its own, and the connection breaks: the WRITE takes effect late, or never. Then the holder
// releases without an operation, at once or by way of another client of its node. Or it writes with its release. No later holder sees its data change
// under it.
func TestTrainAfterUnknownOutcome(t *testing.T) {
	for _, policy := range []string{"declock+no-train+train", "declock"} {
		for variant := range 4 {
			changed := 0
			for seed := range uint64(40) {
				changed += trainAfterUnknownOutcome(t, seed, policy, variant&1 != 0, variant&2 != 0)
			}
			if changed == 0 {
				t.Errorf("%s, variant %d: no WRITE took effect late", policy, variant)
			}
		}
	}
}

func trainAfterUnknownOutcome(t *testing.T, seed uint64, policy string, local, with bool) (changed int) {
	r := newRig(t, seed, 4, policy, roomy, unsynced, silent, waits(200*us, 5*ms),
		simulated(sim.Config{BreakAfter: 5 * us, BrokenLate: 500 * us}))
	read := func(k *hier.Locker, buf []byte) uint64 {
		must(t, k.Port().Do([]fabric.Op{fabric.Read(r.data(0), buf)}))
		return binary.LittleEndian.Uint64(buf)
	}
	for cn := range 4 {
		r.client(cn, name(cn, 0), func(k *hier.Locker) {
			buf := k.Port().Alloc(8)
			var h lock.Hold
			at(k, fabric.Time(cn)*5*us)
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			switch cn {
			case 0:
				at(k, 60*us)
			case 1:
				r.c.Cut(sim.OfCN(2), sim.OfMN(r.mn), r.c.Now()+20*us)
				binary.LittleEndian.PutUint64(buf, 7)
				write := []fabric.Op{fabric.Write(r.data(0), buf)}
				if !with {
					if err := k.Port().Do(write); !errors.Is(err, fabric.ErrUnknownOutcome) {
						t.Errorf("WRITE over a connection that breaks: %v", err)
					}
					write = nil
				}
				_ = k.Release(&h, write) // what it says is not what matters here
				return
			default:
				was := read(k, buf)
				sleep(k, 700*us)
				if now := read(k, buf); now != was {
					t.Errorf("%s, seed %d: the data of %s change from %d to %d under the lock", policy, seed, name(cn, 0), was, now)
				}
			}
			must(t, k.Release(&h, nil))
		})
	}
	if local { // it gets the lock from the client that has written
		r.client(1, name(1, 1), func(k *hier.Locker) {
			at(k, 20*us)
			var h lock.Hold
			if k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive}) == nil {
				_ = k.Release(&h, nil)
			}
		})
	}
	must(t, r.c.Run())
	return int(r.c.PeekWord(r.data(0)))
}

// A client that holds two locks, each as a member of a train and on a memory node of its own, writes the data of one, and the outcome is unknown. It
// releases the other one first. No later holder sees its data change under it.
func TestTrainAfterUnknownOutcomeOfAnotherLock(t *testing.T) {
	changed := 0
	for seed := range uint64(20) {
		r := newRig(t, seed, 4, "declock", roomy, unsynced, silent, waits(200*us, 5*ms),
			simulated(sim.Config{BreakAfter: 5 * us, BrokenLate: 500 * us}))
		other := fabric.At(r.c.AddMN(1<<20), locksAt)
		both := 0
		for cn := range 4 {
			r.client(cn, name(cn, 0), func(k *hier.Locker) {
				buf := k.Port().Alloc(8)
				data := []fabric.Op{fabric.Read(r.data(0), buf)}
				read := func() uint64 {
					must(t, k.Port().Do(data))
					return binary.LittleEndian.Uint64(buf)
				}
				var h, first lock.Hold
				at(k, fabric.Time(cn)*5*us)
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				switch cn {
				case 0:
					at(k, 60*us)
				case 1:
					acquire(t, k, &first, other, lock.Exclusive)
					both++
					r.c.Cut(sim.OfCN(2), sim.OfMN(r.mn), r.c.Now()+20*us)
					binary.LittleEndian.PutUint64(buf, 7)
					if err := k.Port().Do([]fabric.Op{fabric.Write(r.data(0), buf)}); !errors.Is(err, fabric.ErrUnknownOutcome) {
						t.Errorf("WRITE over a connection that breaks: %v", err)
					}
					must(t, k.Release(&first, nil))
					_ = k.Release(&h, nil) // what it says is not what matters here
					return
				default:
					was := read()
					sleep(k, 700*us)
					if now := read(); now != was {
						t.Errorf("seed %d: the data of %s change from %d to %d under the lock", seed, name(cn, 0), was, now)
					}
				}
				must(t, k.Release(&h, nil))
			})
			if cn == 1 {
				continue
			}
			r.client(cn, name(cn, 1), func(k *hier.Locker) {
				at(k, fabric.Time(cn)*40*us)
				var h lock.Hold
				acquire(t, k, &h, other, lock.Exclusive)
				if cn == 0 {
					at(k, 150*us)
				}
				must(t, k.Release(&h, nil))
			})
		}
		must(t, r.c.Run())
		if both != 1 {
			t.Errorf("seed %d: it has not held both", seed)
		}
		changed += int(r.c.PeekWord(r.data(0)))
	}
	if changed == 0 {
		t.Error("no WRITE took effect late")
	}
}

// The last of a train takes all off the header, and its READ of the queue fails: the lock goes on to the client that waits behind the train, and nothing is lost.
func TestLastOfTrainWhoseReadFails(t *testing.T) {
	failed := 0
	r := newRig(t, 1, 5, "declock-pf+train", roomy, unsynced, silent)
	for cn := range 5 {
		r.c.Go(r.nodes[cn], name(cn, 0), func(p fabric.Port) {
			hook := &hookPort{}
			k := r.hooked(cn, p, hook)
			var h lock.Hold
			if at(k, fabric.Time(cn)*5*us); cn == 4 {
				at(k, 62*us) // behind the train
			}
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			if cn == 0 {
				at(k, 60*us)
			}
			sleep(k, 3*us)
			hook.do = func(p fabric.Port, ops []fabric.Op) error {
				last := len(ops) - 1
				if cn != 3 || failed > 0 || last != 1 {
					return p.Do(ops)
				}
				failed++
				if y := r.cfg.Layout; y.Size(cql.Header(r.c.PeekWord(r.lock(0)))) != 4 {
					t.Error("it is not the last of a train of three with one behind")
				}
				must(t, p.Do(ops[:last]))
				return &fabric.ChainError{Index: last, Op: ops[last], Err: fabric.ErrUnknownOutcome}
			}
			if err := k.Release(&h, nil); errors.Is(err, lock.ErrLost) || cn != 3 && err != nil {
				t.Errorf("%s releases: %v", name(cn, 0), err)
			}
		})
	}
	r.run()
	r.wantFree(0)
	if n := r.led(); failed != 1 || n > 0 {
		t.Errorf("%d READs failed, %d resets", failed, n)
	}
}
