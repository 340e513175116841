package btree

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/memory/reclaim"
)

// A tree can be opened while memory nodes of it are down, if a part of it is found.
//
// If its first part is there, and all others of which the memory nodes are up, a part that is down is a missing one, of which only the memory node is
// known. Operations work as long as they meet neither nodes of the tree nor large values on a missing part; one that does fails with ErrNodeDown, which names the memory node.
// What is new goes to memory nodes that are up. The first operation that meets a missing part when the memory node is back takes the part in, and so does ReclaimStep. If the memory node
// has lost its memory, the tree is gone, as it is for those that had it open (lost.go).
//
// The first part has the ptr of the root and the registrations of the compute nodes that have the tree open. Without it the tree is waiting: each operation tries
// to open it, and fails with ErrNodeDown until then. Since this compute node has seen nothing of the tree, it reports nothing of it as lost.

// waits reports whether the tree is waiting for its first part: each operation finds it outdated.
func (t *Tree) waits() bool { return t.h.Seen == handle.Unseen }

// onMissing reports whether a slot is on a missing part.
func (t *Tree) onMissing(p ptr) bool {
	return p.node() < len(t.h.Parts) && t.h.Parts[p.node()].Missing()
}

// down is the error of an operation that needs a missing part.
func (t *Tree) down(m *handle.Part) error {
	return fmt.Errorf("btree: %w: memory node %v, which has a part of tree %q that is needed", fabric.ErrNodeDown, m.MN, t.cfg.Name)
}

// openWithout returns the tree that follows t, which it opens while memory nodes are down: why is the error of open. It fails with why if no part of the tree is found.
func (t *Tree) openWithout(port fabric.Port, cfg Config, why error) (*Tree, error) {
	given := cfg
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	t = t.next(cfg)
	regions, entries := make([]*memory.Region, len(cfg.Nodes)), make([]memory.Entry, len(cfg.Nodes))
	whole, first := true, -1 // all parts are found of which the memory nodes are up
	for i, mn := range cfg.Nodes {
		r, e, err := Trees.Lookup(port, cfg.Name, mn)
		switch {
		case r == nil && errors.Is(err, fabric.ErrNodeDown):
			continue
		case handle.Absent(err):
			whole = false
			continue
		case err != nil:
			return nil, errors.Join(why, err)
		}
		g, err := decodeGeometry(&e, i)
		if err != nil {
			return nil, fmt.Errorf("btree: open %q on %v: %w", cfg.Name, mn, err)
		}
		if first < 0 {
			first, t.geo = i, g
		}
		whole = whole && g == t.geo
		regions[i], entries[i] = r, e
	}
	if first < 0 {
		return nil, why
	}
	t.stride = t.geo.stride()
	// What is not given is as in this tree, or its successor.
	t.cfg.MaxKey, t.cfg.NodeSize, t.cfg.MaxInline = t.geo.maxKey, t.geo.nodeSize, t.geo.maxInline
	if err := t.compare(&given); err != nil {
		return nil, err
	}
	if first > 0 || !whole {
		t.h.Seen, t.h.Member = handle.Unseen, new(reclaim.Member)
		return t, nil
	}
	for i, r := range regions {
		if r == nil {
			continue
		}
		if err := t.adopt(i, r, entries[i]); err != nil {
			return nil, fmt.Errorf("btree: open %q on %v: %w", cfg.Name, cfg.Nodes[i], err)
		}
	}
	return t, t.register(port)
}

// reach returns nil if a slot of so many bytes can be where p says, and takes the part in that it is on, if that is missing and can be had.
func (c *Client) reach(p ptr, size uint64) error {
	switch {
	case c.t.sane(p, size):
		return nil
	case !c.t.onMissing(p):
		return fmt.Errorf("%w: ptr %v", ErrCorrupt, p)
	}
	if err := c.takeIn(p.node()); err != nil {
		return err
	}
	return c.reach(p, size)
}

// takeIn takes a missing part in.
func (c *Client) takeIn(node int) error {
	m := c.t.h.Parts[node]
	taken, err := c.t.h.Turn().Take(c.port)
	if taken {
		err = c.t.complete(c)
		c.t.h.Turn().End()
	}
	if !m.Missing() {
		return nil
	}
	if err == nil || errors.Is(err, fabric.ErrNodeDown) {
		return c.t.down(m)
	}
	return fmt.Errorf("%w: %w", c.t.down(m), err)
}

// whole takes all missing parts in, and fails with ErrNodeDown if one stays missing.
func (c *Client) whole() error {
	for i := range c.t.h.Parts {
		if c.t.h.Parts[i].Missing() {
			if err := c.takeIn(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// completeInBackground takes in what there is of missing parts, and has slots found that had become free on them.
func (c *Client) completeInBackground() {
	t := c.t
	if t.absent.Load() > 0 && t.h.Turn().Try() {
		_ = t.complete(c) // an operation that needs a part returns why it is missing
		t.h.Turn().End()
	}
	if t.absent.Load() == 0 && t.forgotten.Swap(false) {
		t.h.Member.Force()
	}
}

// complete takes in the missing parts of which the memory nodes are up. The caller has the turn.
func (t *Tree) complete(c *Client) error {
	if t.waits() {
		return nil // it is opened anew
	}
	var generations uint64
	var errs error
	back := make([]*memory.Region, len(t.h.Parts))
	up := true
	for i := range t.h.Parts {
		m := t.h.Parts[i]
		if !m.Missing() {
			generations += uint64(m.Region.Generation())
			continue
		}
		err := lock.Renew(c.l, m.MN)
		if err == nil {
			back[i], err = memory.Reach(c.port, m.MN)
		}
		if err != nil {
			up, errs = false, errors.Join(errs, err)
			continue
		}
		generations += uint64(back[i].Generation())
	}
	for i, r := range back {
		if r == nil {
			continue
		}
		e, err := r.Lookup(c.port, t.cfg.Name, memory.KindTree)
		var g geometry
		if err == nil {
			g, err = decodeGeometry(&e, i)
		}
		if err == nil && g == t.geo {
			err = t.adopt(i, r, e)
		} else if err == nil || errors.Is(err, memory.ErrNotFound) {
			err = t.absence(c, i, up, generations)
		}
		errs = errors.Join(errs, err)
	}
	return errs
}

// absence deals with a part that is not on its memory node. The tree has been removed, or was never made there, or the memory of the memory node has been lost, and
// then the tree is gone. Which of the two it is can be known when all memory nodes are up, with so many generations.
func (t *Tree) absence(c *Client, i int, up bool, generations uint64) error {
	first := t.h.Parts[0]
	if err := first.Region.Published(c.work.Path(), &first.Entry); err != nil {
		return c.removed(err)
	}
	switch {
	case !up:
		return fmt.Errorf("btree: tree %q is not on %v", t.cfg.Name, t.h.Parts[i].MN)
	case generations == t.geo.generations:
		return t.openNode(c.port, lock.Path(c.l), i, t.h.Parts[i].MN)
	}
	t.h.CountLoss()
	return fmt.Errorf("btree: tree %q is gone: memory node %v has lost its memory", t.cfg.Name, t.h.Parts[i].MN)
}

// forget gives up a slot on a missing part: the tree does not lead there any more. It is found when the part is there again.
func (t *Tree) forget(p ptr) {
	t.h.Member.Touch(p.node(), p.off64())
	t.forgotten.Store(true)
}

// catchUp is called at the beginning of an operation: if the client's tree is outdated, it returns what is gone after a loss, and opens a
// tree that waits.
func (c *Client) catchUp() error {
	switch {
	case !c.t.h.Lost():
		return nil
	case !c.t.waits():
		return c.revive()
	}
	t, err := c.t.reopened(c.l)
	if err == nil {
		err = c.open(t)
	}
	if errors.Is(err, handle.ErrReopening) {
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
