package redis

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/declock/declock/front/item"
	"github.com/declock/declock/objstore"
)

// Values in segments pass through a connection segment by segment: one that a client sends is stored while it arrives, and one that it asks for is read while it is sent. So a
// connection has memory for a segment, however large a value is.

// largePiece is how much of a value is read at a time, to be sent.
const largePiece = 1 << 20

// pieces has memory for segments and pieces of them that is not in use.
var pieces = sync.Pool{New: func() any { return new([]byte) }}

// takePiece returns memory for n bytes. givePiece gives it back.
func takePiece(n int) *[]byte {
	p := pieces.Get().(*[]byte)
	if cap(*p) < n {
		*p = make([]byte, n)
	}
	*p = (*p)[:n]
	return p
}

func givePiece(p *[]byte) { pieces.Put(p) }

// takeCounted is takePiece of memory that the server counts. An error: there is too much of it.
func (c *conn) takeCounted(n int) (*[]byte, error) {
	if c.srv.buffers.Add(int64(n)) > c.srv.o.MaxBuffers {
		c.srv.buffers.Add(-int64(n))
		c.srv.counted.overBuffers.Add(1)
		return nil, errQuit
	}
	return takePiece(n), nil
}

func (c *conn) giveCounted(p *[]byte) {
	c.srv.buffers.Add(-int64(len(*p)))
	givePiece(p)
}

// An upload is a value that arrives.
type upload struct {
	items  *item.Items
	up     *objstore.Upload // nil: it could not be begun
	err    error            // why it is not stored
	size   int
	piece  *[]byte // nil: none was needed yet
	filled int     // of the segment
	at     int     // bytes that have arrived
	next   int     // segment that is being filled
	placed bool    // it is filled where it lies, and not in piece
	counts int     // bytes of that segment, which the server counts as it counts a piece: it takes memory before the client has sent any of it
}

// announced returns the items that are to have a value that is announced, and is too large to be waited for: that of a command which has one. nil: there is none.
func (c *conn) announced() *item.Items {
	p := &c.parser
	a := c.srv.store.Load()
	if p.size < 0 || len(p.spans) < 2 || !c.admitted || a == nil || a.items.Segment() == 0 || p.size <= a.items.Segment() {
		return nil
	}
	request := c.in[c.from:c.to]
	if k := c.lookup(request[p.spans[0].from:p.spans[0].to]); k == nil || k.value != len(p.spans) || !k.admits(len(p.spans)+p.left) {
		return nil
	}
	return a.items
}

// arrives begins to store a value that is announced. It reports whether it does.
func (c *conn) arrives() bool {
	x, p := c.announced(), &c.parser
	if x == nil {
		return false
	}
	key := c.in[c.from:c.to][p.spans[1].from:p.spans[1].to]
	u := &upload{items: x, size: p.size}
	if c.raw != nil {
		u.up, u.err = x.UploadToFill(c.srv.ops, key, p.size)
	} else {
		u.up, u.err = x.Upload(c.srv.ops, key, p.size)
	}
	c.upload = u
	u.begin(c)
	return true
}

// begin begins the next segment.
func (u *upload) begin(c *conn) {
	u.placed = false
	if u.err == nil && u.at < u.size && c.raw != nil && u.count(c) {
		u.placed, u.err = u.items.Place(c.srv.ops, u.up, u.next)
	}
	if !u.placed {
		u.uncount(c)
	}
}

// count has the server count the segment that is to be filled where it lies. It reports whether there is room; else buffer ends the connection.
func (u *upload) count(c *conn) bool {
	if u.counts > 0 {
		return true
	}
	_, n := u.up.Segments()
	if c.srv.buffers.Add(int64(n)) > c.srv.o.MaxBuffers {
		c.srv.buffers.Add(-int64(n))
		return false
	}
	u.counts = n
	return true
}

func (u *upload) uncount(c *conn) {
	c.srv.buffers.Add(-int64(u.counts))
	u.counts = 0
}

// left returns how much is to come of the segment, or of a value that is not stored.
func (u *upload) left() int {
	if u.err != nil {
		return u.size - u.at
	}
	_, length := u.up.Span(u.next)
	return length - u.filled
}

// buffer returns where more of the value is to be read to.
func (u *upload) buffer(c *conn) ([]byte, error) {
	if u.piece == nil {
		n := busyBuffer
		if u.err == nil {
			_, n = u.up.Segments()
		}
		p, err := c.takeCounted(n)
		if err != nil {
			return nil, err
		}
		u.piece = p
	}
	b := *u.piece
	if u.err == nil && !u.placed {
		b = b[u.filled:]
	}
	return b[:min(len(b), u.left())], nil
}

// receive takes what has arrived of a value, and reads until there is all of it: what is behind stands in the place of the value in the buffer then.
func (c *conn) receive() error {
	u, begin := c.upload, c.from+c.parser.pos
	if err := u.take(c, c.in[begin:min(c.to, begin+u.size)]); err != nil {
		return err
	}
	rest := copy(c.in[begin:], c.in[min(c.to, begin+u.size):c.to])
	c.to = begin + rest
	if err := c.flush(); err != nil {
		return err
	}
	for u.at < u.size {
		if err := c.receiveDirectly(u); err != nil {
			return err
		}
		if u.at == u.size {
			break
		}
		b, err := u.buffer(c)
		if err != nil {
			return err
		}
		n, err := c.srv.accept.Read(c.nc, b, c.srv.o.IdleTimeout)
		c.srv.counted.read.Add(uint64(n))
		if n == 0 && err != nil {
			c.wasIdle(err)
			return err
		}
		c.lastAt.Store(int64(time.Since(c.srv.started)))
		if err := u.taken(c, b[:n]); err != nil {
			return err
		}
	}
	c.parser.passed()
	return nil
}

// receiveDirectly reads to where segments lie, as long as it can.
func (c *conn) receiveDirectly(u *upload) error {
	if !u.placed {
		return nil
	}
	var ended error
	read := func(dst []byte) (n int) {
		if ended == nil {
			n, ended = c.raw.ReadLong(dst)
		}
		return n
	}
	c.srv.accept.BeforeRead(c.nc, c.srv.o.IdleTimeout)
	err := c.raw.Each(func() (done bool) {
		for u.placed && u.err == nil {
			n := u.fill(c, read)
			c.srv.counted.read.Add(uint64(n))
			if ended != nil {
				return true
			}
			if n == 0 && u.err == nil {
				c.srv.accept.BeforeRead(c.nc, c.srv.o.IdleTimeout)
				return false
			}
			c.lastAt.Store(int64(time.Since(c.srv.started)))
		}
		return true
	})
	switch {
	case ended != nil || err == nil:
		return ended
	case c.wasIdle(err):
	case errors.Is(err, os.ErrDeadlineExceeded): // what has arrived is read
		return nil
	}
	return err
}

// fill fills the segment where it lies with what read has.
func (u *upload) fill(c *conn, read func(dst []byte) int) (n int) {
	n, err := u.items.Fill(c.srv.ops, u.up, u.next, u.filled, read)
	if u.err = err; err != nil {
		u.placed = false
	}
	u.arrived(c, n)
	return n
}

// take takes bytes that have arrived.
func (u *upload) take(c *conn, b []byte) error {
	for len(b) > 0 {
		if u.placed {
			u.fill(c, func(dst []byte) int {
				n := copy(dst, b)
				b = b[n:]
				return n
			})
			continue
		}
		to, err := u.buffer(c)
		if err != nil {
			return err
		}
		n := copy(to, b)
		b = b[n:]
		u.arrived(c, n)
	}
	return nil
}

// taken takes bytes that have been read to the buffer.
func (u *upload) taken(c *conn, b []byte) error {
	if u.placed {
		return u.take(c, b)
	}
	u.arrived(c, len(b))
	return nil
}

// arrived notes that n bytes more are in buf, and stores a segment that is whole. Of a value that is not stored they are dropped.
func (u *upload) arrived(c *conn, n int) {
	u.at += n
	u.filled += n
	if u.err != nil {
		u.filled = 0
		return
	}
	if _, length := u.up.Span(u.next); u.filled == length {
		if !u.placed {
			u.err = u.items.Write(c.srv.ops, u.up, u.next, (*u.piece)[:length])
		}
		u.next++
		u.filled = 0
		u.begin(c)
	}
}

// dropUpload gives up what has arrived, unless it was put.
func (c *conn) dropUpload() {
	u := c.upload
	if u == nil {
		return
	}
	if u.piece != nil {
		c.giveCounted(u.piece)
	}
	u.uncount(c)
	if u.up != nil {
		_ = u.items.Abort(c.srv.ops, u.up) // what it cannot delete is swept
	}
	c.upload = nil
}

// arrivedFor returns the upload of the request that is being served, if its value has been stored by that; else it is answered with why not.
func (c *conn) arrivedFor() (up *objstore.Upload, ok bool) {
	u := c.upload
	switch a := c.srv.store.Load(); {
	case u == nil:
		return nil, true
	case u.err != nil:
		c.failed(u.err)
		return nil, false
	case a == nil || a.items != u.items:
		c.failed(errDetached)
		return nil, false
	}
	return u.up, true
}

// bulkRange answers with a part of a value in segments. The first piece is read before anything is answered: if the value was changed since it was found, nothing is. If
// it is changed later the connection ends, for what was announced cannot be sent. last, unless it is nil, is called before the last piece is sent: it makes a change, if the value is the same.
func (c *conn) bulkRange(l *objstore.Large, from, n int, last func() (same bool, err error)) (changed bool, err error) {
	x := c.store()
	if x == nil {
		return false, nil
	}
	p, err := c.takeCounted(largePiece)
	if err != nil {
		return false, err
	}
	defer c.giveCounted(p)
	buf := *p
	for begun := false; n > 0; begun = true {
		same := true
		buf, err = x.Read(c.srv.ops, l, from, min(n, largePiece), buf[:0])
		if err == nil && last != nil && n == len(buf) {
			same, err = last()
		}
		switch gone := errors.Is(err, objstore.ErrChanged) || !same && err == nil; {
		case begun && (gone || err != nil):
			c.srv.o.Log.Info("redis: a value was changed while it was sent, or could not be", "error", err)
			return false, errQuit
		case gone:
			return true, nil
		case err != nil:
			c.failed(err)
			return false, nil
		case !begun:
			c.out = line(c.out, '$', int64(n))
		}
		from, n = from+len(buf), n-len(buf)
		if c.silent != answers {
			continue
		}
		if err = c.flush(); err == nil {
			err = c.write(buf)
		}
		if err != nil {
			return false, err
		}
	}
	c.out = append(c.out, "\r\n"...)
	return false, nil
}

// getPart answers with a part of the value of a key, which bounds chooses by its size, or with none.
func (c *conn) getPart(key []byte, bounds func(size int) (from, n int), none func()) error {
	for {
		var large *objstore.Large
		size := 0
		found, ok := c.view(key, func(x item.Item) {
			large, size = x.Large, x.Size
			if from, n := bounds(size); large == nil {
				c.bulk(x.Value[from : from+n])
			}
		})
		switch {
		case !ok:
			return nil
		case !found:
			none()
			return nil
		case large == nil:
			return nil
		}
		from, n := bounds(size)
		if n == 0 {
			c.bulk(nil)
			return nil
		}
		if changed, err := c.bulkRange(large, from, n, nil); !changed {
			return err
		}
	}
}

func whole(size int) (from, n int) { return 0, size }
