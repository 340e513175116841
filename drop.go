package declock

import (
	"context"
	"errors"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
)

// DropStore removes the object store with a name, with all that is in it. The name is free at once. In this process the store is objstore.ErrDropped from then on.
// Other processes that have it open hear that within about a second, and until then work on with what is not there for others any more. Each lets go of the memory
// some seconds later, when no operation on the store is under way there, and the last one gives it back. One that has crashed is passed over by the next drop, and the next Open.
func (c *Cluster) DropStore(ctx context.Context, name string) error {
	return c.dropCollection(ctx, collectionKey{memory.KindStore, name}, objstore.Drop)
}

// DropTree removes the tree with a name, as DropStore does a store: those that have it open get btree.ErrDropped.
func (c *Cluster) DropTree(ctx context.Context, name string) error {
	return c.dropCollection(ctx, collectionKey{memory.KindTree, name}, btree.Drop)
}

// ErrDropped: the locks have been dropped.
var ErrDropped = errors.New("declock: locks have been dropped")

// DropLocks removes the name of locks. In this process they are ErrDropped from then on; what is held stays held until Unlock. Nothing tells other
// processes: they must not use the locks any more, since those do not exclude who opens the name anew. The memory is used again by the next
// Locks, of whatever name, that are as many, if nobody holds one then: so whoever uses dropped locks all the same never breaks others' exclusion, but may keep them waiting.
func (c *Cluster) DropLocks(ctx context.Context, name string) error {
	return c.attached(ctx, func(s *Session) error {
		if err := memory.Drop(s.Port(), c.memory(), name, memory.KindLocks, 0); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if l := c.locks[name]; l != nil {
			l.dropped.Store(true)
			delete(c.locks, name)
		}
		return nil
	})
}
