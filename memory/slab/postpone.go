package slab

import (
	"errors"
	"fmt"
	"sync"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// postponed are runs that this compute node has taken and not divided, because the memory node refused to: it was down, say, or the context of the
// operation had ended. The next operation that needs a run goes on with them.
type postponed struct {
	mu   sync.Mutex
	runs []memory.Run // without class
}

// postpone keeps a run that has no class yet for later, if err says for certain that what failed was not executed. Otherwise the run may get a class, or its
// bits be cleared, at any time: no client gets it, or blocks of it of a size, as long as this compute node lives. Nor of replicated memory: a promotion may undo that it was
// taken, and then it is another's, by the very same word.
func (h *Heap) postpone(w *Worker, x memory.Run, size uint64, err error) {
	h.touch(w, x.Off/unit)
	if !fabric.Refused(err) || h.cfg.Region.Replicated() {
		for off := x.Off; off+size <= x.Off+x.Size; off += size {
			h.lose(w, off/unit)
		}
		return
	}
	h.postponed.mu.Lock()
	defer h.postponed.mu.Unlock()
	h.postponed.runs = append(h.postponed.runs, x)
}

// resume returns a postponed run of a size, and gives those of other sizes back to the region. A run of no bytes: there is none.
func (h *Heap) resume(w *Worker, size uint64) (memory.Run, error) {
	for {
		x, ok := h.postponed.pop()
		if !ok {
			return memory.Run{}, nil
		}
		h.touch(w, x.Off/unit)
		// The change by which it was taken may not be done yet.
		_, err := h.cfg.Region.Pages(w.Path())
		if err == nil && x.Size == size {
			return x, nil
		}
		if err == nil {
			err = h.cfg.Region.Shrink(w.Path(), h.cfg.Entry, x)
		}
		if err != nil && !errors.Is(err, memory.ErrRun) {
			h.postpone(w, x, x.Size, err)
			return memory.Run{}, fmt.Errorf("slab: run at %#x: %w", x.Off, err)
		}
	}
}

func (p *postponed) pop() (memory.Run, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.runs)
	if n == 0 {
		return memory.Run{}, false
	}
	x := p.runs[n-1]
	p.runs = p.runs[:n-1]
	return x, true
}
