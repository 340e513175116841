package sweep

import (
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/region"
)

// A Piece is a piece of memory that is used as a whole, for ever: a chunk of the object store, a slot of the tree.
type Piece struct {
	Part  int    // which of the store's or tree's memory nodes
	Off64 uint64 // offset there, in units of 64 bytes
	Class uint8  // its size, as the owner counts sizes
}

// A Map is all pieces that have been carved, and which of them have been marked.
type Map struct {
	parts [][]carved // by offset
	// Again says that a piece is in use that a dead node had: others will have done with it some time, and then nobody has it. So
	// there is to be another round.
	Again bool
}

// carved is an extent: pieces of one class.
type carved struct {
	first, step, count uint64 // in units of 64 bytes, but for count
	class              uint8
	marked             []uint64 // a bit for each piece
}

// Extents is where a part's extents are, and what they are carved into.
type Extents struct {
	Part  int
	Zero  fabric.Addr // offset 0 of the region
	Head  fabric.Addr // of the offset of the newest
	Limit uint64      // end of the part's memory, bytes
	// Size returns the bytes of the pieces of a class; 0: there is no such class.
	Size func(class uint8) uint64
}

// Carve adds the pieces of a part's extents. do executes a chain, buf is memory of its Port.
func (m *Map) Carve(do func([]fabric.Op) error, buf []byte, x Extents) error {
	for len(m.parts) <= x.Part {
		m.parts = append(m.parts, nil)
	}
	ops := [1]fabric.Op{fabric.Load(x.Head)}
	if err := do(ops[:]); err != nil {
		return fmt.Errorf("sweep: extents at %v: %w", x.Head, err)
	}
	list := m.parts[x.Part]
	buf = buf[:region.ExtentHeader]
	// Each has at least a header, so a list that does not end is noticed.
	most := x.Limit / region.ExtentHeader
	for off := ops[0].Old; off != 0; most-- {
		if most == 0 || off%unit != 0 || off < region.HeapOffset || off > x.Limit-region.ExtentHeader {
			return fmt.Errorf("%w: extents at %v lead to %#x", ErrCorrupt, x.Head, off)
		}
		ops[0] = fabric.Read(x.Zero.Add(off), buf)
		if err := do(ops[:]); err != nil {
			return fmt.Errorf("sweep: extent at %#x: %w", off, err)
		}
		e, err := region.DecodeExtent(buf, off, x.Limit)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		size := uint64(0)
		if e.Tag != 0 {
			size = x.Size(e.Tag - 1)
		}
		if size == 0 || size%unit != 0 {
			return fmt.Errorf("%w: extent at %#x has tag %d", ErrCorrupt, off, e.Tag)
		}
		c := carved{first: (off + region.ExtentHeader) / unit, step: size / unit, count: (e.Size - region.ExtentHeader) / size, class: e.Tag - 1}
		c.marked = make([]uint64, (c.count+63)/64)
		list = append(list, c)
		off = e.Next
	}
	slices.SortFunc(list, func(a, b carved) int {
		switch {
		case a.first < b.first:
			return -1
		case a.first > b.first:
			return 1
		}
		return 0
	})
	m.parts[x.Part] = list
	return nil
}

const unit = 64

// Mark marks all pieces that have any of what lies from an offset to another, in units of 64 bytes. What is in no
// extent that was carved is nobody's business: it was taken since.
func (m *Map) Mark(part int, from, to uint64) {
	if part >= len(m.parts) {
		return
	}
	list := m.parts[part]
	i, _ := slices.BinarySearchFunc(list, from, func(c carved, off uint64) int {
		if c.first+c.step*c.count <= off {
			return -1
		}
		return 1
	})
	for ; i < len(list) && list[i].first < to; i++ {
		c := &list[i]
		n := uint64(0)
		if from > c.first {
			n = (from - c.first) / c.step
		}
		for ; n < c.count && c.first+n*c.step < to; n++ {
			c.marked[n/64] |= 1 << (n % 64)
		}
	}
}

// unmarked returns the pieces that are not marked and for which keep is false.
func (m *Map) unmarked(kept func(part int, off64 uint64) bool) []Piece {
	var list []Piece
	for part := range m.parts {
		for i := range m.parts[part] {
			c := &m.parts[part][i]
			for n := range c.count {
				off := c.first + n*c.step
				if c.marked[n/64]>>(n%64)&1 == 0 && !kept(part, off) {
					list = append(list, Piece{part, off, c.class})
				}
			}
		}
	}
	return list
}

// A hoard is what a compute node has in its lists.
type hoard struct{ spans []span }

type span struct {
	part     int
	from, to uint64 // in units of 64 bytes
}

func (h *hoard) add(part int, from, to uint64) { h.spans = append(h.spans, span{part, from, to}) }

func compareSpans(a, b span) int {
	switch {
	case a.part != b.part:
		return a.part - b.part
	case a.from < b.from:
		return -1
	case a.from > b.from:
		return 1
	}
	return 0
}

// sort must come before has.
func (h *hoard) sort() { slices.SortFunc(h.spans, compareSpans) }

func (h *hoard) has(part int, off64 uint64) bool {
	i, found := slices.BinarySearchFunc(h.spans, span{part: part, from: off64}, compareSpans)
	if found {
		return true
	}
	return i > 0 && h.spans[i-1].part == part && off64 < h.spans[i-1].to
}
