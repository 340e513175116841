package declock

import (
	"context"
	"errors"
	"fmt"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/objstore"
)

// startCopier has this compute node copy what is at primaries of replicated memory-node numbers to new backups, when it is the one to do that.
func (c *Cluster) startCopier(f fabric.Node, bytesPerSecond uint64) {
	c.stopCopier = func() {}
	if x, ok := f.(interface {
		CopyWith(func(ctx context.Context, mem fabric.MemID, number, epoch uint32) error) (stop func())
	}); ok {
		c.stopCopier = x.CopyWith(func(ctx context.Context, mem fabric.MemID, number, epoch uint32) error {
			return c.copyNumber(ctx, handle.NewBackup{Mem: mem, Number: number, Epoch: epoch}, bytesPerSecond)
		})
	}
}

// A Copying is a copy of a replicated memory-node number to a new backup that is under way.
type Copying struct {
	Number    fabric.MemID
	Done, All uint64 // buckets of stores, and nodes of trees
}

// Copying returns what this compute node copies now, or nil.
func (c *Cluster) Copying() *Copying { return c.copying.Load() }

// copyNumber copies to a new backup, in a session of its own.
func (c *Cluster) copyNumber(ctx context.Context, to handle.NewBackup, bytesPerSecond uint64) error {
	s, err := c.node.Session()
	if err != nil {
		return err
	}
	begun, err := s.Begin(ctx)
	if err == nil {
		k := &copier{c: c, ctx: ctx, s: s}
		progress := func(done, all uint64) { c.copying.Store(&Copying{Number: to.Mem, Done: done, All: all}) }
		progress(0, 0)
		o := handle.CopyOptions{
			BytesPerSecond: bytesPerSecond, Progress: progress, Use: k.use, Dead: c.dead, Creating: &c.creating,
			Free: func() error {
				err := handle.FreeDropped(s.Port(), c.memory(), c.node.Fabric().View)
				if errors.Is(err, fabric.ErrNodeDown) {
					err = nil // the next drop does it
				}
				return err
			},
		}
		err = s.End(ctx, begun, handle.CopyNumber(s.Locker(), to, o))
		c.copying.Store(nil)
	}
	if errors.Is(err, memory.ErrNotFormatted) || errors.Is(err, memory.ErrHalfFormatted) {
		err = fmt.Errorf("%w: %w", fabric.ErrNodeDown, err) // it will be
	}
	return errors.Join(err, s.Close())
}

// A copier has the stores and trees open that are copied.
type copier struct {
	c   *Cluster
	ctx context.Context
	s   *cn.Session
}

// An opened is a store or tree that is open for a copy only.
type opened interface {
	handle.Copied
	LeaveUnused(l lock.Locker) error
}

// use calls f with the store or tree of a root entry. If this process has not opened it, it is open for the time of the call, in which no other is opened: a compute node has it open
// once.
func (k *copier) use(e *memory.Entry, f func(handle.Copied) error) error {
	c := k.c
	if x := k.known(e); x != nil {
		return f(x)
	}
	end, err := c.beginOpen(k.ctx)
	if err != nil {
		return err
	}
	defer end()
	if x := k.known(e); x != nil { // it has been opened meanwhile
		return f(x)
	}
	if err := k.s.Attach(); err != nil {
		return err
	}
	x, err := k.open(e)
	if err != nil {
		return err
	}
	err = f(x)
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
	return errors.Join(err, x.LeaveUnused(leaving.Locker()))
}

// known returns the store or tree of a root entry if this process has opened it, or nil.
func (k *copier) known(e *memory.Entry) handle.Copied {
	switch x := k.c.collection(collectionKey{e.Kind, e.Name}).(type) {
	case *Store:
		return x.Store
	case *Tree:
		return x.Tree
	}
	return nil
}

// open opens the store or tree of a root entry.
func (k *copier) open(e *memory.Entry) (opened, error) {
	c, port, find := k.c, k.s.Port(), objstore.Stores.Find
	if e.Kind == memory.KindTree {
		find = btree.Trees.Find
	}
	nodes, err := find(port, e.Name, c.memory())
	if err == nil && nodes == nil {
		err = fmt.Errorf("%w: %v %q", memory.ErrNotFound, e.Kind, e.Name)
	}
	if err != nil {
		return nil, err
	}
	if e.Kind == memory.KindTree {
		return btree.Open(port, btree.Config{
			Name: e.Name, Nodes: nodes, Lock: c.node.Layout().Lock(), Existing: true, CacheBytes: -1, DeadNow: c.dead, Creating: &c.creating,
		})
	}
	return objstore.Open(port, objstore.Config{
		Name: e.Name, Nodes: nodes, Lock: c.node.Layout().Lock(), Existing: true, CacheEntries: -1, DeadNow: c.dead, Creating: &c.creating,
	})
}
