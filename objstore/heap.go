package objstore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/region"
)

// Memory of objects comes in chunks. A client that needs one asks, in this order:
//
//   - the free list of its compute node, shared by its clients, without any remote operation;
//   - the central free list of the class on the memory node: batches of up to 8 chunks;
//   - the region: an extent, divided into chunks of the class;
//   - eviction.
//
// A chunk is free for reuse as soon as the CAS that unlinks it from its slot has taken
// place: who reads objects holds the bucket's lock meanwhile, and the CAS
// took place under the exclusive lock; or he reads without the lock, and finds out (unlocked.go).
//
// Chunks in the lists of a compute node that dies are found by the others (sweep.go).

// A localHeap holds what a compute node has of a memory node's chunks.
type localHeap struct {
	lists [numClasses]localList
	// tooBig is the smallest class for which the region had no room; from then
	// on it is not asked again for such.
	tooBig    atomic.Uint32
	maxExtent uint64
}

// A localList holds free chunks of one class. Its mutex is never held across a
// fabric call.
type localList struct {
	mu     sync.Mutex
	chunks []uint64 // offset / 64
	spans  []span   // pieces of extents that were not handed out yet
	grown  uint     // extents taken
}

// A span is a piece of an extent, in units of 64 bytes.
type span struct{ next, end uint64 }

func (h *localHeap) init(maxExtent uint64) {
	h.maxExtent = maxExtent
	h.tooBig.Store(numClasses)
}

// localBytes bounds what a list holds before it gives a batch back.
const localBytes = 256 << 10

// bound returns how many free chunks of a class a compute node keeps.
func (c class) bound() int {
	return int(min(max(localBytes/c.size(), 2), 8*batchChunk))
}

func (l *localList) pop(c class) (chunk, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.chunks); n > 0 {
		off := l.chunks[n-1]
		l.chunks = l.chunks[:n-1]
		return chunk{off64: off, class: c}, true
	}
	for n := len(l.spans); n > 0; n-- {
		s := &l.spans[n-1]
		if off := s.next; off < s.end {
			s.next += c.size() / chunkUnit
			return chunk{off64: off, class: c}, true
		}
		l.spans = l.spans[:n-1]
	}
	return chunk{}, false
}

// push puts a chunk into the list. If there are too many, it takes a batch out,
// for the central list, and returns its length.
func (l *localList) push(ch chunk, batch *[batchChunk]uint64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	bound := ch.class.bound()
	if l.chunks == nil {
		l.chunks = make([]uint64, 0, bound+2*batchChunk)
	}
	l.chunks = append(l.chunks, ch.off64)
	if len(l.chunks) <= bound {
		return 0
	}
	// The oldest go: the newest may still be in caches.
	n := copy(batch[:min(batchChunk, max(1, bound/2))], l.chunks)
	l.chunks = append(l.chunks[:0], l.chunks[n:]...)
	return n
}

// drain takes up to a batch out.
func (l *localList) drain(c class, batch *[batchChunk]uint64) int {
	n := 0
	for n < batchChunk {
		ch, ok := l.pop(c)
		if !ok {
			break
		}
		batch[n] = ch.off64
		n++
	}
	return n
}

// alloc returns a chunk of class c, or of a larger one if it had to evict. A
// bucket whose lock the client holds is left out from eviction.
func (c *Client) alloc(n *node, want class) (chunk, error) {
	ch, err := c.take(n, want)
	if err == nil {
		c.s.member.Touch(n.part, ch.off64)
	}
	return ch, err
}

func (c *Client) take(n *node, want class) (chunk, error) {
	if ch, ok := n.heap.lists[want].pop(want); ok {
		return ch, nil
	}
	ch, err := c.popCentral(n, want)
	if err != nil || !ch.none() {
		return ch, err
	}
	if uint32(want) < n.heap.tooBig.Load() {
		ch, err = c.takeExtent(n, want)
		if err == nil || !errors.Is(err, region.ErrNoSpace) {
			return ch, err
		}
		n.heap.refuse(want)
	}
	if c.s.cfg.NoEvict {
		return chunk{}, fmt.Errorf("%w: no chunk of %d bytes on %v", ErrNoSpace, want.size(), n.mn)
	}
	return c.evict(n, want)
}

func (h *localHeap) refuse(c class) {
	for {
		old := h.tooBig.Load()
		if uint32(c) >= old || h.tooBig.CompareAndSwap(old, uint32(c)) {
			return
		}
	}
}

// free gives a chunk back. Nobody else may have it.
func (c *Client) free(n *node, ch chunk) {
	if ch.none() {
		return
	}
	c.s.member.Touch(n.part, ch.off64)
	var batch [batchChunk]uint64
	k := n.heap.lists[ch.class].push(ch, &batch)
	if k == 0 {
		return
	}
	if err := c.pushCentral(n, ch.class, batch[:k]); err != nil && !c.keep(n, ch.class, batch[:k], err) {
		// The operation that freed the chunk has succeeded all the same.
		c.stats.Leaked += uint64(k)
	}
}

// keep puts chunks back into the local list if err says that they did not come into the central one.
func (c *Client) keep(n *node, cl class, batch []uint64, err error) bool {
	if !fabric.Refused(err) {
		return false
	}
	l := &n.heap.lists[cl]
	l.mu.Lock()
	l.chunks = append(l.chunks, batch...)
	l.mu.Unlock()
	return true
}

// pushCentral puts a batch in front of the class's central list. If the outcome is not known, nobody gets these chunks as long as this compute
// node lives: the batch may come into the list yet. If it was refused (fabric.Refused), the caller has them still.
func (c *Client) pushCentral(n *node, cl class, batch []uint64) error {
	for _, off := range batch {
		c.s.member.Touch(n.part, off)
	}
	head := n.word(freeHeadsOffset + 8*uint64(cl))
	clear(c.node)
	copy8(c.node, batch)
	guess := freeHead(0)
	for {
		// The first batch of the list is known from the CAS that failed.
		putWord(c.node, 0, guess.stamped())
		c.ops[0] = fabric.Write(n.at(batch[0]), c.node)
		c.ops[1] = fabric.CAS(head, uint64(guess), uint64(guess.next(batch[0])))
		if err := lock.Do(c.l, c.ops[:2]); err != nil {
			if !fabric.Refused(err) {
				for _, off := range batch {
					c.s.member.Lose(n.part, off)
				}
			}
			return fmt.Errorf("objstore: free list at %v: %w", head, err)
		}
		if c.ops[1].Swapped() {
			return nil
		}
		guess = freeHead(c.ops[1].Old)
	}
}

// copy8 writes the chunks of a batch behind the first into its node.
func copy8(b []byte, batch []uint64) {
	for i, off := range batch[1:] {
		putWord(b, i+1, off)
	}
}

// popCentral takes a batch from the class's central list; the zero chunk if it is empty.
// What it reads of the first batch is good if the CAS succeeds: the head's tag
// would have changed otherwise.
func (c *Client) popCentral(n *node, cl class) (chunk, error) {
	head := n.word(freeHeadsOffset + 8*uint64(cl))
	c.ops[0] = fabric.Load(head)
	if err := lock.Do(c.l, c.ops[:1]); err != nil {
		return chunk{}, fmt.Errorf("objstore: free list at %v: %w", head, err)
	}
	for {
		h := freeHead(c.ops[0].Old)
		if h.off64() == 0 {
			return chunk{}, nil
		}
		first := chunk{off64: h.off64(), class: cl}
		if !n.sane(first) {
			return chunk{}, fmt.Errorf("%w: free list at %v: head %#x", ErrCorrupt, head, uint64(h))
		}
		c.ops[0] = fabric.Read(n.at(first.off64), c.node)
		if err := lock.Do(c.l, c.ops[:1]); err != nil {
			return chunk{}, fmt.Errorf("objstore: free list at %v: %w", head, err)
		}
		next := wordAt(c.node, 0) & maxOffset64
		c.ops[0] = fabric.CAS(head, uint64(h), uint64(h.next(next)))
		if err := lock.Do(c.l, c.ops[:1]); err != nil {
			return chunk{}, fmt.Errorf("objstore: free list at %v: %w", head, err)
		}
		if c.ops[0].Swapped() {
			return first, c.keepBatch(n, first, head)
		}
	}
}

// keepBatch puts all but the first chunk of the batch in c.node into the local list.
func (c *Client) keepBatch(n *node, first chunk, head fabric.Addr) error {
	var rest [batchChunk - 1]uint64
	for i := range rest {
		rest[i] = wordAt(c.node, i+1)
	}
	for _, off := range rest {
		if off == 0 {
			break
		}
		ch := chunk{off64: off, class: first.class}
		if off > maxOffset64 || !n.sane(ch) {
			return fmt.Errorf("%w: free list at %v: batch at %#x has %#x", ErrCorrupt, head, first.offset(), off)
		}
		c.free(n, ch)
	}
	return nil
}

// firstExtent is how many chunks a compute node takes of a class at first;
// each time it takes twice as many, up to ExtentBytes.
const firstExtent = 4

// takeExtent takes an extent from the region, as large as there is room for.
func (c *Client) takeExtent(n *node, cl class) (chunk, error) {
	l := &n.heap.lists[cl]
	l.mu.Lock()
	count := uint64(firstExtent) << min(l.grown, 20)
	l.grown++
	l.mu.Unlock()
	count = max(1, min(count, n.heap.maxExtent/cl.size()))
	for ; count > 0; count /= 2 {
		base, err := n.region.Grow(c.port, &n.entry, region.Growth{
			Size: region.ExtentHeader + count*cl.size(), Limit: c.s.geo.limit, End: n.limit, Tag: uint8(cl) + 1,
		})
		if errors.Is(err, region.ErrNoSpace) && count > 1 {
			continue
		}
		if err != nil {
			return chunk{}, fmt.Errorf("objstore: %w", err)
		}
		c.stats.Extents++
		first := base.Add(region.ExtentHeader).Offset() / chunkUnit
		step := cl.size() / chunkUnit
		for i := range count {
			c.s.member.Touch(n.part, first+i*step)
		}
		l.mu.Lock()
		l.spans = append(l.spans, span{next: first + step, end: first + count*step})
		l.mu.Unlock()
		return chunk{off64: first, class: cl}, nil
	}
	panic("objstore: takeExtent of no chunks")
}
