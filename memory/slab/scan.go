package slab

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/declock/declock/fabric"
)

// The line of a class says about how many blocks are free, and may be wrong: a compute node crashed between the change of the bits and that of the line. So
// nothing is refused, and nothing evicted, because of a line alone: all free bits of the class are looked at once before, as long as nothing has changed.

// A look is what is known of the last time that all free bits of a class were looked at, and none was set.
type fullScan struct {
	stamp, given atomic.Uint64 // when the stamps were these
	skip         atomic.Int64  // where memory can be had by eviction: no look for so many times, whatever has changed since
}

// scanShare is how many evictions a chain of a scan is spread over, besides the first.
const scanShare = 2

// scanAll looks at all free bits of a class, corrects its line, and takes blocks if there are some. 0: there are none, or there were none lately. stamp
// is that of the last Take of this Worker; 0: none.
func (h *Heap) scanAll(w *Worker, class uint8, stamp uint64) (uint64, error) {
	l, given := &h.scans[class], h.givenAt(w)
	if stamp == 0 || l.stamp.Load() == stamp && l.given.Load() == given || l.skip.Add(-1) >= 0 {
		return 0, nil
	}
	t, err := h.tableOf(w, stamp, l.stamp.Load() != stamp) // runs may have got their class since the table was read
	if err != nil {
		return 0, err
	}
	list := t.windows[class]
	w.ops[0] = fabric.Load(h.lineAt(int(class)))
	if err := w.Do(w.ops[:1]); err != nil {
		return 0, fmt.Errorf("slab: line of class %d: %w", class, err)
	}
	before, count := w.ops[0].Old, uint64(0)
	var with [scanned]window // the first that have some
	n := 0
	for i := 0; i < len(list); i += scanned {
		some := list[i:min(i+scanned, len(list))]
		if err := h.readWindows(w, some); err != nil {
			return 0, err
		}
		for j := range some {
			if !some[j].run.Is(w.ops[2*j+1].Old) {
				continue
			}
			k := h.setIn(&some[j], w.bits[j*windowBytes:])
			if count += k; k > 0 && n < len(with) {
				with[n] = some[j]
				n++
			}
		}
	}
	if err := h.correct(w, int(class), before, count); err != nil {
		return 0, err
	}
	if n == 0 {
		l.stamp.Store(stamp)
		l.given.Store(given)
		if h.cfg.Evicts {
			l.skip.Store(scanShare * int64((len(list)-1)/scanned))
		}
		return 0, nil
	}
	l.skip.Store(0)
	return h.takeFrom(w, class, with[:n])
}

// setIn returns how many free bits of a window are set.
func (h *Heap) setIn(x *window, b []byte) (count uint64) {
	_, n, first, last := h.words(x.from, x.to)
	for i := range n {
		count += uint64(bits.OnesCount64(masked(b, i, n, first, last)))
	}
	return count
}
