package memory_test

import (
	"testing"

	"github.com/declock/declock/fabric"
)

// The number of a change wraps. Pages that no change has touched have the number 0, and others may have the number of the change that takes them now.
func TestGrowWhenTheNumberWraps(t *testing.T) {
	const first, last = 0, 1<<23 - 1
	number := func(h *heap, n uint64) {
		t.Helper()
		want(t, h.p.Do([]fabric.Op{fabric.Store(h.r.Stamp(), n<<40)}), nil)
	}
	h := newHeap(t)
	number(h, last-1)
	for range 4 {
		h.grow(h.p, 2)
		h.check("after the wrap")
	}

	// A page is given back by the change with a number that comes again when it is taken next.
	h = newHeap(t)
	h.grow(h.p, 2)
	h.shrink(h.p)
	ops := []fabric.Op{fabric.Load(h.r.Stamp())}
	want(t, h.p.Do(ops), nil)
	number(h, ops[0].Old<<1>>41-1)
	h.grow(h.p, 2)
	h.check("taken by a change with the number of the one before")
	h.grow(h.p, 1)
	h.check("and again")

	h = newHeap(t)
	number(h, last)
	h.grow(h.p, 1)
	want(t, h.p.Do(ops), nil)
	if seq := ops[0].Old << 1 >> 41; seq == first {
		t.Errorf("a change has the number %d", seq)
	}
}
