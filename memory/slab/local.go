package slab

import (
	"sync"

	"github.com/declock/declock/fabric"
)

// A list holds free blocks of one class that a compute node has. Its mutex is never held across a
// fabric call.
type list struct {
	mu     sync.Mutex
	items  []uint64
	spans  []span // blocks of runs that were not handed out yet
	pushes uint64 // blocks that came here
}

// A span is some blocks side by side, in units of 64 bytes.
type span struct{ next, end, step uint64 }

// Blocks come into a list by Keep, keepRun and Push only. Each touches them first. A client may have had them in hand, untouched, when a round looked at the
// lists: it had taken them out of one, or of a run that has just got its class. The round waits for that client, and must hear of the blocks by then.

// Keep puts blocks into the list of a class: those, say, that a Config's Free could not give back.
func (h *Heap) Keep(w *Worker, class uint8, items []uint64) {
	if len(items) == 0 {
		return
	}
	for _, item := range items {
		h.touch(w, item)
	}
	l := &h.lists[class]
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, items...)
	l.pushes += uint64(len(items))
}

// keepRun puts blocks side by side into the list of a class.
func (h *Heap) keepRun(w *Worker, class uint8, s span) {
	for off := s.next; off < s.end; off += s.step {
		h.touch(w, off)
	}
	l := &h.lists[class]
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spans = append(l.spans, s)
}

// Pop returns a block from this compute node's list of a class, without any remote operation.
func (h *Heap) Pop(class uint8) (item uint64, ok bool) {
	l := &h.lists[class]
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pop()
}

func (l *list) pop() (uint64, bool) {
	if n := len(l.items); n > 0 {
		item := l.items[n-1]
		l.items = l.items[:n-1]
		return item, true
	}
	for n := len(l.spans); n > 0; n-- {
		s := &l.spans[n-1]
		if off := s.next; off < s.end {
			s.next += s.step
			return off, true
		}
		l.spans = l.spans[:n-1]
	}
	return 0, false
}

// Put puts a block into the list of a class, and gives some to the memory node if there are too many. It returns how many are lost by that: the operation that freed them has
// succeeded all the same.
func (h *Heap) Put(w *Worker, class uint8, item uint64) (lost uint64) {
	k := h.Push(w, class, item, &w.batch)
	if k == 0 {
		return 0
	}
	if err := h.giveBack(w, class, w.batch[:k]); err == nil || fabric.Refused(err) {
		return 0
	}
	return uint64(k)
}

// Push puts a block into the list of a class. If there are too many, it takes some out, which are to be given to the
// memory node, and returns how many.
func (h *Heap) Push(w *Worker, class uint8, item uint64, batch *[Batch]uint64) int {
	h.touch(w, item)
	bound := h.cfg.Bound(class)
	l := &h.lists[class]
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.items == nil {
		l.items = make([]uint64, 0, min(bound, 8*Batch)+2*Batch)
	}
	l.items = append(l.items, item)
	l.pushes++
	if len(l.items) <= bound {
		return 0
	}
	// The oldest go: the newest may still be in caches.
	n := copy(batch[:min(Batch, max(1, bound/2))], l.items)
	l.items = append(l.items[:0], l.items[n:]...)
	return n
}

// Drain takes up to a batch out of the list of a class.
func (h *Heap) Drain(class uint8, batch *[Batch]uint64) int {
	l := &h.lists[class]
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < Batch {
		item, ok := l.pop()
		if !ok {
			break
		}
		batch[n] = item
		n++
	}
	return n
}

// Each calls f for what is in the list of a class: blocks side by side, in units of 64 bytes.
func (h *Heap) Each(class uint8, f func(from, to uint64)) {
	step := h.cfg.Size(class) / unit
	l := &h.lists[class]
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, item := range l.items {
		f(Off64(item), Off64(item)+step)
	}
	for _, s := range l.spans {
		if s.next < s.end {
			f(s.next, s.end)
		}
	}
}

// EachHeld calls f for all that this compute node has: what is in its lists, and runs without a class.
func (h *Heap) EachHeld(f func(from, to uint64)) {
	for class := range h.lists {
		h.Each(uint8(class), f)
	}
	h.postponed.mu.Lock()
	defer h.postponed.mu.Unlock()
	for _, x := range h.postponed.runs {
		f(x.Off/unit, (x.Off+x.Size)/unit)
	}
}

// count returns how many blocks from an offset to another are in the list of a class.
func (h *Heap) count(class uint8, from, to uint64) (n uint64) {
	l := &h.lists[class]
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, item := range l.items {
		if off := Off64(item); off >= from && off < to {
			n++
		}
	}
	for _, s := range l.spans {
		if s.next >= from && s.next < to {
			n += (s.end - s.next) / s.step
		}
	}
	return n
}

// steal takes the blocks from an offset to another out of the list of a class.
func (h *Heap) steal(class uint8, from, to uint64) (got []uint64) {
	l := &h.lists[class]
	l.mu.Lock()
	defer l.mu.Unlock()
	k := 0
	for _, item := range l.items {
		if off := Off64(item); off >= from && off < to {
			got = append(got, item)
		} else {
			l.items[k] = item
			k++
		}
	}
	l.items = l.items[:k]
	k = 0
	for _, s := range l.spans {
		if s.next >= from && s.next < to {
			for ; s.next < s.end; s.next += s.step {
				got = append(got, s.next)
			}
			continue
		}
		l.spans[k] = s
		k++
	}
	l.spans = l.spans[:k]
	return got
}

// pushed returns how many blocks have come into all lists.
func (h *Heap) pushed() (n uint64) {
	for i := range h.lists {
		l := &h.lists[i]
		l.mu.Lock()
		n += l.pushes
		l.mu.Unlock()
	}
	return n
}
