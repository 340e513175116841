package objstore

import (
	"encoding/binary"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A handoff is what an exclusive holder of a bucket's lock hands on to the next one of its compute node (lock.Hold.Handoff). That one
// needs no round trip before its own change then: a lock that many want stays with each half as long. A holder
// that had to wait itself makes a handoff. Its bytes stay on the compute node.
//
//	 0   word of the object that the holder stored or saw, or 0
//	 8   word that memory has in its slot, if the change is deferred
//	16   slots and link
//	 ..  header and key of that object
//
// A set or delete of a key that is followed by one of the same key need not reach memory. So its holder *defers* it to the next (lock.Hold.Deferred): the slots
// of the handoff are as if it had taken place, and the next holder does both by one CAS, from what memory has in the slot to what it wants itself. All of them return when that
// has been executed. So each took place right before the next, and what is between them no other client has seen.

const handoffHead = 2 * slotSize

// handoffSize is the size of the largest handoff in bytes.
func (s *Store) handoffSize() int { return handoffHead + s.slotsLen() + maxObjectSize }

// absorbing reports whether sets and deletes of a key may do what those before them have deferred. Not where there is more to publish than a slot.
func (c *Client) absorbing(k *work) bool {
	return c.passed != nil && !c.s.geo.opens && c.s.geo.segment == 0 && !k.n.Region.Replicated()
}

// inMemory returns the word that memory has in the slot that is to be changed.
func (c *Client) inMemory(k *work) slotWord {
	if k.deferral != 0 {
		return k.kept
	}
	if k.found {
		return k.word
	}
	return 0
}

// setHandoff makes the handoff of a holder that has read the first slots only, for after its release: w is in slot, and head
// begins with the header and key of its object. It comes before Release.
func (c *Client) setHandoff(k *work, slot int, w slotWord, head []byte) {
	if !c.waited || k.depth > 0 {
		return
	}
	n := handoffHead + c.s.slotsLen()
	binary.LittleEndian.PutUint64(c.passed, uint64(w))
	copy(c.passed[handoffHead:], c.slots[:c.s.slotsLen()])
	if slot >= 0 {
		putWord(c.passed[handoffHead:], slot, uint64(w))
	}
	if slot >= 0 && k.absorbs && !k.alone && wordAt(c.slots, c.s.slotsLen()/slotSize-1) == 0 {
		binary.LittleEndian.PutUint64(c.passed[slotSize:], uint64(c.inMemory(k)))
		c.hold.Deferred, c.hold.Same = uint64(1+slot), k.key
	}
	if w != 0 {
		n += copy(c.passed[n:], head[:headerSize+len(k.key)])
	}
	c.hold.Handoff = c.passed[:n]
}

// slotOf returns the number of a slot in the bucket.
func (c *Client) slotOf(k *work) int {
	return int(k.slot-c.s.slotsAddr(k.bucket)) / slotSize
}

// takeHandoff takes the handoff that came with the lock in place of what would have been READ.
func (c *Client) takeHandoff(k *work, data []byte) {
	k.loaded, k.handedOff = 0, true
	n := handoffHead + copy(c.slots[:c.s.slotsLen()], data[handoffHead:])
	k.deferral, k.kept = int(c.req.Deferred), slotWord(binary.LittleEndian.Uint64(data[slotSize:]))
	c.takeObject(k, slotWord(binary.LittleEndian.Uint64(data)), data[n:])
}

// takeObject takes the beginning of w's object from a handoff, if all is there that is wanted.
func (c *Client) takeObject(k *work, w slotWord, head []byte) {
	if w == 0 || !holds(k.n, w) {
		return
	}
	if want := k.want(w); want <= uint64(len(head)) {
		c.obj = c.grow(c.obj, k.at+want)
		copy(c.obj[k.at:], head[:want])
		k.loaded = w
	}
}

// unlockAsFound releases the lock of a bucket in which nothing was changed, because of what was found: err. If that was in
// a handoff, no operation has shown yet that this compute node is not fenced. A READ under the lock does, and if it
// fails, err is no answer.
func (c *Client) unlockAsFound(k *work, err error) error {
	switch {
	case k.found && k.deferral != 0:
		return c.unlock(err) // those before do theirs; what they have handed on is not in memory, and goes no further
	case k.found:
		c.setHandoff(k, -1, k.word, c.obj[k.at:])
	default:
		c.setHandoff(k, -1, 0, nil)
	}
	if k.deferral != 0 {
		return c.deletesDeferred(k, err)
	}
	if !k.handedOff {
		return c.unlock(err)
	}
	c.before[0] = fabric.Load(c.s.slotsAddr(k.bucket))
	if rerr := c.l.Release(&c.hold, c.before[:1]); rerr != nil {
		return fmt.Errorf("objstore: %w", rerr)
	}
	return err
}

// deletesDeferred does what was deferred to a holder that changes nothing, because the key is not there: a holder before has deleted it.
func (c *Client) deletesDeferred(k *work, err error) error {
	if _, rerr := c.publish(k, 0, k.vacant, uint64(k.kept), 0); rerr != nil {
		return rerr
	}
	c.dropKept(k)
	return err
}

// dropKept frees the object that memory had before what was deferred to this client.
func (c *Client) dropKept(k *work) {
	if k.kept != 0 {
		c.s.places.forget(k.hash, k.kept)
		c.freeObject(k.n, k.kept, kindPlain)
	}
}

// acquire acquires the lock of the key's bucket as c.req says.
func (c *Client) acquire(k *work) error {
	c.hold.Deferred, c.hold.Same = 0, nil
	k.deferral = 0
	if c.passed == nil || c.req.Mode != lock.Exclusive {
		c.waited = false
		return c.l.Acquire(&c.hold, &c.req)
	}
	c.req.Handoff = c.inherited
	before := c.l.Stats().LocalWaits
	err := c.l.Acquire(&c.hold, &c.req)
	c.waited = c.l.Stats().LocalWaits != before
	if err == nil && c.req.HandoffLen > 0 {
		c.takeHandoff(k, c.inherited[:c.req.HandoffLen])
	}
	return err
}
