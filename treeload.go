package declock

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/btree"
)

// BulkLoad puts sorted keys into an empty tree, much faster than puts do. Nothing of them is to be seen before all are there, also if the process crashes; puts of others wait
// meanwhile. [btree.Client.BulkLoad] says which errors there are, and what the sequences may do.
//
// Parts are loaded beside each other, each in a session of its own as far as there are sessions (WithSessions), and in a goroutine of its own: a sequence that panics there ends the program. All keys of a part are greater
// than those of the parts before it: else btree.ErrOrder.
func (t *Tree) BulkLoad(ctx context.Context, o btree.BulkOptions, parts ...iter.Seq2[[]byte, []byte]) error {
	return t.shared.do(ctx, func(c *btree.Client) error {
		return c.BulkLoadParts(max(1, len(parts)), o, func(b *btree.Bulk) error { return t.loadParts(ctx, c, b, parts) })
	})
}

// loadParts loads the parts with the client that it is given, and with others of the pool. It does not wait for a session, for whatever has one may wait for another: what finds none in time has
// nothing to do.
func (t *Tree) loadParts(ctx context.Context, c *btree.Client, b *btree.Bulk, parts []iter.Seq2[[]byte, []byte]) error {
	var next atomic.Int64
	var failed atomic.Bool
	load := func(c *btree.Client) (err error) {
		for i := int(next.Add(1)) - 1; i < len(parts) && err == nil; i = int(next.Add(1)) - 1 {
			if err = b.Part(i, c, unless(&failed, parts[i])); err != nil {
				failed.Store(true)
			}
		}
		return err
	}
	errs := make([]error, min(len(parts), severalAt))
	waiting, enough := context.WithCancel(ctx)
	var others sync.WaitGroup
	defer others.Wait() // also when a sequence panics
	defer enough()
	defer failed.Store(true)
	for i := 1; i < len(errs); i++ {
		others.Go(func() {
			if w, err := t.shared.c.work.take(waiting); err == nil {
				errs[i] = t.shared.with(ctx, w, load)
			}
		})
	}
	if len(errs) > 0 {
		errs[0] = load(c)
	}
	enough()
	others.Wait()
	return errors.Join(errs...)
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
