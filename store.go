package declock

import (
	"context"
	"errors"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/objstore"
)

// A Store is an object store of the cluster that this compute node has open.
// Any goroutine may use it.
type Store struct {
	*objstore.Store
}

// Store opens the object store with a name, and makes it if there is none.
// cfg says how (the zero value is good for 65536 objects of up to 1 MiB on all
// memory nodes); its Name, Lock, Dead and, unless given, Nodes are filled in: those that the
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
	s, err := c.Session()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	cfg.Name, cfg.Lock, cfg.Dead, cfg.DeadNow = name, c.node.Layout().Lock(), c.dead(), c.dead
	var st *objstore.Store
	err = s.Do(ctx, func() (err error) {
		if err = s.s.Attach(); err != nil {
			return err
		}
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
	c.stores[name] = &Store{Store: st}
	return c.stores[name], nil
}

// dead returns the numbers of compute nodes that nobody has.
func (c *Cluster) dead() fabric.CNSet { return c.node.Fabric().View().Dead() }

// memoryLost tells what this process has open that a memory node has lost its memory.
func (c *Cluster) memoryLost(mn fabric.MemID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.stores {
		st.MemoryLost(mn)
	}
	for _, t := range c.trees {
		t.MemoryLost(mn)
	}
}

// memory returns the memory nodes of the cluster, by number.
func (c *Cluster) memory() (ids []fabric.MemID) {
	for _, m := range c.node.Fabric().Memory() {
		ids = append(ids, m.ID)
	}
	return ids
}

func (c *Cluster) store(name string) *Store {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stores[name]
}

// Client returns the store for the use of a session: an objstore.Cache. Like the session it
// is used by one goroutine at a time. Its waits for locks are bounded by
// Config.LockTimeoutNs, or by a context with Session.Do.
func (st *Store) Client(s *Session) (*objstore.Client, error) {
	return st.Store.Client(s.Locker())
}

// drain gives free memory that this compute node keeps of its stores and trees back to
// the memory nodes, and closes them.
func (c *Cluster) drain() error {
	c.mu.Lock()
	stores, trees := c.stores, c.trees
	c.stores, c.trees = nil, nil
	c.mu.Unlock()
	if len(stores)+len(trees) == 0 {
		return nil
	}
	s, err := c.Session()
	if err != nil {
		return err
	}
	defer s.Close()
	var errs []error
	for _, st := range stores {
		cl, err := st.Client(s)
		if errors.Is(err, ErrMemoryLost) { // what it has of others is there still
			cl, err = st.Client(s)
		}
		if err == nil {
			err = cl.Leave()
			cl.Close()
		}
		errs = append(errs, err)
	}
	for _, t := range trees {
		cl, err := t.Client(s)
		if err == nil {
			err = cl.Leave()
			cl.Close()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
