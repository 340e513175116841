package objstore

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

// A store can be opened while memory nodes of it are down, if a part of it is found: a part that is down is a missing one (package memory/handle). Whatever is missing, a part that
// its memory node has lost is made anew as soon as that is up, here as in a store that is opened anew after a loss (lost.go).
//
// While the first part is missing, this compute node is not registered: it could hold chunks, or use memory of a store that has been dropped, and no other node would know. So it
// changes no object, not even a lock: gets read without the lock, and all else fails with ErrNodeDown.

// openPart opens a missing part, or makes it anew if its memory node has lost it.
func (c *Client) openPart(i int, found []handle.Found) error {
	e, path := found[i].Entry, lock.Path(c.l)
	if e != nil && c.s.isAnother(e, i) {
		if err := c.s.h.Published(path); err != nil {
			return c.removed(err)
		}
	}
	if e == nil {
		if i == 0 {
			c.s.h.Survivors = true // the parts that were found when the store was opened
		}
		// Nothing is made for a store that is being dropped, or used if it is dropped meanwhile.
		err := c.s.h.Published(path)
		var made memory.Entry
		if err == nil {
			made, err = c.s.openNode(c.port, path, i, found[i].Region)
		}
		if err == nil {
			err = c.s.h.Published(path)
		}
		if made.Name != "" && errors.Is(err, memory.ErrRemoved) {
			err = errors.Join(err, c.s.h.Withdraw(c.l, found[i].Region, &made))
		}
		if err != nil {
			return c.removed(err)
		}
		e = &made
	}
	return c.s.adopt(path, i, found[i].Region, *e)
}

// isAnother reports whether the entry of the i-th part is not this store's.
func (s *Store) isAnother(e *memory.Entry, i int) bool {
	g, err := decodeGeometry(e, i)
	return err != nil || g != s.geo
}

// removed returns the error of looking for a part, or whether parts are there still. Only a drop removes an entry of a store. Its memory, which has the mark of that, may be something else by now, if this
// compute node is not registered.
func (c *Client) removed(err error) error {
	if errors.Is(err, memory.ErrRemoved) {
		c.s.MarkDropped()
		return c.s.h.Gone()
	}
	return Stores.Wrap(err)
}

// A need is what an operation needs of a store.
type need uint8

const (
	toRead   need = iota // a part
	toChange             // a part, and to be registered
	whole                // all parts
)

// catchUp is called at the beginning of an operation that needs a part, or all: see handle.Session.Ready. The client's buffers stay as they are when what is missing is opened: the
// caller of the operation may have passed what lies in them.
func (c *Client) catchUp(what need, part int) error {
	return c.session.Ready(func(i int) bool { return i == part || what == whole || i == 0 && what == toChange })
}

// unlockedTries is how often a get looks that must not take the lock.
const unlockedTries = 4

// getUnregistered is Get while the first part is missing: nothing is written.
func (c *Client) getUnregistered(k *work) (Item, error) {
	if c.port.Caps().ReadsInOrder {
		for range unlockedTries {
			*k = work{look: k.afresh()}
			s, err := c.tryRead(k)
			// Nothing keeps the memory of a store that this compute node is not registered with: what was read is the store's if its part is there still.
			if gone := k.n.Region.Published(lock.Path(c.l), &k.n.Entry); gone != nil {
				return Item{}, c.removed(gone)
			}
			switch {
			case err != nil:
				return Item{}, err
			case s == absent, s == present && k.h.expired(c.Clock()):
				return Item{}, ErrNotFound
			case s == present:
				return c.item(&k.look, c.now()), nil
			}
		}
	}
	return Item{}, fmt.Errorf("%w: memory node %v, which has the first part of store %q: the object cannot be read without its lock",
		fabric.ErrNodeDown, c.s.h.Parts[0].MN, c.s.cfg.Name)
}
