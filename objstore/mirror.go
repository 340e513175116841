package objstore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

// A store on replicated memory (docs/replication.md). What a change does to the bucket, and the object or block that it makes, is at the backups before the chain of the
// release is at the primary. The backups get all slots and links of the bucket, as they are to be, since they may differ from the primary's: a client that crashed may have
// written to backups only, and what it wrote must not come back later beside what this client writes.
//
// Access times, which gets write, are not at the backups.

// A mirrored is what a client has for that.
type mirrored struct {
	image []byte // slots and link of the bucket in work, then its overflow blocks
	at    [1 + maxOverflow]fabric.Addr
	ops   [fabric.MaxChain]fabric.Op
}

// A slotChange is what a slot or link is to become.
type slotChange struct {
	at   fabric.Addr
	word uint64
}

// mirror has the backups of a part execute some operations, and write the slots and links of a bucket as they are to be. The bucket's lock is held. first is what was read of
// the bucket under the lock without its overflow blocks, or nil. Before come operations that change nothing that anything leads to. begun: the backups may have some of the change, so it may
// still come to be, whatever becomes of the chain of the release; with nil, all have it.
func (c *Client) mirror(n *handle.Part, bucket fabric.Addr, first []byte, before []fabric.Op, changes ...slotChange) (begun bool, err error) {
	if c.backups, err = n.Region.Backups(c.port); err != nil {
		return false, err
	}
	return c.mirrorTo(&c.backups, n, bucket, first, before, changes...)
}

// mirrorTo is mirror with the backups as the operation has found them.
func (c *Client) mirrorTo(b *memory.Backups, n *handle.Part, bucket fabric.Addr, first []byte, before []fabric.Op, changes ...slotChange) (begun bool, err error) {
	if err := b.Require(); err != nil || b.None() {
		return false, err
	}
	blocks, err := c.wholeBucket(n, bucket, first)
	if err != nil {
		return false, err
	}
	m := c.mirrored
	for _, x := range changes {
		if !m.set(blocks, c.s.slotsLen(), x) {
			return false, fmt.Errorf("%w: bucket at %v has no slot at %v", ErrCorrupt, bucket, x.at)
		}
	}
	ops := append(m.ops[:0], before...)
	for i := range blocks {
		ops = append(ops, fabric.Write(m.at[i], m.block(i, c.s.slotsLen())))
	}
	return c.writeBackups(b, n, bucket, ops, len(before))
}

// writeBackups has the backups execute operations on a bucket, of which the first change nothing that anything leads to, and notes it if some may have them and others not.
func (c *Client) writeBackups(b *memory.Backups, n *handle.Part, bucket fabric.Addr, ops []fabric.Op, harmless int) (begun bool, err error) {
	err = b.Write(ops, harmless)
	if begun = err == nil || errors.Is(err, fabric.ErrUnknownOutcome); begun && err != nil {
		c.unsettle(n, bucket)
	}
	return begun, err
}

// block returns the image of the i-th block of the bucket.
func (m *mirrored) block(i, slotsLen int) []byte {
	if i == 0 {
		return m.image[:slotsLen]
	}
	return m.image[slotsLen+(i-1)*overflowSize:][:overflowSize]
}

// set changes a word of the image.
func (m *mirrored) set(blocks, slotsLen int, x slotChange) bool {
	for i := range blocks {
		b := m.block(i, slotsLen)
		if x.at >= m.at[i] && x.at < m.at[i].Add(uint64(len(b))) {
			putWord(b, int(x.at-m.at[i])/slotSize, x.word)
			return true
		}
	}
	return false
}

// wholeBucket makes the image of a bucket as it is, and returns of how many blocks it is.
func (c *Client) wholeBucket(n *handle.Part, bucket fabric.Addr, first []byte) (blocks int, err error) {
	m, slotsLen := c.mirrored, c.s.slotsLen()
	if m == nil {
		m = &mirrored{image: c.port.Alloc(slotsLen + maxOverflow*overflowSize)}
		c.mirrored = m
	}
	m.at[0] = c.s.slotsAddr(bucket)
	for i := 0; ; i++ {
		b := m.block(i, slotsLen)
		if i == 0 && first != nil {
			copy(b, first)
		} else {
			m.ops[0] = fabric.Read(m.at[i], b)
			if err := lock.Do(c.l, m.ops[:1]); err != nil {
				return 0, fmt.Errorf("objstore: bucket at %v: %w", bucket, err)
			}
		}
		link := linkWord(wordAt(b, len(b)/slotSize-1))
		if link == 0 {
			return i + 1, nil
		}
		block, ok := link.chunk()
		if !ok || !sane(n, block) || i == maxOverflow {
			return 0, fmt.Errorf("%w: link %#x of the bucket at %v", ErrCorrupt, uint64(link), bucket)
		}
		m.at[i+1] = n.At(block.off64)
	}
}

// read returns what was read of the bucket without its overflow blocks, if c.slots still has that.
func (c *Client) read(k *work) []byte {
	if k.depth > 0 {
		return nil
	}
	return c.slots[:c.s.slotsLen()]
}

// mirrorChange is mirror for the change of a key's operation. If it fails, it releases the lock, with nothing changed at the primary.
func (c *Client) mirrorChange(k *work, before []fabric.Op, x slotChange) (begun bool, err error) {
	return c.mirrorWork(k, func(b *memory.Backups) (bool, error) { return c.mirrorTo(b, k.n, k.bucket, c.read(k), before, x) })
}

// mirrorRefreshed is mirrorChange for the one operation that gives an object another expiry.
func (c *Client) mirrorRefreshed(k *work, ops []fabric.Op) error {
	_, err := c.mirrorWork(k, func(b *memory.Backups) (bool, error) {
		if err := b.Require(); err != nil {
			return false, err
		}
		// A backup may have in the slot what this operation has decided before.
		if !k.trace.None() {
			if begun, err := c.mirrorTo(b, k.n, k.bucket, c.read(k), nil); err != nil {
				return begun, err
			}
		}
		return c.writeBackups(b, k.n, k.bucket, ops, 0)
	})
	return err
}

// mirrorWork has the backups execute what write says for a key's operation.
func (c *Client) mirrorWork(k *work, write func(b *memory.Backups) (begun bool, err error)) (begun bool, err error) {
	c.backups, err = k.n.Region.Backups(c.port)
	b := &c.backups
	if k.term, k.epoch = b.Term(), b.Epoch(); err == nil {
		begun, err = c.unreached(k, b)
	}
	if err == nil {
		begun, err = write(b)
	}
	k.begun, k.mirrored = begun, c.port.Now()
	if err != nil {
		c.hold.Handoff = nil // of what it was to be
		err = c.failed(k, fmt.Errorf("objstore: %w", err))
	}
	return begun, err
}

// failed releases the lock of a change that has failed with err on its way to the backups. What does not show at the one that serves next may be begun again.
func (c *Client) failed(k *work, err error) error {
	if err = c.unlock(err); !k.begun {
		return err
	}
	if k.trace == nil {
		k.trace = &memory.Trace{}
	}
	k.trace.Add(c.backups.Trace())
	k.begun = !k.n.Missed(c.l, err, k.mirrored, k.trace)
	return err
}

// unreached returns an error if what an attempt before this one was to change may show at what serves now.
func (c *Client) unreached(k *work, b *memory.Backups) (may bool, err error) {
	if !k.trace.Shows(b) {
		return false, nil
	}
	return true, fmt.Errorf("objstore: %w: another backup serves, which may have the change", fabric.ErrUnknownOutcome)
}

// releaseRefreshed releases the lock of a key's operation, with the one operation that gives the object another expiry, at the backups before.
func (c *Client) releaseRefreshed(k *work, ops []fabric.Op) error {
	mirrored := false
	if k.n.Region.Replicated() {
		if err := c.mirrorRefreshed(k, ops); err != nil {
			return err
		}
		mirrored = !c.backups.None()
	}
	if err := c.l.Release(&c.hold, ops); err != nil {
		c.unsettle(k.n, k.bucket)
		if x := &ops[0]; mirrored && c.succeeded(k, err, x.Addr, k.h.meta(), expiryMask(k.h.meta())) {
			return nil
		}
		return fmt.Errorf("objstore: %w", err)
	}
	return nil
}

// unlessReplaced returns the error of a read without the lock, or nil if another memory node may take the place of the one that was to answer: the lock waits for
// that.
func (k *work) unlessReplaced(err error) error {
	is := func(list ...error) bool {
		return slices.ContainsFunc(list, func(e error) bool { return errors.Is(err, e) })
	}
	if k.n.Region.Replicated() && is(fabric.ErrNodeDown, fabric.ErrStaleEpoch, fabric.ErrUnknownOutcome) &&
		!is(fabric.ErrFenced, fabric.ErrInterrupted, fabric.ErrClosed, lock.ErrMemoryLost) {
		return nil
	}
	return err
}
