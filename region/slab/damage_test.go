package slab

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/region"
)

// fill takes all of a class.
func (h *hand) fill(w *world, class uint8) (items []uint64) {
	for {
		item, err := h.get(class)
		if errors.Is(err, region.ErrNoSpace) {
			return items
		}
		w.want(err)
		items = append(items, item)
	}
}

// A free bit in the middle of a piece, or of a piece that is in the list as well, is not a piece: a run of which another is in use stays.
func TestStrayBitIsNoPiece(t *testing.T) {
	for _, middle := range []uint64{1, 0} {
		w := newWorld(t, 1)
		a := w.hand(0, 1<<10)
		items := a.fill(w, 1) // 8 pieces of 128 B in one run
		for _, x := range items[1:] {
			w.want(a.put(1, x))
		}
		if middle > 0 {
			w.want(a.drain(1))
		}
		stray := a.newest(1) + middle
		if middle > 0 {
			stray = items[1] + middle
		}
		word, bit := w.r.FreeBits(Off64(stray))
		w.want(a.Port.Do([]fabric.Op{fabric.FAA(word, 1<<bit)}))
		if ok, err := a.Collect(&a.Worker, 0, nil); ok || !errors.Is(err, ErrCorrupt) {
			t.Fatalf("middle %d: collected: %v, %v", middle, ok, err)
		}
		if got := a.fill(w, 1); len(got) < 6 || len(got) > 7 { // the line counts the stray bit
			t.Errorf("middle %d: of 7 free pieces, %d can be had", middle, len(got))
		}
	}
}

// newest returns the piece that came into the list last.
func (h *hand) newest(class uint8) uint64 {
	if l := h.lists[class].items; len(l) > 0 {
		return l[len(l)-1]
	}
	return 0
}
