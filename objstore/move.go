package objstore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/memory/slab"
)

// A run of chunks goes to another class when nothing of it is in use. What is in use is evicted, or, in a store that evicts nothing, moved: copied to another
// chunk of its class. The chunks have their objects' keys, which lead to the slots.
//
// A move is one chain under the lock of the object's bucket, if that is free: WRITE of the copy, CAS of the slot, release of the lock. Before the CAS nothing leads to the copy
// yet, after it the old chunk is the mover's: if the mover crashes, the next round finds one of the two. The object stays what it is, with its unique,
// which is written last (unlocked.go).

// evictor returns how the objects in chunks of a run are evicted, so that another class gets its memory.
func (c *Client) evictor(n *handle.Part) slab.Evict {
	return func(cl uint8, off64 []uint64) (got []uint64, err error) {
		list, err := c.objectsIn(n, class(cl), off64)
		for i := range list {
			v := &list[i]
			if err := c.evictOwner(n, v.word); err != nil {
				return got, err
			}
			ch, err := c.unlink(n, v.bucket, v.slot, v.word, expiry{})
			if err != nil || ch.none() {
				return got, err
			}
			c.evicted(n, v.word)
			c.stats.Evictions++
			got = append(got, ch.off64)
		}
		return got, err
	}
}

// mover returns how they are moved.
func (c *Client) mover(n *handle.Part) slab.Evict {
	return func(cl uint8, off64 []uint64) (got []uint64, err error) {
		list, err := c.objectsIn(n, class(cl), off64)
		for i := range list {
			v := &list[i]
			if slices.Contains(got, v.word.chunk().off64) {
				continue // it has become free meanwhile
			}
			to, err := c.spare(n, class(cl), off64, &got)
			if err != nil || to.none() {
				return got, err
			}
			if ok, err := c.move(n, v, to); err != nil || !ok {
				return got, err
			}
			got = append(got, v.word.chunk().off64)
		}
		return got, err
	}
}

// spare returns a free chunk that is none of a run's; the zero chunk: there is none. What is free of the run, of which from has what is in use, it appends to got.
func (c *Client) spare(n *handle.Part, cl class, from []uint64, got *[]uint64) (chunk, error) {
	for {
		off, _, err := n.Heap.Get(&c.work, uint8(cl))
		if err != nil || off == 0 {
			return chunk{}, Stores.Wrap(err)
		}
		c.s.h.Member.Touch(n.Index, off)
		if _, same := slices.BinarySearch(from, off); !same {
			return chunk{off, cl}, nil
		}
		*got = append(*got, off)
	}
}

// move copies an object to another chunk of the same class, under the lock of its bucket if that is free. It returns false if the lock was busy or the slot has
// changed. The chunk is free then; otherwise the old one is the caller's.
func (c *Client) move(n *handle.Part, v *candidate, to chunk) (bool, error) {
	c.table = c.grow(c.table, v.word.readLen())
	b := c.table[:v.word.readLen()]
	c.reads[0] = fabric.Read(n.At(v.word.chunk().off64), b)
	c.req = lock.Request{Lock: v.bucket, Mode: lock.Exclusive, Try: true, Reads: c.reads[:1]}
	if err := c.l.Acquire(&c.hv, &c.req); err != nil {
		c.free(n, to)
		if errors.Is(err, lock.ErrBusy) {
			return false, nil
		}
		return false, fmt.Errorf("objstore: move: %w", err)
	}
	if c.s.geo.opens && v.word.open() { // and the object may have been replaced while it was read
		w, err := c.holdSlot(v.slot, v.word)
		if err == nil {
			c.ops[0] = c.reads[0]
			err = lock.Do(c.l, c.ops[:1])
		}
		if err != nil || w.chunk() != v.word.chunk() || w == 0 {
			c.free(n, to)
			if err = errors.Join(err, c.l.Release(&c.hv, nil)); err != nil {
				err = fmt.Errorf("objstore: move: %w", err)
			}
			return false, err
		}
		v.word = w
	}
	ops, w, at := c.ops[:3], v.word.moved(to, c.s.nextTag(v.word.tag())), n.At(to.off64)
	ops[0], ops[1] = fabric.Write(at.Add(metaOffset), b[metaOffset:]), fabric.Store(at, wordAt(b, 0))
	begun, err := c.mirror(n, v.bucket, nil, ops[:2], slotChange{v.slot, uint64(w)})
	if err != nil {
		if begun {
			c.lose(n, to)
		} else {
			c.free(n, to)
		}
		return false, fmt.Errorf("objstore: move: %w", errors.Join(err, c.l.Release(&c.hv, nil)))
	}
	ops[2] = fabric.CAS(v.slot, uint64(v.word), uint64(w))
	if err := c.l.Release(&c.hv, ops); err != nil {
		c.unsettle(n, v.bucket)
		c.lose(n, to)
		return false, fmt.Errorf("objstore: move: %w", err)
	}
	if !ops[2].Swapped() {
		if begun {
			c.unsettle(n, v.bucket)
			c.lose(n, to)
		} else {
			c.free(n, to)
		}
		return false, nil
	}
	c.stats.Moved++
	c.s.places.put(v.hash, w, c.s.saw(v.bucket, v.slot, wordAt(b, 0)))
	return true, nil
}

// objectsIn returns where the objects in chunks of a class are linked; nil if one of the chunks has none: it is in some list, or in a client's hands.
func (c *Client) objectsIn(n *handle.Part, cl class, off64 []uint64) ([]candidate, error) {
	list := make([]candidate, 0, len(off64))
	for len(off64) > 0 {
		k := min(len(off64), fabric.MaxChain)
		some, err := c.linkedAt(n, cl, off64[:k])
		if err != nil || some == nil {
			return nil, err
		}
		list, off64 = append(list, some...), off64[k:]
	}
	return list, nil
}

// linkedAt is objectsIn for as many chunks as there are operations in a chain. A chunk has the object's key, which leads to its
// bucket, and may be free: then no slot of that bucket leads to it.
func (c *Client) linkedAt(n *handle.Part, cl class, off64 []uint64) ([]candidate, error) {
	size, slotsLen := min(cl.size(), maxObjectSize), uint64(c.s.slotsLen())
	heads := size * uint64(len(off64))
	c.table = c.grow(c.table, heads+slotsLen*uint64(len(off64))+overflowSize)
	for i, off := range off64 {
		c.ops[i] = fabric.Read(n.At(off), c.table[uint64(i)*size:][:size])
	}
	if err := lock.Do(c.l, c.ops[:len(off64)]); err != nil {
		return nil, fmt.Errorf("objstore: objects of a run: %w", err)
	}
	list := make([]candidate, len(off64))
	for i, off := range off64 {
		b := c.table[uint64(i)*size:][:size]
		var h header
		if size <= headerSize || h.decode(b, makeSlot(0, chunk{off, cl}, cl.size(), 0)) != nil {
			return nil, nil
		}
		p := c.s.locate(b[headerSize : headerSize+uint64(h.keyLen)])
		if p.node != n.Index || c.hold.Held && p.bucket == c.hold.Lock {
			return nil, nil
		}
		list[i].bucket, list[i].hash = p.bucket, p.hash
		c.ops[i] = fabric.Read(c.s.slotsAddr(p.bucket), c.table[heads+uint64(i)*slotsLen:][:slotsLen])
	}
	if err := lock.Do(c.l, c.ops[:len(off64)]); err != nil {
		return nil, fmt.Errorf("objstore: buckets of a run: %w", err)
	}
	for i, off := range off64 {
		slots := c.table[heads+uint64(i)*slotsLen:][:slotsLen]
		if err := c.findSlot(n, chunk{off, cl}, slots, &list[i]); err != nil || list[i].word == 0 {
			return nil, err
		}
	}
	return list, nil
}

// findSlot looks for the slot of a chunk's object in the bucket of v, of which slots are the first, and in its overflow blocks. v.word stays 0 if there is none.
func (c *Client) findSlot(n *handle.Part, ch chunk, slots []byte, v *candidate) error {
	block := c.table[len(c.table)-overflowSize:]
	for a, depth := c.s.slotsAddr(v.bucket), 0; ; depth++ {
		last := len(slots)/slotSize - 1
		for i := range last {
			if w := slotWord(wordAt(slots, i)); w != 0 && w.chunk() == ch {
				v.slot, v.word = a.Add(uint64(i)*slotSize), w
				return nil
			}
		}
		next, ok := linkWord(wordAt(slots, last)).chunk()
		if !ok || !sane(n, next) || depth >= maxOverflow {
			return nil
		}
		a, slots = n.At(next.off64), block
		c.ops[0] = fabric.Read(a, slots)
		if err := lock.Do(c.l, c.ops[:1]); err != nil {
			return fmt.Errorf("objstore: bucket at %v: %w", v.bucket, err)
		}
	}
}
