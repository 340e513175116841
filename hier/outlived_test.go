package hier_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// A reader waits in the local queue when the memory node restarts. A client that comes after that is chosen first, and acquires the
// lock in the new incarnation. It does not hand the lock to the reader, whose Port is of the incarnation before: the reader could not
// release it, and the holders beside it would hear that their lock is lost. It begins again.
func TestWaiterOfEarlierIncarnation(t *testing.T) {
	for _, policy := range []string{"declock", "declock-pf", "paper-pf+downgrade", "declock+slack"} {
		for _, keep := range []bool{true, false} {
			name := policy + map[bool]string{true: ", kept", false: ", empty"}[keep]
			t.Run(name, func(t *testing.T) { waiterOfEarlierIncarnation(t, policy, keep) })
			t.Run(name+", not set aside", func(t *testing.T) { waiterOfEarlierIncarnation(t, policy, keep, uncut) })
		}
	}
}

func waiterOfEarlierIncarnation(t *testing.T, policy string, keep bool, more ...option) {
	r := newRig(t, 1, 2, policy, small, append(more, unsynced, waits(200*us, 10*ms))...)
	granted := 0
	for i := range 2 {
		r.client(0, name(0, i), func(k *hier.Locker) {
			at(k, 40*us*fabric.Time(i))
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Shared)
			at(k, ms)
			if err := k.Release(&h, nil); !errors.Is(err, lock.ErrLost) {
				t.Errorf("a holder of before the restart releases: %v", err)
			}
		})
	}
	hold := func(cn int, what string, from int, mode lock.Mode) {
		r.client(cn, what, func(k *hier.Locker) {
			at(k, fabric.Time(from)*us)
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), mode)
			granted++
			sleep(k, 20*us)
			if err := k.Release(&h, nil); err != nil {
				t.Errorf("%s releases: %v", what, err)
			}
		})
	}
	hold(1, "a writer elsewhere", 20, lock.Exclusive)
	hold(0, "a reader of before the restart", 80, lock.Shared)
	hold(0, "another", 90, lock.Shared)
	hold(0, "a writer of after the restart", 300, lock.Exclusive)
	hold(0, "a reader of after the restart", 310, lock.Shared)
	r.restartAt(200*us, keep)
	r.run()
	if granted != 5 {
		t.Errorf("%d of 5 were granted the lock", granted)
	}
	r.wantFree(0)
}

// The memory node restarts between the holder's release, which hands the lock to a waiter of its node, and the waiter's return: the waiter is
// granted the lock of the new incarnation.
func TestGrantOfEarlierIncarnation(t *testing.T) {
	for _, keep := range []bool{true, false} {
		for _, mode := range []lock.Mode{lock.Exclusive, lock.Shared} {
			r := newRig(t, 1, 2, "local-prefer", small, unsynced, waits(200*us, 10*ms))
			r.client(0, "holder", func(k *hier.Locker) {
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				at(k, 100*us)
				must(t, k.Release(&h, nil))
			})
			r.c.Go(r.nodes[0], "waiter", func(p fabric.Port) {
				restarted := false
				k := r.hooked(0, p, &hookPort{recv: func(p fabric.Port, deadline fabric.Time) (fabric.Message, error) {
					m, err := p.Recv(deadline)
					if err == nil && !restarted {
						restarted = true
						r.restartAt(p.Now(), keep)
						err = p.Pause(p.Now() + 10*us)
					}
					return m, err
				}})
				at(k, 50*us)
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), mode)
				if !restarted {
					t.Error("the lock was not handed over")
				}
				if err := k.Release(&h, nil); err != nil {
					t.Errorf("granted after the restart: %v", err)
				}
			})
			r.run()
			r.wantFree(0)
		}
	}
}

// A client gives up a wait, before or after its memory node restarts without its memory: its node keeps nothing of the lock, which no client asks for again.
func TestGivenUpWaitForALostLock(t *testing.T) {
	for _, late := range []bool{false, true} {
		generation := uint32(0)
		r := newRig(t, 1, 2, "declock", small, unsynced, waits(5*ms, 10*ms), silent, func(r *rig) {
			r.cfg.Verify = func(fabric.MemID) (uint32, error) { return generation, nil }
		})
		r.client(1, "holder", func(k *hier.Locker) {
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			at(k, ms)
			if err := k.Release(&h, nil); !errors.Is(err, lock.ErrLost) {
				t.Errorf("a holder of before the restart releases: %v", err)
			}
		})
		uses := func(k *hier.Locker) { // the new memory
			for range 2 {
				var h lock.Hold
				if k.Acquire(&h, &lock.Request{Lock: r.lock(1).In(1), Mode: lock.Shared}) == nil { // it hears of the loss first
					must(t, k.Release(&h, nil))
				}
			}
		}
		r.client(0, "waiter", func(k *hier.Locker) {
			sleep(k, 50*us)
			until := fabric.Time(100 * us)
			if late {
				until = 350 * us
			}
			var h lock.Hold
			if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Deadline: until}); err == nil {
				t.Error("granted")
			}
			if !late {
				at(k, 500*us)
				uses(k)
			}
			at(k, 20*ms) // the agent looks
		})
		r.client(0, "another", func(k *hier.Locker) {
			var h lock.Hold
			acquire(t, k, &h, r.lock(1), lock.Shared)
			must(t, k.Release(&h, nil))
			at(k, 250*us)
			uses(k)
		})
		r.c.At(200*us, func() {
			generation = 1
			r.c.RestartMN(r.mn)
		})
		if r.run(); t.Failed() {
			t.Fatalf("given up after the restart: %v", late)
		}
	}
}
