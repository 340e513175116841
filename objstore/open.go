package objstore

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/memory/reclaim"
)

// Sets that need no lock, in a store that was made with Config.OpenSlots. A slot with an object is new, held or open, by the tag of its word:
//
//	tag      state   who may change the slot
//	 0..15   new     the holder of the lock; the key has come to the slot in the epoch of bits 1 to 3, modulo 8
//	16..31   held    the holder of the lock
//	32..63   open    the holder of the lock may empty it, or make it held; any client that sets its key may put another open word
//
// A key comes to a slot under the lock, as new. A set under the lock that finds it there three epochs later makes the slot open: it publishes its object with an open word. What
// relies on a slot that does not change, under the lock, makes it held before, by a CAS: from then on all is as in a store without open slots. Nothing
// but a set publishes an open word.
//
// A set that has found its key in an open slot writes its object and publishes it in one chain, WRITE and CAS, without the lock:
//
//   - The slot is the key's as long as it is open, until the operation ends. Another key would have to come to it, as new, in epoch e, and the slot be opened in e+2 or later (the
//     word says e-1 at the least, since the epoch of whoever wrote it may be one behind; three more are e+2). But this operation began
//     in epoch e or before, so until it ends the epoch is e+1 at most (reclaim.Grace).
//   - So it does not matter whether the CAS replaces the object that was found, or a later one in the same chunk with the same word: a set replaces any.
//   - If the CAS finds another open word, another set has published that since this one found its own: this one took place right before it. It is done, and
//     its object is free again. So no set tries again, however many there are.
//   - If it finds anything else the lock decides.
//
// The chunk of the object that was replaced is the setter's, as that of one that is replaced under the lock. A crash before the CAS leaves the old object, after it the new one, and a chunk
// that a round finds. If the outcome of the CAS is not known both chunks are lost (Client.lose); and it takes effect, if at all, before this compute node acknowledges the next epoch.
//
// Gets are as ever: unlocked.go asks for no lock of the writer, but that an object is written before it is published, and has a unique of its own.
const (
	tagHeld = 16
	tagOpen = 32
	// opensAfter is how many epochs after a key has come to a slot that is opened: at the least, and, since epochs are known modulo 8 and that of another client may be one
	// behind, at the most.
	opensAfter  = 3
	opensBefore = 7
)

// open reports whether a word is that of an open slot, if slots open.
func (w slotWord) open() bool { return w.tag() >= tagOpen }

// newTag returns the tag of a key that comes to a slot.
func newTag(epoch, unique uint64) uint8 { return uint8(epoch&7<<1 | unique&1) }

// heldTag returns the tag of a held slot, after another tag.
func heldTag(tag uint8) uint8 { return tagHeld | (tag+1)&(tagHeld-1) }

// openTag returns the tag of an open slot, after another tag.
func openTag(tag uint8) uint8 { return tagOpen | (tag+1)&(tagOpen-1) }

// nextTag returns the tag after another one in a slot that stays what it is, or, if it was open, is held.
func (s *Store) nextTag(tag uint8) uint8 {
	switch {
	case !s.geo.opens:
		return tag + 1
	case tag < tagHeld:
		return tag ^ 1
	}
	return heldTag(tag)
}

// opens reports whether slots of a part may be opened, or be changed without the lock by this compute node.
func (c *Client) opens(n *handle.Part) bool {
	return c.s.geo.opens && !c.s.locked && !n.Region.Replicated() && !c.s.h.Survivors
}

// tagFor returns the tag for the object that is to be published under the lock in a slot that is not open. set: it is published by a set.
func (c *Client) tagFor(k *work, unique uint64, set bool) (uint8, error) {
	if !c.s.geo.opens {
		if k.found {
			return k.word.tag() + 1, nil
		}
		return uint8(unique), nil
	}
	epoch, err := c.epoch(k)
	if err != nil {
		return 0, err
	}
	k.noted = epoch
	if !k.found {
		return newTag(epoch, unique), nil
	}
	tag := k.word.tag()
	age := (epoch - uint64(tag>>1)) & 7
	young, opens := tag < tagHeld && (age < opensAfter || age >= opensBefore), set && k.depth == 0 && c.opens(k.n)
	if young && opens {
		c.s.graces[k.node].Await(epoch + (opensAfter-age)&7)
	}
	switch {
	case young:
		return c.s.nextTag(tag), nil
	case opens:
		return openTag(tag), nil
	}
	return heldTag(tag), nil
}

// holdKey makes the open slot at a held, of which w was read, and returns its word, with its object in c.obj: the lock is held, so neither changes now. A
// lock that is held shared lets others do the same.
func (c *Client) holdKey(k *work, a fabric.Addr, w slotWord) (slotWord, error) {
	for w.open() {
		if !holds(k.n, w) || w.fp() != k.fp {
			return 0, fmt.Errorf("%w: %v", ErrCorrupt, w)
		}
		held := w.tagged(heldTag(w.tag()))
		ops := c.ops[:2]
		ops[0] = fabric.CAS(a, uint64(w), uint64(held))
		c.readObject(&k.look, w, &ops[1])
		k.loaded = 0
		if err := lock.Do(c.l, ops); err != nil {
			return 0, fmt.Errorf("objstore: slot: %w", err)
		}
		if ops[0].Swapped() {
			k.loaded, w = held, held
		} else {
			w = slotWord(ops[0].Old)
		}
	}
	if w == 0 || w.fp() != k.fp {
		return 0, fmt.Errorf("objstore: %w: open slot at %v is %v", lock.ErrLost, a, w)
	}
	return w, nil
}

// holdSlot is holdKey for an object of whatever key, of which nothing is read. It returns 0 if the slot has changed otherwise.
func (c *Client) holdSlot(a fabric.Addr, w slotWord) (slotWord, error) {
	for w.open() {
		held := w.tagged(heldTag(w.tag()))
		c.ops[0] = fabric.CAS(a, uint64(w), uint64(held))
		if err := lock.Do(c.l, c.ops[:1]); err != nil {
			return 0, fmt.Errorf("objstore: slot: %w", err)
		}
		if c.ops[0].Swapped() {
			return held, nil
		}
		w = slotWord(c.ops[0].Old)
	}
	return w, nil
}

// An openSlot is an open slot that a key was found in, after its compute node had come to an epoch: it is the key's as long as it is open, for operations of that epoch.
type openSlot struct {
	key   string
	slot  fabric.Addr
	epoch uint64
	word  atomic.Uint64 // that the slot had, perhaps
}

// openSlots are those that a compute node knows, by hash.
type openSlots [1 << 12]atomic.Pointer[openSlot]

func (s *openSlots) at(hash uint64) *atomic.Pointer[openSlot] {
	return &s[hash>>locationShift%uint64(len(s))]
}

func (k *work) isAt(x *openSlot, epoch uint64) bool {
	return x != nil && x.epoch == epoch && x.key == string(k.key) // the key says which part and bucket
}

func (c *Client) epoch(k *work) (uint64, error) {
	e, err := c.s.graces[k.node].Epoch(func(ops []fabric.Op) error { return lock.Do(c.l, ops) })
	if err != nil {
		return 0, fmt.Errorf("objstore: %w", err)
	}
	return e, nil
}

// noteOpen notes that the key's slot was opened with w, after k.noted had been looked up: one of the epoch that there is by now may be too late, for the slot may
// have become another key's since.
func (c *Client) noteOpen(k *work, w slotWord) {
	x := &openSlot{key: string(k.key), slot: k.slot, epoch: k.noted}
	x.word.Store(uint64(w))
	c.s.spots.at(k.hash).Store(x)
}

// openSlotOf returns the open slot that the key is in; nil if it is not known to be in one.
func (c *Client) openSlotOf(k *work) (*openSlot, error) {
	// Before the key is looked for: what happens to the slot from then on happens in this epoch or the next.
	epoch, err := c.epoch(k)
	if err != nil {
		return nil, err
	}
	at := c.s.spots.at(k.hash)
	x := at.Load()
	if k.isAt(x, epoch) {
		return x, nil
	}
	s := unclear
	if k.openSlot {
		s, err = c.tryReadAt(k, k.slot, k.word)
	} else if w, _ := c.s.places.get(k.hash); w != 0 && w.open() {
		s, err = c.tryRead(k)
	}
	if err != nil || s != present || !k.word.open() {
		return nil, err
	}
	x = &openSlot{key: string(k.key), slot: k.slot, epoch: epoch}
	x.word.Store(uint64(k.word))
	at.Store(x)
	return x, nil
}

// setOpen stores the object in b and k.tail in chunk ch without the lock, if the key is in an open slot. If not, and without an error, nothing has changed, and the chunk is the caller's.
func (c *Client) setOpen(k *work, b []byte, o Options, ch chunk) (done bool, err error) {
	x, err := c.openSlotOf(k)
	if err != nil {
		c.free(k.n, ch)
	}
	if x == nil {
		return false, err
	}
	at := c.s.spots.at(k.hash)
	h := header{access: access{second: c.now()}, expiry: c.expiryOf(o), flags: o.Flags, valueLen: uint32(k.size(b)) - headerSize - uint32(len(k.key))}
	n, err := c.encodeObject(k, &h, ch, b)
	if err != nil {
		c.free(k.n, ch)
		return false, err
	}
	was := slotWord(x.word.Load())
	size := k.size(b)
	w := makeSlot(k.fp, ch, size, openTag(was.tag()))
	c.before[n] = fabric.CAS(x.slot, uint64(was), uint64(w))
	ops, cas := c.before[:n+1], &c.before[n]
	for seen := false; ; seen = true {
		if err := lock.Do(c.l, ops); err != nil {
			at.CompareAndSwap(x, nil)
			c.s.places.put(k.hash, 0, 0)
			c.lose(k.n, ch)
			k.unknown = true
			return true, fmt.Errorf("objstore: set: %w", err)
		}
		old := slotWord(cas.Old)
		if cas.Swapped() {
			x.word.Store(uint64(w))
			c.s.places.put(k.hash, w, c.s.saw(k.bucket, x.slot, h.unique))
			c.free(k.n, was.chunk())
			break
		}
		if !old.open() || old.fp() != k.fp {
			at.CompareAndSwap(x, nil)
			return false, nil
		}
		x.word.Store(uint64(old))
		if seen { // another set has replaced the object since
			c.stats.Overtaken++
			c.free(k.n, ch)
			break
		}
		was, w = old, makeSlot(k.fp, ch, size, openTag(old.tag()))
		c.before[0] = fabric.CAS(x.slot, uint64(old), uint64(w))
		ops, cas = c.before[:1], &c.before[0]
	}
	c.stats.Open++
	c.stats.Stores++
	c.stats.BytesWritten += uint64(h.valueLen)
	return true, nil
}

// graceStep does this compute node's part in counting epochs, if slots open.
func (c *Client) graceStep(view func() fabric.View) error {
	if !c.s.geo.opens {
		return nil
	}
	return c.session.GraceStep(view, c.s.cfg.EpochNs, func(part int) *reclaim.Grace { return c.s.graces[part] })
}

// EpochsAwaited reports whether sets of keys that have come lately wait for an epoch, in which their slots open: then StepEpochs is to be called some ten times a second.
func (c *Client) EpochsAwaited() bool {
	return c.s.geo.opens && slices.ContainsFunc(c.s.h.Parts, func(n *handle.Part) bool { return !n.Missing() && c.s.graces[n.Index].Awaited() })
}

// StepEpochs is what ReclaimStep does for the epochs that are waited for.
func (c *Client) StepEpochs(view func() fabric.View) error {
	return c.session.GraceStep(view, c.s.cfg.EpochNs, func(part int) *reclaim.Grace {
		if g := c.s.graces[part]; g.Awaited() {
			return g
		}
		return nil
	})
}
