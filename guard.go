package declock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/declock/declock/lock"
)

// A Mode is how a lock is to be held. The zero value is none.
type Mode uint8

// Shared admits other shared holders; Exclusive admits none.
const (
	Shared Mode = 1 + iota
	Exclusive
)

// ErrMode: a Mode that is neither Shared nor Exclusive.
var ErrMode = errors.New("declock: a lock is Shared or Exclusive")

func (m Mode) String() string {
	if m == 0 {
		return "no mode"
	}
	return m.mode().String()
}

// mode returns the mode as package lock has it.
func (m Mode) mode() lock.Mode { return lock.Mode(m - Shared) }

// A Guard is a lock that is held. It is a value; Unlock it once. One that a Session gave is used by the goroutine of that; one of
// [Cluster.Lock] by any.
type Guard struct {
	s      *Session
	h      *hold
	serial uint64 // of h, and pooled
	token  lock.Token
	// No more: Go keeps a struct of up to four words in registers.
}

// pooled, in the serial of a Guard, says that its session goes back to its pool at Unlock.
const pooled = 1

// A hold is the memory of a Guard, which is used again; the serial, an even number that Unlock changes, tells its Guards apart.
type hold struct {
	lock.Hold
	serial atomic.Uint64
	watch  atomic.Pointer[watch] // nil: Lost has not been called
	closed bool                  // Close has unlocked it; guarded by watches.mu
	// recovered is the serial of the grant of which Recovered has reported that it is the first after a crash.
	recovered atomic.Uint64
	named     *heldName // nil: the lock is not one by name
	next      *hold
}

// Token returns the fencing token of the grant: every exclusive grant of the
// lock has a greater one than those before. A resource that refuses older tokens
// keeps out a holder that has lost the lock without knowing.
func (g Guard) Token() lock.Token { return g.token }

// Recovered reports whether what held the lock before may have crashed while it did, so that what the lock protects may be half done: as EOWNERDEAD of a robust mutex. It is
// one READ of the lock's memory.
//
// A lock does not say what holds it, so a crash shows by the recovery that the lock needs after it. Recovered is true for the first grant after a recovery, at each call; if that
// is a shared one, also for those behind it, until an exclusive one has asked. It is true without need if the process that crashed, at any
// time, did not hold this lock when it was recovered, and if the memory node does not answer, or the lock has been lost.
//
// It says nothing of a holder that lost the lock and lives (Lost), of a memory node that restarted or was replaced by a copy, nor of a lock by name that has been given another lock since the crash,
// which it is only when its table is nearly full.
func (g Guard) Recovered() bool {
	if g.s == nil || !g.current() {
		return true
	}
	if g.h.recovered.Load() == g.serial|pooled {
		return true
	}
	g.s.use.Begin()
	defer g.s.use.End()
	recovered := g.s.s.Recovered(&g.h.Hold)
	if recovered {
		g.h.recovered.Store(g.serial | pooled)
	}
	return recovered
}

// isLost reports whether this process knows that the lock has been lost. The guard has not been unlocked.
func (g Guard) isLost() bool { return g.s.s.Lost(&g.h.Hold) }

// Unlock releases the lock. The error is lock.ErrLost if the lock had been taken away, lock.ErrMisuse if it
// has been unlocked already, else the fabric's. The lock is not held any more.
func (g Guard) Unlock() error {
	if g.s == nil {
		return fmt.Errorf("%w: Unlock of the zero Guard", lock.ErrMisuse)
	}
	// Before the session is touched: it may be another goroutine's by now.
	if g.serial&pooled != 0 && !g.h.serial.CompareAndSwap(g.serial-pooled, g.serial-pooled+2) {
		return errUnlocked
	}
	g.s.use.Begin()
	err := g.unlock()
	g.s.use.End()
	if g.serial&pooled != 0 {
		g.s.w.home.give(g.s.w)
	}
	return err
}

var errUnlocked = fmt.Errorf("%w: Unlock of a lock that is not locked", lock.ErrMisuse)

// current reports whether the guard has not been unlocked.
func (g Guard) current() bool { return g.h.serial.Load() == g.serial&^pooled }

func (g Guard) unlock() error {
	if g.s.ended && !g.h.Held {
		return fmt.Errorf("%w: Unlock of a lock that Close of the cluster has released", ErrClosed)
	}
	if g.serial&pooled == 0 && !g.current() || !g.h.Held {
		return errUnlocked
	}
	if g.serial&pooled == 0 {
		g.h.serial.Store(g.serial + 2)
	}
	g.unwatch()
	if n := g.h.named; n != nil {
		g.h.named = nil
		g.s.c.held.release(n)
	}
	err := g.s.s.Release(&g.h.Hold, nil)
	g.h.next, g.s.free = g.s.free, g.h
	return err
}

// Lock acquires a lock exclusively. If ctx ends first, the error wraps
// lock.ErrCanceled, the context's error and its cause, and lock.ErrTimeout if that is a deadline; the lock is not held, now or
// later. Locks are not reentrant: one that the session holds is lock.ErrDeadlock.
func (s *Session) Lock(ctx context.Context, id LockID) (Guard, error) {
	return s.acquire(ctx, id, lock.Request{Mode: lock.Exclusive})
}

// RLock acquires a lock shared with others. One that the session holds, in any mode, is lock.ErrDeadlock.
func (s *Session) RLock(ctx context.Context, id LockID) (Guard, error) {
	return s.acquire(ctx, id, lock.Request{Mode: lock.Shared})
}

// TryLock acquires a lock exclusively if it is free: else lock.ErrBusy.
func (s *Session) TryLock(id LockID) (Guard, error) {
	return s.acquire(context.Background(), id, lock.Request{Mode: lock.Exclusive, Try: true})
}

// TryRLock acquires a lock shared unless another session holds it, or waits for it, exclusively: then lock.ErrBusy.
func (s *Session) TryRLock(id LockID) (Guard, error) {
	return s.acquire(context.Background(), id, lock.Request{Mode: lock.Shared, Try: true})
}

func (s *Session) acquire(ctx context.Context, id LockID, r lock.Request) (Guard, error) {
	if id.of == nil || id.of.c != s.c || id.of.dropped.Load() {
		return Guard{}, s.refuse(id)
	}
	s.use.Begin()
	r.Lock = id.addr
	if r.Lock == 0 {
		var err error
		if r.Lock, err = id.of.find(ctx, s, id.n, r.Try); err != nil {
			s.use.End()
			return Guard{}, err
		}
	}
	g, err := s.acquireOwn(ctx, &r)
	s.use.End()
	return g, err
}

// refuse returns the error for a LockID of another cluster, or of locks that were dropped.
func (s *Session) refuse(id LockID) error {
	switch {
	case id.of == nil:
		return fmt.Errorf("%w: the zero LockID: Locks.At gives those of locks", ErrLockID)
	case id.of.c == s.c:
		return fmt.Errorf("%w: %q: open them anew to make others", ErrDropped, id.of.name)
	}
	return fmt.Errorf("%w: %v is of another Cluster of this process: use a Session of that", ErrLockID, id)
}

func (s *Session) acquireOwn(ctx context.Context, r *lock.Request) (Guard, error) {
	h := s.free
	if h == nil {
		h = new(hold)
		s.all = append(s.all, h)
	} else {
		s.free = h.next
	}
	if err := s.s.Acquire(ctx, &h.Hold, r); err != nil {
		h.next, s.free = s.free, h
		if errors.Is(err, ErrMemoryLost) {
			err = errors.Join(err, s.c.remakeLocks(s, r.Lock.MN()))
		}
		return Guard{}, err
	}
	return Guard{s: s, h: h, serial: h.serial.Load(), token: h.Token}, nil
}
