package objstore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/lock"
)

// An Upload is a value that is being stored segment by segment. Nothing of it is to be seen before Update puts it (Change.Upload). Clients of one compute node may write
// different segments at a time. Every Upload is ended by Update or by Abort.
type Upload struct {
	l     Large
	ended bool // it was put, or may have been, or given up
}

// Segments returns how many segments it has, and how long all but the last are.
func (u *Upload) Segments() (n, length int) { return u.l.Segments() }

// Span returns where a segment begins in the value, and how long it is.
func (u *Upload) Span(i int) (from, n int) { return u.l.span(i) }

// Size returns the length of the value.
func (u *Upload) Size() int { return u.l.size }

// Large returns the value, to be read as one that is there. Only what has been written of it is there, and not the beginning that Change.Value has.
func (u *Upload) Large() *Large { return &u.l }

// ExpiryOf returns when an object expires that Set stores now: for Change.Expiry and Early.
func (c *Client) ExpiryOf(o Options) (second uint32, early uint16) {
	e := c.expiryOf(o)
	return e.second, e.early
}

// Upload begins to store a value of a size. head is how many bytes of its beginning, at most 64, Change.Value has: all else is in segments, so there must be more.
// Its segments are at most half as long as others: what fills one is still near the processor when it is written, and the next arrives meanwhile.
func (c *Client) Upload(key []byte, head, size int) (*Upload, error) {
	if err := c.session.Begin(); err != nil {
		return nil, err
	}
	defer c.session.End()
	longest := int(c.s.geo.segment)
	if size-head > longest {
		longest /= 2
	}
	return c.upload(key, head, size, longest)
}

// UploadToFill is Upload of what is to be filled where it lies, as far as can be seen: then segments are as long as others, for nothing of one has to stay near the processor.
func (c *Client) UploadToFill(key []byte, head, size int) (*Upload, error) {
	if !c.fillsAll() {
		return c.Upload(key, head, size)
	}
	if err := c.session.Begin(); err != nil {
		return nil, err
	}
	defer c.session.End()
	return c.upload(key, head, size, int(c.s.geo.segment))
}

// upload is Upload with segments up to a length.
func (c *Client) upload(key []byte, head, size, longest int) (*Upload, error) {
	k := work{need: toChange}
	if err := c.start(&k, key); err != nil {
		return nil, err
	}
	if size > int(c.s.geo.maxValue) {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrValueSize, size, c.s.geo.maxValue)
	}
	if c.s.geo.segment == 0 || head > listHeadSize || size <= head {
		return nil, fmt.Errorf("%w: no segments for %d bytes of %d", ErrConfig, size-head, size)
	}
	rest := size - head
	n := (rest + longest - 1) / longest
	length := (rest + n - 1) / n
	id, err := c.nextUnique(k.node)
	if err != nil {
		return nil, err
	}
	u := &Upload{l: Large{key: slices.Clone(k.key), size: size, length: length, headLen: head, node: uint32(k.node)}}
	for range (rest + length - 1) / length {
		u.l.ids = append(u.l.ids, id)
	}
	c.s.uploads.begin(u.l.ref(0))
	return u, nil
}

// Write writes a segment, of which data must have the length. It must not lie in what Get returned.
func (c *Client) Write(u *Upload, i int, data []byte) error {
	if err := c.session.Begin(); err != nil {
		return err
	}
	defer c.session.End()
	return c.writeSegment(u, i, data)
}

func (c *Client) writeSegment(u *Upload, i int, data []byte) error {
	if err := c.isOpen(u, i); err != nil {
		return err
	}
	if _, n := u.l.span(i); n != len(data) {
		return fmt.Errorf("%w: segment %d has %d bytes, not %d", ErrConfig, i, n, len(data))
	}
	return c.storeSegment(u, i, data, 0)
}

// isOpen returns why a segment cannot be written.
func (c *Client) isOpen(u *Upload, i int) error {
	if u.ended || i < 0 || i >= len(u.l.ids) || !c.s.uploads.has(u.l.ref(i)) {
		return fmt.Errorf("%w: segment %d of an upload of %d", ErrConfig, i, len(u.l.ids))
	}
	return nil
}

// storeSegment stores a segment of which data is there, or a hole that is to be filled.
func (c *Client) storeSegment(u *Upload, i int, data []byte, hole int) error {
	k := work{hole: hole, look: look{head: true, segment: true}, need: toChange}
	key := u.l.ref(i).key()
	if err := c.start(&k, key[:]); err != nil {
		return err
	}
	c.user.Enter()
	begin := headerSize + segmentKeySize
	n := begin + 1 + len(u.l.key)
	if len(data) > 0 && c.port.Lend(data) {
		defer c.port.Lend(nil)
		k.tail = data
	} else {
		n += len(data)
	}
	c.out = c.grow(c.out, uint64(n))
	copy(c.out[headerSize:], k.key)
	c.out[begin] = uint8(len(u.l.key))
	copy(c.out[begin+1:], u.l.key)
	copy(c.out[begin+1+len(u.l.key):n], data)
	err := c.outlast(&k, func() error {
		return c.storeOnce(&k, c.out[:n], Options{Flags: uint32(c.port.ID().CN())}, always, 0)
	})
	c.user.Exit()
	c.dropGarbage()
	return err
}

// Abort gives an upload up that was not put, and deletes its segments. It does nothing if it was put, or may have been.
func (c *Client) Abort(u *Upload) error {
	if err := c.session.Begin(); err != nil {
		c.s.uploads.leave()
		return err
	}
	defer c.session.End()
	c.abort(u)
	return nil
}

func (c *Client) abort(u *Upload) {
	if u.ended {
		return
	}
	u.ended = true
	c.s.uploads.end(u.l.ref(0))
	c.discardSegments(&u.l, -1)
	c.dropGarbage()
}

// conclude ends an upload whose list was to be stored. Where the outcome is not known its segments stay: the list may still come to be.
func (c *Client) conclude(u *Upload, err error, unknown bool) {
	if u == nil || u.ended || err != nil && !unknown {
		return
	}
	u.ended = true
	if err == nil {
		c.s.uploads.end(u.l.ref(0))
	}
}

// writeAll writes all segments of a value.
func (c *Client) writeAll(u *Upload, value []byte) error {
	for i := range u.l.ids {
		from, n := u.l.span(i)
		if err := c.writeSegment(u, i, value[from:from+n]); err != nil {
			return err
		}
	}
	return nil
}

// uploadWhole writes all segments of a value, or none.
func (c *Client) uploadWhole(key, value []byte) (*Upload, error) {
	u, err := c.upload(key, listHeadSize, len(value), int(c.s.geo.segment))
	if err != nil {
		return nil, err
	}
	if err := c.writeAll(u, value); err != nil {
		c.abort(u)
		return nil, err
	}
	return u, nil
}

// storeLarge is store of a value that has segments.
func (c *Client) storeLarge(key, value []byte, o Options, cond condition, unique uint64) error {
	if err := c.session.Begin(); err != nil {
		return err
	}
	defer c.session.End()
	u, err := c.uploadWhole(key, value)
	if err != nil {
		return err
	}
	k := work{look: look{head: true}, list: true, need: toChange}
	if err = c.start(&k, u.l.key); err == nil {
		c.user.Enter()
		n := c.outList(u, value[:listHeadSize])
		err = c.outlast(&k, func() error { return c.storeOnce(&k, c.out[:n], o, cond, unique) })
		c.user.Exit()
	}
	c.conclude(u, err, k.unknown)
	c.abort(u)
	c.dropGarbage()
	return err
}

// outList makes c.out the object of an upload's list, but for its header, and returns its size.
func (c *Client) outList(u *Upload, head []byte) uint64 {
	begin := headerSize + len(u.l.key)
	n := uint64(begin + listSize + 8*len(u.l.ids))
	c.out = c.grow(c.out, n)
	copy(c.out[headerSize:], u.l.key)
	u.l.appendList(c.out[:begin], head)
	return n
}

// extendLarge is extend in a store with segments.
func (c *Client) extendLarge(key, data []byte, before bool) error {
	data = slices.Clone(data) // it may lie in what Get returned
	return c.Update(key, Update{Read: -1, IfFound: true, Apply: func(o *Object) Change {
		first, second := o.Value, data
		if before {
			first, second = data, o.Value
		}
		return Change{Action: Put, Value: slices.Concat(first, second), Flags: o.Flags, Expiry: o.Expiry, Early: o.Early}
	}})
}

// GetTo is Get, which appends the value to dst, which may be nil, and returns that, too: Item.Value lies in it.
func (c *Client) GetTo(key, dst []byte) (Item, []byte, error) {
	if err := c.session.Begin(); err != nil {
		return Item{}, dst, err
	}
	defer c.session.End()
	return c.getTo(key, dst)
}

func (c *Client) getTo(key, dst []byte) (Item, []byte, error) {
	var k work
	it, err := c.getObject(&k, key)
	if err == nil && k.h.kind == kindList {
		return c.getWhole(key, it, dst)
	}
	begin := len(dst)
	dst = append(dst, it.Value...)
	it.Value = dst[begin:len(dst):len(dst)]
	return it, dst, err
}

// Open is Get of a value that may be too large to be read at once: if it has segments, Item.Value is its beginning, of up to 64 bytes, and [Client.Read] reads all of it.
// Else the Large is nil.
func (c *Client) Open(key []byte) (Item, *Large, error) {
	if err := c.session.Begin(); err != nil {
		return Item{}, nil, err
	}
	defer c.session.End()
	return c.openObject(key)
}

func (c *Client) openObject(key []byte) (Item, *Large, error) {
	var k work
	it, err := c.getObject(&k, key)
	if err != nil || k.h.kind != kindList {
		return it, nil, err
	}
	l, err := decodeList(k.key, it.Value, it.CAS)
	if err != nil {
		return Item{}, nil, err
	}
	it.Value = l.head[:l.headLen]
	return it, l, nil
}

// Read appends n bytes of a value, or what there is of them, to dst. ErrChanged: it is not there any more.
func (c *Client) Read(l *Large, from, n int, dst []byte) ([]byte, error) {
	if err := c.session.Begin(); err != nil {
		return dst, err
	}
	defer c.session.End()
	n = max(min(n, l.size-from), 0)
	begin := len(dst)
	dst, err := c.appendLarge(slices.Grow(dst, n), l, from, n)
	if errors.Is(err, ErrNotFound) {
		if err = c.removeBroken(l); err == nil {
			err = fmt.Errorf("%w: key %.40q", ErrChanged, l.key)
		}
	}
	if err != nil {
		return dst[:begin], err
	}
	c.stats.BytesRead += uint64(n)
	return dst, nil
}

// A decision is what Update's function has decided about an object, when the value that it puts has segments, which are not written under the lock.
type decision struct {
	key    [MaxKey]byte // of the operation
	found  bool
	unique uint64
	expiry expiry
	change Change
	head   [listHeadSize]byte
	up     *Upload
	own    bool      // the upload is Update's
	before []*Upload // of the user, which it has decided to put before, and backups may have

	whole  []byte // what Apply is to see of the object's value, which was read without the lock, and its unique
	wholeU uint64
}

// stands reports whether the object is the one that was decided about.
func (d *decision) stands(k *work) bool {
	return d.up != nil && d.found == k.found && (!k.found || d.unique == k.h.unique && d.expiry == k.h.expiry)
}

// decide notes a decision.
func (d *decision) decide(k *work, ch Change, up *Upload, own bool) {
	d.found, d.unique, d.expiry, d.change, d.up, d.own = k.found, k.h.unique, k.h.expiry, ch, up, own
	copy(d.head[:], ch.Value)
}

// putList stores the list of a decision under the lock that is held, and releases it.
func (c *Client) putList(k *work, now uint32, d *decision) error {
	to, err := c.alloc(k.n, classFor(headerSize+uint64(len(k.key)+listSize+8*len(d.up.l.ids))))
	if err != nil {
		return c.unlock(err)
	}
	k.list = true
	n := c.outList(d.up, d.head[:d.up.l.headLen])
	h := header{access: access{second: now}, expiry: d.change.expiry(), flags: d.change.Flags, valueLen: uint32(n - headerSize - uint64(len(k.key)))}
	return c.storeObject(k, &h, to, c.out[:n])
}

// lookupUpdate finds the object for Update. Apply is not called while too few copies are in sync for a change.
func (c *Client) lookupUpdate(k *work, u *Update) (err error) {
	if u.IfFound {
		err = c.lookupLive(k)
	} else {
		err = c.lookup(k, lock.Exclusive)
	}
	if err != nil || !k.n.Region.Replicated() {
		return err
	}
	b, err := k.n.Region.Backups(c.port)
	if err == nil {
		err = b.Require()
	}
	if err != nil {
		err = c.unlockAsFound(k, fmt.Errorf("objstore: %w", err))
	}
	return err
}
