package objstore

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
)

// Eviction is sampled LRU. One chain READs some windows of buckets that lie side
// by side, at random places and without locks; one more takes the words of expiry and access
// of up to 16 of their objects; an expired object or else the one with the
// oldest access time is unlinked under the lock of its bucket, if that is
// free. Then others, larger windows each time, until there is a victim or the rounds are over.
//
// There must be several windows: with one, each place would lose as many
// objects as another however few remain, and some would lose even those in use.
const (
	evictRounds    = 16
	sampleWindows  = 4
	firstWindow    = 2 // buckets
	maxSampleBytes = 64 << 10
	candidates     = fabric.MaxChain
	evictTries     = 3 // victims tried of one sample
)

// A candidate is an object that could be evicted, or moved.
type candidate struct {
	bucket fabric.Addr
	slot   fabric.Addr
	word   slotWord
	hash   uint64 // of its key, if that was read
}

// evict makes a chunk of at least the wanted class, and at most another, free by taking an object's, and
// returns the chunk; none if it finds no such object in so many rounds. It never waits for a lock: the client may hold one.
func (c *Client) evict(n *handle.Part, want, limit class, rounds int) (chunk, error) {
	if want == overflowClass {
		return chunk{}, nil // no object has such
	}
	g := &c.s.geo
	most := min(g.buckets, max(1, maxSampleBytes/sampleWindows/g.bucketSize))
	size := min(firstWindow, most)
	for round := range rounds {
		if round%2 == 1 {
			size = min(2*size, most)
		}
		var cand [candidates]candidate
		k, err := c.sample(n, size, want, min(limit, objectClasses-1), &cand)
		if err != nil {
			return chunk{}, err
		}
		ch, err := c.evictOldest(n, cand[:k])
		if err != nil || !ch.none() {
			return ch, err
		}
	}
	return chunk{}, nil
}

// nearClasses: chunks of as many classes above the wanted one are as welcome
// as of the class itself. nearRounds is how often such are looked for before memory is taken from another class.
const (
	nearClasses = 2
	nearRounds  = 4
)

// sample reads windows of so many buckets and collects objects in chunks of at
// least the wanted class, and at most another.
func (c *Client) sample(n *handle.Part, buckets uint64, want, limit class, cand *[candidates]candidate) (int, error) {
	g := &c.s.geo
	bytes := buckets * g.bucketSize
	c.table = c.grow(c.table, sampleWindows*bytes)
	s := sampler{c: c, n: n, want: want, limit: limit, cand: cand}
	var windows [sampleWindows]fabric.Addr
	for i := range windows {
		first := c.port.Rand() % (g.buckets - buckets + 1)
		windows[i] = n.Base.Add(tableOffset + first*g.bucketSize)
		c.ops[i] = fabric.Read(windows[i], c.table[uint64(i)*bytes:][:bytes])
	}
	if err := lock.Do(c.l, c.ops[:sampleWindows]); err != nil {
		return 0, fmt.Errorf("objstore: sample of buckets on %v: %w", n.MN, err)
	}
	for i, w := range windows {
		s.collect(w, c.table[uint64(i)*bytes:][:bytes])
	}
	return int(min(s.seen, candidates)), nil
}

// A sampler collects objects in chunks of class want to limit. If there are more
// than fit, each has the same chance.
type sampler struct {
	c           *Client
	n           *handle.Part
	want, limit class
	cand        *[candidates]candidate
	seen        uint64
}

// collect collects from the buckets in b, which begin at a.
func (s *sampler) collect(a fabric.Addr, b []byte) {
	g := &s.c.s.geo
	for ; len(b) > 0; a, b = a.Add(g.bucketSize), b[g.bucketSize:] {
		if s.c.hold.Held && a == s.c.hold.Lock {
			continue
		}
		for j := range g.slots {
			w := slotWord(wordAt(b[g.lockSize:], j))
			if w == 0 || w.class() < s.want || w.class() > s.limit || !holds(s.n, w) {
				continue
			}
			i := s.seen
			s.seen++
			if i >= candidates {
				i = s.c.port.Rand() % s.seen
			}
			if i < candidates {
				s.cand[i] = candidate{bucket: a, slot: s.c.s.slotsAddr(a).Add(uint64(j) * slotSize), word: w}
			}
		}
	}
}

// evictOldest unlinks an expired candidate or the one with the oldest access time.
func (c *Client) evictOldest(n *handle.Part, cand []candidate) (chunk, error) {
	if len(cand) == 0 {
		return chunk{}, nil
	}
	for i := range cand {
		c.ops[i] = fabric.Load(n.At(cand[i].word.chunk().off64).Add(metaOffset))
	}
	if err := lock.Do(c.l, c.ops[:len(cand)]); err != nil {
		return chunk{}, fmt.Errorf("objstore: access times: %w", err)
	}
	var meta [candidates]header
	for i := range cand {
		meta[i].expiry, meta[i].access = fromMeta(c.ops[i].Old)
	}
	now := c.Clock()
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
		var expires expiry // an expired object that is given more time now is no victim
		if meta[best].expired(now) {
			expires = meta[best].expiry
		}
		err := c.evictOwner(n, v.word)
		if err != nil {
			return chunk{}, err
		}
		ch, err := c.unlink(n, v.bucket, v.slot, v.word, expires)
		if err != nil {
			return chunk{}, err
		}
		if !ch.none() {
			c.evicted(n, v.word)
			if expires != (expiry{}) {
				c.stats.Expired++
			} else {
				c.stats.Evictions++
			}
			return ch, nil
		}
	}
	return chunk{}, nil
}

func evictBefore(a, b *header, now fabric.Time) bool {
	if ea, eb := a.expired(now), b.expired(now); ea != eb {
		return ea
	}
	s := uint32(now / fabric.Second)
	return int32(a.access.at(s)-b.access.at(s)) < 0
}

// unlink takes the object of word out of its slot, under the lock of the bucket if that is
// free, and returns its chunk; the zero chunk if the lock was busy or the slot
// has changed. expires, if not zero, is when the object expired: then one that was given another time
// since stays. (The word comes back with one in 64 of the next objects in its chunk: what then expired at the same time goes as well.)
func (c *Client) unlink(n *handle.Part, bucket, slot fabric.Addr, word slotWord, expires expiry) (chunk, error) {
	reads := c.reads[:1]
	reads[0] = fabric.Load(slot)
	if expires != (expiry{}) {
		reads = c.reads[:2]
		first := fabric.At(bucket.MN(), word.chunk().offset()).In(bucket.Generation())
		reads[1] = fabric.Load(first.Add(metaOffset))
	}
	c.req = lock.Request{Lock: bucket, Mode: lock.Exclusive, Try: true, Reads: reads}
	if err := c.l.Acquire(&c.hv, &c.req); err != nil {
		if errors.Is(err, lock.ErrBusy) {
			return chunk{}, nil
		}
		return chunk{}, fmt.Errorf("objstore: evict: %w", err)
	}
	changed := slotWord(reads[0].Old) != word
	if expires != (expiry{}) && !changed {
		if c.s.geo.opens && word.open() { // and another object may come to the chunk
			w, err := c.holdSlot(slot, word)
			if err == nil {
				err = lock.Do(c.l, reads[1:])
			}
			if err != nil {
				return chunk{}, fmt.Errorf("objstore: evict: %w", errors.Join(err, c.l.Release(&c.hv, nil)))
			}
			changed, word = w.chunk() != word.chunk() || w == 0, w
		}
		now, _ := fromMeta(reads[1].Old)
		changed = changed || now != expires
	}
	ops := c.ops[:1]
	if changed {
		ops = nil
	} else {
		if begun, err := c.mirror(n, bucket, nil, nil, slotChange{slot, 0}); err != nil {
			if begun {
				c.stats.Leaked++
			}
			return chunk{}, fmt.Errorf("objstore: evict: %w", errors.Join(err, c.l.Release(&c.hv, nil)))
		}
		ops[0] = fabric.CAS(slot, uint64(word), 0)
	}
	if err := c.l.Release(&c.hv, ops); err != nil {
		if !changed {
			c.unsettle(n, bucket)
			c.stats.Leaked++
		}
		return chunk{}, fmt.Errorf("objstore: evict: %w", err)
	}
	if changed {
		return chunk{}, nil
	}
	if !ops[0].Swapped() {
		c.unsettle(n, bucket)
		return chunk{}, nil
	}
	return word.chunk(), nil
}
