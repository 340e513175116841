package redis

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/front"
	"github.com/declock/declock/objstore"
)

const (
	// idleBuffer is what a connection has to read into while it waits for a request.
	idleBuffer = 2 << 10
	// busyBuffer is the size to which it grows if requests come one behind the other.
	busyBuffer = 16 << 10
	// enoughOut is how much of answers is gathered before it is written.
	enoughOut = 64 << 10
	// keepBuffer is how much of a buffer stays with a connection when a request is over.
	keepBuffer = 64 << 10
	// requestRoom is how much longer than a value a request may be.
	requestRoom = 1 << 20
)

// errQuit ends a connection.
var errQuit = errors.New("redis: connection ends")

// A conn is a connection.
type conn struct {
	srv  *Server
	nc   net.Conn
	raw  *front.Direct // nil: there is none
	most int           // bytes of a value

	in       []byte // in[from:to] has been read, and is no request yet
	from, to int
	out      []byte // answers
	parser   parser
	now      *command // that is being served
	name     [32]byte // of a command, for lookups
	value    []byte   // of a request that stores, behind room for a head
	putting  putting
	filled   bool     // the last read has filled the buffer
	charged  int64    // of the server's buffers
	upload   *upload  // of the request that is arriving or being served
	asked    [][]byte // keys of MGET that are not answered
	broken   error    // why the connection ends in the middle of MGET

	admitted bool // it may do more than to say who it is
	resp3    bool
	silent   silence
	id       int64
	began    time.Time
	lastAt   atomic.Int64 // of the server's clock: when its last request came
	about    atomic.Pointer[about]
}

// about is what a client has said of itself.
type about struct{ name, lib, version, user string }

// silence is what CLIENT REPLY has asked for.
type silence uint8

const (
	answers  silence = iota
	skipNext         // no answer to the next request
	skipThis
	silent // no answers
)

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{srv: s, nc: nc, raw: front.DirectOf(nc), id: s.lastID.Add(1), began: time.Now(), admitted: s.users == nil}
	c.about.Store(&about{user: defaultUser})
	c.putting.apply = c.applyPut
	return c
}

const defaultUser = "default"

// serve serves the connection until its end.
func (c *conn) serve() {
	c.in = make([]byte, idleBuffer)
	for {
		if err := c.direct(); err != nil {
			break
		}
		if err := c.next(); err != nil {
			break
		}
	}
	c.dropUpload()
	_ = c.flush()
	_ = c.nc.Close()
	c.srv.buffers.Add(-c.charged)
}

// direct serves requests as long as it can do so directly. Then the next read is another: a large value arrives, or the server is being shut down.
func (c *conn) direct() error {
	if c.raw == nil {
		return nil
	}
	var ended error
	err := c.raw.Each(func() (done bool) {
		for {
			served, err := true, error(nil)
			for served && err == nil {
				served, err = c.request()
			}
			if err == nil && c.announced() != nil {
				return true
			}
			if err == nil {
				err = c.prepare()
			}
			n := 0
			if err == nil {
				n, err = c.raw.Read(c.in[c.to:])
				c.arrived(n)
			}
			if ended = err; err != nil {
				return true
			}
			if n == 0 {
				c.srv.accept.BeforeRead(c.nc, c.srv.o.IdleTimeout)
				return false
			}
		}
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

// wasIdle reports whether a read has failed with err because the client was idle, and counts that.
func (c *conn) wasIdle(err error) bool {
	idle := c.srv.accept.Idle(err, c.srv.o.IdleTimeout)
	if idle {
		c.srv.counted.idled.Add(1)
	}
	return idle
}

// next serves one request, or reads more of it.
func (c *conn) next() error {
	if served, err := c.request(); served || err != nil {
		return err
	}
	if c.arrives() {
		return c.receive()
	}
	return c.fill()
}

// request serves a request, if all of it has arrived.
func (c *conn) request() (served bool, err error) {
	c.parser.mostValue = c.srv.most()
	c.parser.mostRequest = c.parser.mostValue + requestRoom
	c.parser.stranger = !c.admitted
	args, n, err := c.parser.next(c.in[c.from:c.to])
	if err != nil {
		c.fail("ERR " + err.Error())
		return false, errQuit
	}
	if n == 0 {
		return false, nil
	}
	c.from += n
	if len(args) == 0 {
		return true, nil
	}
	err = c.do(args)
	if c.upload != nil {
		c.dropUpload()
	}
	if err == nil && len(c.out) >= enoughOut {
		err = c.flush()
	}
	return true, err
}

// fill reads more.
func (c *conn) fill() error {
	if err := c.prepare(); err != nil {
		return err
	}
	n, err := c.srv.accept.Read(c.nc, c.in[c.to:], c.srv.o.IdleTimeout)
	switch c.arrived(n); {
	case n > 0:
		return nil
	case err == nil:
		return io.ErrNoProgress
	}
	c.wasIdle(err)
	return err
}

// arrived notes that n bytes more have been read.
func (c *conn) arrived(n int) {
	c.to += n
	c.filled = c.to == len(c.in)
	c.srv.counted.read.Add(uint64(n))
	if n > 0 {
		c.lastAt.Store(int64(time.Since(c.srv.started)))
	}
}

// prepare makes room to read more, after it has written what there is of answers.
func (c *conn) prepare() error {
	if err := c.flush(); err != nil {
		return err
	}
	if c.from > 0 {
		c.to = copy(c.in, c.in[c.from:c.to])
		c.from = 0
	}
	size := len(c.in)
	switch need := c.parser.need(); {
	case c.to == 0 && size > busyBuffer:
		size = idleBuffer
	case c.to == size:
		// As much as has arrived once more, and not what is announced: a client may announce much and send nothing.
		size = 2 * size
		if need > 0 {
			size = min(size, max(need, busyBuffer))
		}
	case c.filled && size < busyBuffer:
		size = busyBuffer
	}
	if size != len(c.in) {
		bigger := make([]byte, size)
		copy(bigger, c.in[:c.to])
		c.in = bigger
	}
	if c.to == 0 {
		c.parser.trim()
		if cap(c.value) > keepBuffer {
			c.value = nil
		}
	}
	return c.charge()
}

// charge has the server count the connection's large buffers. An error: there are too many.
func (c *conn) charge() error {
	var now int64
	if n := cap(c.in) + cap(c.out) + cap(c.value) + c.parser.memory(); n > 3*keepBuffer {
		now = int64(n)
	}
	if now == c.charged {
		return nil
	}
	sum := c.srv.buffers.Add(now - c.charged)
	grown := now > c.charged
	c.charged = now
	if grown && sum > c.srv.o.MaxBuffers {
		c.srv.counted.overBuffers.Add(1)
		return errQuit
	}
	return nil
}

// flush writes the answers.
func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	if err := c.charge(); err != nil {
		return err
	}
	n := c.raw.Write(c.out)
	c.srv.counted.written.Add(uint64(n))
	err := c.write(c.out[n:])
	if c.out = c.out[:0]; cap(c.out) > 2*enoughOut {
		c.out = nil
	}
	return err
}

// write writes bytes. A client that takes none of them for the idle timeout is idle.
func (c *conn) write(b []byte) error {
	piece, d := len(b), c.srv.o.IdleTimeout
	if d > 0 {
		piece = enoughOut
	}
	for len(b) > 0 {
		if d > 0 {
			c.srv.accept.WriteBy(c.nc, time.Now().Add(d))
		}
		n, err := c.nc.Write(b[:min(piece, len(b))])
		c.srv.counted.written.Add(uint64(n))
		if err != nil {
			if c.srv.accept.Idle(err, d) {
				c.srv.counted.idled.Add(1)
			}
			return err
		}
		b = b[n:]
	}
	return nil
}

// do does a request, and appends its answer.
func (c *conn) do(args [][]byte) error {
	if c.silent == skipNext {
		c.silent = skipThis
	}
	was := c.silent
	if was != answers {
		if err := c.flush(); err != nil { // those before are wanted
			return err
		}
	}
	err := c.command(args)
	if was == skipThis && c.silent == skipThis {
		c.silent = answers
	}
	if was == skipThis || was == silent && c.silent == silent {
		c.out = c.out[:0]
	}
	return err
}

// fail answers with an error.
func (c *conn) fail(text string) {
	c.srv.counted.errors.Add(1)
	c.out = append(c.out, '-')
	for i := 0; i < len(text); i++ {
		if b := text[i]; b == '\r' || b == '\n' {
			c.out = append(c.out, ' ')
		} else {
			c.out = append(c.out, b)
		}
	}
	c.out = append(c.out, '\r', '\n')
}

// failed answers with the error of an operation on the store.
func (c *conn) failed(err error) {
	switch {
	case errors.Is(err, objstore.ErrNoSpace):
		c.fail("OOM command not allowed when used memory > 'maxmemory'.")
	case errors.Is(err, objstore.ErrValueSize):
		c.fail(tooLong)
	case errors.Is(err, objstore.ErrKeySize):
		c.fail(badKey)
	case errors.Is(err, errDetached):
		c.fail("TRYAGAIN this server is not a member of the cluster at the moment")
	case errors.Is(err, fabric.ErrUnknownOutcome), errors.Is(err, fabric.ErrClosed), errors.Is(err, fabric.ErrFenced), errors.Is(err, context.Canceled):
		c.fail("ERR the outcome is unknown: this server has lost the cluster, or a memory node does not answer")
	case errors.Is(err, fabric.ErrTooFewCopies):
		c.fail("NOREPLICAS Not enough good replicas to write.")
	case errors.Is(err, fabric.ErrNodeDown):
		c.fail("ERR a memory node is down")
	default:
		c.fail("ERR " + err.Error())
	}
}

const (
	tooLong     = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
	badKey      = "ERR a key has 1 to 250 bytes here"
	syntaxError = "ERR syntax error"
	notInteger  = "ERR value is not an integer or out of range"
)

// The parts of answers.

func (c *conn) ok()            { c.out = append(c.out, "+OK\r\n"...) }
func (c *conn) number(v int64) { c.out = line(c.out, ':', v) }
func (c *conn) bulk(b []byte)  { c.out = bulk(c.out, b) }
func (c *conn) text(s string) {
	c.out = line(c.out, '$', int64(len(s)))
	c.out = append(append(c.out, s...), '\r', '\n')
}

// verbatim is a text for people.
func (c *conn) verbatim(b []byte) {
	if !c.resp3 {
		c.bulk(b)
		return
	}
	c.out = append(line(c.out, '=', int64(len(b)+4)), "txt:"...)
	c.out = append(append(c.out, b...), '\r', '\n')
}
func (c *conn) array(n int) { c.out = line(c.out, '*', int64(n)) }

// null says that there is no value.
func (c *conn) null() {
	if c.resp3 {
		c.out = append(c.out, "_\r\n"...)
	} else {
		c.out = append(c.out, "$-1\r\n"...)
	}
}

// mapping begins n pairs.
func (c *conn) mapping(n int) {
	if c.resp3 {
		c.out = line(c.out, '%', int64(n))
	} else {
		c.array(2 * n)
	}
}

// truth answers whether something took place.
func (c *conn) truth(yes bool) {
	if yes {
		c.number(1)
	} else {
		c.number(0)
	}
}
