package declock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Write returns the Want of a lock exclusively, and Read the one shared, both without a timeout.
func Write(id LockID) Want { return Want{ID: id, Mode: Exclusive} }

// Read returns the Want of a lock shared: see Write.
func Read(id LockID) Want { return Want{ID: id, Mode: Shared} }

// A Want is a lock to be acquired, among others.
type Want struct {
	ID   LockID
	Mode Mode // Shared or Exclusive
	// Timeout is how long after the call this lock is to be held at the latest; else the error wraps lock.ErrTimeout. 0: only
	// the context bounds that.
	Timeout time.Duration
}

// Guards are locks that are held together.
type Guards struct {
	held []Guard

	w        *worker // of which the session goes back to its pool at Unlock; nil: the session is the caller's
	unlocked *atomic.Bool
}

// LockAll acquires several locks, all or none: if one cannot be had, because ctx ends or the
// fabric fails, those that were acquired before it are released, and the error names it. If some are lost while others are waited for, all are acquired again, or the error wraps lock.ErrLost.
// They are acquired in the order of their addresses, so that sessions that use LockAll, each for all locks that
// it holds at a time, never wait for each other in a circle. A session that already holds another lock
// needs an order of its own, and a ctx with a deadline. A lock that is named twice is
// acquired once, exclusively if one of the two is exclusive, and with the shorter timeout. Timeouts of all run from the call on, however often locks are acquired again: the longest
// bounds the waits for locks, unless a Want has none. A memory node that is being replaced when the call begins is waited for as long as ctx allows.
func (s *Session) LockAll(ctx context.Context, wants ...Want) (Guards, error) {
	var g Guards
	for _, w := range wants {
		if w.Mode != Shared && w.Mode != Exclusive {
			return g, fmt.Errorf("%w: Mode of %v is %d", ErrMode, w.ID, w.Mode)
		}
	}
	begun := s.s.Port().Now()
	sorted, err := s.inOrder(ctx, wants)
	if err != nil {
		return g, err
	}
	for {
		if g, err = s.lockEach(ctx, begun, sorted); err != nil || !slices.ContainsFunc(g.held, Guard.isLost) {
			return g, err
		}
		// Some were lost while others were waited for.
		for _, one := range slices.Backward(g.held) {
			err = errors.Join(err, giveBack(one))
		}
		if err != nil {
			return Guards{}, err
		}
	}
}

// lockEach acquires locks one after the other, all or none. Timeouts run from when LockAll has begun.
func (s *Session) lockEach(ctx context.Context, begun fabric.Time, sorted []Want) (g Guards, err error) {
	g.held = make([]Guard, 0, len(sorted))
	for _, w := range sorted {
		r := lock.Request{Mode: w.Mode.mode()}
		if w.Timeout > 0 && fabric.Time(w.Timeout) < fabric.Forever-begun {
			r.Deadline = begun + fabric.Time(w.Timeout)
		}
		var one Guard
		if r.Until() <= s.s.Port().Now() { // those before it have taken so long
			err = lock.ErrTimeout
		} else {
			one, err = s.acquire(ctx, w.ID, r)
		}
		if err != nil {
			err = fmt.Errorf("declock: lock %v, %v, after %d of %d: %w", w.ID, w.Mode, len(g.held), len(sorted), err)
			return Guards{}, errors.Join(err, g.Unlock())
		}
		g.held = append(g.held, one)
	}
	return g, nil
}

// inOrder sorts locks by address, each once. It finds the addresses of locks whose memory node was down when At was called.
func (s *Session) inOrder(ctx context.Context, wants []Want) ([]Want, error) {
	sorted := slices.Clone(wants)
	for i := range sorted {
		id := &sorted[i].ID
		if id.addr != 0 || id.of == nil || id.of.c != s.c {
			continue
		}
		s.use.Begin()
		_, err := id.of.find(ctx, s, id.n, false)
		s.use.End()
		if err != nil {
			return nil, err
		}
		*id = id.of.At(id.n)
	}
	slices.SortFunc(sorted, func(a, b Want) int {
		return cmp.Or(cmp.Compare(a.ID.addr, b.ID.addr), cmp.Compare(b.Mode, a.Mode)) // exclusive first
	})
	once := sorted[:0]
	for _, w := range sorted {
		if n := len(once); n == 0 || once[n-1].ID != w.ID {
			once = append(once, w)
		} else if last := &once[n-1]; last.Timeout == 0 || w.Timeout > 0 && w.Timeout < last.Timeout {
			last.Timeout = w.Timeout
		}
	}
	return once, nil
}

// Token returns the fencing token of one of the locks. It panics if that is not among them.
func (g Guards) Token(id LockID) lock.Token {
	if id.of != nil && id.addr == 0 {
		id = id.of.At(id.n)
	}
	for _, one := range g.held {
		if id.of != nil && one.s.c == id.of.c && one.h.Lock == id.addr {
			return one.token
		}
	}
	panic(fmt.Sprintf("declock: Token of lock %v, which is not among the %d that are held", id, len(g.held)))
}

// Unlock releases all of them, in the opposite order. Its error joins those of all; see Guard.Unlock. That of the zero Guards is lock.ErrMisuse.
func (g Guards) Unlock() error {
	if g.held == nil {
		return fmt.Errorf("%w: Unlock of the zero Guards", lock.ErrMisuse)
	}
	if g.w != nil && g.unlocked.Swap(true) { // the session may be another goroutine's by now
		return errUnlocked
	}
	var errs []error
	for _, one := range slices.Backward(g.held) {
		errs = append(errs, one.Unlock())
	}
	if g.w != nil {
		g.w.home.give(g.w)
	}
	return errors.Join(errs...)
}
