package btree

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/memory/reclaim"
)

// ErrUnanswered: leaked slots cannot be looked for, because a compute node that has the tree open
// does not take part, or is always at work.
var ErrUnanswered = reclaim.ErrUnanswered

// ReclaimStep does this compute node's part in finding the slots that crashed nodes have leaked (package memory/reclaim), and reports whether
// there is more to do: then it is to be called again soon, else after a second, or when a compute node has crashed. view returns the live compute nodes. One
// client of each compute node does it, beside the others' work, with nothing under way of its own. It does not wait for anybody, and takes no locks.
//
// Of a tree on replicated memory it makes the backups equal to the primary after a crash, too (walk.go), and may wait for locks of nodes.
func (c *Client) ReclaimStep(view func() fabric.View) (busy bool, err error) {
	walks, err := c.walkStep(view) // first: a round waits for what is unsettled
	if err == nil {
		busy, err = c.session.ReclaimStep(view)
		busy = busy || walks
	}
	if err != nil && handle.Later(err) && c.t.h.Replicated() {
		return false, nil
	}
	return busy, err
}

// Reclaim looks for leaked slots, and puts them into free lists: after a failed operation of a compute node that has closed the tree,
// say. Others may be at work, if they ReclaimStep. ErrUnanswered: they do not.
func (c *Client) Reclaim(view func() fabric.View) error { return c.session.Reclaim(view) }

// OpenOn returns the compute nodes, besides this one, that have the tree open, or crashed with it open. What Check finds while one of those
// is alive may be a change that is half done.
func (c *Client) OpenOn() ([]fabric.CNID, error) { return c.session.OpenOn() }

// Found returns what this compute node has found as the leader of rounds.
func (c *Client) Found() reclaim.Found { return c.session.Found() }

// Drain gives the slots that this compute node keeps free back to the memory nodes, for others. See Leave.
func (c *Client) Drain() error { return c.session.Drain() }

// Leave gives the slots that this compute node keeps free back to the memory nodes, and closes the tree on it: its last client
// calls it, and uses it no more. handle.ErrUnsettled: the compute node must leave the cluster as one that crashes does (cn.Node.Unsettled), so that others compare what there is.
func (c *Client) Leave() error {
	err := c.settleOwn()
	return errors.Join(err, c.session.Leave())
}

// settleOwn settles what this compute node knows to be unsettled, before it leaves: another may have its number before any looks.
func (c *Client) settleOwn() error {
	if !c.t.unsettled.any() {
		return nil
	}
	if err := c.session.Begin(); err != nil {
		return fmt.Errorf("btree: %w: %w", handle.ErrUnsettled, err)
	}
	defer c.session.End()
	c.user.Enter()
	defer c.user.Exit()
	c.patience = settleWaitNs
	defer func() { c.patience = 0 }()
	if err := c.settleAll(); err != nil {
		return fmt.Errorf("btree: %w: %w", handle.ErrUnsettled, err)
	}
	if c.t.unsettled.any() {
		return fmt.Errorf("btree: %w: a backup does not answer", handle.ErrUnsettled)
	}
	return nil
}

// span returns where a slot is, in units of 64 bytes.
func (t *Tree) span(off64 uint64, cl class) (from, to uint64) {
	return off64, off64 + t.slotSize(cl)/slotUnit
}

// kept calls add for the slots that the client keeps for shadows: see reclaim.User.
func (c *Client) kept(add func(part int, from, to uint64)) {
	for i := range c.shadow {
		if p := ptr(c.shadow[i].Load()); p != 0 {
			from, to := c.t.span(p.off64(), classNode)
			add(i, from, to)
		}
	}
}

// mark marks what the tree leads to: see handle.Hooks. A node that is in the tree all the time is found: those of a level divide the keys among them, in
// the order of their links, and a node begins where it began until it is dead.
func (c *Client) mark(m *reclaim.Map) error {
	p, err := c.loadRoot()
	if err != nil {
		return err
	}
	var root node
	s := &c.search
	s.begin(0, nil, false, false)
	for {
		if err = c.read(&root, c.inner, p); err == nil {
			break
		}
		if err != errGone {
			return err
		}
		now, err := c.loadRoot()
		if err != nil {
			return err
		}
		if now == p {
			return fmt.Errorf("%w: root %v is gone", ErrCorrupt, p)
		}
		p = now
	}
	for level := int(root.level); level >= 0; level-- {
		if err := c.markLevel(m, uint8(level)); err != nil {
			return err
		}
	}
	return nil
}

// markLevel marks the nodes of a level, from left to right, and the values of leaves.
func (c *Client) markLevel(m *reclaim.Map, level uint8) error {
	edge, n := []byte(nil), &c.n
	for {
		c.search.begin(level, edge, false, false)
		if err := c.seek(&c.search, n, c.leaf); err != nil {
			return err
		}
		if err := c.markNode(m, n); err != nil {
			return err
		}
		if !n.high.some {
			return nil
		}
		if slices.Compare(n.high.key, edge) <= 0 {
			return fmt.Errorf("%w: node %v, level %d: ends at %.40q, where it begins", ErrCorrupt, n.self, level, n.high.key)
		}
		edge = append(edge[:0], n.high.key...)
	}
}

// markNode marks a node that has been read, the shadow that it was read from, and its large values.
func (c *Client) markNode(m *reclaim.Map, n *node) error {
	t := c.t
	from, to := t.span(n.self.off64(), classNode)
	m.Mark(n.self.node(), from, to)
	if n.word.state() == stateShadow {
		// As long as no writer has finished the node, its shadow is it. The next writer finishes it; then the slot is leaked, if its
		// writer has crashed.
		c.ops[0] = fabric.Load(t.slotAddr(n.self, classNode))
		if err := lock.Do(c.l, c.ops[:1]); err != nil {
			return fmt.Errorf("btree: node %v: %w", n.self, err)
		}
		if w := word(c.ops[0].Old); w.state() == stateMoving {
			from, to := t.span(w.shadow(), classNode)
			m.Mark(n.self.node(), from, to)
			m.Again = true
		}
	}
	if n.level > 0 {
		return nil
	}
	items, err := c.sorted(n)
	if err != nil {
		return err
	}
	for i := range items {
		if items[i].kind != kindOutOfLine {
			continue
		}
		v, err := t.outOfLine(items[i].value)
		if err != nil {
			return err
		}
		from, to := t.span(v.at.off64(), classFor(v.size))
		m.Mark(v.at.node(), from, to)
	}
	return nil
}
