package slab

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// fill takes all of a class.
func (h *hand) fill(w *world, class uint8) (items []uint64) {
	for {
		item, err := h.get(class)
		if errors.Is(err, memory.ErrNoSpace) {
			return items
		}
		w.want(err)
		items = append(items, item)
	}
}

// A free bit in the middle of a block, or of a block that is in the list as well, is not a block: a run of which another is in use stays.
func TestStrayBitIsNoPiece(t *testing.T) {
	for _, middle := range []uint64{1, 0} {
		w := newWorld(t, 1)
		a := w.hand(0, 1<<10)
		items := a.fill(w, 1) // 8 blocks of 128 B in one run
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
		if ok, err := a.Collect(&a.Worker, 0, nil, nil); ok || !errors.Is(err, ErrCorrupt) {
			t.Fatalf("middle %d: collected: %v, %v", middle, ok, err)
		}
		if got := a.fill(w, 1); len(got) != 7 {
			t.Errorf("middle %d: of 7 free blocks, %d can be had", middle, len(got))
		}
	}
}

// newest returns the block that came into the list last.
func (h *hand) newest(class uint8) uint64 {
	if l := h.lists[class].items; len(l) > 0 {
		return l[len(l)-1]
	}
	return 0
}

// A large class is refused, for no runs side by side are free; then a small one that one free run would do for.
func TestRefusedForOneClass(t *testing.T) {
	w := newWorld(t, 1)
	a := w.hand(0, 4<<10)
	a.cfg.Size = func(class uint8) uint64 { return []uint64{64, 128, 2048}[class] }
	items := a.fill(w, 0)
	// One run of four becomes free.
	run := items[0] * 64 &^ (w.r.PageSize() - 1)
	for _, x := range items {
		if x*64&^(w.r.PageSize()-1) == run {
			w.want(a.put(0, x))
		}
	}
	w.want(a.drain(0))
	try := func(class uint8) bool {
		for range 3 {
			if _, err := a.get(class); err == nil {
				return true
			}
			ok, err := a.Collect(&a.Worker, class, nil, nil)
			w.want(err)
			if !ok {
				return false
			}
		}
		return false
	}
	if try(2) {
		t.Fatal("there is room for a block of 2 KiB")
	}
	if !try(1) {
		t.Fatal("a run of 1 KiB is free, and a block of 128 B is refused")
	}
}

// Between the READs of free bits in a round and the correction of the line, another gives blocks back: all of them can be had.
func TestRoundKeepsWhatIsGivenMeanwhile(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.hand(0, 4<<10), w.hand(1, 4<<10)
	items := b.fill(w, 0)
	o := &owner{h: a, view: w.cn[0].View}
	do, reads := a.Do, 0
	a.Do = func(ops []fabric.Op) error {
		err := do(ops)
		if first, _ := a.cfg.Region.FreeBits(items[0]); len(ops) == 1 && ops[0].Addr >= first && ops[0].Addr < first.Add(1<<10) {
			if reads++; reads == 4 { // all four runs have been read
				for _, x := range items {
					w.want(b.put(0, x))
				}
				w.want(b.drain(0))
			}
		}
		return err
	}
	_, err := o.Mark()
	w.want(err)
	a.Do = do
	ops := []fabric.Op{fabric.Load(a.lineAt(0))}
	if w.want(do(ops)); ops[0].Old != uint64(len(items)) || reads < 4 {
		t.Errorf("the line says %d of %d, after %d reads", ops[0].Old, len(items), reads)
	}
	if got := append(a.fill(w, 0), b.fill(w, 0)...); len(got) != len(items) {
		t.Errorf("of %d free blocks, %d can be had", len(items), len(got))
	}
}

// A line that is too low, or does not say where a block is among very many, hides no free memory.
func TestLineIsOnlyAHint(t *testing.T) {
	for _, x := range []struct {
		free int
		line uint64
	}{{1, 1}, {1, 0}, {100, 0}, {100, ^uint64(40)}, {100, 1 << 40}} {
		w := newWorld(t, 2)
		a := w.hand(0, 256<<10)
		items := a.fill(w, 0)
		for i := range x.free {
			w.want(a.put(0, items[(len(items)/2+17*i)%len(items)]))
		}
		w.want(a.drain(0))
		w.want(a.Port.Do([]fabric.Op{fabric.Store(a.lineAt(0), x.line)}))
		for i := range lineHints {
			w.want(a.Port.Do([]fabric.Op{fabric.Store(a.lineAt(0).Add(8*uint64(i+1)), 0)}))
		}
		if got := a.fill(w, 0); len(got) != x.free {
			t.Errorf("of %d free blocks, %d can be had when the line says %d", x.free, len(got), int64(x.line))
		}
		ops := []fabric.Op{fabric.Load(a.lineAt(0))}
		if w.want(a.Port.Do(ops)); ops[0].Old != 0 {
			t.Errorf("the line says %d when nothing is free", int64(ops[0].Old))
		}
	}
}

// Another entry has used what was reserved: a run that is given back can be had again, and one is enough.
func TestCollectWhenTheReserveIsUsed(t *testing.T) {
	w := newWorld(t, 1)
	a := w.hand(0, 0)
	a.cfg.Reserve = 8 << 10
	items := a.fill(w, 1)
	for _, x := range items {
		w.want(a.put(1, x))
	}
	w.want(a.drain(1))
	p, err := w.r.Pages(a.Port)
	w.want(err)
	_, _, err = w.r.Create(a.Port, memory.Spec{Name: "other", Kind: memory.KindLocks, Size: p.Free() - 2<<10})
	w.want(err)
	if got := a.fill(w, 0); len(got) > 0 {
		t.Fatalf("%d blocks are had of the reserve", len(got))
	}
	if ok, err := a.Collect(&a.Worker, 0, nil, nil); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if item, err := a.Grow(&a.Worker, 0, 0); err != nil || item == 0 {
		t.Errorf("nothing can be had of the run that was collected: %v", err)
	}
}
