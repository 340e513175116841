package hier_test

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// A tried is one hold of a lock: what it has read, what it was to write by its release, and what came of that.
type tried struct {
	token       lock.Token
	read, wrote uint64
	err         error
}

// contend has clients of three nodes change a word under a lock, each by the operation of its release, until the primary is replaced. It returns the holds of the first term.
func contend(t *testing.T, policy string, seed uint64, cut bool) (list []tried) {
	r := newRig(t, seed, 3, policy, roomy, replicated, unsynced, silent, waits(200*us, 50*ms),
		simulated(sim.Config{DetectDelay: 20 * us, BreakAfter: 5 * us, BrokenLate: 100 * us}))
	data, last := r.data(0), uint64(0)
	for i := range 9 {
		r.client(i%3, name(i%3, i), func(k *hier.Locker) {
			buf := k.Port().Alloc(8)
			for {
				var h lock.Hold
				if k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Deadline: 20 * ms}) != nil {
					sleep(k, 10*us)
					continue
				}
				if uint64(h.Token)>>48 > 1 {
					_ = k.Release(&h, nil)
					return
				}
				if k.Port().Do([]fabric.Op{fabric.Read(data, buf)}) != nil {
					_ = k.Release(&h, nil)
					continue
				}
				last++
				x := tried{token: h.Token, read: binary.LittleEndian.Uint64(buf), wrote: last}
				x.err = k.Release(&h, []fabric.Op{fabric.CAS(data, x.read, x.wrote)})
				list = append(list, x)
			}
		})
	}
	end := 150*us + fabric.Time(seed)*13*us
	if cut {
		until := end + fabric.Time(seed%7)*20*us
		r.c.At(end, func() { r.c.Cut(sim.OfCN(fabric.CNID(1+seed%3)), sim.OfMN(r.mn), until) })
		end += fabric.Time(seed%9) * 100 * us
	}
	r.c.At(end, func() { r.c.KillMN(r.mn) })
	r.run()
	slices.SortFunc(list, func(a, b tried) int { return cmp.Compare(a.token, b.token) })
	return list
}

// heldToTheEnd reports whether the error of a release says that no other client had the lock but by it.
func heldToTheEnd(err error) bool {
	return errors.Is(err, lock.ErrLost) && errors.Is(err, fabric.ErrStaleEpoch)
}

// TestHeldToTheEnd: a release fails because the primary of a replicated number ends, or a connection to it. If its error says that the lock was held to the end, then whoever had it next
// in that term has seen what the release wrote; and it says so whenever the primary has only ended.
func TestHeldToTheEnd(t *testing.T) {
	for _, policy := range []string{"declock", "paper-tf", "cql", "declock-tf+train"} {
		for _, cut := range []bool{false, true} {
			t.Run(fmt.Sprint(policy, "/", cut), func(t *testing.T) {
				failed, held, seen := 0, 0, 0
				for seed := range uint64(150) {
					list := contend(t, policy, seed, cut)
					for i, x := range list {
						switch {
						case x.err == nil:
						case !heldToTheEnd(x.err):
							failed++
							if i+1 < len(list) {
								seen++
							} else if !cut {
								t.Errorf("seed %d: the last release before the end: %v", seed, x.err)
							}
						default:
							held++
							if i+1 < len(list) && list[i+1].read != x.wrote {
								t.Errorf("seed %d: token %v wrote %d, and the next has read %d: %v", seed, x.token, x.wrote, list[i+1].read, x.err)
							}
						}
					}
				}
				t.Logf("%d releases held the lock to the end, %d not, %d of them with a holder after it", held, failed, seen)
				if held == 0 || cut && seen == 0 {
					t.Error("too few")
				}
			})
		}
	}
}

// The operation of a release is refused, and the FAA behind it has an unknown outcome when the primary ends: another client may have had the lock and not seen the operation.
func TestNotHeldToTheEnd(t *testing.T) {
	r := newRig(t, 1, 1, "declock", cql.Layout{CapacityBits: 4, VersionBits: 16}, replicated, unsynced, silent)
	r.c.Go(r.nodes[0], "holder", func(p fabric.Port) {
		hook := &hookPort{}
		k := r.hooked(0, p, hook)
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		chains := 0
		hook.do = func(p fabric.Port, ops []fabric.Op) error {
			switch chains++; chains {
			case 1:
				return &fabric.ChainError{Op: ops[0], Err: fabric.ErrNodeDown}
			case 2:
				r.c.KillMN(r.mn)
				return &fabric.ChainError{Op: ops[0], Err: fabric.ErrUnknownOutcome}
			}
			return p.Do(ops)
		}
		if err := k.Release(&h, []fabric.Op{fabric.Store(r.data(0), 1)}); !errors.Is(err, fabric.ErrUnknownOutcome) || heldToTheEnd(err) {
			t.Errorf("held to the end: %t: %v", heldToTheEnd(err), err)
		}
	})
	if err := r.c.RunUntil(30 * fabric.Millisecond); err != nil {
		t.Fatal(err)
	}
}
