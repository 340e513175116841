package objstore

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Eviction is sampled LRU. One READ takes some buckets that lie side by
// side (keys are hashed, so neighbours are a sample like any), without
// locks; one chain takes the words of expiry and access of up to 16 of their
// objects; an expired object or else the one with the oldest access time is unlinked
// under the lock of its bucket, if that is free. Then the next buckets, more
// of them each time, until there is a victim or the rounds are over.
const (
	evictRounds    = 16
	sampleBuckets  = 8
	maxSampleBytes = 64 << 10
	candidates     = fabric.MaxChain
	evictTries     = 3 // victims tried of one sample
)

// A candidate is an object that could be evicted.
type candidate struct {
	bucket fabric.Addr
	slot   fabric.Addr
	word   slotWord
}

// evict makes a chunk of at least the wanted class free by taking an object's, and
// returns the chunk. It never waits for a lock: the client may hold one.
func (c *Client) evict(n *node, want class) (chunk, error) {
	size := c.s.geo.bucketSize
	most := min(c.s.geo.buckets, max(1, maxSampleBytes/size))
	count := min(sampleBuckets, most)
	next := c.port.Rand() % c.s.geo.buckets
	for round := range evictRounds {
		if round%2 == 1 {
			count = min(2*count, most)
		}
		first := min(next, c.s.geo.buckets-count)
		next = (next + count) % c.s.geo.buckets
		var cand [candidates]candidate
		k, err := c.sample(n, first, count, want, &cand)
		if err != nil {
			return chunk{}, err
		}
		ch, err := c.evictOldest(n, cand[:k])
		if err != nil || !ch.none() {
			return ch, err
		}
	}
	return chunk{}, fmt.Errorf("%w: nothing on %v to evict for %d bytes", ErrNoSpace, n.mn, want.size())
}

// nearClasses: chunks of as many classes above the wanted one are as welcome
// as of the class itself. Larger ones would be wasted.
const nearClasses = 4

// sample reads count buckets from first on and collects objects in chunks of
// at least the wanted class: near ones if there are any.
func (c *Client) sample(n *node, first, count uint64, want class, cand *[candidates]candidate) (int, error) {
	g := &c.s.geo
	base := n.base.Add(tableOffset + first*g.bucketSize)
	c.table = c.grow(c.table, count*g.bucketSize)
	c.ops[0] = fabric.Read(base, c.table[:count*g.bucketSize])
	if err := c.port.Do(c.ops[:1]); err != nil {
		return 0, fmt.Errorf("objstore: buckets at %v: %w", base, err)
	}
	limit := want + nearClasses
	for {
		k := c.collect(n, base, count, want, limit, cand)
		if k > 0 || limit >= numClasses-1 {
			return k, nil
		}
		limit = numClasses - 1
	}
}

// collect collects objects in chunks of class want to limit from the buckets in
// c.table. If there are more than fit, each has the same chance.
func (c *Client) collect(n *node, base fabric.Addr, count uint64, want, limit class, cand *[candidates]candidate) int {
	g := &c.s.geo
	seen := uint64(0)
	for i := range count {
		bucket := base.Add(i * g.bucketSize)
		if c.hold.Held && bucket == c.hold.Lock {
			continue
		}
		b := c.table[i*g.bucketSize+g.lockSize:]
		for j := range g.slots {
			w := slotWord(wordAt(b, j))
			if w == 0 || w.class() < want || w.class() > limit || !n.sane(w.chunk()) {
				continue
			}
			seen++
			at := seen - 1
			if seen > candidates {
				at = c.port.Rand() % seen
			}
			if at < candidates {
				cand[at] = candidate{bucket, c.s.slotsAddr(bucket).Add(uint64(j) * slotSize), w}
			}
		}
	}
	return int(min(seen, candidates))
}

// evictOldest unlinks an expired candidate or the one with the oldest access time.
func (c *Client) evictOldest(n *node, cand []candidate) (chunk, error) {
	if len(cand) == 0 {
		return chunk{}, nil
	}
	for i := range cand {
		c.ops[i] = fabric.Load(at(n.mn, cand[i].word.chunk().off64).Add(metaOffset))
	}
	if err := c.port.Do(c.ops[:len(cand)]); err != nil {
		return chunk{}, fmt.Errorf("objstore: access times: %w", err)
	}
	var meta [candidates]header
	for i := range cand {
		old := c.ops[i].Old
		meta[i] = header{access: uint32(old), expiry: uint32(old >> 32)}
	}
	now := c.now()
	var tried [candidates]bool
	for range min(evictTries, len(cand)) {
		best := -1
		for i := range cand {
			if !tried[i] && (best < 0 || evictBefore(&meta[i], &meta[best], now)) {
				best = i
			}
		}
		tried[best] = true
		v := &cand[best]
		ch, err := c.unlink(v.bucket, v.slot, v.word)
		if err != nil {
			return chunk{}, err
		}
		if !ch.none() {
			if meta[best].expired(now) {
				c.stats.Expired++
			} else {
				c.stats.Evictions++
			}
			return ch, nil
		}
	}
	return chunk{}, nil
}

func evictBefore(a, b *header, now uint32) bool {
	if ea, eb := a.expired(now), b.expired(now); ea != eb {
		return ea
	}
	return int32(a.access-b.access) < 0
}

// unlink takes the object of word out of its slot, under the lock of the bucket if that is
// free, and returns its chunk; the zero chunk if the lock was busy or the slot
// has changed.
func (c *Client) unlink(bucket, slot fabric.Addr, word slotWord) (chunk, error) {
	c.reads[0] = fabric.Load(slot)
	c.req = lock.Request{Lock: bucket, Mode: lock.Exclusive, Try: true, Reads: c.reads[:1]}
	if err := c.l.Acquire(&c.hv, &c.req); err != nil {
		if errors.Is(err, lock.ErrBusy) {
			return chunk{}, nil
		}
		return chunk{}, fmt.Errorf("objstore: evict: %w", err)
	}
	changed := slotWord(c.reads[0].Old) != word
	ops := c.ops[:1]
	if changed {
		ops = nil
	} else {
		ops[0] = fabric.CAS(slot, uint64(word), 0)
	}
	if err := c.l.Release(&c.hv, ops); err != nil {
		if !changed {
			c.stats.Leaked++
		}
		return chunk{}, fmt.Errorf("objstore: evict: %w", err)
	}
	if changed || !ops[0].Swapped() {
		return chunk{}, nil
	}
	return word.chunk(), nil
}
