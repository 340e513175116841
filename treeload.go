package declock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/cn"
)

// How much bulk loads do at a time.
const (
	loadPartsAt = 8  // parts of one load
	loadHelpers = 32 // sessions that all loads of a Cluster have, besides the first of each
)

// BulkLoad puts sorted keys into an empty tree, much faster than puts do. No client sees any of them before all are there, also if the
// process crashes; puts of others wait meanwhile. [btree.Client.BulkLoad] says which errors there are, and what the sequences may do.
//
// Up to 8 parts are loaded at a time, by the goroutine that calls BulkLoad and up to 7 others. A sequence that panics in one of those ends
// the program. All keys of a part are greater than those of the parts before it: else btree.ErrOrder.
//
// These goroutines have sessions of their own, which WithSessions does not bound: the caller's has one, and the others have 32 in all loads
// of the Cluster; where there is none for them, the load goes on without. So sequences may use stores, locks and other trees, and load these.
// What changes the first leaf of the tree itself waits for the load, and must not be waited for.
//
// A load does not wait for the caller's session, as other operations do for one of the pool: if there is no room for it, the load is
// cn.ErrTooManySessions (of policy cql, when as many are open as lock queues have room for) or fabric.ErrTooManyClients, and may be tried again.
//
// A sequence that cannot go on ends ctx, as by context.WithCancelCause, and stops: then the tree stays empty, and the error wraps the cause.
func (t *Tree) BulkLoad(ctx context.Context, o btree.BulkOptions, parts ...iter.Seq2[[]byte, []byte]) error {
	return t.shared.apart(ctx, func(c *btree.Client) error {
		return c.BulkLoadParts(max(1, len(parts)), o, func(b *btree.Bulk) error { return t.loadParts(ctx, c, b, parts) })
	})
}

// loadParts loads the parts with the client that it is given, and with helpers.
func (t *Tree) loadParts(ctx context.Context, c *btree.Client, b *btree.Bulk, parts []iter.Seq2[[]byte, []byte]) error {
	var next atomic.Int64
	var failed atomic.Bool
	load := func(c *btree.Client) error {
		whole := false
		defer func() { // also when a sequence ends its goroutine
			if !whole {
				failed.Store(true)
			}
		}()
		for i := int(next.Add(1)) - 1; i < len(parts) && !failed.Load(); i = int(next.Add(1)) - 1 {
			if err := b.Part(i, c, unless(&failed, parts[i])); err != nil {
				return err
			}
		}
		whole = true
		return nil
	}
	errs := make([]error, min(len(parts), loadPartsAt))
	needed, enough := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait() // also when a sequence panics
	defer enough()
	defer failed.Store(true)
	for i := 1; i < len(errs); i++ {
		helpers.Go(func() { errs[i] = t.helpLoad(ctx, needed, load) })
	}
	if len(errs) > 0 {
		errs[0] = load(c)
	}
	enough()
	helpers.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if ctx.Err() != nil { // sequences may have stopped for it
		return fmt.Errorf("declock: bulk load of tree %q: %w", t.Name(), cn.Ended(ctx))
	}
	return nil
}

// helpLoad calls load with a client in a session of its own, if there is one before the end of needed: else the load goes on without.
func (t *Tree) helpLoad(ctx, needed context.Context, load func(*btree.Client) error) error {
	lent := &t.shared.c.loadHelpers
	defer lent.Add(-1)
	if lent.Add(1) > loadHelpers {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began, still := false, context.AfterFunc(needed, cancel)
	defer still()
	err := t.shared.apart(ctx, func(c *btree.Client) error {
		if !still() {
			return nil
		}
		began = true
		return load(c)
	})
	if !began {
		return nil
	}
	return err
}

// unless returns a sequence that ends when something else has failed.
func unless(failed *atomic.Bool, pairs iter.Seq2[[]byte, []byte]) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for key, value := range pairs {
			if failed.Load() || !yield(key, value) {
				return
			}
		}
	}
}
