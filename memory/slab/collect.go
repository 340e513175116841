package slab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// Evict takes blocks of a class that are in use away from their users, or moves what is in them, and returns those that are the caller's then. It
// does not wait for locks.
type Evict func(class uint8, off64 []uint64) (got []uint64, err error)

// stamps tell whether memory has become free, or changed its owner.
type stamps struct{ pages, given, pushed uint64 }

// stamp reads them.
func (h *Heap) stamp(w *Worker) (stamps, error) {
	w.ops[0] = fabric.Load(h.cfg.Region.Stamp())
	w.ops[1] = fabric.Load(h.lineAt(h.cfg.Classes))
	if err := w.Do(w.ops[:2]); err != nil {
		return stamps{}, fmt.Errorf("slab: %w", err)
	}
	return stamps{w.ops[0].Old, w.ops[1].Old, h.pushed()}, nil
}

// A lot is runs side by side, with free pages between them, that would be enough for a run of another class.
type lot struct {
	runs []memory.Run
	live uint64 // bytes in them that are not free
	all  bool   // is known

	blocks uint64 // that are not free
}

// Collect makes room for a run of a class: it takes all blocks of a run of another class, or of some that lie side by
// side, and gives their pages back to the region. The free ones it takes from the memory node and the lists of this compute node; those in use
// are taken by evict, if that is not nil, from the run of some at random that has the least of them. Otherwise nothing of the run may be in use, or what is
// in use is copied by move, if that is not nil, to free blocks of the same class. It returns false if there is none that can be collected:
// in others' lists are blocks of all of them, or in use. Then it has asked others for what is in their lists.
//
// A client that has all blocks of a run has the run, for no other can have, get or read one as a block of its class: that is why a run needs no lock, and why
// a crash at any point leaves only leaked blocks, of the class that the run's word says, or free pages.
func (h *Heap) Collect(w *Worker, want uint8, evict, move Evict) (bool, error) {
	before, err := h.stamp(w)
	if err != nil {
		return false, err
	}
	if last := h.refused[want].Load(); evict == nil && last != nil && *last == before {
		return false, nil
	}
	p, err := h.cfg.Region.Pages(w.Path())
	if err != nil {
		return false, err
	}
	ok, err := h.collectOne(w, want, h.lots(p, want, evict != nil), evict)
	if err == nil && !ok && evict == nil && move != nil {
		ok, err = h.compact(w, h.lots(p, want, true), move)
	}
	switch {
	case err != nil:
		return false, err
	case ok:
		w.collected, w.before = true, p.Free()
		return true, nil
	case evict == nil:
		h.refused[want].Store(&before)
	}
	return false, h.ask(w)
}

// collectOne collects the first of some lots of which nothing is in use, or, by eviction, the one that has the least.
func (h *Heap) collectOne(w *Worker, want uint8, lots []lot, evict Evict) (bool, error) {
	for tries := 0; len(lots) > 0; {
		n := len(lots)
		if evict != nil {
			n = min(n, sampledLots)
		}
		best := -1
		for i := range n {
			if err := h.weigh(w, &lots[i], evict == nil); err != nil {
				return false, err
			}
			if lots[i].all && (best < 0 || lots[i].live < lots[best].live || tries >= maxEvictedLots/2 && lots[i].blocks < lots[best].blocks) {
				if best = i; lots[i].live == 0 {
					break
				}
			}
		}
		if best < 0 || evict == nil && lots[best].live > 0 {
			break
		}
		ok, err := h.collect(w, &lots[best], evict)
		if last := lots[best].runs[len(lots[best].runs)-1]; !h.fixed(want) {
			h.collected.Store(last.Off + last.Size)
		}
		if err != nil || ok {
			return ok, err
		}
		lots = append(lots[:best], lots[best+1:]...)
		if tries++; evict != nil && tries >= maxEvictedLots {
			break
		}
	}
	return false, nil
}

// askNs is how often a compute node asks others for what they have in their lists.
const askNs = int64(10 * fabric.Millisecond)

// recall returns the address of the word that grows when a client asks.
func (h *Heap) recall() fabric.Addr { return h.lineAt(h.cfg.Classes).Add(8) }

// ask asks all compute nodes for what they have in their lists: of a run that cannot be collected they may have blocks.
func (h *Heap) ask(w *Worker) error {
	last, now := h.asked.Load(), int64(w.Port.Now())
	if last != 0 && now-last < askNs || !h.asked.CompareAndSwap(last, now) {
		return nil
	}
	w.ops[0] = fabric.FAA(h.recall(), 1)
	if err := w.Do(w.ops[:1]); err != nil {
		return fmt.Errorf("slab: %w", err)
	}
	h.recalled.CompareAndSwap(w.ops[0].Old, w.ops[0].Old+1) // it collects from its own lists anyway
	return nil
}

// Answer gives back what is in the lists, if a compute node has asked for that, and reports whether the store or tree has been dropped. A client that
// has it open calls it now and then.
func (h *Heap) Answer(w *Worker) (dropped bool, err error) {
	w.ops[0] = fabric.Load(h.recall())
	w.ops[1] = fabric.Load(h.cfg.Region.StateOf(h.cfg.Entry))
	if err := w.Do(w.ops[:2]); err != nil {
		return false, fmt.Errorf("slab: %w", err)
	}
	if h.cfg.Entry.Dropped(w.ops[1].Old) {
		return true, nil
	}
	if recall := w.ops[0].Old; recall != h.recalled.Load() {
		return false, h.giveIdle(w, recall, -1)
	}
	return false, nil
}

// Dropped reports whether the store or tree has been dropped, and its memory has not been given back.
func (h *Heap) Dropped(w *Worker) (bool, error) {
	ops := [1]fabric.Op{fabric.Load(h.cfg.Region.StateOf(h.cfg.Entry))}
	if err := w.Do(ops[:]); err != nil {
		return false, fmt.Errorf("slab: %w", err)
	}
	return h.cfg.Entry.Dropped(ops[0].Old), nil
}

// giveIdle gives back what is in the lists of all classes but one.
func (h *Heap) giveIdle(w *Worker, recall uint64, but int) error {
	if old := h.recalled.Load(); old == recall || !h.recalled.CompareAndSwap(old, recall) {
		return nil // another client does it
	}
	return h.giveLists(w, but)
}

// GiveLists gives back all that this compute node has in its lists.
func (h *Heap) GiveLists(w *Worker) error { return h.giveLists(w, -1) }

func (h *Heap) giveLists(w *Worker, but int) error {
	if _, err := h.resume(w, 0); err != nil {
		return err
	}
	var batch [Batch]uint64
	for class := range h.lists {
		for class != but {
			n := h.Drain(uint8(class), &batch)
			if n == 0 {
				break
			}
			if err := h.giveBack(w, uint8(class), batch[:n]); err != nil {
				return err
			}
		}
	}
	return nil
}

const (
	sampledLots    = 16 // of which the one with the least in use is evicted
	maxEvictedLots = 24 // more are not tried, if others have blocks of them
)

// lots returns what can be collected for a run of a class: from a random one on, or from behind the last that was.
func (h *Heap) lots(p *memory.Pages, want uint8, random bool) (list []lot) {
	var runs []memory.Run
	p.Runs(h.cfg.Entry, func(x memory.Run) {
		switch class := x.Tag - 1; {
		case x.Tag == 0, int(class) >= h.cfg.Classes, class == want, h.fixed(class):
		default:
			runs = append(runs, x)
		}
	})
	if len(runs) == 0 {
		return nil
	}
	need, page := h.RunSize(want), h.cfg.Region.PageSize()
	kept := h.kept()
	room := p.Free() - min(p.Free(), h.cfg.Reserve) // what the entry may take besides
	if h.cfg.Limit != 0 {
		have := p.Owned(h.cfg.Entry) - (h.cfg.Entry.Length+page-1)/page*page
		room = min(room, h.cfg.Limit-min(h.cfg.Limit, have))
	}
	own := max(page, need-min(need, room))
	start := 0
	if random {
		start = int(h.cursor.Add(1) * 7919 % uint64(len(runs)))
	} else {
		last := h.collected.Load()
		for start = 0; start < len(runs)-1 && runs[start].Off < last; {
			start++
		}
	}
	for k := range runs {
		i := (start + k) % len(runs)
		if h.fixed(want) { // side by side with others that stay: they are taken from behind
			i = len(runs) - 1 - k
		}
		x := lot{}
		from, to := runs[i].Off, runs[i].Off
		for ; from > h.cfg.Region.HeapOffset(); from -= page {
			if _, free := p.Owner(from-page, h.cfg.Entry); !free || to-from >= need || from-page >= kept {
				break
			}
		}
		mine := uint64(0)
		for j := i; to-from < need || mine < own; {
			if j < len(runs) && runs[j].Off == to {
				x.runs, to, mine = append(x.runs, runs[j]), to+runs[j].Size, mine+runs[j].Size
				j++
				continue
			}
			if _, free := p.Owner(to, h.cfg.Entry); !free || to >= kept {
				break
			}
			to += page
		}
		if to-from >= need && mine >= own {
			list = append(list, x)
		}
	}
	return list
}

// kept returns where the memory begins, at the end of the region, of which this entry takes none: but runs that it has there, as its first ones, become others of it.
func (h *Heap) kept() uint64 {
	page := h.cfg.Region.PageSize()
	return (h.cfg.Region.Size()/page - h.cfg.Reserve/page) * page
}

// inKept reports whether some of a lot is there.
func (h *Heap) inKept(x *lot) bool {
	last := x.runs[len(x.runs)-1]
	return last.Off+last.Size > h.kept()
}

// weigh finds out how much of a lot is in use, as far as this compute node knows: all is set if it was looked at whole. If nothing may be
// in use, it stops at the first run that has something.
func (h *Heap) weigh(w *Worker, x *lot, none bool) error {
	if x.all {
		return nil
	}
	for i := range x.runs {
		run := &x.runs[i]
		class := run.Tag - 1
		size := h.cfg.Size(class)
		free := h.count(class, run.Off/unit, (run.Off+run.Size)/unit)
		if err := h.free(w, run.Off/unit, (run.Off+run.Size)/unit, func(uint64) { free++ }); err != nil {
			return err
		}
		if n := run.Size / size; free < n {
			x.live += (n - free) * size
			x.blocks += n - free
			if none {
				return nil
			}
		}
	}
	x.all = true
	return nil
}

// collect takes all blocks of a lot and gives its pages back. It returns false if others have some of them.
func (h *Heap) collect(w *Worker, x *lot, evict Evict) (bool, error) {
	w.kept = h.inKept(x)
	for i := range x.runs {
		got, same, err := h.takeFree(w, &x.runs[i])
		if err != nil || !same {
			return false, err
		}
		if ok, err := h.empty(w, &x.runs[i], got, evict); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// takeFree takes what is free of a run, on the memory node and in the lists of this compute node. It returns false, with none, if the run was changed meanwhile.
func (h *Heap) takeFree(w *Worker, x *memory.Run) ([]uint64, bool, error) {
	got, same, err := h.takeAll(w, x)
	if err != nil || !same {
		return nil, false, err
	}
	return append(got, h.steal(x.Tag-1, x.Off/unit, (x.Off+x.Size)/unit)...), true, nil
}

// empty takes what is in use of a run of which this compute node has got the free blocks, and gives it back to the region. If it cannot have all, it gives
// back what there is.
func (h *Heap) empty(w *Worker, x *memory.Run, got []uint64, evict Evict) (_ bool, err error) {
	class := x.Tag - 1
	size := h.cfg.Size(class)
	all := x.Size / size
	if uint64(len(got)) < all && evict != nil {
		have := make(map[uint64]bool, len(got))
		for _, item := range got {
			have[Off64(item)] = true
		}
		var rest []uint64
		for i := range all {
			if off := (x.Off + i*size) / unit; !have[off] {
				rest = append(rest, off)
			}
		}
		var more []uint64
		more, err = evict(class, rest)
		got = append(got, more...)
	}
	for _, item := range got {
		h.touch(w, item)
	}
	whole, bad := h.blocks(x, got)
	if bad > 0 && err == nil {
		err = fmt.Errorf("%w: %d of what is free of the run at %#x are no blocks of class %d, or the same", ErrCorrupt, bad, x.Off, class)
	}
	if got = whole; err == nil && uint64(len(got)) == all {
		if err = h.cfg.Region.Shrink(w.Path(), h.cfg.Entry, *x); err != nil {
			return false, h.withhold(w, class, got, fmt.Errorf("slab: run at %#x: %w", x.Off, err))
		}
		return true, nil
	}
	return false, errors.Join(err, h.giveAll(w, class, got))
}

// withhold keeps blocks in the list because of err. If that does not say for certain what became of them, no client gets them as long as this compute
// node lives.
func (h *Heap) withhold(w *Worker, class uint8, got []uint64, err error) error {
	if fabric.Refused(err) {
		h.Keep(w, class, got)
		return err
	}
	for _, item := range got {
		h.lose(w, item)
	}
	return err
}

// blocks returns those of got that are blocks of a run, each once, and how many are not.
func (h *Heap) blocks(x *memory.Run, got []uint64) (whole []uint64, bad int) {
	size := h.cfg.Size(x.Tag - 1)
	seen := make(map[uint64]bool, len(got))
	for _, item := range got {
		off := Off64(item)
		if seen[off] || !inRun(x, size, off) {
			bad++
			continue
		}
		seen[off], whole = true, append(whole, item)
	}
	return whole, bad
}

// inRun reports whether a block of a run of blocks of a size is at an offset.
func inRun(x *memory.Run, size, off64 uint64) bool {
	off := off64 * unit
	return off >= x.Off && (off-x.Off)%size == 0 && off+size <= x.Off+x.Size
}

// takeAll takes all free blocks of a run from the memory node. It returns false, with none, if the run was changed meanwhile, and with an error: then it has
// put what it had taken into the list.
func (h *Heap) takeAll(w *Worker, x *memory.Run) (got []uint64, same bool, err error) {
	class := x.Tag - 1
	for from, to := x.Off/unit, (x.Off+x.Size)/unit; from < to; {
		end := min((from/64+fabric.MaxChain-2)*64, to)
		some, same, err := h.takeWords(w, x, from, end)
		if err != nil {
			h.Keep(w, class, got) // as long as this compute node has some of it, the run is what it was
			return nil, false, err
		}
		if !same {
			return nil, false, h.giveAll(w, class, got)
		}
		got = append(got, some...)
		if len(some) > 0 {
			w.ops[0] = fabric.FAA(h.lineAt(int(class)), -uint64(len(some)))
			if err := w.Do(w.ops[:1]); err != nil {
				h.Keep(w, class, got)
				return nil, false, fmt.Errorf("slab: line of class %d: %w", class, err)
			}
		}
		from = end
	}
	return got, true, nil
}

// takeWords takes the free blocks of a part of a run that a chain is enough for.
func (h *Heap) takeWords(w *Worker, x *memory.Run, from, end uint64) (got []uint64, same bool, err error) {
	a, n, first, last := h.words(from, end)
	w.ops[0] = fabric.Read(a, w.bits[:8*n])
	if err := w.Do(w.ops[:1]); err != nil {
		return nil, false, fmt.Errorf("slab: free bits: %w", err)
	}
	k := 0
	for i := range n {
		if v := masked(w.bits, i, n, first, last); v != 0 {
			old := binary.LittleEndian.Uint64(w.bits[8*i:])
			w.ops[k] = fabric.CAS(a.Add(8*uint64(i)), old, old&^v)
			k++
		}
	}
	w.ops[k] = fabric.Load(h.cfg.Region.Head(x))
	if err := w.Do(w.ops[:k+1]); err != nil {
		if fabric.Executed(err, k+1) > 0 || !fabric.Refused(err) {
			for i := range k {
				got = taken(got, h, &w.ops[i], from)
			}
		}
		for _, off := range got {
			h.lose(w, off)
		}
		return nil, false, fmt.Errorf("slab: free bits: %w", err)
	}
	for i := range k {
		if w.ops[i].Swapped() {
			got = taken(got, h, &w.ops[i], from)
		}
	}
	for _, off := range got {
		h.touch(w, off)
	}
	if x.Is(w.ops[k].Old) {
		return got, true, nil
	}
	// Until something of it is in hand, a run may change. They are blocks of another class.
	for len(got) > 0 {
		b := got[:min(Batch, len(got))]
		got = got[len(b):]
		k := h.setBits(w, b)
		if err := h.posted(w, x.Tag-1, b, k, k, true); err != nil {
			for _, off := range got {
				h.lose(w, off)
			}
			return nil, false, err
		}
	}
	return nil, false, nil
}

// taken appends the blocks whose bits a CAS was to take.
func taken(got []uint64, h *Heap, op *fabric.Op, from uint64) []uint64 {
	first, _ := h.cfg.Region.FreeBits(from)
	word := from/64 + uint64(op.Addr-first)/8
	for v := op.Cmp &^ op.Arg; v != 0; v &= v - 1 {
		got = append(got, word*64+uint64(bits.TrailingZeros64(v)))
	}
	return got
}

// giveAll gives any number of blocks back. If it fails, they stay this compute node's.
func (h *Heap) giveAll(w *Worker, class uint8, got []uint64) error {
	for len(got) > 0 {
		n := min(Batch, len(got))
		err := h.Give(w, class, got[:n])
		if got = got[n:]; err != nil {
			h.Keep(w, class, got)
			return err
		}
	}
	return nil
}
