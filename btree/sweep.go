package btree

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/reclaim"
	"github.com/declock/declock/memory/slab"
)

// ErrUnanswered: slots that nobody has cannot be looked for, because a compute node that has the tree open
// does not take part, or is always at work.
var ErrUnanswered = reclaim.ErrUnanswered

// join makes a client known to whoever tends the tree, and part undoes it.
func (t *Tree) join(c *Client) {
	t.member.Add(&c.user)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clients = append(t.clients, c)
}

func (t *Tree) part(c *Client) {
	t.mu.Lock()
	t.clients = slices.DeleteFunc(t.clients, func(x *Client) bool { return x == c })
	t.mu.Unlock()
	t.member.Remove(&c.user)
}

// Tend does this compute node's part in finding the slots that others had when they died (package memory/reclaim), and tells whether
// there is more to do: then it is to be called again soon, else after a second, or when a compute node has died. view tells which compute nodes live. One
// client of each compute node does it, beside the others' work, with nothing under way of its own. It does not wait for anybody, and takes no locks.
func (c *Client) Tend(view func() fabric.View) (busy bool, err error) {
	if err := c.begin(); err != nil {
		return false, err
	}
	defer c.end()
	if c.t.lost() {
		if err := c.catchUp(); err != nil && c.t.waits() && errors.Is(err, fabric.ErrNodeDown) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	c.completeInBackground()
	c.user.Enter()
	for i := range c.t.nodes {
		if c.t.nodes[i].missing() {
			continue
		}
		dropped, aerr := c.t.nodes[i].heap.Answer(&c.work)
		err = errors.Join(err, c.wrapped(aerr))
		if dropped {
			c.t.MarkDropped()
		}
	}
	c.user.Leave()
	if err != nil {
		return false, err
	}
	if c.t.lost() {
		if err := c.catchUp(); err != nil {
			return false, err
		}
	}
	busy, err = c.t.member.Tend(&owner{c, view})
	if err != nil {
		err = fmt.Errorf("btree: %w", err)
	}
	return busy, err
}

// LetGo lets a tree go that has been dropped, on this compute node: to be called again and again until done, when Tend, Client or MarkDropped has
// made the drop known. Then this compute node has nothing to do with the memory any more, and the last that lets it go gives it back. Clients need not be closed for
// that, but operations must end. No operation of l's client is under way; view returns the live compute nodes. One goroutine calls it at a time.
func (t *Tree) LetGo(l lock.Locker, view func() fabric.View) (done bool, err error) {
	if !t.Dropped() {
		return false, nil
	}
	asker := reclaim.User{Use: lock.InUseOf(l)}
	newest := t.line.newest.Load()
	owned := func() (func(fabric.Addr) bool, error) { return newest.owned(l) }
	left := func(begun *uint64, some func(fabric.Addr) bool) bool { return lock.Left(l, begun, some) }
	if done, err = newest.line.going.Gone(l.Port().Now(), &asker, owned, left); err == nil && done {
		err = newest.leaveDropped(l, view)
	}
	if err != nil {
		return false, fmt.Errorf("btree: let go of %q: %w", t.cfg.Name, err)
	}
	return done, nil
}

// leaveDropped ends the registration with a dropped tree, and gives its memory back if no other compute node has it open.
func (t *Tree) leaveDropped(l lock.Locker, view func() fabric.View) error {
	if t.waits() {
		return nil // this compute node has nothing of it, and is not registered
	}
	err := t.line.going.Leave(t.member, func(ops []fabric.Op) error { return lock.Do(l, ops) })
	if err != nil && !errors.Is(err, lock.ErrMemoryLost) { // else the registration is gone with the memory
		return err
	}
	return freeRetired(lock.Path(l), t.cfg.Nodes, view)
}

// owned returns what reports whether an address is in memory of the tree.
func (t *Tree) owned(l lock.Locker) (func(fabric.Addr) bool, error) {
	pages := make([]*memory.Pages, len(t.nodes))
	for i := range t.nodes {
		if t.nodes[i].missing() {
			continue // this compute node has had nothing there
		}
		err := lock.Renew(l, t.nodes[i].mn) // l's client may have to hear of a loss before this tree
		if err != nil {
			return nil, err
		}
		if pages[i], err = t.nodes[i].region.Pages(lock.Path(l)); errors.Is(err, lock.ErrMemoryLost) {
			continue // nothing of it is there any more
		} else if err != nil {
			return nil, err
		}
	}
	return func(a fabric.Addr) bool {
		for i := range t.nodes {
			if n := &t.nodes[i]; n.mn == a.MN() && pages[i] != nil {
				if mine, _ := pages[i].Owner(a.Offset(), &n.entry); mine {
					return true
				}
			}
		}
		return false
	}, nil
}

// Leave gives the slots that this compute node keeps free back to the memory nodes, and closes the tree on it: its last client
// calls it, and uses it no more.
func (c *Client) Leave() error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	if c.t.waits() && c.catchUp() != nil && c.t.waits() {
		return nil // this compute node has nothing of it
	}
	dropped := c.t.line.dropped.Load()
	if err := c.drain(); err != nil && !dropped {
		return err
	}
	if !dropped && c.t.forgotten.Load() {
		return nil // others look for it when this compute node has left the cluster
	}
	if err := c.settleAll(); err != nil {
		return err
	}
	if err := c.t.member.Leave(func(ops []fabric.Op) error { return lock.Do(c.l, ops) }); err != nil {
		return fmt.Errorf("btree: %w", err)
	}
	if !dropped {
		// Who drops it says so before it looks at the registrations: if it has found this one, that is seen here.
		var err error
		if dropped, err = c.t.nodes[0].heap.Dropped(&c.work); err != nil {
			return fmt.Errorf("btree: %w", err)
		}
	}
	if dropped {
		if err := freeRetired(c.work.Path(), c.t.cfg.Nodes, nil); err != nil {
			return fmt.Errorf("btree: %w", err)
		}
	}
	return nil
}

// settleAll has a chain executed on the memory node of each part. What this compute node has posted there before, with whatever outcome, is over then
// (fabric.ErrUnknownOutcome), and the memory may be somebody else's.
func (c *Client) settleAll() error {
	for i := range c.t.nodes {
		if c.t.nodes[i].missing() {
			continue // this compute node has had nothing there
		}
		ops := [1]fabric.Op{fabric.Load(c.t.nodes[i].base)}
		if err := lock.Do(c.l, ops[:]); err != nil {
			return fmt.Errorf("btree: leave %q: %w", c.t.cfg.Name, err)
		}
	}
	return nil
}

// Drop removes a tree: its name is free at once. Whoever has it open hears ErrDropped when its Tend has looked; until then it works on. The memory is given
// back when all compute nodes that have the tree open have let it go, closed it, or crashed: by Drop, or by the last of them (LetGo, Leave). among are the memory nodes of
// the cluster; view tells which compute nodes live. A Drop that was cut short is to be done again.
func Drop(port fabric.Port, name string, among []fabric.MemID, view func() fabric.View) error {
	if err := memory.Drop(port, among, name, memory.KindTree, linesOffset+numClasses*slab.LineSize+slab.DropMark); err != nil {
		return fmt.Errorf("btree: %w", err)
	}
	if err := freeRetired(port, among, view); err != nil {
		return fmt.Errorf("btree: %w", err)
	}
	return nil
}

// freeRetired gives back the memory of dropped stores and trees that nobody has open any more.
func freeRetired(port fabric.Port, among []fabric.MemID, view func() fabric.View) error {
	return memory.FreeRetired(port, among, func(first *memory.Entry) (bool, error) { return reclaim.InUse(port, first.Addr, view) })
}

// Disown says, for a compute node that has just joined the cluster, that whoever had its number before has died, if he had the
// tree of a root entry open, be that published or retired. It comes before the tree is opened.
func Disown(port fabric.Port, r *memory.Region, e *memory.Entry) error {
	if _, which := geometryNodes(e); e.Kind != memory.KindTree || e.Info[0]>>56 != formatVersion || which != 0 {
		return nil // the first node has the records
	}
	err := reclaim.Disown(port, e.Addr, func() error { return r.Kept(port, e) })
	if errors.Is(err, memory.ErrRemoved) {
		err = nil
	}
	return err
}

// Reclaim looks for slots that nobody has, and puts them into free lists: after a failed operation of a compute node that has closed the tree,
// say. Others may be at work, if they Tend. ErrUnanswered: they do not.
func (c *Client) Reclaim(view func() fabric.View) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	return c.reclaim(view)
}

func (c *Client) reclaim(view func() fabric.View) error {
	if c.t.lost() {
		if err := c.catchUp(); err != nil {
			return err
		}
	}
	if err := c.whole(); err != nil {
		return err
	}
	if err := c.t.member.Reclaim(&owner{c, view}); err != nil {
		return fmt.Errorf("btree: %w", err)
	}
	return nil
}

// OpenOn returns the compute nodes, besides this one, that have the tree open, or died with it open. What Check finds while one of those
// lives may be a change that is half done.
func (c *Client) OpenOn() ([]fabric.CNID, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.end()
	if c.t.lost() {
		if err := c.catchUp(); err != nil {
			return nil, err
		}
	}
	list, err := c.t.member.OpenOn(&owner{c: c})
	if err != nil {
		err = fmt.Errorf("btree: %w", err)
	}
	return list, err
}

// Found returns what this compute node has found as the leader of rounds.
func (c *Client) Found() reclaim.Found { return c.t.member.Found() }

// An owner is the tree as package reclaim sees it, over a client that does nothing else meanwhile.
type owner struct {
	c    *Client
	view func() fabric.View
}

var _ reclaim.Owner = (*owner)(nil)

func (o *owner) Port() fabric.Port        { return o.c.port }
func (o *owner) Do(ops []fabric.Op) error { return lock.Do(o.c.l, ops) }
func (o *owner) View() fabric.View        { return o.view() }

// span returns where a slot is, in units of 64 bytes.
func (t *Tree) span(off64 uint64, cl class) (from, to uint64) {
	return off64, off64 + t.slotSize(cl)/slotUnit
}

// Held implements reclaim.Owner.
func (o *owner) Held(add func(part int, from, to uint64)) {
	t := o.c.t
	for i := range t.nodes {
		if t.nodes[i].missing() {
			continue
		}
		t.nodes[i].heap.EachHeld(func(from, to uint64) { add(i, from, to) })
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.clients {
		for i := range c.shadow {
			if p := ptr(c.shadow[i].Load()); p != 0 {
				from, to := t.span(p.off64(), classNode)
				add(i, from, to)
			}
		}
	}
}

// Release implements reclaim.Owner. The incarnation of a node's last life is not known: another is drawn.
func (o *owner) Release(list []reclaim.Piece) error {
	for _, x := range list {
		m := &o.c.t.nodes[x.Part]
		var err error
		if class(x.Class) == classNode {
			err = o.c.give(x.Part, classNode, []uint64{uint64(makePtr(0, x.Off64, uint32(o.c.port.Rand())))})
		} else {
			err = o.c.wrapped(m.heap.Release(&o.c.work, []reclaim.Piece{x}))
		}
		if err != nil {
			return err
		}
		if x.Class < numClasses {
			m.reclaimed.Add(1)
		}
	}
	return nil
}

// Mark implements reclaim.Owner. A node that is in the tree all the time is found: those of a level divide the keys among them, in
// the order of their links, and a node begins where it began as long as it lives.
func (o *owner) Mark() (*reclaim.Map, error) {
	c, t := o.c, o.c.t
	m := new(reclaim.Map)
	if err := c.whole(); err != nil {
		return nil, err
	}
	for i := range t.nodes {
		if err := t.nodes[i].heap.Carve(&c.work, m); err != nil {
			return nil, c.wrapped(err)
		}
	}
	if err := c.loadRoot(); err != nil {
		return nil, err
	}
	var root node
	s := &c.search
	s.begin(0, nil, false, false)
	for {
		p := ptr(t.root.Load())
		err := c.read(&root, c.inner, p)
		if err == nil {
			break
		}
		if err != errGone {
			return nil, err
		}
		if err := c.loadRoot(); err != nil {
			return nil, err
		}
		if ptr(t.root.Load()) == p {
			return nil, fmt.Errorf("%w: root %v is gone", ErrCorrupt, p)
		}
	}
	for level := int(root.level); level >= 0; level-- {
		if err := o.markLevel(m, uint8(level)); err != nil {
			return nil, err
		}
	}
	for i := range t.nodes {
		if err := t.nodes[i].heap.Mark(&c.work, m); err != nil {
			return nil, c.wrapped(err)
		}
	}
	return m, nil
}

// markLevel marks the nodes of a level, from left to right, and the values of leaves.
func (o *owner) markLevel(m *reclaim.Map, level uint8) error {
	c := o.c
	edge, n := []byte(nil), &c.n
	for {
		c.search.begin(level, edge, false, false)
		if err := c.seek(&c.search, n, c.leaf); err != nil {
			return err
		}
		if err := o.markNode(m, n); err != nil {
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
func (o *owner) markNode(m *reclaim.Map, n *node) error {
	c, t := o.c, o.c.t
	from, to := t.span(n.self.off64(), classNode)
	m.Mark(n.self.node(), from, to)
	if n.word.state() == stateShadow {
		// As long as nobody has finished the node, its shadow is it. Whoever writes it next finishes it; then the slot is nobody's, if its
		// writer has died.
		c.ops[0] = fabric.Load(t.slotAddr(n.self, classNode))
		if err := o.Do(c.ops[:1]); err != nil {
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
	items, err := n.sorted(c.items[:0])
	c.items = items[:0]
	if err != nil {
		return err
	}
	for i := range items {
		if items[i].kind != kindOutside {
			continue
		}
		v, err := t.outside(items[i].value)
		if err != nil {
			return err
		}
		from, to := t.span(v.at.off64(), classFor(v.size))
		m.Mark(v.at.node(), from, to)
	}
	return nil
}
