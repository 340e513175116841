package lock

import (
	"fmt"

	"github.com/declock/declock/fabric"
)

// ForUpdate returns a Locker with the mode Update: l itself if it is an Upgrader. Else an update lock is an exclusive one of l, which waits for the readers
// from before and admits none beside it, and Upgrade has nothing to wait for: what reads first and then perhaps writes is the same code with every lock, and
// cannot deadlock. Where most holders for update do not write, and readers are many, an Upgrader that admits them is faster.
func ForUpdate(l Locker) Upgrader {
	if u, ok := l.(Upgrader); ok {
		return u
	}
	return exclusiveUpdates{l}
}

// exclusiveUpdates are the update locks of a Locker that has none.
type exclusiveUpdates struct{ Locker }

// plain is the Locker under the update locks of ForUpdate: what else it can do, such as to follow memory nodes, it is asked itself.
func plain(l Locker) Locker {
	if u, ok := l.(exclusiveUpdates); ok {
		return u.Locker
	}
	return l
}

func (u exclusiveUpdates) Acquire(h *Hold, r *Request) error {
	if r.Mode != Update {
		return u.Locker.Acquire(h, r)
	}
	r.Mode = Exclusive
	err := u.Locker.Acquire(h, r)
	r.Mode = Update
	if err == nil { // else the Hold may be one that holds a lock already, in whatever mode
		h.Mode = Update
	}
	return err
}

// Upgrade is Upgrader.Upgrade: no other holds the lock.
func (u exclusiveUpdates) Upgrade(h *Hold, _ *Request) error {
	if !h.Held || h.Mode != Update {
		return fmt.Errorf("%w: upgrade of a Hold that is held: %v, in mode %v", ErrMisuse, h.Held, h.Mode)
	}
	h.Mode = Exclusive
	return nil
}

func (u exclusiveUpdates) Release(h *Hold, before []fabric.Op) error {
	mode := h.Mode
	if mode == Update {
		h.Mode = Exclusive
	}
	err := u.Locker.Release(h, before)
	if h.Held { // misuse: nothing has been done
		h.Mode = mode
	}
	return err
}
