package btree

import (
	"errors"

	"github.com/declock/declock/memory/reclaim"
	"github.com/declock/declock/memory/slab"
)

// A slotMap is what Check knows of the slots of a tree: which there are, and which are in use or free.
type slotMap struct {
	slots reclaim.Map
	mem   []MemoryReport // of each memory node
}

// load reads what runs there are, and which slots are free.
func (m *slotMap) load(k *checker) error {
	parts := k.c.t.h.Parts
	m.mem = make([]MemoryReport, len(parts))
	for i, p := range parts {
		m.mem[i].Node = p.MN
		if err := p.Heap.AddRuns(&k.c.work, &m.slots); errors.Is(err, slab.ErrCorrupt) {
			k.problem("%v: %v", p.MN, err)
		} else if err != nil {
			return Trees.Wrap(err)
		}
	}
	for i, p := range parts {
		counter := func(n *uint64, whose string) func(cl uint8, off uint64) {
			return func(cl uint8, off uint64) {
				if m.take(k, makePtr(i, off, 0), class(cl), whose) {
					*n++
				}
			}
		}
		if err := p.Heap.EachFree(&k.c.work, &m.slots, counter(&m.mem[i].Free, "free slot")); err != nil {
			return Trees.Wrap(err)
		}
		p.Heap.EachLocal(counter(&m.mem[i].Local, "local list"))
		if p := ptr(k.c.shadow[i].Load()); p != 0 && m.take(k, p, classNode, "shadow") {
			m.mem[i].Local++
		}
	}
	return nil
}

// use notes a slot of a node or value of the tree.
func (m *slotMap) use(k *checker, p ptr, cl class) {
	if p.slot() == k.c.t.first.slot() {
		return // it lies beside the tree's header
	}
	if m.take(k, p, cl, "tree") {
		m.mem[p.node()].Used++
	}
}

// take notes that a slot is in use or free, and reports whether it is a slot, and nothing else was known of it.
func (m *slotMap) take(k *checker, p ptr, cl class, whose string) bool {
	if err := m.slots.Take(p.node(), p.off64(), uint8(cl)); err != nil {
		k.problem("%s: slot %v of class %d: %v", whose, p, cl, err)
		return false
	}
	return true
}

// report counts what is not known to be in use or free.
func (m *slotMap) report(k *checker) {
	for i := range m.mem {
		r, n := &m.mem[i], m.slots.Tally(i)
		r.Bytes, r.Slots, r.Elsewhere, r.Reclaimed = n.Bytes, n.Blocks, n.Unmarked, k.c.t.h.Parts[i].Heap.Reclaimed.Blocks.Load()
	}
	k.r.Memory = m.mem
}
