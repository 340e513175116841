package declock

import (
	"context"
	"fmt"

	"github.com/declock/declock/btree"
)

// A Tree is a B+tree index of the cluster that this compute node has open.
// Any goroutine may use it.
type Tree struct {
	*btree.Tree
	told told
}

// Tree opens the index with a name, and makes it if there is none. cfg says how (the zero
// value is good for keys of up to 128 bytes on all memory nodes); its Name, Lock, DeadNow, Creating and, unless given, Nodes
// are filled in. A tree that this Cluster has open already is returned as it is.
func (c *Cluster) Tree(ctx context.Context, name string, cfg btree.Config) (*Tree, error) {
	if t := c.tree(name); t != nil {
		return t, nil
	}
	end, err := c.beginOpen(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if t := c.tree(name); t != nil { // another goroutine was faster
		return t, nil
	}
	cfg.Name, cfg.Lock, cfg.DeadNow, cfg.Creating = name, c.node.Layout().Lock(), c.dead, &c.creating
	all := c.memory()
	var open *btree.Tree
	lost := 0
	err = c.attached(ctx, func(s *Session) (err error) {
		lost = c.losses()
		if len(cfg.Nodes) == 0 {
			// Memory nodes may have joined since the tree was made.
			if cfg.Nodes, err = btree.Find(s.Port(), name, c.memory()); err != nil {
				return err
			}
		}
		if len(cfg.Nodes) == 0 {
			cfg.Nodes = all
		}
		open, err = btree.Open(s.Port(), cfg)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, mn := range c.lost[lost:] { // while it was opened
		open.MemoryLost(mn)
	}
	c.trees[name] = &Tree{Tree: open}
	return c.trees[name], nil
}

func (c *Cluster) tree(name string) *Tree {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.trees[name]
	if t != nil && t.Dropped() {
		delete(c.trees, name)
		c.dropped = append(c.dropped, t)
		return nil
	}
	return t
}

// Client returns the tree for the use of a session. Like the session it is used by one goroutine at a
// time. Its waits for locks are bounded by Config.LockTimeoutNs, or by a context with Session.Do. ErrMemoryLost: memory of the tree
// has been lost since the last client was opened, or since the tree was; the next call succeeds.
func (t *Tree) Client(s *Session) (*btree.Client, error) {
	if s.s.Closed() {
		return nil, fmt.Errorf("%w: the session", ErrClosed)
	}
	k, err := t.Tree.Client(s.Locker())
	if told := t.told.tell(t.Losses(), err); told != nil && err == nil {
		k.Close()
		return nil, fmt.Errorf("%w: the keys of tree %q are gone", told, t.Name())
	}
	return k, err
}
