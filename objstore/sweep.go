package objstore

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
)

// Segments that no list names are left by a client that crashed before it published the list, or after it unlinked one, and by an operation that failed. Each compute node looks
// for those that its own clients have written, or one that is not there any more, when it opens the store, when a compute node has gone, and when it could not delete some: it
// reads all buckets, and of each segment whether the list under its key names it. It takes no segment of a value that is being stored: a client of its own says so
// (uploads), and one of another compute node is left to that.
//
// In replicated memory a client that crashed may have published a list at a backup only. As long as none has compared that with the primary (walk.go), a promotion would bring the list
// back, and its segments are not to be missing then. So each compute node walks itself before it sweeps.

// A sweep is what a client knows of its way through the buckets.
type sweep struct {
	begun, under bool
	view         fabric.View // when it began
	part         int
	bucket       uint64
	slots        []byte // of an overflow block
}

// errUnwalked: a compute node has gone, or a backup has come in sync, since this one has walked. The sweep begins anew when it has walked again.
var errUnwalked = errors.New("objstore: sweep: backups may differ from the primary")

// due reports whether a sweep is due: none has been, or a compute node has gone since the last.
func (k *sweep) due(v fabric.View) bool {
	if !k.begun || v.Lost != k.view.Lost {
		return true
	}
	for i, was := range k.view.Live {
		if was&^v.Live[i] != 0 {
			return true
		}
	}
	return false
}

// sweepStep does some of a sweep, if one is due, and reports whether there is more to do at once.
func (c *Client) sweepStep(view func() fabric.View) (busy bool, err error) {
	if c.s.geo.segment == 0 {
		return false, nil
	}
	if err := c.session.Begin(); err != nil {
		return false, err
	}
	defer c.session.End()
	if !c.s.h.UpToDate() || !c.s.h.Registered() {
		return false, nil
	}
	k, v := &c.large.sweep, view()
	if left := c.s.uploads.takeLeft(); left || k.due(v) {
		*k = sweep{begun: true, under: true, view: v}
	}
	if !k.under {
		return false, nil
	}
	if walked, err := c.session.Walked(v); !walked || err != nil {
		return false, unlessLater(err)
	}
	for ; k.part < len(c.s.h.Parts); k.part, k.bucket = k.part+1, 0 {
		n := c.s.h.Parts[k.part]
		if n.Missing() || k.bucket == c.s.geo.buckets {
			continue
		}
		next, err := c.sweepBuckets(n, k.bucket, view)
		if err != nil {
			k.under, k.begun = false, false
			return false, unlessLater(err)
		}
		k.bucket = next
		return true, nil
	}
	k.under = false
	c.stats.Sweeps++
	return false, nil
}

func unlessLater(err error) error {
	if handle.Later(err) || errors.Is(err, errUnwalked) {
		return nil
	}
	return err
}

// sweepBuckets looks at some buckets of a part, and returns the next one.
func (c *Client) sweepBuckets(n *handle.Part, from uint64, view func() fabric.View) (next uint64, err error) {
	g := &c.s.geo
	k := min(max(1, markBytes/g.bucketSize), g.buckets-from)
	c.table = c.grow(c.table, k*g.bucketSize)
	c.ops[0] = fabric.Read(c.s.bucket(n.Index, from), c.table[:k*g.bucketSize])
	if err := lock.Do(c.l, c.ops[:1]); err != nil {
		return 0, fmt.Errorf("objstore: sweep: %w", err)
	}
	for j := range k {
		slots := c.table[j*g.bucketSize+g.lockSize:][:c.s.slotsLen()]
		for depth := 0; ; depth++ {
			last := len(slots)/slotSize - 1
			for i := range last {
				if w := slotWord(wordAt(slots, i)); w != 0 && w.class() >= c.s.segmentClass() && holds(n, w) {
					if err := c.sweepSlot(n, w, view); err != nil {
						return 0, err
					}
				}
			}
			block, ok := linkWord(wordAt(slots, last)).chunk()
			if !ok || !sane(n, block) || depth == maxOverflow {
				break
			}
			if slots, err = c.sweepBlock(n, block); err != nil {
				return 0, err
			}
		}
	}
	return from + k, nil
}

// sweepBlock reads an overflow block.
func (c *Client) sweepBlock(n *handle.Part, block chunk) ([]byte, error) {
	b := c.block
	ops := [1]fabric.Op{fabric.Read(n.At(block.off64), b)}
	if err := lock.Do(c.l, ops[:]); err != nil {
		return nil, fmt.Errorf("objstore: sweep: %w", err)
	}
	c.large.sweep.slots = append(c.large.sweep.slots[:0], b...)
	return c.large.sweep.slots, nil
}

// sweepSlot deletes what a slot leads to if it is a segment that no list names, or is going to.
func (c *Client) sweepSlot(n *handle.Part, w slotWord, view func() fabric.View) error {
	r, owner, writer, err := c.segmentAt(n, w)
	if err != nil || owner == nil {
		return err
	}
	if writer == c.port.ID().CN() {
		if c.s.uploads.has(r) {
			return nil
		}
	} else if view().Live.Has(writer) { // asked after the segment was read: its writer had joined before
		return nil
	}
	var k work
	it, err := c.getObject(&k, owner)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if err == nil && k.h.kind == kindList {
		l, err := decodeList(owner, it.Value, it.CAS)
		if err != nil {
			return err
		}
		if l.names(r) {
			return nil
		}
	}
	if walked, err := c.session.Walked(view()); err != nil { // asked after the list was read
		return err
	} else if !walked {
		return errUnwalked
	}
	if err := c.removeSegment(r); err != nil {
		return err
	}
	c.stats.Swept++
	return nil
}

// names reports whether a list names a segment.
func (l *Large) names(r segmentRef) bool {
	return l.node == r.node && int(r.index) < len(l.ids) && l.ids[r.index] == r.id
}

// segmentAt reads which segment a slot leads to, of the value of which key, which is a copy; nil if it is no segment.
func (c *Client) segmentAt(n *handle.Part, w slotWord) (r segmentRef, owner []byte, writer fabric.CNID, err error) {
	if w.class() < c.s.segmentClass() {
		return r, nil, 0, nil
	}
	h, b, err := c.readHead(n, w, headerSize+segmentKeySize+1+MaxKey)
	if errors.Is(err, ErrCorrupt) {
		return r, nil, 0, nil // it was replaced meanwhile; damage is found by operations and Check
	}
	if err != nil || h.kind != kindSegment || h.keyLen != segmentKeySize {
		return r, nil, 0, err
	}
	key := b[headerSize : headerSize+segmentKeySize]
	rest := b[headerSize+segmentKeySize:]
	if h.check != h.checkOf(hashKey(key, c.s.geo.seed)) || len(rest) < 1 || len(rest) < 1+int(rest[0]) || rest[0] == 0 || rest[0] > MaxKey {
		return r, nil, 0, nil
	}
	return refOf(key), append([]byte(nil), rest[1:1+rest[0]]...), fabric.CNID(h.flags), nil
}

// evictOwner unlinks the list that names a segment which is about to be evicted: a value goes whole. If its bucket is in use the segment goes alone, and who reads the value finds
// that it is gone.
func (c *Client) evictOwner(n *handle.Part, w slotWord) error {
	r, owner, _, err := c.segmentAt(n, w)
	if err != nil || owner == nil {
		return err
	}
	p := c.s.locate(owner)
	part := c.s.h.Parts[p.node]
	if part.Missing() || c.hold.Held && p.bucket == c.hold.Lock {
		return nil
	}
	slots := c.port.Alloc(c.s.slotsLen())
	defer c.port.Free(slots)
	ops := [1]fabric.Op{fabric.Read(c.s.slotsAddr(p.bucket), slots)}
	if err := lock.Do(c.l, ops[:]); err != nil {
		return fmt.Errorf("objstore: evict: %w", err)
	}
	for i := range c.s.geo.slots {
		list := slotWord(wordAt(slots, i))
		if list == 0 || list.fp() != p.fp || !holds(part, list) || list.readLen() > 2*c.s.maxList() {
			continue
		}
		h, b, err := c.readHead(part, list, list.readLen())
		if errors.Is(err, ErrCorrupt) {
			continue
		}
		if err != nil {
			return err
		}
		from := headerSize + uint64(h.keyLen)
		if h.kind != kindList || string(b[headerSize:from]) != string(owner) || h.check != h.checkOf(p.hash) {
			continue
		}
		l, err := decodeList(owner, b[from:from+uint64(h.valueLen)], h.unique)
		if err != nil || !l.names(r) {
			continue
		}
		ch, err := c.unlink(part, p.bucket, c.s.slotsAddr(p.bucket).Add(uint64(i)*slotSize), list, expiry{})
		if err != nil || ch.none() {
			return err
		}
		c.s.places.forget(p.hash, list)
		c.large.chunks = append(c.large.chunks, garbageChunk{part, ch})
		c.discardSegments(l, int(r.index))
		return nil
	}
	return nil
}

// evicted is called for an object that was unlinked to make room, while its chunk is as it was.
func (c *Client) evicted(n *handle.Part, w slotWord) {
	if c.s.geo.segment != 0 {
		c.retire(n, w, unknownKind)
	}
}
