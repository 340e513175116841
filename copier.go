package declock

import (
	"context"
	"errors"
	"fmt"

	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
)

// startCopier has this compute node copy what is at primaries of replicated memory-node numbers to new backups, when it is the one to do that.
func (c *Cluster) startCopier(f fabric.Node, bytesPerSecond uint64) {
	c.stopCopier = func() {}
	if x, ok := f.(interface {
		CopyWith(func(ctx context.Context, mem fabric.MemID, number, epoch uint32) error) (stop func())
	}); ok {
		c.stopCopier = x.CopyWith(func(ctx context.Context, mem fabric.MemID, number, epoch uint32) error {
			return c.copyNumber(ctx, objstore.NewBackup{Mem: mem, Number: number, Epoch: epoch}, bytesPerSecond)
		})
	}
}

// A Copying is a copy of a replicated memory-node number to a new backup that is under way.
type Copying struct {
	Number    fabric.MemID
	Done, All uint64 // buckets of stores
}

// Copying returns what this compute node copies now, or nil.
func (c *Cluster) Copying() *Copying { return c.copying.Load() }

// copyNumber copies to a new backup, in a session of its own.
func (c *Cluster) copyNumber(ctx context.Context, to objstore.NewBackup, bytesPerSecond uint64) error {
	s, err := c.node.Session()
	if err != nil {
		return err
	}
	begun, err := s.Begin(ctx)
	if err == nil {
		k := &copier{c: c, ctx: ctx, s: s}
		progress := func(done, all uint64) { c.copying.Store(&Copying{Number: to.Mem, Done: done, All: all}) }
		progress(0, 0)
		err = s.End(ctx, begun, objstore.CopyNumber(s.Locker(), to, objstore.CopyOptions{BytesPerSecond: bytesPerSecond, Progress: progress, Use: k.use}))
		c.copying.Store(nil)
	}
	if errors.Is(err, memory.ErrNotFormatted) || errors.Is(err, memory.ErrHalfFormatted) {
		err = fmt.Errorf("%w: %w", fabric.ErrNodeDown, err) // it will be
	}
	return errors.Join(err, s.Close())
}

// A copier has the stores open that are copied.
type copier struct {
	c   *Cluster
	ctx context.Context
	s   *cn.Session
}

// use calls f with the store of a root entry. If this process has not opened it, it is open for the time of the call, in which no other is opened: a compute node has a store open once.
func (k *copier) use(e *memory.Entry, f func(*objstore.Store) error) error {
	c, key := k.c, collectionKey{memory.KindStore, e.Name}
	if st, ok := c.collection(key).(*Store); ok {
		return f(st.Store)
	}
	end, err := c.beginOpen(k.ctx)
	if err != nil {
		return err
	}
	defer end()
	if st, ok := c.collection(key).(*Store); ok { // it has been opened meanwhile
		return f(st.Store)
	}
	if err := k.s.Attach(); err != nil {
		return err
	}
	port := k.s.Port()
	nodes, err := objstore.Stores.Find(port, e.Name, c.memory())
	if err == nil && nodes == nil {
		err = fmt.Errorf("%w: object store %q", memory.ErrNotFound, e.Name)
	}
	if err != nil {
		return err
	}
	st, err := objstore.Open(port, objstore.Config{
		Name: e.Name, Nodes: nodes, Lock: c.node.Layout().Lock(), Existing: true, CacheEntries: -1, DeadNow: c.dead, Creating: &c.creating,
	})
	if err != nil {
		return err
	}
	err = f(st)
	leaving := k.s
	if k.ctx.Err() != nil { // the session waits for nothing any more
		s, serr := c.node.Session()
		if serr != nil {
			return errors.Join(err, serr)
		}
		defer s.Close()
		leaving = s
		err = errors.Join(err, s.Attach())
	}
	return errors.Join(err, st.LeaveUnused(leaving.Locker()))
}
