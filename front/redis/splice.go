package redis

import (
	"errors"
	"fmt"

	"github.com/declock/declock/front/item"
	"github.com/declock/declock/objstore"
)

// Values in segments are never changed: a change makes another value, segment by segment, and puts it in place of the one that it has read, if that is still there. A command that
// answers with a value and changes it sends all of it but the last piece, makes the change if the value is still there, and sends the rest. So both have memory for a segment, take place in one step, and leave
// nothing if the connection or the server ends before that.

// A part is a run of bytes of a value that is being made: of a value in segments, of memory, or zeros.
type part struct {
	large   *objstore.Large
	memory  []byte
	from, n int
	arrived bool // large is an upload, of which there is no other copy
}

var errPartGone = fmt.Errorf("%w: what has arrived of the value was evicted", objstore.ErrNoSpace)

// take appends the first bytes of the part, at most most, to b, and leaves the others.
func (p *part) take(c *conn, x *item.Items, b []byte, most int) (_ []byte, err error) {
	n := min(p.n, most)
	switch {
	case p.large != nil:
		if b, err = x.Read(c.srv.ops, p.large, p.from, n, b); p.arrived && errors.Is(err, objstore.ErrChanged) {
			err = errPartGone
		}
	case p.memory != nil:
		b = append(b, p.memory[p.from:p.from+n]...)
	default:
		b = b[:len(b)+n]
		clear(b[len(b)-n:])
	}
	p.from, p.n = p.from+n, p.n-n
	return b, err
}

// compose stores a value that is made of parts, which is not to be seen before it is put.
func (c *conn) compose(x *item.Items, key []byte, parts []part) (*objstore.Upload, error) {
	size := 0
	for i := range parts {
		size += parts[i].n
	}
	up, err := x.Upload(c.srv.ops, key, size)
	if err != nil {
		return nil, err
	}
	segments, length := up.Segments()
	p, err := c.takeCounted(length)
	if err == nil {
		defer c.giveCounted(p)
	}
	for i := 0; i < segments && err == nil; i++ {
		_, n := up.Span(i)
		b := (*p)[:0]
		for len(b) < n && err == nil {
			if parts[0].n == 0 {
				parts = parts[1:]
			}
			b, err = parts[0].take(c, x, b, n-len(b))
		}
		if err == nil {
			err = x.Write(c.srv.ops, up, i, b)
		}
	}
	if err != nil {
		_ = x.Abort(c.srv.ops, up)
		return nil, err
	}
	return up, nil
}

// splice puts data into the value of a key, from a place on that at chooses by the value's size, and answers with the new size. Bytes between them are zeros.
func (c *conn) splice(key, value []byte, at func(size int) int) error {
	up, ok := c.arrivedFor()
	if !ok {
		return nil
	}
	if up != nil {
		return c.spliceLarge(key, part{large: up.Large(), n: up.Size() - item.HeadSize, arrived: true}, at)
	}
	x, large := c.store(), false
	if x == nil {
		return nil
	}
	c.update(key, item.Update{Read: -1, Beginning: true, Apply: func(o *item.Object) item.Change {
		begin := at(o.Size)
		size := max(o.Size, begin+len(value))
		large = false
		switch {
		case len(value) == 0 && o.Found:
			c.number(int64(size))
			return item.Change{}
		case size > c.most:
			c.fail(tooLong)
			return item.Change{}
		case o.InSegments(), x.Segment() != 0 && size > x.Segment():
			large = true
			return item.Change{}
		}
		v := c.room(o.Value)
		if n := item.HeadSize + size - len(v); n > 0 {
			v = append(v, make([]byte, n)...)
		}
		copy(v[item.HeadSize+begin:], value)
		c.value = v
		c.number(int64(size))
		return c.instead(o)
	}})
	if large {
		return c.spliceLarge(key, part{memory: value, n: len(value)}, at)
	}
	return nil
}

// spliceLarge is splice where the old value or the new one has segments.
func (c *conn) spliceLarge(key []byte, data part, at func(size int) int) error {
	for {
		x := c.store()
		if x == nil {
			return nil
		}
		var old item.Item
		found, err := x.View(c.srv.ops, key, func(it item.Item) {
			c.value = append(c.value[:0], it.Value...)
			old = it
		})
		if !found {
			old = item.Item{}
		}
		begin := at(old.Size)
		end := begin + data.n
		size := max(old.Size, end)
		var up *objstore.Upload
		switch {
		case err != nil:
		case size > c.most:
			c.fail(tooLong)
			return nil
		default:
			kept := min(begin, old.Size)
			first, last := part{large: old.Large, memory: c.value, n: kept}, part{large: old.Large, memory: c.value, from: end, n: size - end}
			up, err = c.compose(x, key, []part{first, {n: begin - kept}, data, last})
		}
		switch {
		case errors.Is(err, objstore.ErrChanged):
			continue
		case err != nil:
			c.failed(err)
			return nil
		}
		same := false
		_, ok := c.update(key, item.Update{Beginning: true, Apply: func(o *item.Object) item.Change {
			if same = o.Found == found && (!found || o.Unique == old.Unique); !same {
				return item.Change{}
			}
			c.room(nil)
			c.number(int64(size))
			ch := c.instead(o)
			ch.Upload = up
			return ch
		}})
		if _ = x.Abort(c.srv.ops, up); same || !ok {
			return nil
		}
	}
}

// swap answers with the value of a key, and makes a change of it in the same step. read is how much of the value apply needs to see. It is not ok if it has answered with an error.
func (c *conn) swap(key []byte, read int, ifFound bool, apply func(o *item.Object) item.Change) (ok bool, err error) {
	for {
		segments := false
		called, ok := c.update(key, item.Update{Read: -1, Beginning: true, IfFound: ifFound, Apply: func(o *item.Object) item.Change {
			if segments = o.InSegments(); segments {
				return item.Change{}
			}
			if o.Found {
				c.bulk(o.Value)
			} else {
				c.null()
			}
			return apply(o)
		}})
		switch {
		case !ok:
			return false, nil
		case !called:
			c.null()
			return true, nil
		case !segments:
			return true, nil
		}
		x := c.store()
		if x == nil {
			return false, nil
		}
		var old item.Item
		found, err := x.View(c.srv.ops, key, func(it item.Item) { old = it })
		switch {
		case err != nil:
			c.failed(err)
			return false, nil
		case !found || old.Large == nil:
			continue
		}
		changed, err := c.bulkRange(old.Large, 0, old.Size, func() (same bool, err error) {
			_, err = x.Update(c.srv.ops, key, item.Update{Read: read, Beginning: read == 0, Apply: func(o *item.Object) item.Change {
				if same = o.Found && o.Unique == old.Unique; !same {
					return item.Change{}
				}
				return apply(o)
			}})
			return same, err
		})
		if !changed {
			return err == nil, err
		}
	}
}
