package objstore

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

// A store can be opened while memory nodes of it are down, if all its other parts are found: a part that is down is a missing one, of which
// only the memory node is known. The first operation that needs a missing part opens the store anew when the memory node is back, and takes
// over what this compute node has of the other parts; until then it fails with ErrNodeDown. Since this compute node has seen nothing of a missing
// part, it reports nothing of it as lost.
//
// The compute nodes that have the store open are registered in the first part (package memory/reclaim). While that is missing, this compute node
// is not registered: it could hold chunks, or use memory of a store that has been dropped, and no other node would know. So it changes nothing, not even a
// lock: gets read without the lock, and all else fails with ErrNodeDown.

// leaveOut leaves the i-th part a missing one, if all parts are there of which the memory nodes are up.
func (s *Store) leaveOut(port fabric.Port, i int, old *Store) error {
	if old != nil && !old.h.Parts[i].Missing() {
		return fabric.ErrNodeDown
	}
	if s.created {
		return fmt.Errorf("%w, and the store was being made", fabric.ErrNodeDown)
	}
	if err := s.othersFound(port, old); err != nil {
		return err
	}
	s.current = handle.Unseen
	return nil
}

// othersFound checks that the parts of which the memory nodes are up are there, at least one, and are those that old has.
func (s *Store) othersFound(port fabric.Port, old *Store) error {
	found := 0
	for i, mn := range s.cfg.Nodes {
		r, e, err := Stores.Lookup(port, s.cfg.Name, mn)
		switch {
		case r == nil && errors.Is(err, fabric.ErrNodeDown):
			continue
		case r == nil:
			return err
		case old != nil && old.h.Parts[i].Missing() && handle.Absent(err):
			continue // it has lost its memory
		case err != nil:
			return fmt.Errorf("%w: another part is not whole: %w", fabric.ErrNodeDown, err)
		case old != nil && !old.h.Parts[i].Missing() && (old.h.Parts[i].Base != e.Addr || old.h.Parts[i].Region.UUID() != r.UUID()):
			return fmt.Errorf("%w: the part on %v is another than before", fabric.ErrNodeDown, mn)
		}
		found++
	}
	if found == 0 {
		return fabric.ErrNodeDown
	}
	return nil
}

// incomplete reports whether a part is missing: then each operation looks whether what it needs is there.
func (s *Store) incomplete() bool { return s.current == handle.Unseen }

// returned reports whether the store can be opened with a part that is missing: its memory node is up.
func (s *Store) returned(l lock.Locker) bool {
	for _, n := range s.h.Parts {
		if !n.Missing() || lock.Renew(l, n.MN) != nil {
			continue
		}
		if _, err := memory.Reach(l.Port(), n.MN); err == nil {
			return s.h.Lost() || s.othersFound(l.Port(), s) == nil
		}
	}
	return false
}

// A need is what an operation needs of a store.
type need uint8

const (
	toRead   need = iota // a part
	toChange             // a part, and to be registered
	toTend               // to be registered
	whole                // all parts
)

// lacks returns a missing part that is needed, or nil.
func (s *Store) lacks(what need, part int) *handle.Part {
	for i, n := range s.h.Parts {
		if n.Missing() && (what == whole || i == 0 && what != toRead || i == part && what <= toChange) {
			return n
		}
	}
	return nil
}

// catchUp is called at the beginning of an operation: after a loss it says what is gone, and it opens what is missing and needed.
func (c *Client) catchUp(what need, part int) error {
	if c.s.h.Lost() {
		return c.revive()
	}
	n := c.s.lacks(what, part)
	if n == nil {
		return nil
	}
	err := c.complete()
	if c.s.h.Lost() {
		return c.revive()
	}
	if n = c.s.lacks(what, part); n == nil {
		return nil
	}
	down := fmt.Errorf("%w: memory node %v, which has a part of store %q that is needed", fabric.ErrNodeDown, n.MN, c.s.cfg.Name)
	if err != nil {
		return fmt.Errorf("%w: %w", down, err)
	}
	return down
}

// complete brings the client to the store with all parts of which the memory nodes are up. The client's buffers stay as they are: the
// caller of an operation may have passed what lies in them.
func (c *Client) complete() error {
	s, err := c.s.reopened(c.l)
	switch {
	case errors.Is(err, handle.ErrReopening):
		return nil
	case err != nil:
		return err
	case s == c.s, s.h.Seen != c.s.h.Seen:
		return nil // after a loss, revive brings the client to it
	}
	for i, n := range s.h.Parts {
		if n != c.s.h.Parts[i] {
			c.uniques[i] = uniques{}
		}
	}
	if s.h.Member != c.s.h.Member {
		s.h.Member.Add(&c.user)
		c.s.h.Member.Remove(&c.user)
		c.work.Member = s.h.Member
	}
	c.s = s
	return nil
}

// unlockedTries is how often a get looks that must not take the lock.
const unlockedTries = 4

// getUnregistered is Get while the first part is missing: nothing is written.
func (c *Client) getUnregistered(k *work) (Item, error) {
	if c.port.Caps().ReadsInOrder {
		for range unlockedTries {
			*k = work{place: k.place, n: k.n, key: k.key}
			s, err := c.tryRead(k)
			switch {
			case err != nil:
				return Item{}, err
			case s == absent, s == present && k.h.expired(c.now()):
				return Item{}, ErrNotFound
			case s == present:
				return c.item(k), nil
			}
		}
	}
	return Item{}, fmt.Errorf("%w: memory node %v, which has the first part of store %q: the object cannot be read without its lock",
		fabric.ErrNodeDown, c.s.h.Parts[0].MN, c.s.cfg.Name)
}
