package btree

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/slab"
)

// Memory comes in slots of a class: nodes, or values of up to a size (package memory/slab). A client that needs
// one asks, in this order: the list of the compute node, the free slots on
// the memory node, the region for a run of pages, runs of other classes of values that are free as a whole, the other memory nodes.
//
// The slot of a node is one for ever, so that a late reader finds another node, and notices by its ptr. That of a value can become anything else:
// a late reader notices by its checksum. No client waits for readers before a slot is used again.
//
// Slots in the lists of a crashed compute node are found by the others (reclaim.go).

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

const auxSize = 64 // bytes of Client.aux

const localSlots = 64 // what a list keeps before it gives some back

// division returns how the tree's memory on a memory node is divided.
func (t *Tree) division(i int) slab.Config {
	return slab.Config{
		Size: func(cl uint8) uint64 { return t.slotSize(class(cl)) },
		// A client with an old copy of the tree may lock a node that is gone: its lock stays a lock.
		Fixed: func(cl uint8) bool { return class(cl) == classNode },
		Zero:  func(cl uint8) bool { return class(cl) == classNode },
		Items: func(w *slab.Worker, cl uint8, items []uint64) { t.incarnations(w, i, class(cl), items) },
		Free:  func(w *slab.Worker, cl uint8, items []uint64) error { return t.give(w, i, class(cl), items) },
		Bound: func(cl uint8) int { return localSlots },
		Limit: t.geo.limit,
	}
}

// incarnations puts the last incarnation into each item that is a slot of a node. If that cannot be read, it is not known: another is drawn.
func (t *Tree) incarnations(w *slab.Worker, node int, cl class, items []uint64) {
	if cl != classNode {
		return
	}
	ops := make([]fabric.Op, len(items))
	for i, item := range items {
		ops[i] = fabric.Load(t.slotAddr(makePtr(node, item, 0), cl).Add(selfAt))
	}
	failed := w.Do(ops) != nil
	for i := range items {
		last := ptr(ops[i].Old)
		if failed {
			last = makePtr(0, 0, uint32(w.Port.Rand()))
		}
		items[i] = uint64(ptr(items[i]) | last&^(1<<ptrIncShift-1))
	}
}

// alloc returns a free slot of a class, on the given memory node if that has room and is up. Its
// incarnation is its last one.
func (c *Client) alloc(node int, cl class) (ptr, error) {
	var errs error
	for i := range c.t.h.Parts {
		p, err := c.allocOn((node+i)%len(c.t.h.Parts), cl)
		if err == nil || !errors.Is(err, memory.ErrNoSpace) && !errors.Is(err, fabric.ErrNodeDown) {
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
		c.t.h.Member.Touch(node, p.off64())
	} else if c.t.h.Parts[node].Replicated() {
		c.t.unsettled.addPages() // a run may have its class at the primary only
	}
	return p, err
}

func (c *Client) take(node int, cl class) (ptr, error) {
	if m := c.t.h.Parts[node]; m.Missing() {
		return 0, c.t.h.Down(m)
	}
	h, n := c.t.h.Parts[node].Heap, uint8(cl)
	slot := func(item uint64) ptr { return ptr(item) | makePtr(node, 0, 0) }
	item, stamp, err := h.Get(&c.work, n)
	if err != nil || item != 0 {
		return slot(item), Trees.Wrap(err)
	}
	for {
		if item, err = h.Grow(&c.work, n, stamp); err == nil || !errors.Is(err, memory.ErrNoSpace) {
			return slot(item), c.removed(err)
		}
		ok, cerr := h.Collect(&c.work, n, nil, nil)
		if cerr != nil {
			return 0, Trees.Wrap(cerr)
		}
		if !ok {
			return 0, Trees.Wrap(err)
		}
		stamp = 0 // it has changed
	}
}

// free gives a slot back, which no other client has.
func (c *Client) free(p ptr, cl class) {
	if c.t.onMissing(p) {
		c.t.h.Forget(p.node(), p.off64())
		return
	}
	c.stats.Leaked += c.t.h.Parts[p.node()].Heap.Put(&c.work, uint8(cl), uint64(p)&^uint64(makePtr(maxNodes, 0, 0)))
}

// giveUp gives back the slot of an operation that failed with err, or gives it up if the operation may still take effect.
func (c *Client) giveUp(p ptr, cl class, err error) {
	if fabric.Refused(err) {
		c.free(p, cl)
	} else {
		c.lose(p)
	}
}

// give gives slots back. Those of nodes say that they are free, and keep their incarnation. If that is not known, another is drawn.
func (t *Tree) give(w *slab.Worker, node int, cl class, items []uint64) error {
	if cl == classNode {
		b := w.Port.Alloc(headerSize)
		defer w.Port.Free(b)
		for i, item := range items { // all, for what is refused comes into a list
			if ptr(item).inc() == 0 {
				items[i] = item | uint64(makePtr(0, 0, uint32(w.Port.Rand())))
			}
		}
		for _, item := range items {
			p := ptr(item) | makePtr(node, 0, 0)
			clear(b)
			setWord(b, makeWord(stateFree, 0, 0))
			put64(b, selfAt, uint64(p))
			ops := [1]fabric.Op{fabric.Write(t.slotAddr(p, cl), b)}
			if err := w.Do(ops[:]); err != nil {
				if fabric.Refused(err) {
					t.h.Parts[node].Heap.Keep(w, uint8(cl), items)
				} else {
					for _, item := range items {
						t.h.Member.Lose(node, slab.Off64(item))
					}
				}
				return fmt.Errorf("slot %v: %w", p, err)
			}
		}
	}
	return t.h.Parts[node].Heap.Give(w, uint8(cl), items)
}

// slotAddr returns where a slot's word is, or a value.
func (t *Tree) slotAddr(p ptr, cl class) fabric.Addr {
	a := t.h.Parts[p.node()].At(p.off64())
	if cl == classNode {
		a = a.Add(t.geo.lockSize)
	}
	return a
}

// lockAddr returns where the lock of a node is.
func (t *Tree) lockAddr(p ptr) fabric.Addr {
	return t.h.Parts[p.node()].At(p.off64())
}

// sane reports whether a slot of so many bytes can be where p says, on a part that is there.
func (t *Tree) sane(p ptr, size uint64) bool {
	if p.node() >= len(t.h.Parts) {
		return false
	}
	m := t.h.Parts[p.node()]
	return !m.Missing() && m.Has(p.off64()*slotUnit, size)
}

// lose gives a slot up: an operation that may still take effect would write it or link it.
func (c *Client) lose(p ptr) {
	c.t.h.Member.Lose(p.node(), p.off64())
	c.stats.Leaked++
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
