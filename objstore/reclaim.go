package objstore

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/memory/reclaim"
)

// ErrUnanswered: leaked memory cannot be looked for, because a compute node that has the store open
// does not take part, or is always at work.
var ErrUnanswered = reclaim.ErrUnanswered

// ReclaimStep does this compute node's part in finding the memory that crashed nodes have leaked (package memory/reclaim), and reports whether
// there is more to do: then it is to be called again soon, else after a second, or when a compute node has crashed. view returns the live compute nodes. One
// client of each compute node does it, beside the others' work, with nothing under way of its own. It does not wait for anybody.
//
// Of a store with values in segments it deletes segments that no value has, after a crash or a failure (sweep.go).
//
// Of a store on replicated memory it makes the backups equal to the primary after a crash, too (walk.go), and may wait for locks of buckets.
func (c *Client) ReclaimStep(view func() fabric.View) (busy bool, err error) {
	walks, err := c.walkStep(view) // first: a round waits for what is unsettled
	if err == nil {
		busy, err = c.session.ReclaimStep(view)
		busy = busy || walks
	}
	if err != nil && handle.Later(err) && c.s.h.Replicated() {
		return false, nil
	}
	err = errors.Join(err, c.graceStep(view)) // also if a memory node is down: epochs of parts on others go on
	if err == nil && !busy {
		busy, err = c.sweepStep(view)
	}
	return busy, err
}

// Reclaim looks for leaked memory, and puts it into free lists: after a failed operation of a compute node that has closed the store,
// say. Others may be at work, if they ReclaimStep. ErrUnanswered: they do not. Where the memory of the first of several memory nodes has been
// lost, ReclaimStep does nothing, and a compute node that has not noticed that has memory that no other knows of: then ErrUnanswered, unless no other compute node is alive.
func (c *Client) Reclaim(view func() fabric.View) error {
	return errors.Join(c.session.Reclaim(view), c.graceStep(view))
}

// OpenOn returns the compute nodes, besides this one, that have the store open, or crashed with it open. What Check finds while one of those
// is alive may be a change that is half done.
func (c *Client) OpenOn() ([]fabric.CNID, error) { return c.session.OpenOn() }

// Found returns what this compute node has found as the leader of rounds.
func (c *Client) Found() reclaim.Found { return c.session.Found() }

// Drain gives the chunks that this compute node keeps free back to the memory nodes, for others. See Leave.
func (c *Client) Drain() error { return c.session.Drain() }

// ErrUnsettled: backups may differ from the primary where an operation of this compute node has failed, and it could not repair that.
var ErrUnsettled = handle.ErrUnsettled

// Leave gives the chunks that this compute node keeps free back to the memory nodes, and closes the store on it: its last client
// calls it, and uses it no more. ErrUnsettled: the compute node must leave the cluster as one that crashes does (cn.Node.Unsettled), so that others compare what there is.
func (c *Client) Leave() error {
	err := c.settle()
	return errors.Join(err, c.session.Leave())
}

// settle repairs what this compute node knows to be unsettled.
func (c *Client) settle() error {
	if !c.s.unsettled.any() {
		return nil
	}
	if err := c.session.Begin(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsettled, err)
	}
	defer c.session.End()
	left, err := c.repairAll()
	if !left && err == nil && !c.s.unsettled.any() {
		return nil
	}
	return errors.Join(ErrUnsettled, err)
}

// lose gives a chunk up: an operation that may still take effect would write it or link it.
func (c *Client) lose(n *handle.Part, ch chunk) {
	c.s.h.Member.Lose(n.Index, ch.off64)
	c.stats.Leaked++
}

// mark marks a chunk of a part.
func mark(m *reclaim.Map, n *handle.Part, ch chunk) {
	m.Mark(n.Index, ch.off64, ch.off64+ch.class.size()/chunkUnit)
}

// mark marks what the buckets lead to: see handle.Hooks. Slots and links are words that change by CAS, so each that is read is what was there at some time
// of the marking; overflow blocks stay where they are once they are linked.
func (c *Client) mark(m *reclaim.Map) error {
	for _, n := range c.s.h.Parts {
		if err := c.markBuckets(m, n); err != nil {
			return err
		}
	}
	return nil
}

// markBytes is how much of the buckets is read at once.
const markBytes = 64 << 10

// markBuckets marks the objects and overflow blocks of a node's buckets.
func (c *Client) markBuckets(m *reclaim.Map, n *handle.Part) error {
	g := &c.s.geo
	most := max(1, markBytes/g.bucketSize)
	c.table = c.grow(c.table, min(most, g.buckets)*g.bucketSize)
	for b := uint64(0); b < g.buckets; b += most {
		k := min(most, g.buckets-b)
		first := c.s.bucket(n.Index, b)
		c.ops[0] = fabric.Read(first, c.table[:k*g.bucketSize])
		if err := lock.Do(c.l, c.ops[:1]); err != nil {
			return fmt.Errorf("objstore: buckets at %v: %w", first, err)
		}
		for j := range k {
			slots := c.table[j*g.bucketSize+g.lockSize:][:c.s.slotsLen()]
			if err := c.markSlots(m, n, slots); err != nil {
				return fmt.Errorf("%w: bucket at %v", err, c.s.bucket(n.Index, b+j))
			}
		}
	}
	return nil
}

// markSlots marks the objects of a bucket, and its overflow blocks with theirs.
func (c *Client) markSlots(m *reclaim.Map, n *handle.Part, slots []byte) error {
	for depth := 0; ; depth++ {
		last := len(slots)/slotSize - 1
		for i := range last {
			w := slotWord(wordAt(slots, i))
			if w == 0 {
				continue
			}
			if !holds(n, w) { // what it should lead to would be taken for leaked
				return fmt.Errorf("%w: slot %#x", ErrCorrupt, uint64(w))
			}
			mark(m, n, w.chunk())
		}
		link := linkWord(wordAt(slots, last))
		if link == 0 {
			return nil
		}
		block, ok := link.chunk()
		if !ok || !sane(n, block) || depth == maxOverflow {
			return fmt.Errorf("%w: link %#x, depth %d", ErrCorrupt, uint64(link), depth)
		}
		mark(m, n, block)
		slots = c.slots[:overflowSize]
		c.ops[0] = fabric.Read(n.At(block.off64), slots)
		if err := lock.Do(c.l, c.ops[:1]); err != nil {
			return fmt.Errorf("objstore: overflow block: %w", err)
		}
	}
}
