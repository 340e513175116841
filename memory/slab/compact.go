package slab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
)

const (
	// MaxMoved is the size of the largest blocks that are moved.
	MaxMoved = 64 << 10

	movedLots = 2 // lots that are tried before a request is refused
)

// compact collects one of some lots of which blocks are in use: move copies those to other runs of their class. Of some at random it takes the one with the
// least in use.
func (h *Heap) compact(w *Worker, lots []lot, move Evict) (bool, error) {
	free, err := h.freeBlocks(w)
	if err != nil {
		return false, err
	}
	lots = slices.DeleteFunc(lots, func(x lot) bool { return !h.fits(&x, free) })
	lots = lots[:min(len(lots), sampledLots)]
	for i := range lots {
		if err := h.weigh(w, &lots[i], false); err != nil {
			return false, err
		}
	}
	slices.SortStableFunc(lots, func(a, b lot) int { return int(a.live) - int(b.live) })
	for i := range lots[:min(len(lots), movedLots)] {
		if ok, err := h.collectTogether(w, &lots[i], move); err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}

// collectTogether is collect, but takes what is free of all runs first: what is moved away from one must not come into the next.
func (h *Heap) collectTogether(w *Worker, x *lot, move Evict) (bool, error) {
	free := make([][]uint64, len(x.runs))
	back := func(from int, err error) (bool, error) {
		for i := from; i < len(free); i++ {
			err = errors.Join(err, h.giveAll(w, x.runs[i].Tag-1, free[i]))
		}
		return false, err
	}
	w.kept = h.inKept(x)
	for i := range x.runs {
		var same bool
		var err error
		if free[i], same, err = h.takeFree(w, &x.runs[i]); err != nil || !same {
			return back(0, err)
		}
	}
	for i := range x.runs {
		if ok, err := h.empty(w, &x.runs[i], free[i], move); err != nil || !ok {
			return back(i+1, err)
		}
	}
	return true, nil
}

// freeBlocks returns about how many blocks of each class are free on the memory node and in the lists of this compute node.
func (h *Heap) freeBlocks(w *Worker) ([]uint64, error) {
	free := make([]uint64, h.cfg.Classes)
	b := w.Port.Alloc(LineSize * h.cfg.Classes)
	defer w.Port.Free(b)
	w.ops[0] = fabric.Read(h.lineAt(0), b)
	if err := w.Do(w.ops[:1]); err != nil {
		return nil, fmt.Errorf("slab: lines: %w", err)
	}
	for class := range free {
		line := int64(binary.LittleEndian.Uint64(b[LineSize*class:]))
		free[class] = uint64(max(line, 0)) + h.count(uint8(class), 0, ^uint64(0))
	}
	return free, nil
}

// fits reports whether what is in use of a lot fits into other runs: of each class there must be as many free blocks in all as the lot has blocks, for those that
// are free in the lot count on both sides.
func (h *Heap) fits(x *lot, free []uint64) bool {
	blocks := make(map[uint8]uint64, 4)
	for i := range x.runs {
		class := x.runs[i].Tag - 1
		size := h.cfg.Size(class)
		if blocks[class] += x.runs[i].Size / size; blocks[class] > free[class] || size > MaxMoved {
			return false
		}
	}
	return true
}
