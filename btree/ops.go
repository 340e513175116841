package btree

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
)

// check validates an operation's key and value.
func (c *Client) check(key, value []byte) error {
	if c.t.h.Lost() {
		if err := c.session.Ready(noPart); err != nil {
			return err
		}
	}
	return c.sized(key, value)
}

// sized validates the sizes of a key and a value.
func (c *Client) sized(key, value []byte) error {
	if len(key) > c.t.geo.maxKey {
		return fmt.Errorf("%w: %d bytes, this tree was made for %d", ErrKeySize, len(key), c.t.geo.maxKey)
	}
	if len(value) > MaxValueSize {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrValueSize, len(value), MaxValueSize)
	}
	return nil
}

// ownKey copies the key of an operation.
func (c *Client) ownKey(key []byte) []byte {
	return c.own[recordHeader : recordHeader+copy(c.own[recordHeader:], key)]
}

// Get returns the value of a key, or ErrNotFound. The value is valid until the client's next
// operation, whose key, values and bounds may be slices of it. Get takes no lock: with the index cached, it is one READ.
func (c *Client) Get(key []byte) ([]byte, error) {
	if err := c.session.Begin(); err != nil {
		return nil, err
	}
	value, err := c.fetch(key)
	if err != nil {
		err = c.t.h.Damaged(&c.work, err)
	}
	c.session.End()
	return value, err
}

func (c *Client) fetch(key []byte) ([]byte, error) {
	if err := c.check(key, nil); err != nil {
		return nil, err
	}
	c.stats.Gets++
	key = c.ownKey(key)
	for range maxTries {
		c.search.begin(0, key, false, false)
		if err := c.seek(&c.search, &c.n, c.leaf); err != nil {
			return nil, err
		}
		r, ok, err := c.n.find(key)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, ErrNotFound
		}
		v, err := c.load(&r)
		if err != errTorn {
			return v, err
		}
		c.stats.Torn++ // replaced since, and its memory used again
	}
	return nil, fmt.Errorf("%w: value of %.40q: checksum is wrong", ErrCorrupt, key)
}

// load returns the value of a record. errTorn: it is not where the record says any more.
func (c *Client) load(r *record) ([]byte, error) {
	if r.kind == kindInline {
		return r.value, nil
	}
	o, err := c.t.outOfLine(r.value)
	if err != nil {
		return nil, err
	}
	c.growValue(o.size)
	b := c.value[:o.size]
	if o.size > 0 {
		if err := c.reach(o.at, uint64(o.size)); err != nil {
			return nil, err
		}
		c.ops[0] = fabric.Read(c.t.slotAddr(o.at, classFor(o.size)), b)
		if err := c.do(o.at.node(), c.ops[:1]); err != nil {
			return nil, fmt.Errorf("btree: value at %v: %w", o.at, err)
		}
	}
	if valueSum(b) != o.sum {
		return nil, errTorn
	}
	return b, nil
}

// outOfLine returns where the large value of a record is, given what the record has in its place: in memory that is given out, and not in the tree's own; or on a missing part.
func (t *Tree) outOfLine(value []byte) (outOfLine, error) {
	o := decodeOutOfLine(value)
	if o.size <= MaxValueSize && t.onMissing(o.at) {
		return o, nil
	}
	if o.size <= MaxValueSize && t.sane(o.at, uint64(o.size)) {
		size := t.slotSize(classFor(o.size))
		if t.sane(o.at, size) && !t.h.Parts[o.at.node()].Own(o.at.off64()*slotUnit, size) {
			return o, nil
		}
	}
	return outOfLine{}, fmt.Errorf("%w: value of %d bytes at %v", ErrCorrupt, o.size, o.at)
}

// growValue makes room for a large value.
func (c *Client) growValue(n int) {
	if len(c.value) >= n {
		return
	}
	if c.value != nil {
		c.port.Free(c.value)
	}
	c.value = c.port.Alloc(int(classFor(n).valueSize()))
}

// A cond says on what a put depends.
type cond uint8

const (
	always cond = iota
	ifAbsent
	ifEqual
)

// Put stores a value, whatever was there.
func (c *Client) Put(key, value []byte) error { return c.put(key, value, nil, always) }

// Insert stores a value if the key is not there: else ErrExists.
func (c *Client) Insert(key, value []byte) error { return c.put(key, value, nil, ifAbsent) }

// CompareAndPut stores a value if the present one equals old: else ErrChanged; ErrNotFound if
// there is none.
func (c *Client) CompareAndPut(key, old, value []byte) error {
	c.old = append(c.old[:0], old...)
	return c.put(key, value, c.old, ifEqual)
}

// put stores a value. A large one is written to a slot of its own before the leaf is locked; the
// record publishes it. What it replaces is free at once: a client that reads it now notices by the checksum.
func (c *Client) put(key, value, old []byte, when cond) error {
	if err := c.start(key, value); err != nil {
		return err
	}
	defer c.session.End()
	c.user.Enter()
	defer c.user.Exit()
	c.stats.Puts++
	k, payload := kindInline, value
	if len(value) > c.t.geo.maxInline {
		k, payload = kindOutOfLine, c.outBuf[:]
		if c.t.h.Replicated() {
			value = bytes.Clone(value) // the operation may be begun again
		}
	}
	end := putRecord(c.own, k, key, payload)
	key, payload = c.own[recordHeader:recordHeader+len(key)], c.own[recordHeader+len(key):end]
	err := c.outlast(func() error { return c.putOnce(key, payload, value, old, k, when) })
	c.doJobs()
	return err
}

// putOnce stores a value. payload is what the record has of it.
func (c *Client) putOnce(key, payload, value, old []byte, k kind, when cond) error {
	var out outOfLine
	if k == kindOutOfLine {
		var err error
		if out, err = c.store(value); err != nil {
			return err
		}
		out.encode(payload)
	}
	replaced, err := c.putEncoded(key, payload, old, k, when)
	switch {
	case err == nil && replaced.at != 0:
		c.free(replaced.at, classFor(replaced.size))
	case err != nil && k == kindOutOfLine && !c.uncertain:
		c.free(out.at, classFor(out.size))
	case err != nil && k == kindOutOfLine:
		c.lose(out.at)
	}
	return err
}

// store writes a large value to a slot of its own, on a memory node that is up.
func (c *Client) store(value []byte) (outOfLine, error) {
	cl := classFor(len(value))
	o := outOfLine{size: len(value), sum: valueSum(value)}
	c.growValue(len(value))
	var err error
	node := c.t.nextNode(0)
	for range c.t.h.Parts {
		if o.at, err = c.alloc(node, cl); err != nil {
			return outOfLine{}, err
		}
		if err = c.writeUnlinked(o.at, cl, c.value[:copy(c.value, value)]); err == nil {
			c.mirrored.stored = c.mirrored.last
			return o, nil
		}
		err = fmt.Errorf("btree: value at %v: %w", o.at, err)
		c.giveUp(o.at, cl, err)
		if !errors.Is(err, fabric.ErrNodeDown) {
			return o, err
		}
		// Another memory node may be up.
		node = c.t.after(o.at)
	}
	return o, err
}

// putEncoded changes the leaf, and returns the large value that was replaced.
func (c *Client) putEncoded(key, payload, old []byte, k kind, when cond) (replaced outOfLine, err error) {
	n := &c.n
	c.search.begin(0, key, false, true)
	err = c.seek(&c.search, n, c.leaf)
	c.found()
	if err != nil {
		return replaced, err
	}
	r, there, err := n.find(key)
	if err == nil && there && r.kind == kindOutOfLine {
		replaced, err = c.t.outOfLine(r.value)
	}
	switch {
	case err != nil:
	case when == ifAbsent && there:
		err = ErrExists
	case when == ifEqual && !there:
		err = ErrNotFound
	case when == ifEqual:
		err = c.compare(&r, old)
	}
	if err == nil && k == kindOutOfLine && c.t.h.Replicated() {
		err = c.covered(decodeOutOfLine(payload).at)
	}
	if err != nil {
		c.setHandoff(n)
		return outOfLine{}, c.answer(n, err)
	}
	return replaced, c.change(n, k, key, payload)
}

// compare returns nil if the value of a record of the locked leaf is old.
func (c *Client) compare(r *record, old []byte) error {
	if r.kind == kindOutOfLine && decodeOutOfLine(r.value).size != len(old) {
		return ErrChanged
	}
	v, err := c.load(r)
	if err == errTorn {
		err = fmt.Errorf("%w: value of %.40q: checksum is wrong", ErrCorrupt, r.key)
	}
	if err == nil && !bytes.Equal(v, old) {
		err = ErrChanged
	}
	return err
}

// Delete removes a key, or returns ErrNotFound.
func (c *Client) Delete(key []byte) error {
	if err := c.start(key, nil); err != nil {
		return err
	}
	defer c.session.End()
	c.user.Enter()
	defer c.user.Exit()
	c.stats.Deletes++
	key = c.ownKey(key)
	err := c.outlast(func() error { return c.remove(key) })
	c.doJobs()
	return err
}

func (c *Client) remove(key []byte) error {
	n := &c.n
	c.search.begin(0, key, false, true)
	err := c.seek(&c.search, n, c.leaf)
	c.found()
	if err != nil {
		return err
	}
	r, there, err := n.find(key)
	if err == nil && !there {
		err = ErrNotFound
	}
	var replaced outOfLine
	if err == nil && r.kind == kindOutOfLine {
		replaced, err = c.t.outOfLine(r.value)
	}
	if err != nil {
		c.setHandoff(n)
		return c.answer(n, err)
	}
	if err = c.change(n, kindDeleted, key, nil); err == nil && replaced.at != 0 {
		c.free(replaced.at, classFor(replaced.size))
	}
	return err
}
