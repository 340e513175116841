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
//	 8   slots and link
//	 ..  header and key of that object

// handoffSize is the size of the largest handoff in bytes.
func (s *Store) handoffSize() int { return slotSize + s.slotsLen() + maxObjectSize }

// setHandoff makes the handoff of a holder that has read the first slots only, for after its release: w is in slot, and head
// begins with the header and key of its object. It comes before Release.
func (c *Client) setHandoff(k *work, slot int, w slotWord, head []byte) {
	if !c.waited || k.depth > 0 {
		return
	}
	n := slotSize + c.s.slotsLen()
	binary.LittleEndian.PutUint64(c.passed, uint64(w))
	copy(c.passed[slotSize:], c.slots[:c.s.slotsLen()])
	if slot >= 0 {
		putWord(c.passed[slotSize:], slot, uint64(w))
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
	n := slotSize + copy(c.slots[:c.s.slotsLen()], data[slotSize:])
	w, head := slotWord(binary.LittleEndian.Uint64(data)), data[n:]
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
	if k.found {
		c.setHandoff(k, -1, k.word, c.obj[k.at:])
	} else {
		c.setHandoff(k, -1, 0, nil)
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

// acquire acquires the lock of the key's bucket as c.req says.
func (c *Client) acquire(k *work) error {
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
