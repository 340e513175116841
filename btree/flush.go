package btree

import (
	"bytes"
	"fmt"
)

// Flush removes all keys, one leaf after the other under its lock, from the left to the right. Others may be at work: a leaf loses all its keys at one moment, a key that is
// put into a leaf behind Flush stays, and so may one that is put to the right of it. It returns how many keys it has removed. After an error the rest is still there.
func (c *Client) Flush() (removed uint64, err error) {
	if err := c.session.Begin(); err != nil {
		return 0, err
	}
	defer c.session.End()
	for edge, more := []byte(nil), true; more; {
		if err := c.check(nil, nil); err != nil {
			return removed, err
		}
		var n uint64
		if n, edge, more, err = c.flushNext(edge); err != nil {
			return removed, fmt.Errorf("btree: flush: %w", err)
		}
		removed += n
	}
	return removed, nil
}

// flushNext is flushLeaf as an operation of its own, with what there is to do behind it.
func (c *Client) flushNext(edge []byte) (removed uint64, next []byte, more bool, err error) {
	c.user.Enter()
	defer c.user.Exit()
	err = c.outlast(func() (err error) { removed, next, more, err = c.flushLeaf(edge); return err })
	c.doJobs()
	return removed, next, more, err
}

// flushLeaf removes the keys of the leaf that has a key, and returns where the next one begins; more is false if there is none.
func (c *Client) flushLeaf(key []byte) (removed uint64, next []byte, more bool, err error) {
	n := &c.n
	c.search.begin(0, key, false, true)
	err = c.seek(&c.search, n, c.leaf)
	c.found()
	if err != nil {
		return 0, nil, false, err
	}
	next, more = bytes.Clone(n.high.key), n.high.some
	values, removed, err := c.valuesOf(n)
	if err != nil || removed == 0 {
		c.setHandoff(n)
		return 0, next, more, c.unlock(err)
	}
	if len(n.low) > 0 && c.t.h.Whole() { // see change
		err = c.markDead(n, nil)
	} else {
		m := c.renew(n, nil)
		err = c.rewrite(n, &m, len(n.b))
	}
	if err != nil {
		return 0, nil, false, err // what was not removed is there; else the large values are leaked, and are found
	}
	for _, v := range values {
		c.free(v.at, classFor(v.size))
	}
	c.stats.Deletes += removed
	return removed, next, more, nil
}

// valuesOf returns the large values of a leaf, and how many keys it has.
func (c *Client) valuesOf(n *node) (values []outOfLine, keys uint64, err error) {
	items, err := c.sorted(n)
	if err != nil {
		return nil, 0, err
	}
	for i := range items {
		if items[i].kind != kindOutOfLine {
			continue
		}
		v, err := c.t.outOfLine(items[i].value)
		if err != nil {
			return nil, 0, err
		}
		values = append(values, v)
	}
	return values, uint64(len(items)), nil
}
