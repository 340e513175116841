package declock

import (
	"context"
	"fmt"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
)

// A Tree is a B+tree index of the cluster that this compute node has open: keys in order.
// Any number of goroutines may use it, as a [Store]: sessions come from the same pool, contexts and results are as there, and so is ErrMemoryLost.
type Tree struct {
	*btree.Tree
	shared shared[*btree.Client]
}

// Tree opens the index with a name, and makes it if there is none. A tree that this Cluster has open already is returned as it is.
func (c *Cluster) Tree(ctx context.Context, name string, how TreeConfig) (*Tree, error) {
	cfg, err := how.of(c, name)
	if err != nil {
		return nil, err
	}
	return openCollection(ctx, c, collectionKey{memory.KindTree, name}, func(port fabric.Port, all []fabric.MemID) (_ *Tree, err error) {
		if cfg.Nodes, err = nodesOf(cfg.Nodes, all, port, name, btree.Trees.Find); err != nil {
			return nil, err
		}
		opened, err := btree.Open(port, cfg)
		if err != nil {
			return nil, err
		}
		t := &Tree{Tree: opened}
		t.shared.share(c, opened.Losses, t.Client)
		return t, nil
	})
}

// DropTree removes the tree with a name, as DropStore removes a store: processes that have it open get btree.ErrDropped.
func (c *Cluster) DropTree(ctx context.Context, name string) error {
	return c.dropCollection(ctx, collectionKey{memory.KindTree, name}, btree.Trees.Drop)
}

// Client returns the tree for the use of a session. Like the session it is used by one goroutine at a
// time. Its waits for locks are bounded by TreeConfig.LockTimeout, or by a context with Session.Do. ErrMemoryLost: memory of the tree
// has been lost since the last client was opened, or since the tree was; the next call succeeds.
func (t *Tree) Client(s *Session) (*btree.Client, error) {
	return clientOf(s, &t.shared.notified, t.Losses, fmt.Sprintf("the keys of tree %q", t.Name()), t.Tree.Client)
}

func (t *Tree) opened(l lock.Locker) (collectionClient, error) { return t.Tree.Client(l) }
