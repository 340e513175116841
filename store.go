package declock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/objstore"
)

// A Store is an object store of the cluster that this compute node has open.
// Any goroutine may use it.
type Store struct {
	*objstore.Store
	told told
}

// told is of how many losses of a store or tree a process has been told by a client that it has opened.
type told struct{ losses atomic.Uint32 }

// tell tells of the losses that there are now, if nobody has been told of them. err is that of opening a client.
func (t *told) tell(losses uint32, err error) error {
	if err != nil && !errors.Is(err, ErrMemoryLost) {
		return err
	}
	if t.losses.Swap(losses) != losses && err == nil {
		err = ErrMemoryLost
	}
	return err
}

// Store opens the object store with a name, and makes it if there is none.
// cfg says how (the zero value is good for 65536 objects of up to 1 MiB on all
// memory nodes); its Name, Lock, DeadNow, Creating and, unless given, Nodes are filled in: those that the
// store has, or, to make it, all that the cluster has now.
// A store that this Cluster has open already is returned as it is.
func (c *Cluster) Store(ctx context.Context, name string, cfg objstore.Config) (*Store, error) {
	if st := c.store(name); st != nil {
		return st, nil
	}
	end, err := c.beginOpen(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if st := c.store(name); st != nil { // another goroutine was faster
		return st, nil
	}
	cfg.Name, cfg.Lock, cfg.DeadNow, cfg.Creating = name, c.node.Layout().Lock(), c.dead, &c.creating
	var st *objstore.Store
	lost := 0
	err = c.attached(ctx, func(s *Session) (err error) {
		lost = c.losses()
		if len(cfg.Nodes) == 0 {
			// Memory nodes may have joined since the store was made.
			if cfg.Nodes, err = objstore.Find(s.Port(), name, c.memory()); err != nil {
				return err
			}
		}
		if len(cfg.Nodes) == 0 {
			cfg.Nodes = c.memory()
		}
		st, err = objstore.Open(s.Port(), cfg)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, mn := range c.lost[lost:] { // while it was opened
		st.MemoryLost(mn)
	}
	c.stores[name] = &Store{Store: st}
	return c.stores[name], nil
}

// losses returns how many memories have been lost.
func (c *Cluster) losses() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.lost)
}

// dead returns the numbers of compute nodes that nobody has.
func (c *Cluster) dead() fabric.CNSet { return c.node.Fabric().View().Dead() }

// memoryLost tells what this process has open that a memory node has lost its memory.
func (c *Cluster) memoryLost(mn fabric.MemID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = append(c.lost, mn)
	for _, st := range c.stores {
		st.MemoryLost(mn)
	}
	for _, t := range c.trees {
		t.MemoryLost(mn)
	}
}

// memory returns the memory nodes of the cluster, by number, those that are down and expected back among them.
func (c *Cluster) memory() (ids []fabric.MemID) {
	for _, m := range c.node.Memory() {
		ids = append(ids, m.ID)
	}
	return ids
}

func (c *Cluster) store(name string) *Store {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.stores[name]
	if st != nil && st.Dropped() {
		delete(c.stores, name)
		c.dropped = append(c.dropped, st)
		return nil
	}
	return st
}

// Client returns the store for the use of a session: an objstore.Cache. Like the session it
// is used by one goroutine at a time. Its waits for locks are bounded by
// Config.LockTimeoutNs, or by a context with Session.Do. ErrMemoryLost: memory of the store
// has been lost since the last client was opened, or since the store was; the next call succeeds.
func (st *Store) Client(s *Session) (*objstore.Client, error) {
	if s.s.Closed() {
		return nil, fmt.Errorf("%w: the session", ErrClosed)
	}
	k, err := st.Store.Client(s.Locker())
	if told := st.told.tell(st.Losses(), err); told != nil && err == nil {
		k.Close()
		return nil, fmt.Errorf("%w: objects of the store are gone", told)
	}
	return k, err
}

// closeLetGo is how long Close waits at most for what has been dropped to be let go. What is not by then comes back when another process opens the cluster.
const closeLetGo = 2 * time.Second

// drain gives free memory that this compute node keeps of its stores and trees back to
// the memory nodes, and closes them. The keeper has ended.
func (c *Cluster) drain() error {
	c.mu.Lock()
	stores, trees, gone := c.stores, c.trees, c.dropped
	c.stores, c.trees, c.dropped = nil, nil, nil
	c.mu.Unlock()
	if c.private != nil { // its memory goes with this process
		gone = nil
	}
	if len(stores)+len(trees)+len(gone) == 0 {
		return nil
	}
	s, err := c.node.Session()
	if err != nil {
		return err
	}
	defer s.Close()
	var errs []error
	for _, st := range stores {
		cl, err := st.Store.Client(s.Locker())
		if errors.Is(err, ErrMemoryLost) { // what it has of others is there still
			cl, err = st.Store.Client(s.Locker())
		}
		if err == nil {
			err = cl.Leave()
			cl.Close()
		}
		if !dropped(err) { // then there is nothing to give back, and the memory comes back when this process has left
			errs = append(errs, err)
		}
	}
	for _, t := range trees {
		cl, err := t.Tree.Client(s.Locker())
		if err == nil {
			err = cl.Leave()
			cl.Close()
		}
		if !dropped(err) { // then there is nothing to give back, and the memory comes back when this process has left
			errs = append(errs, err)
		}
	}
	for until := time.Now().Add(closeLetGo); len(gone) > 0 && time.Now().Before(until); time.Sleep(keeperLooks) {
		gone = slices.DeleteFunc(gone, func(x any) bool {
			done, err := c.letGo(x, s.Locker())
			return done || err != nil
		})
	}
	return errors.Join(errs...)
}
