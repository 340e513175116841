package memory_test

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// A run whose length is damaged reaches into pages of others, or beyond the table: no client uses it, or gives it back.
func TestRunsOfDamagedLength(t *testing.T) {
	for _, pages := range []uint64{0, 1, 3, 16383} {
		h := newHeap(t)
		h.grow(h.p, 2)
		h.grow(h.p, 2)
		var first memory.Run
		for _, x := range h.got {
			if first.Size == 0 || x.Off < first.Off {
				first = x
			}
		}
		ops := []fabric.Op{fabric.Load(h.r.Head(&first))}
		want(t, h.p.Do(ops), nil)
		was := ops[0].Old
		want(t, h.p.Do([]fabric.Op{fabric.Store(h.r.Head(&first), was&^(16383<<8)|pages<<8)}), nil)
		_, err := h.r.Pages(h.p)
		want(t, err, memory.ErrCorrupt)
		want(t, remove(h.p, h.r, "s", memory.KindStore), memory.ErrCorrupt)
		want(t, h.p.Do([]fabric.Op{fabric.Store(h.r.Head(&first), was)}), nil)
		h.check("a run of %d pages", pages)
	}
}
