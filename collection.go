package declock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

// A collection is a store or tree that this process has open; its methods are those of objstore.Store and btree.Tree.
type collection interface {
	MemoryLost(mn fabric.MemID)
	Dropped() bool
	MarkDropped()
	LetGo(l lock.Locker, view func() fabric.View) (done bool, err error)
	// opened returns a client for the use of this package.
	opened(l lock.Locker) (collectionClient, error)
}

// A collectionClient is a client of a store or tree.
type collectionClient interface {
	ReclaimStep(view func() fabric.View) (busy bool, err error)
	Leave() error
	Close()
}

// A collectionKey names a collection: a store and a tree may have the same name.
type collectionKey struct {
	kind memory.Kind
	name string
}

// openCollection returns the collection with a name that this process has open, or opens it: open does that, given all memory nodes of the cluster.
func openCollection[T collection](ctx context.Context, c *Cluster, key collectionKey, open func(port fabric.Port, all []fabric.MemID) (T, error)) (x T, err error) {
	if x, ok := c.collection(key).(T); ok {
		return x, nil
	}
	end, err := c.beginOpen(ctx)
	if err != nil {
		return x, err
	}
	defer end()
	if x, ok := c.collection(key).(T); ok { // another goroutine was faster
		return x, nil
	}
	lost := 0
	w := &worker{home: &c.work}
	if err := w.renew(ctx); err != nil {
		return x, err
	}
	err = c.outlast(ctx, func() error {
		return w.s.attached(ctx, func(s *Session) (err error) {
			lost = c.losses()
			x, err = open(s.Port(), c.memory())
			return err
		})
	})
	if err != nil {
		var none T
		_ = w.s.Close()
		return none, err
	}
	c.work.keep(w) // operations have a session from now on, however many locks are held
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, mn := range c.lost[lost:] { // lost while it was opened
		x.MemoryLost(mn)
	}
	c.open[key] = x
	return x, nil
}

// nodesOf returns the memory nodes of a collection: those that are given, or those that it was made with, or, if it is not there, all.
func nodesOf(given, all []fabric.MemID, port fabric.Port, name string, find func(fabric.Port, string, []fabric.MemID) ([]fabric.MemID, error)) ([]fabric.MemID, error) {
	if len(given) > 0 {
		return given, nil
	}
	found, err := find(port, name, all)
	if err != nil || len(found) > 0 {
		return found, err
	}
	return all, nil
}

// collection returns what is open under a key, or nil.
func (c *Cluster) collection(key collectionKey) collection {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.open[key]
	if x != nil && x.Dropped() {
		delete(c.open, key)
		c.dropped = append(c.dropped, x)
		return nil
	}
	return x
}

// collections returns what is open, and what is to be let go.
func (c *Cluster) collections() []collection {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := slices.Clone(c.dropped)
	for _, x := range c.open {
		list = append(list, x)
	}
	return list
}

// dropCollection removes a collection by drop, and marks it if this process has it open.
func (c *Cluster) dropCollection(ctx context.Context, key collectionKey, drop func(fabric.Port, string, []fabric.MemID, func() fabric.View) error) error {
	end, err := c.beginOpen(ctx) // what is open under the name is what is dropped
	if err != nil {
		return err
	}
	defer end()
	view := c.node.Fabric().View
	err = c.outlastDrop(ctx,
		func(s *Session) error { return drop(s.Port(), key.name, c.memory(), view) },
		func(s *Session) error { return handle.FreeDropped(s.Port(), c.memory(), view) })
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.open[key]; x != nil {
		x.MarkDropped()
		c.dropped = append(c.dropped, x)
		delete(c.open, key)
	}
	return nil
}

// beginOpen begins to open or drop a store or tree, and returns what ends it. One is opened at a time, since a compute node opens each once.
func (c *Cluster) beginOpen(ctx context.Context) (end func(), err error) {
	select {
	case c.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, cn.Ended(ctx)
	}
	if err := c.startReclaimer(); err != nil {
		<-c.opening
		return nil, err
	}
	return func() { <-c.opening }, nil
}

// losses returns how many memory nodes have lost their memory so far.
func (c *Cluster) losses() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.lost)
}

// dead returns the numbers that no live compute node has.
func (c *Cluster) dead() fabric.CNSet { return c.node.Fabric().View().Dead() }

// memoryLost notifies the stores and trees that this process has open that a memory node has lost its memory.
func (c *Cluster) memoryLost(mn fabric.MemID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = append(c.lost, mn)
	for _, x := range c.open {
		x.MemoryLost(mn)
	}
	c.changes.Add(1) // last: sessions of before are given up
}

// memory returns the memory nodes of the cluster, by number, those that are down and expected back among them.
func (c *Cluster) memory() (ids []fabric.MemID) {
	for _, m := range c.node.Memory() {
		ids = append(ids, m.ID)
	}
	return ids
}

// closeLetGo is how long Close waits at most until what has been dropped is let go. The rest comes back when another process opens the cluster.
const closeLetGo = 2 * time.Second

// drain closes the stores and trees, and gives free memory that this compute node keeps of them back to
// the memory nodes, until ctx ends. The reclaimer has ended.
func (c *Cluster) drain(ctx context.Context) error {
	c.mu.Lock()
	open, gone := c.open, c.dropped
	c.open, c.dropped = nil, nil
	c.mu.Unlock()
	if c.private != nil { // its memory goes with this process
		gone = nil
	}
	if len(open)+len(gone) == 0 {
		return nil
	}
	s, err := c.node.Session()
	if err != nil {
		return err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, s.Port().Interrupt)()
	var errs []error
	for key, x := range open {
		cl, err := x.opened(s.Locker())
		if key.kind == memory.KindStore && errors.Is(err, ErrMemoryLost) { // its parts on other memory nodes are still there
			cl, err = x.opened(s.Locker())
		}
		if err == nil {
			if err = cl.Leave(); errors.Is(err, handle.ErrUnsettled) {
				c.node.Unsettled()
			} else if errors.Is(err, handle.ErrLocksLeft) {
				err = nil // its registration ends with this process, which leaves the cluster when it has nothing to do with locks
			}
			cl.Close()
		}
		if !dropped(err) { // the memory of a dropped one comes back when this process has left
			errs = append(errs, err)
		}
	}
	for until := time.Now().Add(closeLetGo); len(gone) > 0 && time.Now().Before(until); time.Sleep(viewEvery) {
		gone = slices.DeleteFunc(gone, func(x collection) bool {
			done, err := x.LetGo(s.Locker(), c.node.Fabric().View)
			return done || err != nil
		})
	}
	return errors.Join(errs...)
}

// clientOf returns a client for the use of a session, opened by open. It fails with ErrMemoryLost if losses, of which there are so many now, are
// not as many as a client has been notified of before; gone names what is lost then.
func clientOf[K collectionClient](s *Session, notified *atomic.Uint32, losses func() uint32, gone string, open func(lock.Locker) (K, error)) (k K, err error) {
	if s.s.Closed() {
		return k, fmt.Errorf("%w: the session", ErrClosed)
	}
	k, err = open(s.Locker())
	if err != nil && !errors.Is(err, ErrMemoryLost) {
		return k, err
	}
	now := losses()
	if notified.Swap(now) != now && err == nil {
		k.Close()
		var none K
		return none, fmt.Errorf("%w: %s are gone", ErrMemoryLost, gone)
	}
	return k, err
}
