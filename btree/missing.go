package btree

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/region"
	"github.com/declock/declock/region/sweep"
)

// A tree can be opened while memory nodes of it are down, if a part of it is found: it is waiting then. A path from the root to a leaf may lead
// over any memory node, and each client needs slots on all, so a tree that waits does nothing: each operation tries to open the tree, which works
// when all memory nodes are up, and fails with ErrNodeDown until then. Since this compute node has seen nothing of the tree, it reports
// nothing of it as lost.

// unseen is the Tree.losses of a tree that waits: each operation finds it outdated.
const unseen = ^uint32(0)

// waits reports whether memory nodes were down when the tree was opened.
func (t *Tree) waits() bool { return t.losses == unseen }

// waiting returns the tree that is opened because of why: memory nodes are down. It fails with why if no part of the tree is found.
func waiting(port fabric.Port, cfg Config, l *line, why error) (*Tree, error) {
	given := cfg
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	for i, mn := range cfg.Nodes {
		r, err := region.Reach(port, mn)
		if errors.Is(err, fabric.ErrNodeDown) {
			continue
		}
		if err != nil {
			return nil, errors.Join(why, err)
		}
		e, err := r.Lookup(port, cfg.Name, region.KindTree)
		if errors.Is(err, region.ErrNotFound) || errors.Is(err, region.ErrHalfCreated) {
			continue
		}
		if err != nil {
			return nil, errors.Join(why, err)
		}
		t := &Tree{cfg: cfg, line: l, losses: unseen, member: new(sweep.Member)}
		if t.geo, err = decodeGeometry(&e, i); err != nil {
			return nil, fmt.Errorf("btree: open %q on %v: %w", cfg.Name, mn, err)
		}
		t.stride = t.geo.stride()
		// What is not given is as in this tree, or its successor.
		t.cfg.MaxKey, t.cfg.NodeSize, t.cfg.MaxInline = t.geo.maxKey, t.geo.nodeSize, t.geo.maxInline
		return t, t.compare(&given)
	}
	return nil, why
}

// catchUp is called at the beginning of an operation of a client whose tree is outdated: after a loss it says what is gone, and it opens a
// tree that waits.
func (c *Client) catchUp() error {
	if !c.t.waits() {
		return c.revive()
	}
	t, err := c.t.revived(c.l)
	if err == nil {
		err = c.open(t)
	}
	if errors.Is(err, errReviving) {
		err = fmt.Errorf("%w: %w", fabric.ErrNodeDown, err)
	}
	if err != nil {
		return fmt.Errorf("btree: tree %q was opened while a memory node of it was down: %w", c.t.cfg.Name, err)
	}
	return nil
}

// await makes the client one of a tree that waits.
func (c *Client) await() error {
	err := c.catchUp()
	if c.t.waits() && errors.Is(err, fabric.ErrNodeDown) && !errors.Is(err, lock.ErrMemoryLost) {
		return nil
	}
	return err
}
