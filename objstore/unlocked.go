package objstore

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Reading without the lock. An object is written once, to a chunk that no slot
// names, before the CAS that publishes it; when it is unlinked, its chunk may be
// written again. Its unique is in the first word of the chunk, and no other object ever has the same; a copy of the object in another chunk (move.go) has.
//
// Let the location cache say that the object of slot word w has the unique u: a client of this compute node has seen it published, so
// all of it was written by then. A get posts one chain
//
//	1. READ the object   2. READ the slots   3. READ the object's first word
//
// and takes the object if 2 found w in a slot, and 3 found u. Why what 1 returned is that object, whole:
//
//   - u was in the first word before the get and at 3, and it never comes back once it is gone: it was there all the time. So
//     no WRITE to the chunk was complete before 3, for that replaces u.
//   - A WRITE that has begun and is not complete is one to a chunk that no slot names. But at 2 a slot named
//     it: no WRITE had begun before 2. (If w is an older word that has come back with the same tag, its object has
//     another unique, and was written whole before 2: then 3 does not find u.)
//   - If the object was moved away and back, its word has another tag, but for one of 64 times. Then too its unique comes into the chunk after all else is
//     there: to be deceived, 1 would have to have begun before that WRITE, and to have read the first word after it.
//   - A chunk may become memory of another class, and what is in its place then is another value, which could have u at that offset. But at 2 a slot
//     named the chunk, so it was one then; and the header that 1 returned has u too, with the key and a check word over it. To be
//     deceived, a get would have to be stretched over the publication of an object with the same slot word (the tag is one of 64) before 2, and
//     over eviction, a change of class and the WRITE of a value with u at this offset between 2 and 3: and 1 would have to return
//     this key's header with u and fit, of an object that is gone.
//
// So the object was in its slot from before the get until 2, and the get takes place at 1, where the word of its
// expiry was read, in one block. If the slot names an object that the location cache does not know, there is a second chain:
//
//	1. READ the first word   2. READ the slot   3. READ the object   4. READ the slot   5. READ the first word
//
// If 2 and 4 found w, and 1, the header and 5 the same unique, then that is the unique of the object that was published at 2; the rest is as above.
//
// Where the memory is the CPU's (fabric.Gatherer), 2 is a READ of one slot: that in which the location cache has seen w. It finds w there, or the get begins anew and
// reads them all: that costs no round trip there.
//
// A bucket without a slot of the key's fingerprint and without overflow blocks does not have the key. The READ of
// the slots may be torn; but a key is in one slot at a time, and comes to another only by way of none.
//
// All else is for reads with the lock: overflow blocks, fingerprints that collide, access times that are to be written, and
// what changed while it was read. Where READs of a chain may be exchanged (fabric.Caps.ReadsInOrder) a get takes the lock, and a batch of gets
// posts each READ of a key when the one before it has completed (multi.go).

// An outcome is that of an optimistic read, one without the lock.
type outcome uint8

const (
	unclear outcome = iota // a read with the lock will tell
	absent                 // the key was not there
	present                // it was: k.h and c.obj are its object
)

// tryRead looks for the key without the lock: an optimistic read.
func (c *Client) tryRead(k *work) (outcome, error) {
	w, seen := c.s.places.get(k.hash)
	if w != 0 && (!holds(k.n, w) || k.want(w) < headerSize) {
		w = 0
	}
	if slot := seen.slot(); w != 0 && slot >= 0 && c.batch.gatherer != nil {
		if s, err := c.tryReadIn(k, slot, w, seen); s != unclear || err != nil {
			return s, err
		}
		w = 0
	}
	ops := c.ops[:1]
	if w != 0 {
		ops = c.ops[:3]
		c.readObject(&k.look, w, &ops[0])
		ops[2].SetLoad(k.n.At(w.chunk().off64))
	}
	ops[len(ops)/2].SetRead(c.s.slotsAddr(k.bucket), c.slots[:c.s.slotsLen()])
	if err := c.doUnlocked(ops); err != nil {
		return unclear, k.unlessReplaced(err)
	}
	slot, found, s := c.matchSlot(&k.look, c.slots)
	switch {
	case s != present:
		return s, nil
	case found != w:
		return c.tryReadAt(k, slot, found)
	case !seen.of(ops[2].Old):
		return unclear, nil
	}
	c.stats.CacheHits++
	return c.accept(&k.look, slot, w, ops[2].Old), nil
}

// tryReadIn is tryRead of which the chain reads a slot in the place of all: that in which the location cache has seen w.
func (c *Client) tryReadIn(k *work, slot int, w slotWord, seen sighting) (outcome, error) {
	ops, a := c.ops[:3], c.s.slotsAddr(k.bucket).Add(uint64(slot)*slotSize)
	c.readObject(&k.look, w, &ops[0])
	ops[1].SetLoad(a)
	ops[2].SetLoad(k.n.At(w.chunk().off64))
	if err := c.doUnlocked(ops); err != nil {
		return unclear, k.unlessReplaced(err)
	}
	if slotWord(ops[1].Old) != w || !seen.of(ops[2].Old) {
		return unclear, nil
	}
	c.stats.CacheHits++
	return c.accept(&k.look, a, w, ops[2].Old), nil
}

// matchSlot looks for the key's fingerprint in the slots that have been read. It is present if it
// is in one slot only, which matchSlot returns, and absent if it is in none and there are no other slots.
func (c *Client) matchSlot(k *look, slots []byte) (slot fabric.Addr, w slotWord, s outcome) {
	last, fp := c.s.geo.slots, k.fp
	for i, all := 0, slots[:last*slotSize]; len(all) >= slotSize; i, all = i+1, all[slotSize:] {
		v := slotWord(wordAt(all, 0))
		if v.fp() != fp || v == 0 {
			continue
		}
		if w != 0 {
			return 0, 0, unclear
		}
		slot, w = c.s.slotsAddr(k.bucket).Add(uint64(i)*slotSize), v
	}
	switch {
	case w != 0:
		return slot, w, present
	case wordAt(slots, last) == 0:
		return 0, 0, absent
	}
	return 0, 0, unclear
}

// tryReadAt reads the object of a slot of which the location cache did not know it.
func (c *Client) tryReadAt(k *work, slot fabric.Addr, w slotWord) (outcome, error) {
	if !holds(k.n, w) || k.want(w) < headerSize {
		return unclear, nil
	}
	c.stats.CacheMisses++
	first := k.n.At(w.chunk().off64)
	ops := c.ops[:5]
	ops[0].SetLoad(first)
	ops[1].SetLoad(slot)
	c.readObject(&k.look, w, &ops[2])
	ops[3], ops[4] = ops[1], ops[0]
	if err := c.doUnlocked(ops); err != nil {
		return unclear, k.unlessReplaced(err)
	}
	if slotWord(ops[1].Old) != w || slotWord(ops[3].Old) != w || ops[0].Old != ops[4].Old {
		return unclear, nil
	}
	return c.note(&k.look, slot, w, ops[0].Old), nil
}

// accept validates an object that was read whole, and must have a unique.
func (c *Client) accept(k *look, slot fabric.Addr, w slotWord, unique uint64) outcome {
	if c.match(k, w) != nil || !k.found || k.h.unique != unique {
		return unclear // damage is reported under the lock
	}
	k.slot = slot
	return present
}

// note is accept of an object that the location cache did not know.
func (c *Client) note(k *look, slot fabric.Addr, w slotWord, unique uint64) outcome {
	s := c.accept(k, slot, w, unique)
	if s == present {
		c.s.places.put(k.hash, w, c.s.saw(k.bucket, slot, unique))
	}
	return s
}

// doUnlocked executes a chain of READs without a lock.
func (c *Client) doUnlocked(ops []fabric.Op) error {
	if err := lock.Do(c.l, ops); err != nil {
		return fmt.Errorf("objstore: %w", err)
	}
	return nil
}

// getUnlocked is Get without the lock; done is false if that did not do.
func (c *Client) getUnlocked(k *work) (it Item, done bool, err error) {
	s, err := c.tryRead(k)
	if err == nil && s == unclear && c.s.geo.opens { // a holder of the lock would keep others from setting it without
		*k = work{look: k.afresh()}
		s, err = c.tryRead(k)
	}
	switch {
	case err != nil:
		return Item{}, true, err
	case s == unclear:
		return Item{}, false, nil
	case s == absent:
		return Item{}, true, ErrNotFound
	}
	now := c.session.Since // the clock costs as much as a tenth of a get by the own CPU
	if now == 0 || c.nowS != 0 || k.h.expiry.second != 0 {
		now = c.Clock()
	}
	switch {
	case k.h.expired(now), c.stale(&k.look, uint32(now/fabric.Second)):
		return Item{}, false, nil // another client may have given it more time since
	}
	return c.item(&k.look, uint32(now/fabric.Second)), true, nil
}

// miss returns ErrNotFound if a look without the lock finds that the key is not there: for operations that do
// nothing then. A client that knows where the object was does not look.
func (c *Client) miss(k *work) error {
	if w, _ := c.s.places.get(k.hash); w != 0 || c.s.locked {
		return nil
	}
	c.ops[0] = fabric.Read(c.s.slotsAddr(k.bucket), c.slots[:c.s.slotsLen()])
	if err := c.doUnlocked(c.ops[:1]); err != nil {
		return k.unlessReplaced(err)
	}
	_, w, s := c.matchSlot(&k.look, c.slots)
	if s == absent {
		return ErrNotFound
	}
	k.hint = w // where the lock will find it, probably
	return nil
}
