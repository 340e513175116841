package objstore

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/region"
	"github.com/declock/declock/region/sweep"
)

// ErrUnanswered: memory that nobody has cannot be looked for, because a compute node that has the store open
// does not take part, or is always at work.
var ErrUnanswered = sweep.ErrUnanswered

// Tend does this compute node's part in finding the memory that others had when they died (package sweep), and tells whether
// there is more to do: then it is to be called again soon, else after a second, or when a compute node has died. view tells which compute nodes live. One
// client of each compute node does it, beside the others' work, with nothing under way of its own. It does not wait for anybody.
func (c *Client) Tend(view func() fabric.View) (busy bool, err error) {
	if err := c.begin(); err != nil {
		return false, err
	}
	defer c.end()
	switch {
	case c.s.lost():
		return false, c.revive()
	case c.s.survivors:
		return false, nil // see Reclaim
	}
	return c.tend(view)
}

func (c *Client) tend(view func() fabric.View) (busy bool, err error) {
	busy, err = c.s.member.Tend(&owner{c, view})
	if err != nil {
		err = fmt.Errorf("objstore: %w", err)
	}
	return busy, err
}

// Leave gives the chunks that this compute node keeps free back to the memory nodes, and closes the store on it: its last client
// calls it, and uses it no more.
func (c *Client) Leave() error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	if err := c.drain(); err != nil {
		return err
	}
	if err := c.s.member.Leave(func(ops []fabric.Op) error { return lock.Do(c.l, ops) }); err != nil {
		return fmt.Errorf("objstore: %w", err)
	}
	return nil
}

// Disown says, for a compute node that has just joined the cluster, that whoever had its number before has died, if he had the
// store of a root entry open. It comes before the store is opened.
func Disown(port fabric.Port, e *region.Entry) error {
	if e.Kind != region.KindStore || e.Info[0]>>56 != formatVersion || e.Info[0]>>40&0xff != 0 {
		return nil // the first node has the records
	}
	return sweep.Disown(port, e.Addr)
}

// Reclaim looks for memory that nobody has, and puts it into free lists: after a failed operation of a compute node that has closed the store,
// say. Others may be at work, if they Tend. ErrUnanswered: they do not. Where the memory of the first of several memory nodes has been
// lost, Tend does nothing, and who has not heard of that has memory that nobody knows of: then ErrUnanswered, unless no other compute node lives.
func (c *Client) Reclaim(view func() fabric.View) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	return c.reclaim(view)
}

func (c *Client) reclaim(view func() fabric.View) error {
	if n := view().Live.Len(); c.s.survivors && n > 1 {
		return fmt.Errorf("%w: the first memory node had lost its memory, and %d other compute nodes are alive", ErrUnanswered, n-1)
	}
	if err := c.s.member.Reclaim(&owner{c, view}); err != nil {
		return fmt.Errorf("objstore: %w", err)
	}
	return nil
}

// Found returns what this compute node has found as the leader of rounds.
func (c *Client) Found() sweep.Found { return c.s.member.Found() }

// lose gives a chunk up: an operation that may still take effect would write it or link it.
func (c *Client) lose(n *node, ch chunk) {
	c.s.member.Lose(n.part, ch.off64)
	c.stats.Leaked++
}

// An owner is the store as package sweep sees it, over a client that does nothing else meanwhile.
type owner struct {
	c    *Client
	view func() fabric.View
}

var _ sweep.Owner = (*owner)(nil)

func (o *owner) Port() fabric.Port         { return o.c.port }
func (o *owner) Do(ops []fabric.Op) error  { return lock.Do(o.c.l, ops) }
func (o *owner) View() fabric.View         { return o.view() }
func (ch chunk) span() (from, to uint64)   { return ch.off64, ch.off64 + ch.class.size()/chunkUnit }
func (n *node) mark(m *sweep.Map, c chunk) { from, to := c.span(); m.Mark(n.part, from, to) }

// Held implements sweep.Owner.
func (o *owner) Held(add func(part int, from, to uint64)) {
	for i := range o.c.s.nodes {
		n := o.c.s.nodes[i]
		for cl := range class(numClasses) {
			l := &n.heap.lists[cl]
			l.mu.Lock()
			for _, off := range l.chunks {
				from, to := chunk{off, cl}.span()
				add(i, from, to)
			}
			for _, s := range l.spans {
				add(i, s.next, s.end)
			}
			l.mu.Unlock()
		}
	}
}

// Release implements sweep.Owner.
func (o *owner) Release(list []sweep.Piece) error {
	for len(list) > 0 {
		p, batch := list[0], make([]uint64, 0, batchChunk)
		for len(list) > 0 && len(batch) < batchChunk && list[0].Part == p.Part && list[0].Class == p.Class {
			batch, list = append(batch, list[0].Off64), list[1:]
		}
		n, cl := o.c.s.nodes[p.Part], class(p.Class)
		if err := o.c.pushCentral(n, cl, batch); err != nil {
			return err // what was refused is nobody's still: the next round finds it
		}
		n.reclaimed.Add(uint64(len(batch)) * cl.size())
	}
	return nil
}

// Mark implements sweep.Owner. Slots and links are words that change by CAS, so each that is read is what was there at some time
// of the marking; overflow blocks stay where they are once they are linked.
func (o *owner) Mark() (*sweep.Map, error) {
	c := o.c
	m := new(sweep.Map)
	for i := range c.s.nodes {
		n := c.s.nodes[i]
		// Settle goes by the Port, which this has attached to the memory node's present life.
		c.ops[0] = fabric.Load(n.word(extentHeadOffset))
		if err := o.Do(c.ops[:1]); err != nil {
			return nil, fmt.Errorf("objstore: extents on %v: %w", n.mn, err)
		}
		if err := n.region.Settle(c.port); err != nil { // an extent that a dead compute node was taking
			return nil, err
		}
		x := sweep.Extents{Part: i, Zero: n.zero, Head: n.word(extentHeadOffset), Limit: n.limit, Size: sizeOf}
		if err := m.Carve(o.Do, c.node, x); err != nil {
			return nil, err
		}
		if err := o.markBuckets(m, n); err != nil {
			return nil, err
		}
		for cl := range class(numClasses) {
			if err := o.markFree(m, n, cl); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// sizeOf returns the bytes of the chunks of a class that an extent names, 0 if there is no such class.
func sizeOf(cl uint8) uint64 {
	if cl >= numClasses {
		return 0
	}
	return class(cl).size()
}

// markBytes is how much of the buckets is read at once.
const markBytes = 64 << 10

// markBuckets marks the objects and overflow blocks of a node's buckets.
func (o *owner) markBuckets(m *sweep.Map, n *node) error {
	c, g := o.c, &o.c.s.geo
	most := max(1, markBytes/g.bucketSize)
	c.table = c.grow(c.table, min(most, g.buckets)*g.bucketSize)
	for b := uint64(0); b < g.buckets; b += most {
		k := min(most, g.buckets-b)
		first := c.s.bucket(n.part, b)
		c.ops[0] = fabric.Read(first, c.table[:k*g.bucketSize])
		if err := o.Do(c.ops[:1]); err != nil {
			return fmt.Errorf("objstore: buckets at %v: %w", first, err)
		}
		for j := range k {
			slots := c.table[j*g.bucketSize+g.lockSize:][:c.s.slotsLen()]
			if err := o.markSlots(m, n, slots); err != nil {
				return fmt.Errorf("%w: bucket at %v", err, c.s.bucket(n.part, b+j))
			}
		}
	}
	return nil
}

// markSlots marks the objects of a bucket, and its overflow blocks with theirs.
func (o *owner) markSlots(m *sweep.Map, n *node, slots []byte) error {
	c := o.c
	for depth := 0; ; depth++ {
		last := len(slots)/slotSize - 1
		for i := range last {
			if w := slotWord(wordAt(slots, i)); w != 0 {
				n.mark(m, w.chunk())
			}
		}
		link := linkWord(wordAt(slots, last))
		if link == 0 {
			return nil
		}
		block, ok := link.chunk()
		if !ok || !n.sane(block) || depth == maxOverflow {
			return fmt.Errorf("%w: link %#x, depth %d", ErrCorrupt, uint64(link), depth)
		}
		n.mark(m, block)
		slots = c.slots[:overflowSize]
		c.ops[0] = fabric.Read(n.at(block.off64), slots)
		if err := o.Do(c.ops[:1]); err != nil {
			return fmt.Errorf("objstore: overflow block: %w", err)
		}
	}
}

// markFree marks the chunks of a central free list.
func (o *owner) markFree(m *sweep.Map, n *node, cl class) error {
	c := o.c
	list := sweep.Stack{
		Head: n.word(freeHeadsOffset + 8*uint64(cl)), OffsetBits: offsetBits, Most: n.limit / chunkUnit,
		Load: func(off64 uint64) (uint64, error) {
			if !n.sane(chunk{off64, cl}) {
				return 0, fmt.Errorf("%w: free list of class %d leads to %#x", ErrCorrupt, cl, off64*chunkUnit)
			}
			c.ops[0] = fabric.Read(n.at(off64), c.node)
			if err := o.Do(c.ops[:1]); err != nil {
				return 0, fmt.Errorf("objstore: free list of class %d: %w", cl, err)
			}
			return wordAt(c.node, 0), nil
		},
		Visit: func(off64 uint64) {
			n.mark(m, chunk{off64, cl})
			for i := 1; i < batchChunk && wordAt(c.node, i) != 0; i++ {
				if off := wordAt(c.node, i); off <= maxOffset64 {
					n.mark(m, chunk{off, cl})
				}
			}
		},
	}
	return list.Walk(o.Do)
}
