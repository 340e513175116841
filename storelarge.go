package declock

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/declock/declock/objstore"
)

// ErrShortValue: a ValueWriter was closed before, or was given more than, all of the value.
var ErrShortValue = errors.New("declock: not as many bytes as the value was to have")

// valuePiece is how much of a value a ValueReader reads at a time for WriteTo.
const valuePiece = 1 << 20

// A ValueReader reads the value that a key had when it was opened, piece by piece: an io.Reader, io.Seeker, io.ReaderAt and io.WriterTo. If the value is replaced, deleted or evicted
// meanwhile, reads are objstore.ErrChanged: what was read before is of one value. ReadAt may be called by any number of goroutines at a time. It needs no Close.
type ValueReader struct {
	// Item is the object, without its value.
	Item objstore.Item

	st    *Store
	ctx   context.Context // of Reader, as that of net/http's requests
	large *objstore.Large
	small []byte // the value, if it has no segments
	at    int64
}

// Reader opens the value of a key, to be read piece by piece until ctx ends. objstore.ErrNotFound: there is none.
func (st *Store) Reader(ctx context.Context, key []byte) (*ValueReader, error) {
	r := &ValueReader{st: st, ctx: ctx}
	err := st.shared.do(ctx, func(c *objstore.Client) (err error) {
		if r.Item, r.large, err = c.Open(key); err == nil && r.large == nil {
			r.small = append(r.small, r.Item.Value...)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r.Item.Value = nil
	return r, nil
}

// Size returns the length of the value.
func (r *ValueReader) Size() int64 {
	if r.large != nil {
		return int64(r.large.Size())
	}
	return int64(len(r.small))
}

// ReadAt implements io.ReaderAt.
func (r *ValueReader) ReadAt(p []byte, off int64) (n int, err error) {
	switch {
	case off < 0:
		return 0, fmt.Errorf("declock: read at %d", off)
	case off >= r.Size():
		return 0, io.EOF
	}
	want := min(int64(len(p)), r.Size()-off)
	if r.large == nil {
		n = copy(p, r.small[off:])
	} else {
		err = r.st.shared.do(r.ctx, func(c *objstore.Client) error {
			b, err := c.Read(r.large, int(off), int(want), p[:0])
			n = len(b)
			return err
		})
	}
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Read implements io.Reader.
func (r *ValueReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.ReadAt(p, r.at)
	if r.at += int64(n); n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// Seek implements io.Seeker.
func (r *ValueReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.Size()
	}
	if offset < 0 {
		return r.at, fmt.Errorf("declock: seek to %d", offset)
	}
	r.at = offset
	return offset, nil
}

// WriteTo implements io.WriterTo.
func (r *ValueReader) WriteTo(w io.Writer) (sum int64, err error) {
	buf := make([]byte, min(valuePiece, max(r.Size()-r.at, 0)))
	for r.at < r.Size() {
		n, err := r.Read(buf)
		if err != nil {
			return sum, err
		}
		n, err = w.Write(buf[:n])
		if sum += int64(n); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// A ValueWriter stores a value piece by piece: an io.Writer. Nothing of the value is to be seen before Close, which stores it in one step, whatever is there then. A ValueWriter that
// is not closed is ended by Abort, which does nothing after Close. One goroutine uses it at a time.
type ValueWriter struct {
	st      *Store
	ctx     context.Context
	key     []byte
	size    int64
	options SetOptions
	up      *objstore.Upload // nil: the value has no segments
	small   []byte           // of a value without segments
	buf     []byte           // the segment that is being filled
	next    int
	got     int64 // bytes, without buf
	ended   bool
	err     error
}

// Writer begins to store a value of a size, until ctx ends.
func (st *Store) Writer(ctx context.Context, key []byte, size int64, o SetOptions) (*ValueWriter, error) {
	if _, err := millis(o.TTL); err != nil {
		return nil, err
	}
	if size < 0 || size > int64(st.MaxValue()) {
		return nil, fmt.Errorf("declock: %w: %d bytes, at most %d", objstore.ErrValueSize, size, st.MaxValue())
	}
	w := &ValueWriter{st: st, ctx: ctx, key: append([]byte(nil), key...), size: size, options: o}
	if st.Segment() == 0 || size <= int64(st.Segment()) {
		return w, nil
	}
	err := st.shared.do(ctx, func(c *objstore.Client) (err error) {
		w.up, err = c.Upload(key, 0, int(size))
		return err
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Write implements io.Writer. What fills a segment is written to memory nodes before it returns.
func (w *ValueWriter) Write(p []byte) (n int, err error) {
	if w.ended || w.err != nil {
		return 0, errors.Join(w.err, io.ErrClosedPipe)
	}
	if int64(len(p)+len(w.buf)) > w.size-w.got {
		w.err = fmt.Errorf("%w: more than %d", ErrShortValue, w.size)
		return 0, w.err
	}
	if w.up == nil {
		w.small = append(w.small, p...)
		w.got += int64(len(p))
		return len(p), nil
	}
	for len(p) > 0 {
		_, length := w.up.Span(w.next)
		if len(w.buf) == 0 && len(p) >= length { // a whole segment needs no copy
			if w.err = w.segment(p[:length]); w.err != nil {
				return n, w.err
			}
			p, n = p[length:], n+length
			continue
		}
		k := min(len(p), length-len(w.buf))
		w.buf = append(w.buf, p[:k]...)
		if len(w.buf) == length {
			if w.err = w.segment(w.buf); w.err != nil {
				return n, w.err
			}
			w.buf = w.buf[:0]
		}
		p, n = p[k:], n+k
	}
	return n, nil
}

// segment writes the next segment.
func (w *ValueWriter) segment(b []byte) error {
	err := w.st.shared.do(w.ctx, func(c *objstore.Client) error { return c.Write(w.up, w.next, b) })
	if err == nil {
		w.next++
		w.got += int64(len(b))
	}
	return err
}

// Close stores the value. If it returns an error, the value was not stored, unless the error is fabric.ErrUnknownOutcome.
func (w *ValueWriter) Close() error {
	if w.ended {
		return w.err
	}
	if w.err == nil && w.got != w.size {
		w.err = fmt.Errorf("%w: %d of %d", ErrShortValue, w.got, w.size)
	}
	if w.err == nil {
		w.err = w.put()
	}
	_ = w.Abort() // does nothing if it was stored
	return w.err
}

func (w *ValueWriter) put() error {
	if w.up == nil {
		return w.st.Set(w.ctx, w.key, w.small, w.options)
	}
	return w.st.store(w.ctx, w.options, func(c *objstore.Client, o objstore.Options) error {
		return c.Update(w.key, objstore.Update{Apply: func(*objstore.Object) objstore.Change {
			second, early := c.ExpiryOf(o)
			return objstore.Change{Action: objstore.Put, Upload: w.up, Flags: o.Flags, Expiry: second, Early: early}
		}})
	})
}

// Abort gives up a value that was not stored, and deletes what was written of it. The process does so later if it fails.
func (w *ValueWriter) Abort() error {
	if w.ended {
		return nil
	}
	w.ended = true
	if w.up == nil {
		return nil
	}
	return w.st.shared.do(context.WithoutCancel(w.ctx), func(c *objstore.Client) error { return c.Abort(w.up) })
}
