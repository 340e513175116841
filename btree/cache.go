package btree

import (
	"bytes"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/google/btree"
)

// An inner is a copy of an inner node, for searching. It never changes.
type inner struct {
	self  ptr
	level uint8
	low   []byte
	high  fence
	head  uint64 // prefix of low

	// Separators in order: their prefixes, where they begin in arena, their children.
	heads    []uint64
	offs     []uint32
	arena    []byte
	children []ptr

	bytes int
	used  atomic.Bool // since the clock's hand came by
}

// prefix returns the first 8 bytes of a key, as a number that sorts like them.
func prefix(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}

const innerBytes = 200 // of an inner without separators

// newInner copies an inner node. items are its separators, in order.
func newInner(n *node, items []item) *inner {
	size := len(n.low) + len(n.high.key)
	for i := range items {
		size += len(items[i].key)
	}
	in := &inner{
		self: n.self, level: n.level, head: prefix(n.low),
		heads: make([]uint64, len(items)), offs: make([]uint32, len(items)+1), children: make([]ptr, len(items)),
		arena: make([]byte, 0, size), bytes: innerBytes + size + 20*len(items),
	}
	for i := range items {
		in.heads[i] = prefix(items[i].key)
		in.arena = append(in.arena, items[i].key...)
		in.offs[i+1] = uint32(len(in.arena))
		in.children[i] = items[i].child()
	}
	k := len(in.arena)
	in.arena = append(append(in.arena, n.low...), n.high.key...)
	in.low = in.arena[k : k+len(n.low) : k+len(n.low)]
	in.high = fence{key: in.arena[k+len(n.low):], some: n.high.some}
	in.used.Store(true)
	return in
}

func (in *inner) sep(i int) []byte { return in.arena[in.offs[i]:in.offs[i+1]] }

// pick returns the index of the last separator that is not above the key; strict: that is below it.
// It is -1 if there is none.
func (in *inner) pick(key []byte, strict bool) int {
	h := prefix(key)
	lo, hi := 0, len(in.heads)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		below := in.heads[mid] < h
		if in.heads[mid] == h {
			c := bytes.Compare(in.sep(mid), key)
			below = c < 0 || c == 0 && !strict
		}
		if below {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1
}

// A spot is an inner node in the cache. The prefix beside it saves most comparisons from looking at the node.
type spot struct {
	head uint64
	in   *inner
}

func (in *inner) spot() spot { return spot{in.head, in} }

func lessSpot(a, b spot) bool {
	if a.head != b.head {
		return a.head < b.head
	}
	return bytes.Compare(a.in.low, b.in.low) < 0
}

// A cache is the index cache of a compute node: copies of inner nodes, by level and
// low fence. What it says may be old; the node that it leads to tells. Its mutex
// is never held across a fabric call.
type cache struct {
	mu     sync.RWMutex
	levels []*btree.BTreeG[spot] // of level 1 and up
	limit  int
	bytes  int
	hand   *inner // of the clock
	counts CacheStats
}

// CacheStats counts what the index cache of a compute node did.
type CacheStats struct {
	Nodes, Bytes int    // that are there
	Added        uint64 // copies of inner nodes that were read
	Dropped      uint64 // found old
	Evicted      uint64 // for others
}

const cacheDegree = 16

func (c *cache) init(limit int) { c.limit = limit }

func (c *cache) stats() CacheStats {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s := c.counts
	s.Bytes = c.bytes
	for _, t := range c.levels {
		s.Nodes += t.Len()
	}
	return s
}

// A finder looks inner nodes up for one client. It exists so that nothing is allocated.
type finder struct {
	pivot  inner
	strict bool
	found  *inner
	visit  func(spot) bool
}

func (f *finder) init() {
	f.visit = func(x spot) bool {
		if f.strict && bytes.Equal(x.in.low, f.pivot.low) {
			return true
		}
		f.found = x.in
		return false
	}
}

// find returns the inner node of the lowest level, from the given one up, that covers the key.
func (c *cache) find(f *finder, level uint8, key []byte, strict bool) *inner {
	f.pivot.low, f.pivot.head, f.strict = key, prefix(key), strict
	c.mu.RLock()
	defer c.mu.RUnlock()
	for l := int(level) - 1; l < len(c.levels); l++ {
		f.found = nil
		c.levels[l].DescendLessOrEqual(f.pivot.spot(), f.visit)
		if in := f.found; in != nil && !in.high.above(key, strict) {
			if !in.used.Load() {
				in.used.Store(true)
			}
			return in
		}
	}
	return nil
}

// add puts a copy in, in place of an older one of the same node.
func (c *cache) add(in *inner) {
	if c.limit < 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.levels) < int(in.level) {
		c.levels = append(c.levels, btree.NewG(cacheDegree, lessSpot))
	}
	c.counts.Added++
	c.bytes += in.bytes
	if old, ok := c.levels[in.level-1].ReplaceOrInsert(in.spot()); ok {
		c.bytes -= old.in.bytes
	}
	if c.bytes > c.limit {
		c.evict(in)
	}
}

// evict makes room by the clock algorithm: copies that were not used since the hand came by last go,
// of the lowest level that has any. keep goes last.
func (c *cache) evict(keep *inner) {
	for _, t := range c.levels {
		for rounds := 0; c.bytes > c.limit && t.Len() > 0 && rounds < 3; {
			var victim *inner
			visit := func(x spot) bool {
				if x.in != keep && !x.in.used.Swap(false) {
					victim = x.in
					return false
				}
				return true
			}
			if c.hand != nil {
				t.AscendGreaterOrEqual(c.hand.spot(), visit)
			} else {
				t.Ascend(visit)
			}
			if victim == nil {
				c.hand, rounds = nil, rounds+1
				continue
			}
			t.Delete(victim.spot())
			c.bytes -= victim.bytes
			c.counts.Evicted++
			c.hand = victim
		}
	}
	if c.bytes > c.limit {
		if _, ok := c.levels[keep.level-1].Delete(keep.spot()); ok {
			c.bytes -= keep.bytes
		}
	}
}

// drop takes a copy out that turned out to be old, unless it has been replaced.
func (c *cache) drop(in *inner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if int(in.level) > len(c.levels) {
		return
	}
	t := c.levels[in.level-1]
	if there, ok := t.Get(in.spot()); ok && there.in == in {
		t.Delete(in.spot())
		c.bytes -= in.bytes
		c.counts.Dropped++
	}
}
