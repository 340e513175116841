package netlock

import (
	"testing"

	"github.com/declock/declock/lock"
)

// try has a client of the rig's machine try a lock.
func (r *rig) try(client int, m lock.Mode) *ticket {
	return r.request(r.pool, client, lock.Request{Lock: theLock, Mode: m, Try: true})
}

// What does not wait does not go to the server either: a reader that tries while readers have all entries is refused.
func TestTryWhileReadersHaveAllEntries(t *testing.T) {
	r := newRig(t, Config{Locks: 1, Queue: 2})
	r.ask(1, lock.Shared)
	r.ask(2, lock.Shared)
	r.settle()
	x := r.try(3, lock.Shared)
	r.settle()
	r.want("with a full queue", map[*ticket]phase{x: refused})
}

// A client that tries behind a release of its machine which waits for a slot is not refused for that.
func TestTryBehindALateRelease(t *testing.T) {
	r := newRig(t, Config{Locks: 2, Slots: 3})
	first := r.ask(1, lock.Exclusive)
	r.settle()
	second := r.request(r.pool, 2, lock.Request{Lock: theLock + 64, Mode: lock.Exclusive})
	r.settle()
	port := wire{r: r, id: first.client}
	r.release(second) // has the last slot
	first.phase = idle
	r.pool.release(port, theLock, lock.Exclusive)
	if len(r.pool.late) != 1 {
		t.Fatalf("%d releases wait for a slot, want 1", len(r.pool.late))
	}
	r.pool.idle = append(r.pool.idle, first.op.slot(), second.op.slot())
	x := r.try(3, lock.Exclusive)
	r.settle()
	r.want("behind a late release", map[*ticket]phase{x: holds})
}

// A client that tries behind a release of its machine is refused if another has the lock after that.
func TestTryBehindAReleaseThatAnotherFollows(t *testing.T) {
	r := newRig(t, Config{Locks: 1, Queue: 4})
	first, next := r.ask(1, lock.Exclusive), r.ask(2, lock.Exclusive)
	r.settle()
	r.release(first)
	x := r.try(3, lock.Exclusive)
	r.settle()
	r.want("behind a release", map[*ticket]phase{next: holds, x: refused})
}
