package objstore

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/memory/reclaim"
)

// A bucket is copied under its lock, which may be shared: its slots and overflow blocks, and the objects that the slots lead to. While a slot leads to an object, the object's chunk
// is not used for another, so what is written there does not take the place of another object. If the objects are large the lock is given up between them: a slot that changes
// meanwhile leads to an object that its client has written to the backup, and a slot stays where it is. Locks, free bits and lists are not copied.

// A Copy copies the part of a store on one memory-node number to a new backup, in steps.
type Copy struct {
	c     *Client
	n     *handle.Part
	to    handle.NewBackup
	at    *handle.CopyPosition
	hold  lock.Hold
	begun bool   // the words of the part have been copied
	zeros []byte // of the lock of a bucket, if locks are to be made zero: the memory was something else before
}

const (
	// copyHoldBytes is how many bytes of objects are copied while a bucket's lock is held, if there is more than one.
	copyHoldBytes = 256 << 10
	// copyWaitNs bounds the wait for the lock of a bucket. It is time enough for the reset of one that a crashed client held.
	copyWaitNs = 200 * fabric.Millisecond
)

// Copy begins to copy the part of the store that has a root entry, or goes on at a position. It uses l, as a client would, until it is closed.
func (s *Store) Copy(l lock.Locker, e *memory.Entry, to handle.NewBackup, at *handle.CopyPosition) (handle.Copier, error) {
	c, err := s.newClient(l, true)
	if err != nil {
		return nil, err
	}
	n, err := c.s.h.Copied(&c.work, e)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("objstore: %w", err)
	}
	return &Copy{c: c, n: n, to: to, at: at}, nil
}

// LeaveUnused closes the store on this compute node, which has opened it for a Copy only, and has no client of it.
func (s *Store) LeaveUnused(l lock.Locker) error { return s.h.LeaveUnused(l) }

// Close ends a copy, finished or not.
func (k *Copy) Close() {
	if k.zeros != nil {
		k.c.port.Free(k.zeros)
	}
	k.c.Close()
}

// Progress returns how many buckets have been copied, of how many.
func (k *Copy) Progress() (done, all uint64) { return k.at.Bucket, k.c.s.geo.buckets }

// Step copies some of a bucket, and reports whether there is nothing left to copy. If it fails the copy is to be begun anew, from the beginning.
func (k *Copy) Step() (done bool, err error) {
	c := k.c
	if err := c.session.Begin(); err != nil {
		return false, err
	}
	defer c.session.End()
	if err := c.session.CatchUp(); err != nil {
		return false, err
	}
	if c.s.h.Parts[k.n.Index] != k.n {
		return false, fmt.Errorf("objstore: copy: %w: %q was opened anew", lock.ErrMemoryLost, c.s.cfg.Name)
	}
	if !k.begun {
		if err := k.words(); err != nil {
			return false, fmt.Errorf("objstore: copy: %w", err)
		}
		k.begun = true
	}
	if k.at.Bucket == c.s.geo.buckets {
		return true, nil
	}
	bucket := c.s.bucket(k.n.Index, k.at.Bucket)
	c.req = lock.Request{Lock: bucket, Mode: lock.Shared, Deadline: c.port.Now() + copyWaitNs}
	if err := c.l.Acquire(&k.hold, &c.req); err != nil {
		if errors.Is(err, lock.ErrTimeout) {
			return false, nil
		}
		return false, fmt.Errorf("objstore: copy: %w", err)
	}
	err = errors.Join(k.bucket(bucket), c.l.Release(&k.hold, nil))
	if err != nil {
		return false, fmt.Errorf("objstore: copy: bucket at %v: %w", bucket, err)
	}
	return k.at.Bucket == c.s.geo.buckets, nil
}

// words copies what is before the buckets and mirrored.
func (k *Copy) words() error {
	path := lock.Path(k.c.l)
	err := k.n.ZeroUnmirrored(k.c.l, k.to, numClasses, func(_ *memory.Pages, own bool, zero func(fabric.Addr, uint64) error) error {
		if own {
			k.zeros = k.c.port.Alloc(int(k.c.s.geo.lockSize))
			return zero(k.n.Base.Add(graceOffset), reclaim.GraceBytes)
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = k.n.Region.Level(path, k.n.Base.Add(incarnationOffset), 1)
	if err == nil && k.n.Index == 0 {
		err = handle.MirrorRecords(path, k.n.Region, k.n.Base)
	}
	return err
}

// bucket copies a bucket, of which the lock is held, and as many of its objects as may be.
func (k *Copy) bucket(bucket fabric.Addr) error {
	c := k.c
	b, err := k.n.Region.Backups(c.port)
	if err == nil && b.Epoch() != k.to.Epoch {
		err = fabric.ErrStaleEpoch
	}
	if err != nil {
		return err
	}
	blocks, err := c.wholeBucket(k.n, bucket, nil)
	if err != nil {
		return err
	}
	m := c.mirrored
	ops := m.ops[:0]
	if k.zeros != nil {
		ops = append(ops, fabric.Write(bucket, k.zeros))
	}
	for i := range blocks {
		ops = append(ops, fabric.Write(m.at[i], m.block(i, c.s.slotsLen())))
	}
	if err := b.Fill(k.to.Number, ops); err != nil {
		return err
	}
	k.at.Bytes += uint64(c.s.slotsLen() + (blocks-1)*overflowSize)
	for held := uint64(0); held < copyHoldBytes; {
		n, err := k.objects(&b, blocks, copyHoldBytes-held)
		if err != nil {
			return err
		}
		if n == 0 {
			k.at.Bucket, k.at.Slot = k.at.Bucket+1, 0
			break
		}
		held += n
		k.at.Bytes += n
	}
	return nil
}

// objects copies the next objects of the bucket whose image there is: as many as go into a chain, and no more than some bytes, if there is more than one. It returns how many
// bytes they have; 0: there are none left.
func (k *Copy) objects(b *memory.Backups, blocks int, most uint64) (n uint64, err error) {
	c := k.c
	var list [fabric.MaxChain]slotWord
	objects := 0
	for ; objects < len(list); k.at.Slot++ {
		w, ok := k.slot(blocks, k.at.Slot)
		if !ok {
			break
		}
		if w == 0 {
			continue
		}
		if !holds(k.n, w) {
			return 0, fmt.Errorf("%w: slot %v", ErrCorrupt, w)
		}
		if objects > 0 && n+w.readLen() > most {
			break
		}
		list[objects] = w
		objects++
		n += w.readLen()
	}
	if objects == 0 {
		return 0, nil
	}
	c.table = c.grow(c.table, n)
	ops, rest := c.ops[:objects], c.table
	for i := range ops {
		size := list[i].readLen()
		ops[i], rest = fabric.Read(k.n.At(list[i].chunk().off64), rest[:size]), rest[size:]
	}
	if err := lock.Do(c.l, ops); err != nil {
		return 0, err
	}
	rest = c.table
	for i := range ops {
		size := list[i].readLen()
		ops[i], rest = fabric.Write(k.n.At(list[i].chunk().off64), rest[:size]), rest[size:]
	}
	return n, b.Fill(k.to.Number, ops)
}

// slot returns the i-th slot of the bucket whose image there is, its overflow blocks included.
func (k *Copy) slot(blocks, i int) (w slotWord, ok bool) {
	m, slotsLen := k.c.mirrored, k.c.s.slotsLen()
	for block := range blocks {
		image := m.block(block, slotsLen)
		slots := len(image)/slotSize - 1
		if i < slots {
			return slotWord(wordAt(image, i)), true
		}
		i -= slots
	}
	return 0, false
}
