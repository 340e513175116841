package btree

import (
	"errors"
	"fmt"
	"sync"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/region"
)

// Memory comes in slots of a class: nodes, or values of up to a size. Who needs
// one asks, in this order: the free list of the compute node, the central list of
// the memory node, the region for an extent, the other memory nodes.
//
// A slot is of one class for ever, so that a reader who comes late finds another node
// or another value, and notices by its ptr or its checksum: nobody waits
// for readers before a slot is used again.
//
// Slots in the lists of a compute node that dies are found by the others (sweep.go).

// A class is a size of slots.
type class uint8

const classNode class = 0

// numClasses is the number of classes.
const numClasses = 20

// valueSize returns how many bytes a slot of a class of values has: 128, 192, 256, 384, ... 64 KiB.
func (c class) valueSize() uint64 {
	i := uint(c - 1)
	if i&1 == 0 {
		return 128 << (i / 2)
	}
	return 192 << (i / 2)
}

// The last class holds the largest value.
const _ = uint(128<<((numClasses-2)/2) - MaxValueSize)

// classFor returns the smallest class for a value of n bytes.
func classFor(n int) class {
	for c := class(1); ; c++ {
		if c.valueSize() >= uint64(n) {
			return c
		}
	}
}

// slotSize returns the bytes of a slot of a class.
func (t *Tree) slotSize(c class) uint64 {
	if c == classNode {
		return t.stride
	}
	return c.valueSize()
}

// A localList holds free slots of one class. Its mutex is never held across a
// fabric call.
type localList struct {
	mu    sync.Mutex
	slots []ptr  // with the incarnation of their last life
	next  uint64 // of an extent, in units of 64 bytes: slots that were not handed out yet
	end   uint64
	taken uint64 // slots of extents
}

const (
	localSlots  = 64 // what a list keeps before it gives some back
	firstExtent = 4  // slots of the first extent; each has a quarter of all before, up to maxExtent bytes
	maxExtent   = 1 << 20
)

func (l *localList) pop(node int, step uint64) (ptr, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.slots); n > 0 {
		p := l.slots[n-1]
		l.slots = l.slots[:n-1]
		return p, true
	}
	if l.next < l.end {
		p := makePtr(node, l.next, 0)
		l.next += step
		return p, true
	}
	return 0, false
}

// push puts a slot into the list; if there are too many, it takes one out.
func (l *localList) push(p ptr) (extra ptr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slots = append(l.slots, p)
	if len(l.slots) <= localSlots {
		return 0
	}
	extra = l.slots[0]
	l.slots = append(l.slots[:0], l.slots[1:]...)
	return extra
}

// alloc returns a free slot of a class, on the given memory node if that has room and is up. Its
// incarnation is that of its last life.
func (c *Client) alloc(node int, cl class) (ptr, error) {
	var errs error
	for i := range c.t.nodes {
		p, err := c.allocOn((node+i)%len(c.t.nodes), cl)
		if err == nil || !errors.Is(err, region.ErrNoSpace) && !errors.Is(err, fabric.ErrNodeDown) {
			return p, err
		}
		errs = errors.Join(errs, err)
	}
	if errors.Is(errs, fabric.ErrNodeDown) {
		return 0, errs // where that memory node is up, there may be room
	}
	return 0, fmt.Errorf("%w: %w", ErrNoSpace, errs)
}

func (c *Client) allocOn(node int, cl class) (ptr, error) {
	p, err := c.take(node, cl)
	if err == nil {
		c.t.member.Touch(node, p.off64())
	}
	return p, err
}

func (c *Client) take(node int, cl class) (ptr, error) {
	m := &c.t.nodes[node]
	if p, ok := m.lists[cl].pop(node, c.t.slotSize(cl)/slotUnit); ok {
		return p, nil
	}
	p, err := c.popCentral(node, cl)
	if err != nil || p != 0 {
		return p, err
	}
	return c.takeExtent(node, cl)
}

// free gives a slot back. Nobody else may have it.
func (c *Client) free(p ptr, cl class) {
	c.t.member.Touch(p.node(), p.off64())
	if extra := c.t.nodes[p.node()].lists[cl].push(p); extra != 0 {
		if err := c.pushCentral(extra, cl); err != nil && !c.keepSlot(extra, cl, err) {
			// The operation that freed the slot has succeeded all the same.
			c.stats.Leaked++
		}
	}
}

// keepSlot puts a slot back into the local list if err says that it did not come into the central one.
func (c *Client) keepSlot(p ptr, cl class, err error) bool {
	if !fabric.Refused(err) {
		return false
	}
	l := &c.t.nodes[p.node()].lists[cl]
	l.mu.Lock()
	l.slots = append(l.slots, p)
	l.mu.Unlock()
	return true
}

// giveUp gives back the slot of an operation that failed with err, or gives it up if the operation may still take effect.
func (c *Client) giveUp(p ptr, cl class, err error) {
	if fabric.Refused(err) {
		c.free(p, cl)
	} else {
		c.lose(p)
	}
}

// slotAddr returns where a slot's word is, or a value.
func (t *Tree) slotAddr(p ptr, cl class) fabric.Addr {
	a := t.nodes[p.node()].zero.Add(p.off64() * slotUnit)
	if cl == classNode {
		a = a.Add(t.geo.lockSize)
	}
	return a
}

// lockAddr returns where the lock of a node is.
func (t *Tree) lockAddr(p ptr) fabric.Addr {
	return t.nodes[p.node()].zero.Add(p.off64() * slotUnit)
}

// sane tells whether a slot of so many bytes can be where p says.
func (t *Tree) sane(p ptr, size uint64) bool {
	return p.node() < len(t.nodes) && p.off64()*slotUnit >= region.HeapOffset &&
		p.off64()*slotUnit+size <= t.nodes[p.node()].limit
}

// lose gives a slot up: an operation that may still take effect would write it or link it.
func (c *Client) lose(p ptr) {
	c.t.member.Lose(p.node(), p.off64())
	c.stats.Leaked++
}

// pushCentral puts a slot in front of the class's central list. If the outcome is not known, nobody gets the slot as long as this compute node
// lives: it may come into the list yet. If it was refused (fabric.Refused), the caller has it still. A slot of a value begins with
// the next one's offset; that of a node is as its layout says.
func (c *Client) pushCentral(p ptr, cl class) error {
	c.t.member.Touch(p.node(), p.off64())
	m := &c.t.nodes[p.node()]
	head := m.base.Add(freeHeadsOffset + 8*uint64(cl))
	b := c.aux[:headerSize]
	for guess := freeHead(0); ; {
		clear(b)
		if cl == classNode {
			setWord(b, makeWord(stateFree, 0, 0))
			put64(b, selfAt, uint64(p))
			put64(b, linkAt, guess.stamped())
		} else {
			b = b[:8]
			put64(b, 0, guess.stamped())
		}
		c.ops[0] = fabric.Write(c.t.slotAddr(p, cl), b)
		c.ops[1] = fabric.CAS(head, uint64(guess), uint64(guess.next(p.off64())))
		if err := lock.Do(c.l, c.ops[:2]); err != nil {
			if !fabric.Refused(err) {
				c.t.member.Lose(p.node(), p.off64())
			}
			return fmt.Errorf("btree: free list at %v: %w", head, err)
		}
		if c.ops[1].Swapped() {
			return nil
		}
		guess = freeHead(c.ops[1].Old)
	}
}

// popCentral takes a slot from the class's central list; 0 if it is empty. What it reads of
// the slot is good if the CAS succeeds: the head's tag would have changed otherwise.
func (c *Client) popCentral(node int, cl class) (ptr, error) {
	m := &c.t.nodes[node]
	head := m.base.Add(freeHeadsOffset + 8*uint64(cl))
	c.ops[0] = fabric.Load(head)
	if err := lock.Do(c.l, c.ops[:1]); err != nil {
		return 0, fmt.Errorf("btree: free list at %v: %w", head, err)
	}
	for {
		h := freeHead(c.ops[0].Old)
		if h.off64() == 0 {
			return 0, nil
		}
		p := makePtr(node, h.off64(), 0)
		if !c.t.sane(p, c.t.slotSize(cl)) {
			return 0, fmt.Errorf("%w: free list at %v: head %#x", ErrCorrupt, head, uint64(h))
		}
		b := c.aux[:headerSize]
		c.ops[0] = fabric.Read(c.t.slotAddr(p, cl), b)
		if err := lock.Do(c.l, c.ops[:1]); err != nil {
			return 0, fmt.Errorf("btree: free list at %v: %w", head, err)
		}
		next := get64(b, 0)
		if cl == classNode {
			next, p = get64(b, linkAt), p|ptr(get64(b, selfAt))&^(1<<ptrIncShift-1)
		}
		c.ops[0] = fabric.CAS(head, uint64(h), uint64(h.next(next&maxOffset64)))
		if err := lock.Do(c.l, c.ops[:1]); err != nil {
			return 0, fmt.Errorf("btree: free list at %v: %w", head, err)
		}
		if c.ops[0].Swapped() {
			return p, nil
		}
	}
}

// takeExtent takes an extent from the region, as large as there is room for.
func (c *Client) takeExtent(node int, cl class) (ptr, error) {
	m := &c.t.nodes[node]
	l := &m.lists[cl]
	size := c.t.slotSize(cl)
	l.mu.Lock()
	count := max(firstExtent, l.taken/4)
	l.mu.Unlock()
	count = max(1, min(count, maxExtent/size))
	for ; ; count /= 2 {
		base, err := m.region.Grow(c.port, &m.entry, region.Growth{Size: region.ExtentHeader + count*size, End: m.limit, Tag: uint8(cl) + 1})
		if errors.Is(err, region.ErrNoSpace) && count > 1 {
			continue
		}
		if errors.Is(err, region.ErrRemoved) {
			err = c.removed(err)
		}
		if err != nil {
			return 0, fmt.Errorf("btree: %w", err)
		}
		first := base.Add(region.ExtentHeader).Offset() / slotUnit
		step := size / slotUnit
		for i := range count {
			c.t.member.Touch(node, first+i*step)
		}
		l.mu.Lock()
		l.taken += count
		if l.next == l.end {
			l.next, l.end = first+step, first+count*step
		} else { // another client was as fast
			for i := uint64(1); i < count; i++ {
				l.slots = append(l.slots, makePtr(node, first+i*step, 0))
			}
		}
		l.mu.Unlock()
		return makePtr(node, first, 0), nil
	}
}

// Drain gives the slots that this compute node keeps free back to the memory
// nodes, for others. See Leave.
func (c *Client) Drain() error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	return c.drain()
}

func (c *Client) drain() error {
	if c.t.lost() {
		return c.revive()
	}
	c.user.Enter()
	defer c.user.Leave()
	c.freeShadows()
	for i := range c.t.nodes {
		for cl := range class(numClasses) {
			l := &c.t.nodes[i].lists[cl]
			for {
				p, ok := l.pop(i, c.t.slotSize(cl)/slotUnit)
				if !ok {
					break
				}
				if err := c.pushCentral(p, cl); err != nil {
					c.keepSlot(p, cl, err)
					return err
				}
			}
		}
	}
	return nil
}

// freeShadows gives back what the client keeps for shadows.
func (c *Client) freeShadows() {
	for i := range c.shadow {
		if p := ptr(c.shadow[i].Load()); p != 0 {
			c.free(p, classNode)
			c.shadow[i].Store(0)
		}
	}
}
