package objstore

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/reclaim"
	"github.com/declock/declock/memory/slab"
)

// ErrUnanswered: memory that nobody has cannot be looked for, because a compute node that has the store open
// does not take part, or is always at work.
var ErrUnanswered = reclaim.ErrUnanswered

// Tend does this compute node's part in finding the memory that others had when they died (package reclaim), and tells whether
// there is more to do: then it is to be called again soon, else after a second, or when a compute node has died. view tells which compute nodes live. One
// client of each compute node does it, beside the others' work, with nothing under way of its own. It does not wait for anybody.
func (c *Client) Tend(view func() fabric.View) (busy bool, err error) {
	if err := c.begin(); err != nil {
		return false, err
	}
	defer c.end()
	err = c.catchUp(whole, 0)
	switch {
	case err != nil && !(c.s.incomplete() && errors.Is(err, fabric.ErrNodeDown)):
		return false, err
	}
	return c.tend(view)
}

func (c *Client) tend(view func() fabric.View) (busy bool, err error) {
	c.user.Enter()
	for _, n := range c.s.nodes {
		if n.missing() {
			continue
		}
		look := n.heap.Answer
		if !c.s.registered() { // it has nothing to give back
			look = n.heap.Dropped
		}
		dropped, aerr := look(&c.work)
		err = errors.Join(err, wrapped(aerr))
		if dropped {
			c.s.MarkDropped()
		}
	}
	c.user.Leave()
	if err != nil {
		return false, err
	}
	if c.s.lost() {
		return false, c.revive()
	}
	if c.s.survivors || !c.s.registered() {
		return false, nil // see Reclaim
	}
	busy, err = c.s.member.Tend(&owner{c, view})
	if err != nil {
		err = fmt.Errorf("objstore: %w", err)
	}
	return busy, err
}

// LetGo lets a store go that has been dropped, on this compute node: to be called again and again until done, when Tend, Client or MarkDropped has
// made the drop known. Then this compute node has nothing to do with the memory any more, and the last that lets it go gives it back. Clients need not be closed for
// that, but operations must end. No operation of l's client is under way; view returns the live compute nodes. One goroutine calls it at a time.
func (s *Store) LetGo(l lock.Locker, view func() fabric.View) (done bool, err error) {
	if !s.Dropped() {
		return false, nil
	}
	asker := reclaim.User{Use: lock.InUseOf(l)}
	newest := s.line.newest.Load()
	owned := func() (func(fabric.Addr) bool, error) { return newest.owned(l) }
	left := func(begun *uint64, some func(fabric.Addr) bool) bool { return lock.Left(l, begun, some) }
	if done, err = newest.line.going.Gone(l.Port().Now(), &asker, owned, left); err == nil && done {
		err = newest.leaveDropped(l, view)
	}
	if err != nil {
		return false, fmt.Errorf("objstore: let go of %q: %w", s.cfg.Name, err)
	}
	return done, nil
}

// leaveDropped ends the registration with a dropped store, and gives its memory back if no other compute node has it open.
func (s *Store) leaveDropped(l lock.Locker, view func() fabric.View) error {
	if !s.registered() {
		return nil // nobody waits for this compute node
	}
	err := s.line.going.Leave(s.member, func(ops []fabric.Op) error { return lock.Do(l, ops) })
	if err != nil && !errors.Is(err, lock.ErrMemoryLost) { // else the registration is gone with the memory
		return err
	}
	return freeRetired(lock.Path(l), s.cfg.Nodes, view)
}

// owned returns what reports whether an address is in memory of the store.
func (s *Store) owned(l lock.Locker) (func(fabric.Addr) bool, error) {
	pages := make([]*memory.Pages, len(s.nodes))
	for i := range s.nodes {
		if s.nodes[i].missing() {
			continue // this compute node has had nothing there
		}
		err := lock.Renew(l, s.nodes[i].mn) // l's client may have to hear of a loss before this store
		if err != nil {
			return nil, err
		}
		if pages[i], err = s.nodes[i].region.Pages(lock.Path(l)); errors.Is(err, lock.ErrMemoryLost) {
			continue // nothing of it is there any more
		} else if err != nil {
			return nil, err
		}
	}
	return func(a fabric.Addr) bool {
		for i := range s.nodes {
			if n := s.nodes[i]; n.mn == a.MN() && pages[i] != nil {
				if mine, _ := pages[i].Owner(a.Offset(), &n.entry); mine {
					return true
				}
			}
		}
		return false
	}, nil
}

// Leave gives the chunks that this compute node keeps free back to the memory nodes, and closes the store on it: its last client
// calls it, and uses it no more.
func (c *Client) Leave() error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	if c.s.incomplete() {
		_ = c.catchUp(whole, 0) // this compute node may have chunks of a part that this client has not needed
	}
	dropped := c.s.line.dropped.Load()
	if err := c.drain(); err != nil && !dropped {
		return err
	}
	if !c.s.registered() {
		return nil
	}
	if err := c.settleAll(); err != nil {
		return err
	}
	if err := c.s.member.Leave(func(ops []fabric.Op) error { return lock.Do(c.l, ops) }); err != nil {
		return fmt.Errorf("objstore: %w", err)
	}
	if !dropped {
		// Who drops it says so before it looks at the registrations: if it has found this one, that is seen here.
		var err error
		if dropped, err = c.s.nodes[0].heap.Dropped(&c.work); err != nil {
			return fmt.Errorf("objstore: %w", err)
		}
	}
	if dropped {
		if err := freeRetired(c.work.Path(), c.s.cfg.Nodes, nil); err != nil {
			return fmt.Errorf("objstore: %w", err)
		}
	}
	return nil
}

// settleAll has a chain executed on the memory node of each part. What this compute node has posted there before, with whatever outcome, is over then
// (fabric.ErrUnknownOutcome), and the memory may be somebody else's.
func (c *Client) settleAll() error {
	for _, n := range c.s.nodes {
		if n.missing() {
			continue // this compute node has had nothing there
		}
		ops := [1]fabric.Op{fabric.Load(n.base)}
		if err := lock.Do(c.l, ops[:]); err != nil {
			return fmt.Errorf("objstore: leave %q: %w", c.s.cfg.Name, err)
		}
	}
	return nil
}

// Drop removes a store: its name is free at once. Whoever has it open hears ErrDropped when its Tend has looked; until then it works on. The memory is given
// back when all compute nodes that have the store open have let it go, closed it, or crashed: by Drop, or by the last of them (LetGo, Leave). among are the memory nodes of
// the cluster; view tells which compute nodes live. A Drop that was cut short is to be done again.
func Drop(port fabric.Port, name string, among []fabric.MemID, view func() fabric.View) error {
	if err := memory.Drop(port, among, name, memory.KindStore, linesOffset+numClasses*slab.LineSize+slab.DropMark); err != nil {
		return fmt.Errorf("objstore: %w", err)
	}
	if err := freeRetired(port, among, view); err != nil {
		return fmt.Errorf("objstore: %w", err)
	}
	return nil
}

// FreeDropped gives back the memory of dropped stores and trees that nobody has open any more: after a compute node has crashed that had, say. Drop does so, too.
func FreeDropped(port fabric.Port, among []fabric.MemID, view func() fabric.View) error {
	if err := freeRetired(port, among, view); err != nil {
		return fmt.Errorf("objstore: %w", err)
	}
	return nil
}

// freeRetired gives back the memory of dropped stores and trees that nobody has open any more.
func freeRetired(port fabric.Port, among []fabric.MemID, view func() fabric.View) error {
	return memory.FreeRetired(port, among, func(first *memory.Entry) (bool, error) { return reclaim.InUse(port, first.Addr, view) })
}

// Disown says, for a compute node that has just joined the cluster, that whoever had its number before has died, if he had the
// store of a root entry open, be that published or retired. It comes before the store is opened.
func Disown(port fabric.Port, r *memory.Region, e *memory.Entry) error {
	if e.Kind != memory.KindStore || e.Info[0]>>56 != formatVersion || e.Info[0]>>40&0xff != 0 {
		return nil // the first node has the records
	}
	err := reclaim.Disown(port, e.Addr, func() error { return r.Kept(port, e) })
	if errors.Is(err, memory.ErrRemoved) {
		err = nil
	}
	return err
}

// Reclaim looks for memory that nobody has, and puts it into free lists: after a failed operation of a compute node that has closed the store,
// say. Others may be at work, if they Tend. ErrUnanswered: they do not. Where the memory of the first of several memory nodes has been
// lost, Tend does nothing, and who has not heard of that has memory that nobody knows of: then ErrUnanswered, unless no other compute node lives.
func (c *Client) Reclaim(view func() fabric.View) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	if err := c.catchUp(whole, 0); err != nil {
		return err
	}
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

// OpenOn returns the compute nodes, besides this one, that have the store open, or died with it open. What Check finds while one of those
// lives may be a change that is half done.
func (c *Client) OpenOn() ([]fabric.CNID, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.end()
	if err := c.catchUp(toTend, 0); err != nil {
		return nil, err
	}
	list, err := c.s.member.OpenOn(&owner{c: c})
	if err != nil {
		err = fmt.Errorf("objstore: %w", err)
	}
	return list, err
}

// Found returns what this compute node has found as the leader of rounds.
func (c *Client) Found() reclaim.Found { return c.s.member.Found() }

// lose gives a chunk up: an operation that may still take effect would write it or link it.
func (c *Client) lose(n *node, ch chunk) {
	c.s.member.Lose(n.part, ch.off64)
	c.stats.Leaked++
}

// An owner is the store as package reclaim sees it, over a client that does nothing else meanwhile.
type owner struct {
	c    *Client
	view func() fabric.View
}

var _ reclaim.Owner = (*owner)(nil)

func (o *owner) Port() fabric.Port           { return o.c.port }
func (o *owner) Do(ops []fabric.Op) error    { return lock.Do(o.c.l, ops) }
func (o *owner) View() fabric.View           { return o.view() }
func (ch chunk) span() (from, to uint64)     { return ch.off64, ch.off64 + ch.class.size()/chunkUnit }
func (n *node) mark(m *reclaim.Map, c chunk) { from, to := c.span(); m.Mark(n.part, from, to) }

// Held implements reclaim.Owner.
func (o *owner) Held(add func(part int, from, to uint64)) {
	for i, n := range o.c.s.line.newest.Load().nodes { // another client may have opened a part since
		if n.missing() {
			continue
		}
		n.heap.EachHeld(func(from, to uint64) { add(i, from, to) })
	}
}

// Release implements reclaim.Owner.
func (o *owner) Release(list []reclaim.Piece) error {
	for len(list) > 0 {
		n, k := o.c.s.nodes[list[0].Part], 1
		for k < len(list) && list[k].Part == n.part {
			k++
		}
		if err := n.heap.Release(&o.c.work, list[:k]); err != nil {
			return wrapped(err)
		}
		for _, p := range list[:k] {
			if p.Class < numClasses {
				n.reclaimed.Add(class(p.Class).size())
			}
		}
		list = list[k:]
	}
	return nil
}

// Mark implements reclaim.Owner. Slots and links are words that change by CAS, so each that is read is what was there at some time
// of the marking; overflow blocks stay where they are once they are linked.
func (o *owner) Mark() (*reclaim.Map, error) {
	c := o.c
	m := new(reclaim.Map)
	if n := c.s.lacks(whole, 0); n != nil {
		return nil, fmt.Errorf("objstore: %w: memory node %v, which has a part of store %q", fabric.ErrNodeDown, n.mn, c.s.cfg.Name)
	}
	for _, n := range c.s.nodes {
		if err := n.heap.Carve(&c.work, m); err != nil {
			return nil, wrapped(err)
		}
		if err := o.markBuckets(m, n); err != nil {
			return nil, err
		}
		if err := n.heap.Mark(&c.work, m); err != nil {
			return nil, wrapped(err)
		}
	}
	return m, nil
}

// markBytes is how much of the buckets is read at once.
const markBytes = 64 << 10

// markBuckets marks the objects and overflow blocks of a node's buckets.
func (o *owner) markBuckets(m *reclaim.Map, n *node) error {
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
func (o *owner) markSlots(m *reclaim.Map, n *node, slots []byte) error {
	c := o.c
	for depth := 0; ; depth++ {
		last := len(slots)/slotSize - 1
		for i := range last {
			w := slotWord(wordAt(slots, i))
			if w == 0 {
				continue
			}
			if !n.holds(w) { // what it should lead to would be taken for garbage
				return fmt.Errorf("%w: slot %#x", ErrCorrupt, uint64(w))
			}
			n.mark(m, w.chunk())
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
