package btree

import (
	"bytes"
	"fmt"
	"slices"
)

// Range says what an Iterator returns. The zero value is all keys, in ascending order.
type Range struct {
	// From is the first key: the smallest, or with Descending the greatest. nil is no bound.
	From []byte
	// To is the last key. nil is no bound.
	To []byte
	// FromOpen and ToOpen leave the keys From and To themselves out.
	FromOpen, ToOpen bool
	// Descending begins with the greatest key.
	Descending bool
	// Limit is how many keys are returned at most; 0 is all. Less is ErrConfig.
	Limit int
}

// check refuses what makes no sense.
func (r *Range) check() error {
	if r.Limit < 0 {
		return fmt.Errorf("%w: a range of at most %d keys", ErrConfig, r.Limit)
	}
	return nil
}

// An Iterator returns keys in order, with their values. It takes no locks. Each leaf is read as it is at one
// moment; a key that is there throughout is returned, once, and none that never was. The
// client may do other operations meanwhile, changes too.
type Iterator struct {
	c   *Client
	t   *Tree // that it goes through
	r   Range
	buf []byte
	n   node
	s   search

	items  []item // of the leaf, in order
	at     int    // of the item that Next returns
	edge   []byte // where the next leaf begins, or with Descending ends
	to     []byte // what r.To is: the user's may lie in what an operation returns
	begun  bool
	ended  bool // there is no leaf after this one
	closed bool
	count  int
	key    []byte
	value  []byte
	err    error
}

// Scan returns an iterator over a range. It must be closed.
func (c *Client) Scan(r Range) *Iterator {
	it := &Iterator{c: c, t: c.t}
	it.Reset(r)
	return it
}

// Reset makes the iterator begin again, with another range.
func (it *Iterator) Reset(r Range) {
	most := it.c.t.geo.maxKey
	if cap(it.edge) < most || cap(it.to) < len(r.To) {
		b := make([]byte, most+len(r.To))
		it.edge, it.to = b[:0:most], b[most:]
	}
	it.r, it.items, it.at, it.edge = r, it.items[:0], 0, append(it.edge[:0], r.From...)
	if r.To != nil {
		it.to = append(it.to[:0], r.To...)
		it.r.To = it.to
	}
	it.begun, it.ended, it.count, it.err = false, false, 0, r.check()
	it.key, it.value = nil, nil
	if it.t != it.c.t {
		it.free()
		it.t = it.c.t
	}
}

// free frees the iterator's buffer.
func (it *Iterator) free() {
	if it.buf != nil {
		it.c.session.Use.Begin()
		it.c.port.Free(it.buf)
		it.buf = nil
		it.c.session.Use.End()
	}
}

// Next goes to the next key. It returns false at the end, or after an error: see Err.
func (it *Iterator) Next() bool {
	if it.err != nil || it.closed {
		it.key, it.value = nil, nil
		return false
	}
	if it.err = it.c.session.Begin(); it.err != nil {
		it.key, it.value = nil, nil
		return false
	}
	defer it.c.session.End()
	more := it.next()
	if it.err != nil {
		it.err = it.c.t.h.Damaged(&it.c.work, it.err)
	}
	return more
}

func (it *Iterator) next() bool {
	for it.err == nil && !it.closed && (it.r.Limit == 0 || it.count < it.r.Limit) {
		if it.at < len(it.items) {
			x := &it.items[it.at]
			it.at++
			if it.beyond(x.key) {
				break
			}
			it.key = x.key
			if it.value, it.err = it.valueOf(x); it.err != nil {
				break
			}
			if it.value == nil { // deleted meanwhile
				continue
			}
			it.count++
			it.c.stats.Scanned++
			return true
		}
		if it.ended {
			break
		}
		it.err = it.load()
	}
	it.key, it.value = nil, nil
	return false
}

// beyond reports whether a key is behind the end of the range.
func (it *Iterator) beyond(key []byte) bool {
	if it.r.To == nil {
		return false
	}
	c := bytes.Compare(key, it.r.To)
	if it.r.Descending {
		c = -c
	}
	return c > 0 || c == 0 && it.r.ToOpen
}

// Key returns the key. It is valid until Next is called.
func (it *Iterator) Key() []byte { return it.key }

// Value returns the value. It is valid until Next is called; a large one until the client's next operation.
func (it *Iterator) Value() []byte { return it.value }

// Err returns the error that ended the iteration, if one did.
func (it *Iterator) Err() error { return it.err }

// Close frees the iterator's buffer.
func (it *Iterator) Close() {
	if !it.closed {
		it.closed = true
		it.free()
	}
}

// valueOf returns the value of an item. A large one that has been replaced since the leaf was
// read is got anew; nil if the key has gone with it.
func (it *Iterator) valueOf(x *item) ([]byte, error) {
	if err := it.c.t.h.Gone(); err != nil {
		return nil, err
	}
	v, err := it.c.load(&x.record)
	if err != errTorn {
		return v, err
	}
	v, err = it.c.fetch(x.key)
	if err == ErrNotFound {
		return nil, nil
	}
	if len(v) == 0 && err == nil {
		v = it.c.value[:0]
	}
	return v, err
}

// load reads the next leaf and sorts what is to be returned of it.
func (it *Iterator) load() error {
	switch {
	case it.c.t.h.Lost():
		if err := it.c.session.Ready(noPart); err != nil {
			return err
		}
		it.t = it.c.t
	case it.t.h.Waits():
		it.t = it.c.t // another operation has opened it
	case it.t != it.c.t:
		return it.c.gone(&it.t.h)
	}
	if it.buf == nil {
		it.buf = it.c.port.Alloc(it.t.geo.nodeSize)
	}
	desc := it.r.Descending
	switch {
	case it.begun && !desc:
		if ok, err := it.follow(); ok || err != nil {
			return err
		}
		it.s.begin(0, it.edge, false, false)
	case desc && (it.begun || it.r.From != nil):
		it.s.begin(0, it.edge, it.begun, false)
	case desc:
		if err := it.last(); err != nil {
			return err
		}
		return it.take()
	default:
		it.s.begin(0, it.edge, false, false)
	}
	if err := it.c.seek(&it.s, &it.n, it.buf); err != nil {
		return err
	}
	return it.take()
}

// follow reads the right neighbour of the leaf by its link. It returns false if that is not what
// begins at the edge.
func (it *Iterator) follow() (bool, error) {
	p := it.n.link
	for p != 0 {
		err := it.c.read(&it.n, it.buf, p)
		if isGone(err) {
			return false, nil // the search tells a slot that is damaged
		}
		if err != nil {
			return false, err
		}
		ok, _ := it.n.covers(it.edge, false)
		if !ok || it.n.level != 0 {
			return false, nil
		}
		if !it.n.dead {
			return true, it.take()
		}
		if !it.n.high.some {
			break
		}
		it.edge = append(it.edge[:0], it.n.high.key...)
		p = it.n.link
	}
	it.items, it.at, it.ended = it.items[:0], 0, true
	return true, nil
}

// last finds the last leaf.
func (it *Iterator) last() error {
	top := bytes.Repeat([]byte{0xff}, MaxKeySize+1)
	for range maxTries {
		it.s.begin(0, top, false, false)
		if err := it.c.seek(&it.s, &it.n, it.buf); err != nil {
			return err
		}
		if !it.n.high.some {
			return nil
		}
	}
	return fmt.Errorf("%w: no last leaf in %d tries", ErrCorrupt, maxTries)
}

// take sorts the leaf that was read.
func (it *Iterator) take() error {
	first := !it.begun
	open := first && it.r.FromOpen && it.r.From != nil // the edge's own key is left out
	it.begun, it.at = true, 0
	var err error
	if it.items, err = it.n.sorted(it.items[:0]); err != nil {
		return err
	}
	// What lies outside of the edge has been returned, or is not asked for. Only the first leaf may hold the
	// edge's own key in descending order.
	if it.r.Descending {
		if !first || it.r.From != nil {
			k := len(it.items)
			for k > 0 {
				if c := bytes.Compare(it.items[k-1].key, it.edge); c < 0 || c == 0 && first && !open {
					break
				}
				k--
			}
			it.items = it.items[:k]
		}
		slices.Reverse(it.items)
		it.edge = append(it.edge[:0], it.n.low...)
		it.ended = len(it.n.low) == 0
		return nil
	}
	for ; it.at < len(it.items); it.at++ {
		if c := bytes.Compare(it.items[it.at].key, it.edge); c > 0 || c == 0 && !open {
			break
		}
	}
	it.edge = append(it.edge[:0], it.n.high.key...)
	it.ended = !it.n.high.some
	return nil
}

// Each calls f for the keys of a range, in order, until it returns false.
func (c *Client) Each(r Range, f func(key, value []byte) bool) error {
	it := c.Scan(r)
	defer it.Close()
	for it.Next() {
		if !f(it.Key(), it.Value()) {
			break
		}
	}
	return it.Err()
}
