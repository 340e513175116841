package objstore

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
)

// Flush removes all objects, one bucket after the other under its lock. Others may be at work: an object that is stored in a bucket behind Flush stays.
// It returns how many it has removed.
func (c *Client) Flush() (n uint64, err error) {
	if err := c.session.Begin(); err != nil {
		return 0, err
	}
	defer c.session.End()
	if err := c.catchUp(whole, 0); err != nil {
		return 0, err
	}
	c.user.Enter()
	defer c.user.Exit()
	for _, part := range c.s.h.Parts {
		for b := range c.s.geo.buckets {
			k, err := c.flushBucket(part, c.s.bucket(part.Index, b))
			n += k
			c.user.Exit()
			c.dropGarbage()
			c.user.Enter()
			if err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// flushBucket removes the objects of a bucket, a chain of them at a time.
func (c *Client) flushBucket(n *handle.Part, bucket fabric.Addr) (removed uint64, err error) {
	first := work{look: look{n: n}}
	if err := c.outlast(&first, func() error {
		c.ops[0] = fabric.Read(c.s.slotsAddr(bucket), c.slots[:c.s.slotsLen()])
		return c.doUnlocked(c.ops[:1])
	}); err != nil {
		return 0, err
	}
	empty := true
	for i := range c.s.slotsLen() / slotSize {
		empty = empty && wordAt(c.slots, i) == 0
	}
	if empty {
		return 0, nil
	}
	for more := true; more; {
		k, some := work{look: look{n: n}}, uint64(0)
		err := c.outlast(&k, func() (err error) { some, more, err = c.flushSome(&k, bucket); return err })
		if removed += some; err != nil {
			return removed, fmt.Errorf("objstore: flush: %w", err)
		}
	}
	return removed, nil
}

// flushSome removes a chain of a bucket's objects, and reports whether there may be more. What is set since is not of them.
func (c *Client) flushSome(k *work, bucket fabric.Addr) (removed uint64, more bool, err error) {
	n := k.n
	c.req = lock.Request{Lock: bucket, Mode: lock.Exclusive}
	if err := c.l.Acquire(&c.hold, &c.req); err != nil {
		return 0, false, err
	}
	ops, err := c.someObjects(n, c.s.slotsAddr(bucket))
	if err != nil || len(ops) == 0 {
		return 0, false, c.unlock(err)
	}
	var mirrored, made bool // by all backups, though the primary has not answered
	if mirrored, err = c.mirrorFlush(n, bucket, ops); err == nil {
		if k.begun, err = true, c.l.Release(&c.hold, ops); err != nil {
			c.unsettle(n, bucket)
			made = mirrored && n.Succeeded(c.l, err, &handle.Change{Term: c.backups.Term(), Epoch: c.backups.Epoch(), At: n.Region.Stamp(), Since: c.port.Now()})
		}
	} else {
		k.begun, k.term, k.epoch, k.mirrored = mirrored, c.backups.Term(), c.backups.Epoch(), c.port.Now()
		err = c.failed(k, err)
	}
	if err != nil && !made {
		if k.begun {
			c.stats.Leaked += uint64(len(ops))
		}
		return 0, false, err
	}
	for i := range ops {
		if made || ops[i].Swapped() {
			c.freeObject(n, slotWord(ops[i].Cmp), unknownKind)
			c.stats.Deletes++
			removed++
		}
	}
	return removed, len(ops) == flushChain, nil
}

// mirrorFlush is mirror for the operations that unlink objects.
func (c *Client) mirrorFlush(n *handle.Part, bucket fabric.Addr, ops []fabric.Op) (begun bool, err error) {
	if !n.Region.Replicated() {
		return false, nil
	}
	changes := make([]slotChange, len(ops))
	for i := range ops {
		changes[i] = slotChange{ops[i].Addr, ops[i].Arg}
	}
	return c.mirror(n, bucket, nil, nil, changes...)
}

// flushChain is how many objects are removed in the chain of a release.
const flushChain = 8

// isSegment reports whether an object is a segment: it goes with its list, or belongs to a value that is still being stored.
func (c *Client) isSegment(n *handle.Part, w slotWord) bool {
	if c.s.geo.segment == 0 {
		return false
	}
	_, owner, _, err := c.segmentAt(n, w)
	return err == nil && owner != nil
}

// someObjects returns operations that unlink some objects of a bucket whose lock is held: none if there are none.
func (c *Client) someObjects(n *handle.Part, a fabric.Addr) ([]fabric.Op, error) {
	ops := make([]fabric.Op, 0, flushChain)
	b := c.slots[:c.s.slotsLen()]
	for depth := 0; ; depth++ {
		c.ops[0] = fabric.Read(a, b)
		if err := lock.Do(c.l, c.ops[:1]); err != nil {
			return nil, err
		}
		last := len(b)/slotSize - 1
		for i := range last {
			w := wordAt(b, i)
			if w != 0 && !holds(n, slotWord(w)) {
				return nil, fmt.Errorf("%w: slot at %v is %v", ErrCorrupt, a.Add(uint64(i)*slotSize), slotWord(w))
			}
			if w != 0 && len(ops) < flushChain && !c.isSegment(n, slotWord(w)) {
				ops = append(ops, fabric.CAS(a.Add(uint64(i)*slotSize), w, 0))
			}
		}
		block, ok := linkWord(wordAt(b, last)).chunk()
		if len(ops) == flushChain || !ok || !sane(n, block) || depth == maxOverflow {
			return ops, nil
		}
		a, b = n.At(block.off64), c.slots[:overflowSize]
	}
}
