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

var valueLayout = cql.Layout{CapacityBits: 3, VersionBits: 16}

// A counter is a client's view of a lock's value: a number in 24 bytes.
type counter struct {
	k *hier.Locker
	h lock.Hold
	v lock.Value
	r lock.Request
}

func (r *rig) counter(k *hier.Locker, i int, m lock.Mode) *counter {
	return &counter{k: k, v: lock.Value{Addr: r.data(i), Buf: k.Port().Alloc(24)}, r: lock.Request{Lock: r.lock(i), Mode: m}}
}

func (c *counter) get() uint64  { return binary.LittleEndian.Uint64(c.v.Buf) }
func (c *counter) set(n uint64) { binary.LittleEndian.PutUint64(c.v.Buf, n); c.v.Dirty = true }

// add makes the number greater by one.
func (c *counter) add(t testing.TB) {
	t.Helper()
	must(t, c.k.AcquireValue(&c.h, &c.r, &c.v))
	c.set(c.get() + 1)
	must(t, c.k.ReleaseValue(&c.h, &c.v, nil))
}

func (r *rig) word(i int) uint64 {
	var b [8]byte
	r.c.Peek(r.data(i), b[:])
	return binary.LittleEndian.Uint64(b[:])
}

var valuePolicies = []string{"cql", "declock-tf", "declock-pf+carry", "declock-pf+batch+defer", "local-prefer+carry+defer", "declock"}

// A client that increments a number under its lock, keeping it or not, counts; and what has been
// acknowledged is in memory.
func TestValueIsLinear(t *testing.T) {
	for _, policy := range valuePolicies {
		for seed := range uint64(5) {
			r := newRig(t, seed, 3, policy, valueLayout, unsynced)
			const clients, rounds = 3, 20
			for cn := range 3 {
				for i := range clients {
					r.client(cn, name(cn, i), func(k *hier.Locker) {
						if policy == "cql" && i > 1 {
							return // no room in the queue
						}
						c, last := r.counter(k, 0, lock.Exclusive), uint64(0)
						for n := range rounds {
							c.r.Mode = lock.Mode(n % 2)
							if c.r.Mode == lock.Exclusive {
								c.add(t)
							} else {
								must(t, k.AcquireValue(&c.h, &c.r, &c.v))
								must(t, k.ReleaseValue(&c.h, &c.v, nil))
							}
							if got := c.get(); got < last || r.word(0) < got {
								t.Fatalf("%s: found %d after %d; memory has %d", policy, got, last, r.word(0))
							}
							last = c.get()
						}
					})
				}
			}
			r.run()
			want := uint64(3 * clients * rounds / 2)
			if policy == "cql" {
				want = 3 * 2 * rounds / 2
			}
			if got := r.word(0); got != want {
				t.Errorf("%s, seed %d: counted to %d of %d", policy, seed, got, want)
			}
			r.wantFree(0)
		}
	}
}

// A streak of holders of one node is one READ and one WRITE to the memory node.
func TestStreakReadsAndWritesOnce(t *testing.T) {
	r := newRig(t, 1, 1, "declock", valueLayout, unsynced)
	const clients = 8
	for i := range clients {
		r.client(0, name(0, i), func(k *hier.Locker) {
			c := r.counter(k, 0, lock.Exclusive)
			c.add(t)
		})
	}
	r.run()
	var data [2]uint64
	nic := r.c.NICStats(r.mn)
	data[0], data[1] = nic.Kinds[fabric.OpRead].Bytes, nic.Kinds[fabric.OpWrite].Bytes
	// The first holder comes before any client waits, and is a streak of its own or begins one.
	if r.word(0) != clients || data[1] > 2*24 {
		t.Errorf("counted to %d; %d bytes read, %d written", r.word(0), data[0], data[1])
	}
}

// A reader that was shown a value which is not written back yet does not return before it is: what
// any client has been notified survives the compute node.
func TestReaderWaitsForWhatItSaw(t *testing.T) {
	r := newRig(t, 1, 1, "declock", valueLayout, unsynced)
	var saw int
	for i, c := range []struct {
		m          lock.Mode
		from, long fabric.Time
	}{{lock.Exclusive, 1 * us, 10 * us}, {lock.Shared, 3 * us, 0}, {lock.Shared, 4 * us, 2 * us}, {lock.Exclusive, 5 * us, 30 * us}} {
		r.client(0, name(0, i), func(k *hier.Locker) {
			at(k, c.from)
			v := r.counter(k, 0, c.m)
			must(t, k.AcquireValue(&v.h, &v.r, &v.v))
			sleep(k, c.long)
			if c.m == lock.Exclusive {
				v.set(v.get() + 1)
			} else if v.get() == 1 && r.word(0) == 0 {
				saw++
			}
			must(t, k.ReleaseValue(&v.h, &v.v, nil))
			if r.word(0) < v.get() {
				t.Errorf("client %d was told %d, memory has %d", i, v.get(), r.word(0))
			}
		})
	}
	r.run()
	if saw != 2 || r.word(0) != 2 {
		t.Errorf("%d readers saw what was not written; counted to %d", saw, r.word(0))
	}
}

// A grant brings the value along: the next node does not READ it.
func TestGrantCarriesValue(t *testing.T) {
	for policy, reads := range map[string]uint64{"declock-pf": 3, "declock-pf+carry": 2} {
		r := newRig(t, 1, 2, policy, valueLayout, unsynced)
		var count uint64
		wait := func(p fabric.Port, ops []fabric.Op) error {
			for i := range ops {
				if ops[i].Kind == fabric.OpRead && ops[i].Addr == r.data(0) {
					count++
				}
			}
			return p.Do(ops)
		}
		for cn := range 2 {
			r.c.Go(r.nodes[cn], name(cn, 0), func(p fabric.Port) {
				k := r.hooked(cn, p, &hookPort{do: wait})
				c := r.counter(k, 0, lock.Exclusive)
				at(k, fabric.Time(cn+1)*2*us)
				must(t, k.AcquireValue(&c.h, &c.r, &c.v))
				c.set(c.get() + 1)
				sleep(k, 20*us)
				must(t, k.ReleaseValue(&c.h, &c.v, nil))
			})
		}
		r.run()
		// One for each acquire's FAA, and one after the grant that did not bring it.
		if r.word(0) != 2 || count != reads {
			t.Errorf("%s: counted to %d with %d READs, want %d", policy, r.word(0), count, reads)
		}
	}
}

// A release whose chain fails before the value is written back does not send the value along with the grant: the
// next node finds what the memory node has.
func TestGrantCarriesOnlyWhatIsWritten(t *testing.T) {
	for name, bad := range map[string]func(r *rig, buf []byte) fabric.Op{
		"refused":  func(r *rig, buf []byte) fabric.Op { return fabric.Store(r.data(0)+4, 1) },
		"executed": func(r *rig, buf []byte) fabric.Op { return fabric.Write(fabric.At(r.mn, 1<<40), buf) },
	} {
		r := newRig(t, 1, 2, "declock", valueLayout, unsynced)
		for cn := range 2 {
			r.client(cn, name, func(k *hier.Locker) {
				c := r.counter(k, 0, lock.Exclusive)
				at(k, fabric.Time(cn+1)*2*us)
				must(t, k.AcquireValue(&c.h, &c.r, &c.v))
				if cn == 1 {
					if c.get() != r.word(0) {
						t.Errorf("%s: found %d, memory has %d", name, c.get(), r.word(0))
					}
					must(t, k.ReleaseValue(&c.h, &c.v, nil))
					return
				}
				c.set(1)
				sleep(k, 20*us) // the other node waits
				if err := k.ReleaseValue(&c.h, &c.v, []fabric.Op{bad(r, k.Port().Alloc(8))}); err == nil {
					t.Errorf("%s: the release returned no error", name)
				}
			})
		}
		r.run()
		r.wantFree(0)
	}
}

// A client that holds another lock does not wait for those after it, who may want that lock.
func TestValueNoDeadlockWithSecondLock(t *testing.T) {
	for _, m := range []lock.Mode{lock.Exclusive, lock.Shared} {
		r := newRig(t, 1, 2, "declock", valueLayout, unsynced)
		r.client(0, "both", func(k *hier.Locker) {
			var outer lock.Hold
			acquire(t, k, &outer, r.lock(1), lock.Exclusive)
			c := r.counter(k, 0, m)
			must(t, k.AcquireValue(&c.h, &c.r, &c.v))
			sleep(k, 10*us) // the others queue up behind
			if m == lock.Exclusive {
				c.set(1)
			}
			must(t, k.ReleaseValue(&c.h, &c.v, nil))
			must(t, k.Release(&outer, nil))
		})
		for i := range 3 {
			r.client(0, name(0, i), func(k *hier.Locker) {
				at(k, 5*us)
				c := r.counter(k, 0, lock.Exclusive)
				must(t, k.AcquireValue(&c.h, &c.r, &c.v))
				var inner lock.Hold
				acquire(t, k, &inner, r.lock(1), lock.Exclusive)
				must(t, k.Release(&inner, nil))
				c.set(c.get() + 1)
				must(t, k.ReleaseValue(&c.h, &c.v, nil))
			})
		}
		r.run()
		if want := 3 + uint64(m); r.word(0) != want {
			t.Errorf("%v: counted to %d, want %d", m, r.word(0), want)
		}
	}
}

// A release whose WRITE of the value fails does not wait for those after it either: they may want a lock that its client holds, and
// it has failed however their WRITEs end.
func TestFailedWriteBackDoesNotWait(t *testing.T) {
	for _, policy := range []string{"paper-tf", "local-prefer", "declock"} {
		r := newRig(t, 1, 1, policy, valueLayout, unsynced)
		r.c.Go(r.nodes[0], "both", func(p fabric.Port) {
			failed := 0
			k := r.hooked(0, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
				if ops[0].Kind == fabric.OpWrite && ops[0].Addr == r.data(0) {
					failed++
					return fabric.ErrNodeDown
				}
				return p.Do(ops)
			}})
			var outer lock.Hold
			acquire(t, k, &outer, r.lock(1), lock.Exclusive)
			c := r.counter(k, 0, lock.Exclusive)
			must(t, k.AcquireValue(&c.h, &c.r, &c.v))
			sleep(k, 10*us) // another queues up behind
			c.set(1)
			if err := k.ReleaseValue(&c.h, &c.v, nil); !errors.Is(err, fabric.ErrNodeDown) || failed != 1 {
				t.Errorf("%s: %d WRITEs of the value failed: %v", policy, failed, err)
			}
			must(t, k.Release(&outer, nil))
		})
		r.client(0, "behind", func(k *hier.Locker) {
			at(k, 5*us)
			c := r.counter(k, 0, lock.Exclusive)
			must(t, k.AcquireValue(&c.h, &c.r, &c.v))
			var inner lock.Hold
			acquire(t, k, &inner, r.lock(1), lock.Exclusive)
			must(t, k.Release(&inner, nil))
			c.set(c.get() + 1)
			must(t, k.ReleaseValue(&c.h, &c.v, nil))
		})
		r.run()
		if r.word(0) != 2 {
			t.Errorf("%s: counted to %d, want 2", policy, r.word(0))
		}
	}
}

// An interrupt does not end a release that waits for the value to be written back.
func TestInterruptDoesNotEndRelease(t *testing.T) {
	for when := fabric.Time(0); when < 30*us; when += 700 {
		r := newRig(t, 1, 1, "declock", valueLayout, unsynced)
		for i := range 4 {
			r.client(0, name(0, i), func(k *hier.Locker) {
				p := k.Port()
				r.c.At(when, p.Interrupt)
				c := r.counter(k, 0, lock.Exclusive)
				for range 3 {
					err := k.AcquireValue(&c.h, &c.r, &c.v)
					if err != nil {
						if !errors.Is(err, lock.ErrCanceled) {
							t.Error(err)
						}
						p.ClearInterrupt()
						continue
					}
					n := c.get() + 1
					c.set(n)
					must(t, k.ReleaseValue(&c.h, &c.v, nil))
					if r.word(0) < n {
						t.Errorf("interrupted at %d: acknowledged %d, memory has %d", when, n, r.word(0))
					}
				}
			})
		}
		r.run()
		r.wantFree(0)
	}
}

// When the memory node is gone, all whose writes it has not got are notified.
func TestValueLostWithMemoryNode(t *testing.T) {
	for when := fabric.Time(1000); when < 25*us; when += 500 {
		r := newRig(t, 1, 1, "declock", valueLayout, unsynced, silent, simulated(sim.Config{}))
		r.c.At(when, func() { r.c.KillMN(r.mn) })
		for i := range 4 {
			r.client(0, name(0, i), func(k *hier.Locker) {
				c := r.counter(k, 0, lock.Exclusive)
				for range 4 {
					if k.AcquireValue(&c.h, &c.r, &c.v) != nil {
						return
					}
					n := c.get() + 1
					c.set(n)
					if err := k.ReleaseValue(&c.h, &c.v, nil); err == nil && r.word(0) < n {
						t.Errorf("killed at %d: acknowledged %d, memory has %d", when, n, r.word(0))
					}
				}
			})
		}
		_ = r.c.RunUntil(fabric.Second)
	}
}

// Values that cannot be kept are refused.
func TestValueMisuse(t *testing.T) {
	r := newRig(t, 1, 1, "declock", valueLayout, unsynced)
	r.client(0, "c", func(k *hier.Locker) {
		buf := k.Port().Alloc(lock.MaxValue + 8)
		for _, v := range []lock.Value{
			{Addr: r.data(0)}, {Addr: r.data(0), Buf: buf}, {Addr: r.data(0), Buf: buf[:12]},
			{Addr: r.data(0) + 4, Buf: buf[:8]}, {Addr: fabric.At(5, 0), Buf: buf[:8]},
		} {
			var h lock.Hold
			if err := k.AcquireValue(&h, &lock.Request{Lock: r.lock(0)}, &v); !errors.Is(err, lock.ErrMisuse) || h.Held {
				t.Errorf("%d bytes at %v: %v", len(v.Buf), v.Addr, err)
			}
		}
	})
	r.run()
}

// So are values that are not what was acquired, and writes by readers; the lock stays held.
func TestReleaseValueMisuse(t *testing.T) {
	r := newRig(t, 1, 1, "declock", valueLayout, unsynced)
	r.client(0, "c", func(k *hier.Locker) {
		buf := k.Port().Alloc(lock.MaxValue + 8)
		for _, m := range []lock.Mode{lock.Shared, lock.Exclusive} {
			c := r.counter(k, 0, m)
			must(t, k.AcquireValue(&c.h, &c.r, &c.v))
			bad := []lock.Value{{Addr: r.data(0), Buf: buf}, {Addr: r.data(0)}, {Addr: fabric.At(5, 0), Buf: buf[:24]}}
			if m == lock.Shared {
				bad = []lock.Value{{Addr: r.data(0), Buf: buf[:24]}}
			}
			for _, v := range bad {
				v.Dirty = true
				if err := k.ReleaseValue(&c.h, &v, nil); !errors.Is(err, lock.ErrMisuse) || !c.h.Held {
					t.Errorf("%v, %d bytes at %v: %v", m, len(v.Buf), v.Addr, err)
				}
			}
			must(t, k.ReleaseValue(&c.h, &c.v, nil))
		}
	})
	r.run()
	r.wantFree(0)
}

// A batch has the clients that wait when the node gets the lock: clients that come later wait for the other nodes.
func TestBatchEnds(t *testing.T) {
	r := newRig(t, 1, 2, "declock", valueLayout, unsynced)
	var order []string
	hold := func(k *hier.Locker, who string, from, long fabric.Time) {
		at(k, from)
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		order = append(order, who)
		sleep(k, long)
		must(t, k.Release(&h, nil))
	}
	for _, c := range []struct {
		cn         int
		who        string
		from, long fabric.Time
	}{
		{0, "first", 1 * us, 50 * us},
		{1, "b1", 10 * us, 30 * us}, {1, "b2", 20 * us, 30 * us}, {1, "b3", 30 * us, 30 * us},
		{0, "a1", 40 * us, 10 * us},
		{1, "late", 70 * us, 10 * us}, // while b1 holds
	} {
		r.client(c.cn, c.who, func(k *hier.Locker) { hold(k, c.who, c.from, c.long) })
	}
	r.run()
	want := []string{"first", "b1", "b2", "b3", "a1", "late"}
	for i := range want {
		if len(order) != len(want) || order[i] != want[i] {
			t.Fatalf("%v, want %v", order, want)
		}
	}
}

func TestPolicyFeatures(t *testing.T) {
	for _, alike := range [][2]string{
		{"declock", "declock-pf+downgrade+yield+batch+carry+defer+train+phased+lean"},
		{"declock+no-train", "declock-pf+downgrade+yield+batch+carry+defer+lean"},
		{"declock", "declock+no-train+train+phased"},
	} {
		p, err := hier.ParsePolicy(alike[0])
		if q, qerr := hier.ParsePolicy(alike[1]); err != nil || qerr != nil || p != q {
			t.Errorf("%s is %+v, %v; %s is %+v, %v", alike[0], p, err, alike[1], q, qerr)
		}
	}
	for _, bad := range []string{"", "+lean", "declock+", "declock+quick", "local-bound:0+lean", "local-bound:4x", "declock-pf+phased", "declock+no-train+phased", "declock-pf+no-train", "cql+train"} {
		if _, err := hier.ParsePolicy(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// A writer whose value others were left to write back returns, with an error, when the memory node has restarted before they could: also if
// who finds that out is not the last of them, and never uses its Locker again.
func TestLostValueEndsItsRelease(t *testing.T) {
	r := newRig(t, 1, 1, "declock", valueLayout, unsynced)
	returned := false
	r.client(0, "writer", func(k *hier.Locker) {
		c := r.counter(k, 0, lock.Exclusive)
		must(t, k.AcquireValue(&c.h, &c.r, &c.v))
		at(k, 20*us)
		c.set(1)
		if err := k.ReleaseValue(&c.h, &c.v, nil); !errors.Is(err, lock.ErrLost) {
			t.Errorf("writer: %v", err)
		}
		returned = true
	})
	for i, until := range []fabric.Time{2 * ms, 9 * ms} {
		r.client(0, name(0, i), func(k *hier.Locker) {
			at(k, fabric.Time(2+i)*us)
			c := r.counter(k, 0, lock.Shared)
			must(t, k.AcquireValue(&c.h, &c.r, &c.v))
			at(k, until)
			if got := returned; got != (i > 0) {
				t.Errorf("before reader %d releases, the writer has returned: %v", i, got)
			}
			if err := k.ReleaseValue(&c.h, &c.v, nil); !errors.Is(err, lock.ErrLost) {
				t.Errorf("reader %d: %v", i, err)
			}
		})
	}
	r.restartAt(ms, true)
	r.run()
}
