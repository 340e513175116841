package lock_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// follower is a Locker that grants all at once, and follows memory nodes.
type follower struct {
	lock.Locker
	ready, left, trimmed int
	use                  lock.InUse
}

func (f *follower) Acquire(h *lock.Hold, r *lock.Request) error {
	if h.Held || r.Mode > lock.Exclusive {
		return lock.ErrMisuse
	}
	h.Lock, h.Mode, h.Held = r.Lock, r.Mode, true
	return nil
}

func (f *follower) Attach(fabric.MemID) error                 { return nil }
func (f *follower) Ready(fabric.Addr) error                   { f.ready++; return lock.ErrMemoryLost }
func (f *follower) Replicated(fabric.MemID) bool              { return true }
func (f *follower) Trim()                                     { f.trimmed++ }
func (f *follower) InUse() *lock.InUse                        { return &f.use }
func (f *follower) Left(*uint64, func(fabric.Addr) bool) bool { f.left++; return true }

// A Hold that holds a lock stays what it is when it is acquired again for update, which is refused: a reader must not become one that can be upgraded.
func TestForUpdateRefusesAHoldThatHolds(t *testing.T) {
	u := lock.ForUpdate(new(follower))
	for mode := lock.Shared; mode <= lock.Update; mode++ {
		var h lock.Hold
		if err := u.Acquire(&h, &lock.Request{Mode: mode}); err != nil || h.Mode != mode {
			t.Fatalf("Acquire in mode %v: %v, and the Hold is %+v", mode, err, h)
		}
		r := lock.Request{Mode: lock.Update}
		if err := u.Acquire(&h, &r); !errors.Is(err, lock.ErrMisuse) || h.Mode != mode || r.Mode != lock.Update {
			t.Errorf("Acquire for update with a Hold in mode %v: %v, then the Hold is %v, the request %v", mode, err, h.Mode, r.Mode)
		}
		if err := u.Upgrade(&h, &lock.Request{}); errors.Is(err, lock.ErrMisuse) != (mode != lock.Update) {
			t.Errorf("Upgrade of a Hold in mode %v: %v", mode, err)
		}
	}
}

// What a mechanism can do besides is there under its update locks: above all, no chain goes to memory that has been lost.
func TestForUpdateFollowsMemoryNodes(t *testing.T) {
	f := new(follower)
	u := lock.ForUpdate(f)
	if err := lock.Do(u, make([]fabric.Op, 1)); !errors.Is(err, lock.ErrMemoryLost) || f.ready != 1 {
		t.Errorf("Do: %v, and the mechanism was asked %d times whether it is ready", err, f.ready)
	}
	if err := lock.Ready(u, 0); !errors.Is(err, lock.ErrMemoryLost) {
		t.Errorf("Ready: %v", err)
	}
	lock.Trim(u)
	var begun uint64
	if !lock.Replicated(u, 0) || !lock.Left(u, &begun, nil) || lock.InUseOf(u) != &f.use || f.trimmed != 1 {
		t.Error("a mechanism under update locks cannot do what it can without")
	}
}
