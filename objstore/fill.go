package objstore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
)

// A segment of an upload may be filled where it lies, by what arrives, without a copy on the way (fabric.Filler). It is stored first, with its header and its length, and whatever the
// memory has behind that: nobody reads it, since no list names it yet. Then it is filled under the lock of its bucket, as an object is whose expiry is changed. So the memory is
// the segment's all the time: whoever evicts it, moves it, deletes or sweeps it does so under the lock, and what is found then is filled on, or nothing.
//
// Not in replicated memory, of which all copies are written before the primary.

// errSegmentGone: an upload cannot be filled on, for a segment of it was evicted.
var errSegmentGone = fmt.Errorf("%w: what has arrived of the value was evicted", ErrNoSpace)

const (
	// fillPiece is how much is filled at a time where the fabric does not reach the memory any more.
	fillPiece = 64 << 10
	// fillCalls is how often more is asked for under the lock: a trickle does not keep it.
	fillCalls = 64
)

// Place stores a segment that Fill is to fill, and reports whether it has: it does nothing where that gains nothing, and Write is to write it.
func (c *Client) Place(u *Upload, i int) (placed bool, err error) {
	if err := c.session.Begin(); err != nil {
		return false, err
	}
	defer c.session.End()
	if err := c.isOpen(u, i); err != nil {
		return false, err
	}
	k := work{look: look{head: true, segment: true}, need: toChange}
	key := u.l.ref(i).key()
	if err := c.start(&k, key[:]); err != nil {
		return false, err
	}
	if !c.fills(k.n) {
		return false, nil
	}
	_, n := u.l.span(i)
	if err := c.storeSegment(u, i, nil, n); err != nil {
		return false, err
	}
	return true, nil
}

// Fill fills a segment that was placed, from an offset on, with what f puts to where it is told and counts, again and again until f has nothing more or the segment is full; but a trickle not for
// ever. It returns how many bytes that were. f must not wait, or keep dst. With an error, the upload is to be given up.
func (c *Client) Fill(u *Upload, i, from int, f func(dst []byte) int) (n int, err error) {
	if err := c.session.Begin(); err != nil {
		return 0, err
	}
	defer c.session.End()
	if err := c.isOpen(u, i); err != nil {
		return 0, err
	}
	k := work{look: look{head: true, segment: true}, need: toChange}
	key := u.l.ref(i).key()
	if err := c.start(&k, key[:]); err != nil {
		return 0, err
	}
	c.user.Enter()
	defer c.user.Exit()
	if err := c.lookup(&k, lock.Exclusive); err != nil {
		return 0, err
	}
	skip := 1 + len(u.l.key)
	_, length := u.l.span(i)
	switch {
	case !k.found:
		return 0, c.unlockAsFound(&k, errSegmentGone)
	case int(k.h.valueLen) != skip+length:
		return 0, c.unlock(fmt.Errorf("%w: segment %d of %q has %d bytes, not %d", ErrCorrupt, i, u.l.key, k.h.valueLen, skip+length))
	}
	first := k.n.At(k.word.chunk().off64).Add(headerSize + segmentKeySize + uint64(skip))
	for calls := 0; err == nil && from+n < length && calls < fillCalls; calls++ {
		var got int
		got, err = c.fillAt(first.Add(uint64(from+n)), length-from-n, f)
		if n += got; got == 0 {
			break
		}
	}
	return n, c.unlock(err)
}

// fills reports whether segments on a part are placed.
func (c *Client) fills(n *handle.Part) bool {
	f, ok := c.port.(fabric.Filler)
	return ok && !n.Region.Replicated() && f.Fills(n.MN)
}

// fillsAll reports that of all parts.
func (c *Client) fillsAll() bool {
	return !slices.ContainsFunc(c.s.h.Parts, func(n *handle.Part) bool { return n.Missing() || !c.fills(n) })
}

// fillAt fills up to n bytes, and returns how many.
func (c *Client) fillAt(a fabric.Addr, n int, f func(dst []byte) int) (int, error) {
	got, err := 0, fabric.ErrUnsupported
	if to, ok := c.port.(fabric.Filler); ok {
		got, err = to.Fill(a, n, f)
	}
	if !errors.Is(err, fabric.ErrUnsupported) {
		return got, err
	}
	n = min(n, fillPiece)
	c.out = c.grow(c.out, uint64(n))
	if got = f(c.out[:n]); got == 0 {
		return 0, nil
	}
	c.ops[0] = fabric.Write(a, c.out[:got])
	return got, lock.Do(c.l, c.ops[:1])
}
