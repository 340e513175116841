package btree

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/declock/declock/memory"
)

// A slotMap is what Check knows of the slots of a tree: where extents are, and which slots are whose.
type slotMap struct {
	extents [][]extent // of each memory node, by address
	mem     []MemoryReport
}

// An extent is a run of slots of one class.
type extent struct {
	first, step uint64 // in units of 64 bytes
	count       uint64
	class       class
	run         memory.Run
	taken       []uint64 // a bit for each slot that is somebody's
}

// load reads what runs there are, and which slots are free.
func (m *slotMap) load(k *checker) error {
	t := k.c.t
	m.extents = make([][]extent, len(t.h.Parts))
	m.mem = make([]MemoryReport, len(t.h.Parts))
	for i := range t.h.Parts {
		m.mem[i].Node = t.h.Parts[i].MN
		if err := m.loadExtents(k, i); err != nil {
			return err
		}
		slices.SortFunc(m.extents[i], func(a, b extent) int { return int(a.first) - int(b.first) })
	}
	for i := range t.h.Parts {
		if err := m.loadFree(k, i); err != nil {
			return err
		}
		for cl := range class(numClasses) {
			m.loadLocal(k, i, cl)
		}
		if p := ptr(k.c.shadow[i].Load()); p != 0 && m.take(k, p, classNode, "shadow") {
			m.mem[i].Local++
		}
	}
	return nil
}

func (m *slotMap) loadExtents(k *checker, node int) error {
	mem := k.c.t.h.Parts[node]
	p, err := mem.Region.Pages(k.c.work.Path())
	if err != nil {
		return fmt.Errorf("btree: pages of %v: %w", mem.MN, err)
	}
	p.Runs(&mem.Entry, func(run memory.Run) {
		m.mem[node].Bytes += run.Size
		if run.Tag == 0 {
			return // somebody is taking it
		}
		if run.Tag > numClasses {
			k.problem("%v: run at %#x has tag %d", mem.MN, run.Off, run.Tag)
			return
		}
		x := extent{first: run.Off / slotUnit, class: class(run.Tag - 1), run: run}
		x.step = k.c.t.slotSize(x.class) / slotUnit
		x.count = run.Size / slotUnit / x.step
		x.taken = make([]uint64, (x.count+63)/64)
		m.extents[node] = append(m.extents[node], x)
		m.mem[node].Slots += x.count
	})
	return nil
}

// loadFree looks at what is free on a memory node.
func (m *slotMap) loadFree(k *checker, node int) error {
	for i := range m.extents[node] {
		x := &m.extents[node][i]
		err := k.c.t.h.Parts[node].Heap.Free(&k.c.work, &x.run, func(off uint64) {
			if m.take(k, makePtr(node, off, 0), x.class, "free slot") {
				m.mem[node].Free++
			}
		})
		if err != nil {
			return k.c.wrapped(err)
		}
	}
	return nil
}

// loadLocal takes this compute node's own lists into account.
func (m *slotMap) loadLocal(k *checker, node int, cl class) {
	step := k.c.t.slotSize(cl) / slotUnit
	k.c.t.h.Parts[node].Heap.Each(uint8(cl), func(from, to uint64) {
		for ; from < to; from += step {
			if m.take(k, makePtr(node, from, 0), cl, "local list") {
				m.mem[node].Local++
			}
		}
	})
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

// take notes that a slot is somebody's, and tells whether it is a slot and was nobody's.
func (m *slotMap) take(k *checker, p ptr, cl class, whose string) bool {
	if p.node() < len(m.extents) {
		list := m.extents[p.node()]
		i, found := slices.BinarySearchFunc(list, p.off64(), func(x extent, off uint64) int { return int(x.first) - int(off) })
		if !found {
			i--
		}
		if i >= 0 {
			x := &list[i]
			n := (p.off64() - x.first) / x.step
			if n < x.count && (p.off64()-x.first)%x.step == 0 && x.class == cl {
				if x.taken[n/64]>>(n%64)&1 != 0 {
					k.problem("slot %v of class %d is in use twice: %s", p, cl, whose)
					return false
				}
				x.taken[n/64] |= 1 << (n % 64)
				return true
			}
		}
	}
	k.problem("%s: %v is no slot of class %d", whose, p, cl)
	return false
}

// report counts what is nobody's that is known here.
func (m *slotMap) report(k *checker) {
	for i := range m.mem {
		r := &m.mem[i]
		var taken uint64
		for j := range m.extents[i] {
			for _, w := range m.extents[i][j].taken {
				taken += uint64(bits.OnesCount64(w))
			}
		}
		r.Elsewhere, r.Reclaimed = r.Slots-taken, k.c.t.h.Parts[i].Reclaimed.Load()
	}
	k.r.Memory = m.mem
}
