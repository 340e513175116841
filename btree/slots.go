package btree

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/region"
)

// A slotMap is what Check knows of the slots of a tree: where extents are, and which slots are whose.
type slotMap struct {
	extents [][]extent // of each memory node, by address
	mem     []MemoryReport
}

// An extent of slots of one class.
type extent struct {
	first, step uint64 // in units of 64 bytes
	count       uint64
	class       class
	taken       []uint64 // a bit for each slot that is somebody's
}

// load reads the lists of extents and of free slots.
func (m *slotMap) load(k *checker) error {
	t := k.c.t
	m.extents = make([][]extent, len(t.nodes))
	m.mem = make([]MemoryReport, len(t.nodes))
	for i := range t.nodes {
		m.mem[i].Node = t.nodes[i].mn
		if err := m.loadExtents(k, i); err != nil {
			return err
		}
		slices.SortFunc(m.extents[i], func(a, b extent) int { return int(a.first) - int(b.first) })
	}
	for i := range t.nodes {
		for cl := range class(numClasses) {
			if err := m.loadFree(k, i, cl); err != nil {
				return err
			}
			m.loadLocal(k, i, cl)
		}
		if p := ptr(k.c.shadow[i].Load()); p != 0 && m.take(k, p, classNode, "shadow") {
			m.mem[i].Local++
		}
	}
	return nil
}

func (m *slotMap) loadExtents(k *checker, node int) error {
	c := k.c
	mem := &c.t.nodes[node]
	c.ops[0] = fabric.Load(mem.base.Add(extentHeadOffset))
	if err := lock.Do(c.l, c.ops[:1]); err != nil {
		return fmt.Errorf("btree: extents of %v: %w", mem.mn, err)
	}
	for at := c.ops[0].Old; at != 0; {
		b := c.aux[:region.ExtentHeader]
		if at%slotUnit != 0 || at+region.ExtentHeader > mem.limit {
			k.problem("%v: extent at %#x", mem.mn, at)
			return nil
		}
		c.ops[0] = fabric.Read(mem.region.At(at), b)
		if err := lock.Do(c.l, c.ops[:1]); err != nil {
			return fmt.Errorf("btree: extent at %#x of %v: %w", at, mem.mn, err)
		}
		got, err := region.DecodeExtent(b, at, mem.limit)
		if err != nil || got.Tag == 0 || got.Tag > numClasses {
			k.problem("%v: extent at %#x of class %d: %v", mem.mn, at, int(got.Tag)-1, err)
			return nil
		}
		x := extent{first: (at + region.ExtentHeader) / slotUnit, class: class(got.Tag - 1)}
		x.count = (got.Size - region.ExtentHeader) / c.t.slotSize(x.class)
		if len(m.extents[node]) > 1<<24 {
			k.problem("%v: list of extents has no end", mem.mn)
			return nil
		}
		x.step = c.t.slotSize(x.class) / slotUnit
		x.taken = make([]uint64, (x.count+63)/64)
		m.extents[node] = append(m.extents[node], x)
		m.mem[node].Bytes += region.ExtentHeader + x.count*c.t.slotSize(x.class)
		m.mem[node].Slots += x.count
		at = got.Next
	}
	return nil
}

// loadFree walks a central list.
func (m *slotMap) loadFree(k *checker, node int, cl class) error {
	c := k.c
	mem := &c.t.nodes[node]
	head := mem.base.Add(freeHeadsOffset + 8*uint64(cl))
	c.ops[0] = fabric.Load(head)
	if err := lock.Do(c.l, c.ops[:1]); err != nil {
		return fmt.Errorf("btree: free list at %v: %w", head, err)
	}
	for off := freeHead(c.ops[0].Old).off64(); off != 0; {
		p := makePtr(node, off, 0)
		if !m.take(k, p, cl, "free list") {
			return nil
		}
		m.mem[node].Free++
		b := c.aux[:headerSize]
		c.ops[0] = fabric.Read(c.t.slotAddr(p, cl), b)
		if err := lock.Do(c.l, c.ops[:1]); err != nil {
			return fmt.Errorf("btree: free list at %v: %w", head, err)
		}
		next := freeHead(get64(b, 0))
		if cl == classNode {
			next = freeHead(get64(b, linkAt))
		}
		off = next.off64()
	}
	return nil
}

// loadLocal takes this compute node's own lists into account.
func (m *slotMap) loadLocal(k *checker, node int, cl class) {
	l := &k.c.t.nodes[node].lists[cl]
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.slots {
		if m.take(k, p, cl, "local list") {
			m.mem[node].Local++
		}
	}
	step := k.c.t.slotSize(cl) / slotUnit
	for off := l.next; off < l.end; off += step {
		if m.take(k, makePtr(node, off, 0), cl, "local extent") {
			m.mem[node].Local++
		}
	}
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
		r.Elsewhere, r.Reclaimed = r.Slots-taken, k.c.t.nodes[i].reclaimed.Load()
	}
	k.r.Memory = m.mem
}
