package hier_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// A client that has been left something to do holds the lock, whatever became of its wait: no other can do it. If its Port is
// closed it does nothing more, and who left it is notified that.
func TestWaitFailsWithDeferredWork(t *testing.T) {
	for _, broken := range []error{fabric.ErrNodeDown, fabric.ErrClosed} {
		t.Run(broken.Error(), func(t *testing.T) {
			r := newRig(t, 1, 1, "declock", valueLayout, unsynced)
			data := r.data(0)
			r.client(0, "before", func(k *hier.Locker) {
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				at(k, 20*us)
				h.Handoff, h.Deferred = []byte{1}, 5
				err := k.Release(&h, []fabric.Op{fabric.Store(data, 1)})
				if broken == fabric.ErrNodeDown && (err != nil || r.c.PeekWord(data) != 2) {
					t.Errorf("who left it: %v, memory has %d", err, r.c.PeekWord(data))
				}
				if broken == fabric.ErrClosed && !errors.Is(err, broken) {
					t.Errorf("who left it: %v, want %v", err, broken)
				}
			})
			r.c.Go(r.nodes[0], "heir", func(p fabric.Port) {
				first := true
				k := r.hooked(0, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
					if !first {
						return p.Do(ops)
					}
					first = false
					_ = p.Pause(40 * us) // the lock has come meanwhile
					return broken
				}})
				at(k, 10*us)
				var h lock.Hold
				q := lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Handoff: make([]byte, 8)}
				err := k.Acquire(&h, &q)
				if broken == fabric.ErrClosed {
					if !errors.Is(err, broken) || h.Held {
						t.Errorf("acquire with a closed Port: %v, held %v", err, h.Held)
					}
					return
				}
				must(t, err)
				if q.HandoffLen != 1 || q.Deferred != 5 {
					t.Fatalf("a note of %d bytes, owed %d", q.HandoffLen, q.Deferred)
				}
				must(t, k.Release(&h, []fabric.Op{fabric.Store(data, 2)}))
				if must(t, k.Acquire(&h, &q)); q.HandoffLen != 0 || q.Deferred != 0 {
					t.Errorf("a Request that is used again: a handoff of %d bytes, deferred %d, from no client", q.HandoffLen, q.Deferred)
				}
				must(t, k.Release(&h, nil))
			})
			r.run()
			r.wantFree(0)
		})
	}
}

// A client to which something is owed is interrupted while the memory node does not answer: who left it hears of that, but not that
// it was interrupted itself.
func TestInterruptWithDeferredWork(t *testing.T) {
	for _, why := range []error{fabric.ErrUnknownOutcome, fabric.ErrNodeDown} {
		t.Run(why.Error(), func(t *testing.T) {
			r := newRig(t, 1, 1, "declock", valueLayout, unsynced)
			data := r.data(0)
			r.client(0, "before", func(k *hier.Locker) {
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				at(k, 20*us)
				h.Handoff, h.Deferred = []byte{1}, 5
				if err := k.Release(&h, []fabric.Op{fabric.Store(data, 1)}); !errors.Is(err, why) || errors.Is(err, fabric.ErrInterrupted) {
					t.Errorf("who left it, and was not interrupted: %v, want %v", err, why)
				}
			})
			r.c.Go(r.nodes[0], "heir", func(p fabric.Port) {
				hook := &hookPort{}
				k := r.hooked(0, p, hook)
				at(k, 10*us)
				var h lock.Hold
				must(t, k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Handoff: make([]byte, 8)}))
				hook.do = func(_ fabric.Port, ops []fabric.Op) error {
					err := fabric.ErrInterrupted
					if why == fabric.ErrUnknownOutcome {
						err = errors.Join(why, err)
					}
					return &fabric.ChainError{Op: ops[0], Err: err}
				}
				if err := k.Release(&h, []fabric.Op{fabric.Store(data, 2)}); !errors.Is(err, fabric.ErrInterrupted) {
					t.Errorf("who was interrupted: %v", err)
				}
			})
			if err := r.c.RunUntil(30 * fabric.Millisecond); err != nil {
				t.Fatal(err)
			}
			r.wantFree(0)
		})
	}
}

// A holder that names what it changes defers its operations only to a client that names the same.
func TestDefersToTheSame(t *testing.T) {
	for next, want := range map[string]bool{"a": true, "b": false, "": false} {
		t.Run(next, func(t *testing.T) {
			r := newRig(t, 1, 1, "declock", valueLayout, unsynced)
			data := r.data(0)
			r.client(0, "before", func(k *hier.Locker) {
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				at(k, 20*us)
				h.Handoff, h.Deferred, h.Same = []byte{1}, 5, []byte("a")
				must(t, k.Release(&h, []fabric.Op{fabric.Store(data, 1)}))
				if h.Left != want {
					t.Errorf("operations were deferred: %v, want %v", h.Left, want)
				}
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				if must(t, k.Release(&h, nil)); h.Left {
					t.Error("a Hold that is used again says that operations were deferred")
				}
			})
			r.client(0, "next", func(k *hier.Locker) {
				at(k, 10*us)
				var h lock.Hold
				q := lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Handoff: make([]byte, 8), Same: []byte(next)}
				must(t, k.Acquire(&h, &q))
				if (q.Deferred == 5) != want || (r.c.PeekWord(data) == 0) != want {
					t.Errorf("deferred %d, memory has %d", q.Deferred, r.c.PeekWord(data))
				}
				must(t, k.Release(&h, []fabric.Op{fabric.Store(data, 2)}))
			})
			r.run()
			r.wantFree(0)
		})
	}
}

// A CAS that does not swap has not done what was deferred to its client either, whether the lock stays on the compute node or leaves it; and a client that executes nothing has not.
func TestDeferredIsNotDone(t *testing.T) {
	swaps := func(to fabric.Addr, is uint64) []fabric.Op { return []fabric.Op{fabric.CAS(to, is, 9)} }
	for name, x := range map[string]struct {
		ops    func(fabric.Addr) []fabric.Op
		behind bool // another client waits
		want   error
	}{
		"swaps":               {func(a fabric.Addr) []fabric.Op { return swaps(a, 0) }, false, nil},
		"swaps, stays":        {func(a fabric.Addr) []fabric.Op { return swaps(a, 0) }, true, nil},
		"does not swap":       {func(a fabric.Addr) []fabric.Op { return swaps(a, 7) }, false, lock.ErrLost},
		"does not, and stays": {func(a fabric.Addr) []fabric.Op { return swaps(a, 7) }, true, lock.ErrLost},
		"executes nothing":    {func(fabric.Addr) []fabric.Op { return nil }, false, lock.ErrNotExecuted},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, 1, "declock", valueLayout, unsynced)
			data := r.data(0)
			r.client(0, "before", func(k *hier.Locker) {
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				at(k, 20*us)
				h.Handoff, h.Deferred = []byte{1}, 5
				if err := k.Release(&h, swaps(data, 0)); !errors.Is(err, x.want) || (err == nil) != (x.want == nil) || !h.Left {
					t.Errorf("the one that deferred: %v, want %v; deferred %v", err, x.want, h.Left)
				}
			})
			r.client(0, "next", func(k *hier.Locker) {
				at(k, 10*us)
				var h lock.Hold
				must(t, k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Handoff: make([]byte, 8)}))
				must(t, k.Release(&h, x.ops(data)))
			})
			if x.behind {
				r.client(0, "behind", func(k *hier.Locker) {
					at(k, 15*us)
					var h lock.Hold
					acquire(t, k, &h, r.lock(0), lock.Exclusive)
					must(t, k.Release(&h, nil))
				})
			}
			r.run()
			r.wantFree(0)
		})
	}
}
