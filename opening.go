package declock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

const (
	// openOutlasts is how long opening something waits for a memory node to be replaced: as long as an operation does.
	openOutlasts = 15 * time.Second
	// openPause is how often it tries.
	openPause = 5 * time.Millisecond
)

// outlast opens, makes or drops something, and again if that has failed because the primary of a replicated number is just being replaced (docs/replicas.md). What open has left
// half made, it finds the next time: see memory.Creating.
func (c *Cluster) outlast(ctx context.Context, open func() error) error {
	return outlast(ctx, c.node.Memory, c.Done(), open)
}

// outlast is Cluster.outlast for a member that knows the memory nodes, until done is closed.
func outlast(ctx context.Context, memory func() []fabric.Memory, done <-chan struct{}, open func() error) error {
	for until := time.Now().Add(openOutlasts); ; {
		err := open()
		if err == nil || !replaced(memory(), err) || !time.Now().Before(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(cn.Ended(ctx), err)
		case <-done:
			return err
		case <-time.After(openPause):
		}
	}
}

// closeOutlasts is how long Close waits for a replicated number that no memory node serves.
const closeOutlasts = 2 * time.Second

// whileServed returns a context that ends when a replicated number has had no memory node for closeOutlasts, or with stop.
func (c *Cluster) whileServed() (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = context.WithCancel(context.Background())
	go func() {
		for since := time.Now(); ctx.Err() == nil; {
			if now := time.Now(); !c.node.Unserved() {
				since = now
			} else if now.Sub(since) > closeOutlasts {
				stop()
			}
			select {
			case <-ctx.Done():
			case <-time.After(viewEvery):
			}
		}
	}()
	return ctx, stop
}

// replaced reports whether an error may be that of a replicated number that another memory node is about to serve.
func replaced(list []fabric.Memory, err error) bool {
	return slices.ContainsFunc(list, func(m fabric.Memory) bool { return m.Term != 0 }) && handle.Replaced(err)
}

// outlastDrop drops something over a session, as outlast. What an attempt that has failed has dropped, the next does not find: then rest does what remains.
func (c *Cluster) outlastDrop(ctx context.Context, drop, rest func(s *Session) error) error {
	again := false
	return c.outlast(ctx, func() error {
		err := c.attached(ctx, func(s *Session) error {
			err := drop(s)
			if again && errors.Is(err, memory.ErrNotFound) {
				err = rest(s)
			}
			return err
		})
		again = true
		return err
	})
}
