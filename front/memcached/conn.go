package memcached

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"

	"github.com/declock/declock/objstore"
)

const (
	// idleBuffer is what a connection has to read into while it waits for a request.
	idleBuffer = 2 << 10
	// busyBuffer is the size from which on more is read into no larger buffer, unless a line needs it.
	busyBuffer = 16 << 10
	// longestLine bounds the line of a get of many keys; other lines have 2 KiB.
	longestLine = 1 << 20
	shortLine   = 2 << 10
	// enoughOut is how much of answers is gathered before it is written.
	enoughOut = 64 << 10
	// keepBuffer is how much of a buffer stays with a connection when a request is over.
	keepBuffer = 16 << 10
	maxTokens  = 24
)

// errQuit ends a connection.
var errQuit = errors.New("memcached: connection ends")

// A conn is a connection.
type conn struct {
	srv *Server
	nc  net.Conn
	w   *worker

	in       []byte // in[from:to] has been read, and is no request yet
	from, to int
	out      []byte // answers
	data     []byte // of a request that stores
	key      [objstore.MaxKey]byte
	tokens   [maxTokens][]byte
	saved    []byte // tokens of a request, while its data is read
	marks    [maxTokens]int
	noreply  bool
	decided  bool // which protocol the client speaks:
	isBinary bool
	admitted bool          // it may do more than to say who it is
	state    atomic.Uint32 // what it does, for stats conns
	lastAt   atomic.Int64  // of the server's clock: when its last request came
	waited   bool          // for more of a request
}

// What a connection does, in memcached's words.
const (
	connReads uint32 = iota
	connWorks
	connReadsData
)

var connStates = [...]string{connReads: "conn_read", connWorks: "conn_parse_cmd", connReadsData: "conn_nread"}

func newConn(s *Server, nc net.Conn) *conn { return &conn{srv: s, nc: nc, w: s.worker()} }

// serve serves the connection until its end.
func (c *conn) serve() {
	c.in = make([]byte, idleBuffer)
	c.admitted = c.srv.users == nil
	for {
		if err := c.next(); err != nil {
			break
		}
	}
	_ = c.flush()
	_ = c.nc.Close()
}

// next serves one request.
func (c *conn) next() error {
	c.state.Store(connReads)
	if !c.decided {
		first, err := c.need(1)
		if err != nil {
			return err
		}
		c.decided, c.isBinary = true, first[0] == binRequest
		if p := c.srv.o.Protocol; p != "" && c.isBinary != (p == "binary") {
			return errQuit
		}
	}
	if c.isBinary {
		return c.binary()
	}
	line, err := c.line()
	if err != nil {
		return err
	}
	c.noreply = false
	c.lastAt.Store(int64(c.srv.clock()))
	c.state.Store(connWorks)
	if !c.admitted {
		return c.authenticate(line)
	}
	return c.ascii(line)
}

// line returns the next line without its end. It is good until more is read.
func (c *conn) line() ([]byte, error) {
	scanned := 0
	for {
		if i := bytes.IndexByte(c.in[c.from+scanned:c.to], '\n'); i >= 0 {
			line := c.in[c.from : c.from+scanned+i]
			c.from += scanned + i + 1
			if n := len(line); n > 0 && line[n-1] == '\r' {
				line = line[:n-1]
			}
			return line, nil
		}
		scanned = c.to - c.from
		if scanned > shortLine && !manyKeys(c.in[c.from:c.to]) || scanned > longestLine {
			return nil, errQuit
		}
		if err := c.fill(scanned == 0); err != nil {
			return nil, err
		}
	}
}

// manyKeys reports whether the beginning of a long line is that of a get.
func manyKeys(b []byte) bool {
	b = b[:min(len(b), 106)]
	b = bytes.TrimLeft(b, " ")
	return bytes.HasPrefix(b, []byte("get ")) || bytes.HasPrefix(b, []byte("gets "))
}

// fill reads more, after it has written what there is of answers. idle says that no request has begun.
func (c *conn) fill(idle bool) error {
	if err := c.flush(); err != nil {
		return err
	}
	if c.from > 0 {
		c.to = copy(c.in, c.in[c.from:c.to])
		c.from = 0
	}
	switch {
	case idle && len(c.in) > busyBuffer:
		c.in = make([]byte, idleBuffer)
	case c.to == len(c.in), c.waited && len(c.in) < busyBuffer:
		bigger := make([]byte, max(2*len(c.in), idleBuffer))
		copy(bigger, c.in[:c.to])
		c.in = bigger
	}
	n, err := c.read(c.in[c.to:])
	c.to += n
	c.waited = c.to == len(c.in)
	return err
}

// read reads something, or fails.
func (c *conn) read(b []byte) (n int, err error) {
	n, err = c.srv.accept.Read(c.nc, b, c.srv.o.IdleTimeout)
	c.srv.counted.read.Add(uint64(n))
	switch {
	case n > 0:
		return n, nil
	case err == nil:
		err = io.ErrNoProgress
	case c.srv.accept.Idle(err, c.srv.o.IdleTimeout):
		c.srv.counted.idled.Add(1)
	}
	return 0, err
}

// flush writes the answers.
func (c *conn) flush() error {
	if cap(c.w.buf) > keepBuffer {
		c.w.buf = nil
	}
	if len(c.out) == 0 {
		return nil
	}
	n, err := c.nc.Write(c.out)
	c.srv.counted.written.Add(uint64(n))
	if c.out = c.out[:0]; cap(c.out) > keepBuffer {
		c.out = nil
	}
	return err
}

// room writes the answers, if there are many of them.
func (c *conn) room() error {
	if len(c.out) < enoughOut {
		return nil
	}
	return c.flush()
}

// block reads the data of a request, n bytes and what ends them, to behind the room for a head. It is good until the next request's. good reports
// whether the data has its end; if not, what follows is read as a request. Memory grows with what has arrived: a client may announce much and send nothing.
func (c *conn) block(n int) (value []byte, good bool, err error) {
	if value, err = c.bytes(n, 2); err != nil {
		return nil, false, err
	}
	end := c.data[headSize+n:]
	return value, end[0] == '\r' && end[1] == '\n', nil
}

// bytes reads n bytes of data, and some behind them, to behind the room for a head.
func (c *conn) bytes(n, behind int) (value []byte, err error) {
	need := headSize + n + behind
	c.state.Store(connReadsData)
	defer c.state.Store(connWorks)
	if len(c.data) > keepBuffer && need <= keepBuffer {
		c.data = nil
	}
	for have := headSize; have < need; {
		if have >= len(c.data) {
			bigger := make([]byte, min(need, max(keepBuffer, 2*have)))
			copy(bigger, c.data)
			c.data = bigger
		}
		to := c.data[have:min(need, len(c.data))]
		switch {
		case c.from < c.to:
			k := copy(to, c.in[c.from:c.to])
			c.from += k
			have += k
		case len(to) < len(c.in):
			if err := c.fill(false); err != nil {
				return nil, err
			}
		default: // not by way of the buffer
			if err := c.flush(); err != nil {
				return nil, err
			}
			k, err := c.read(to)
			if k == 0 {
				return nil, err
			}
			have += k
		}
	}
	if len(c.data) < headSize { // there is no data
		c.data = make([]byte, idleBuffer)
	}
	return c.data[:headSize+n], nil
}

// skip reads n bytes for nothing.
func (c *conn) skip(n int) error {
	for {
		k := min(n, c.to-c.from)
		c.from += k
		if n -= k; n == 0 {
			return nil
		}
		if err := c.fill(false); err != nil {
			return err
		}
	}
}
