package reclaim

import (
	"cmp"
	"errors"
	"math/bits"
	"slices"
)

const unit = 64 // blocks begin at multiples of it, and their sizes are

// A Block is a block of memory that is used as a whole: a chunk of the object store, a slot of the tree.
type Block struct {
	Part  int    // which of the store's or tree's memory nodes
	Off64 uint64 // offset there, in units of 64 bytes
	Class uint8  // its size, as the owner counts sizes
}

// A Map is all blocks that there are, and which of them have been marked.
type Map struct {
	parts [][]dividedRun // by offset
	// Again says that a block is in use that a crashed node had: others will have done with it some time, and then it is leaked. So
	// there is to be another round.
	Again bool
}

// A dividedRun is a run of blocks of one class.
type dividedRun struct {
	size               uint64 // of the run, in units of 64 bytes
	first, step, count uint64 // the same, but for count
	class              uint8
	marked             []uint64 // a bit for each block
}

// WholeRun is the class of a run that has not been divided yet: it is one block.
const WholeRun = 255

// Add adds a run: as many blocks of a class side by side as it has room for. Offsets and sizes are in units of 64 bytes.
func (m *Map) Add(part int, first, size, step uint64, class uint8) {
	for len(m.parts) <= part {
		m.parts = append(m.parts, nil)
	}
	count := size / step
	c := dividedRun{size: size, first: first, step: step, count: count, class: class, marked: make([]uint64, (count+63)/64)}
	list := m.parts[part]
	i, _ := slices.BinarySearchFunc(list, first, func(c dividedRun, off uint64) int { return int(c.first) - int(off) })
	m.parts[part] = slices.Insert(list, i, c)
}

// EachRun calls f with the class and the offsets of each run of a part that was added.
func (m *Map) EachRun(part int, f func(class uint8, from, to uint64) error) error {
	if part >= len(m.parts) {
		return nil
	}
	for _, c := range m.parts[part] {
		if c.class == WholeRun {
			continue
		}
		if err := f(c.class, c.first, c.first+c.step*c.count); err != nil {
			return err
		}
	}
	return nil
}

// Mark marks all blocks that have any of what lies from an offset to another, in units of 64 bytes. What is in no
// run that was added does not matter: it was taken since.
func (m *Map) Mark(part int, from, to uint64) {
	if part >= len(m.parts) {
		return
	}
	list := m.parts[part]
	i, _ := slices.BinarySearchFunc(list, from, func(c dividedRun, off uint64) int {
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

// Errors of Take, for errors.Is.
var (
	ErrNoBlock = errors.New("no block of its class")
	ErrTwice   = errors.New("in use twice")
)

// Take marks a block, which must be one, and not marked yet.
func (m *Map) Take(part int, off64 uint64, class uint8) error {
	if part >= len(m.parts) {
		return ErrNoBlock
	}
	list := m.parts[part]
	i, found := slices.BinarySearchFunc(list, off64, func(c dividedRun, off uint64) int { return cmp.Compare(c.first, off) })
	if !found {
		i--
	}
	if i < 0 || class == WholeRun || list[i].class != class || (off64-list[i].first)%list[i].step != 0 {
		return ErrNoBlock
	}
	c := &list[i]
	n := (off64 - c.first) / c.step
	switch {
	case n >= c.count:
		return ErrNoBlock
	case c.marked[n/64]>>(n%64)&1 != 0:
		return ErrTwice
	}
	c.marked[n/64] |= 1 << (n % 64)
	return nil
}

// A Tally counts the blocks of a part.
type Tally struct {
	Runs, Bytes uint64 // that the part has
	Rest        uint64 // bytes of runs that are no blocks
	Blocks      uint64
	Unmarked    uint64 // blocks
	UnmarkedIn  uint64 // bytes of these, and of runs that have not been divided yet
}

// Tally counts.
func (m *Map) Tally(part int) (t Tally) {
	if part >= len(m.parts) {
		return t
	}
	for i := range m.parts[part] {
		c := &m.parts[part][i]
		free := c.count
		for _, w := range c.marked {
			free -= uint64(bits.OnesCount64(w))
		}
		t.Runs, t.Bytes, t.Rest = t.Runs+1, t.Bytes+c.size*unit, t.Rest+(c.size-c.count*c.step)*unit
		t.UnmarkedIn += free * c.step * unit
		if c.class != WholeRun {
			t.Blocks, t.Unmarked = t.Blocks+c.count, t.Unmarked+free
		}
	}
	return t
}

// unmarked returns the blocks that are not marked and for which keep is false.
func (m *Map) unmarked(kept func(part int, off64 uint64) bool) []Block {
	var list []Block
	for part := range m.parts {
		for i := range m.parts[part] {
			c := &m.parts[part][i]
			for n := range c.count {
				off := c.first + n*c.step
				if c.marked[n/64]>>(n%64)&1 == 0 && !kept(part, off) {
					list = append(list, Block{part, off, c.class})
				}
			}
		}
	}
	return list
}

// A snapshot is what a compute node has in its lists.
type snapshot struct{ spans []span }

type span struct {
	part     int
	from, to uint64 // in units of 64 bytes
}

func (h *snapshot) add(part int, from, to uint64) { h.spans = append(h.spans, span{part, from, to}) }

func compareSpans(a, b span) int {
	return cmp.Or(cmp.Compare(a.part, b.part), cmp.Compare(a.from, b.from))
}

// sort must come before has.
func (h *snapshot) sort() { slices.SortFunc(h.spans, compareSpans) }

func (h *snapshot) has(part int, off64 uint64) bool {
	i, found := slices.BinarySearchFunc(h.spans, span{part: part, from: off64}, compareSpans)
	if found {
		return true
	}
	return i > 0 && h.spans[i-1].part == part && off64 < h.spans[i-1].to
}
