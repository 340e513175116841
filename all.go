package declock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/lock"
)

// A Want is a lock to be acquired, among others.
type Want struct {
	ID   LockID
	Mode lock.Mode
}

// Guards are locks that are held together.
type Guards struct{ held []Guard }

// LockAll acquires several locks, all or none: if one cannot be had, because ctx ends or the
// fabric fails, those that were acquired before it are released, and the error names it.
// They are acquired in the order of their addresses, so that sessions that use LockAll, each for all locks that
// it holds at a time, never wait for each other in a circle; whoever holds another lock already
// needs an order of his own, and a ctx with a deadline. A lock that is named twice is
// acquired once, exclusively if one of the two is exclusive.
func (s *Session) LockAll(ctx context.Context, wants ...Want) (Guards, error) {
	var g Guards
	for _, w := range inOrder(wants) {
		one, err := s.acquire(ctx, lock.Request{Lock: w.ID, Mode: w.Mode})
		if err != nil {
			err = fmt.Errorf("declock: lock %v, %v, after %d of %d: %w", w.ID, w.Mode, len(g.held), len(wants), err)
			return Guards{}, errors.Join(err, g.Unlock())
		}
		g.held = append(g.held, one)
	}
	return g, nil
}

// inOrder sorts locks by address, each once.
func inOrder(wants []Want) []Want {
	sorted := slices.Clone(wants)
	slices.SortFunc(sorted, func(a, b Want) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(b.Mode, a.Mode)) // exclusive first
	})
	return slices.CompactFunc(sorted, func(a, b Want) bool { return a.ID == b.ID })
}

// Token returns the fencing token of one of the locks. It panics if that is not among them.
func (g Guards) Token(id LockID) lock.Token {
	for _, one := range g.held {
		if one.h.Lock == id {
			return one.token
		}
	}
	panic(fmt.Sprintf("declock: Token of lock %v, which is not among the %d that are held", id, len(g.held)))
}

// Unlock releases all of them, in the opposite order. Its error joins those of all; see Guard.Unlock.
func (g Guards) Unlock() error {
	var errs []error
	for _, one := range slices.Backward(g.held) {
		errs = append(errs, one.Unlock())
	}
	return errors.Join(errs...)
}
