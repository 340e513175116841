package hier_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// A release fails when operations before it have been executed: its error says that the outcome is unknown. One of which nothing was executed does not.
func TestReleaseThatFailsInPart(t *testing.T) {
	for _, waits := range []bool{false, true} { // another client of the node waits: the operations are executed before the lock is passed on
		for stop := range 4 {
			t.Run(fmt.Sprintf("a client waits %v/at operation %d", waits, stop), func(t *testing.T) {
				if waits && stop > 1 {
					t.Skip("the lock goes on")
				}
				r := newRig(t, 1, 2, "declock", small, unsynced, silent)
				r.c.Go(r.nodes[0], "holder", func(p fabric.Port) {
					armed := false
					k := r.hooked(0, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
						if !armed {
							return p.Do(ops)
						}
						if armed = stop == 3; armed { // the chain is executed, and what is to follow it is not
							armed = false
							if err := p.Do(ops[:len(ops)-1]); err != nil {
								return err
							}
							return &fabric.ChainError{Index: len(ops) - 1, Op: ops[len(ops)-1], Err: fabric.ErrInterrupted}
						}
						if stop > 0 {
							if err := p.Do(ops[:stop]); err != nil {
								return err
							}
						}
						return &fabric.ChainError{Index: stop, Op: ops[stop], Err: fabric.ErrInterrupted}
					}})
					var h lock.Hold
					acquire(t, k, &h, r.lock(0), lock.Exclusive)
					at(k, 100*us)
					armed = true
					err := k.Release(&h, []fabric.Op{fabric.Store(r.data(0), 1), fabric.Store(r.data(0).Add(8), 2)})
					changed := r.c.PeekWord(r.data(0)) != 0
					if unknown := errors.Is(err, fabric.ErrUnknownOutcome); unknown != changed && (err != nil || stop < 3) {
						t.Errorf("something has changed: %v; the error: %v", changed, err)
					}
				})
				if waits {
					r.client(0, "waiter", func(k *hier.Locker) {
						at(k, 50*us)
						var h lock.Hold
						acquire(t, k, &h, r.lock(0), lock.Exclusive)
						must(t, k.Release(&h, nil))
					})
				}
				if err := r.c.RunUntil(ms); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// The memory node restarts between the operations of a release, and so refuses what is tried after it, too: that the lock is not released does not make what was executed undone.
func TestReleaseThatFailsInPartAtARestart(t *testing.T) {
	for stop := range 3 {
		t.Run(fmt.Sprintf("at operation %d", stop), func(t *testing.T) {
			r := newRig(t, 1, 1, "declock", small, unsynced, silent)
			r.c.Go(r.nodes[0], "holder", func(p fabric.Port) {
				armed, down := false, false
				k := r.hooked(0, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
					at := 0
					if armed && !down {
						if down, at = true, stop; at > 0 {
							if err := p.Do(ops[:at]); err != nil {
								return err
							}
						}
					}
					if down {
						return &fabric.ChainError{Index: at, Op: ops[at], Err: fabric.ErrStaleEpoch}
					}
					return p.Do(ops)
				}})
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				armed = true
				err := k.Release(&h, []fabric.Op{fabric.Store(r.data(0), 1), fabric.Store(r.data(0).Add(8), 2)})
				if !errors.Is(err, lock.ErrLost) || !errors.Is(err, fabric.ErrStaleEpoch) {
					t.Errorf("the error of a release at a restart: %v", err)
				}
				changed := r.c.PeekWord(r.data(0)) != 0
				if unknown := errors.Is(err, fabric.ErrUnknownOutcome); unknown != changed || changed != (stop > 0) {
					t.Errorf("something has changed: %v; the error: %v", changed, err)
				}
			})
			if err := r.c.RunUntil(ms); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The operations of a release are executed, and the value that it leaves is not written, by itself or by who was to write it: its error says that the outcome is unknown.
func TestReleaseWhoseValueFails(t *testing.T) {
	for _, policy := range []string{"declock-tf", "declock"} { // the holder writes the value; the client behind it does
		t.Run(policy, func(t *testing.T) {
			r := newRig(t, 1, 2, policy, valueLayout, unsynced, silent)
			refused := 0
			refuse := func(p fabric.Port, ops []fabric.Op) error {
				for i, op := range ops {
					if op.Kind == fabric.OpWrite && op.Addr == r.data(0) {
						if i > 0 {
							t.Errorf("the value is written behind %v", ops[0])
						}
						refused++
						return &fabric.ChainError{Op: op, Err: fabric.ErrNodeDown}
					}
				}
				return p.Do(ops)
			}
			r.c.Go(r.nodes[0], "holder", func(p fabric.Port) {
				k := r.hooked(0, p, &hookPort{do: refuse})
				c := r.counter(k, 0, lock.Exclusive)
				must(t, k.AcquireValue(&c.h, &c.r, &c.v))
				at(k, 100*us)
				c.set(1)
				err := k.ReleaseValue(&c.h, &c.v, []fabric.Op{fabric.Store(r.data(1), 1)})
				if r.c.PeekWord(r.data(1)) != 1 || !errors.Is(err, fabric.ErrUnknownOutcome) || !errors.Is(err, fabric.ErrNodeDown) {
					t.Errorf("the other operation has changed %#x; the error: %v", r.c.PeekWord(r.data(1)), err)
				}
			})
			r.c.Go(r.nodes[0], "waiter", func(p fabric.Port) {
				k := r.hooked(0, p, &hookPort{do: refuse})
				at(k, 50*us)
				c := r.counter(k, 0, lock.Exclusive)
				must(t, k.AcquireValue(&c.h, &c.r, &c.v))
				_ = k.ReleaseValue(&c.h, &c.v, nil)
			})
			if err := r.c.RunUntil(ms); err != nil {
				t.Fatal(err)
			}
			if refused == 0 || r.word(0) != 0 {
				t.Errorf("%d WRITEs of the value were refused, and memory has %d", refused, r.word(0))
			}
		})
	}
}
