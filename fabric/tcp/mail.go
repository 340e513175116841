package tcp

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// A mail has the connections to and from other compute nodes. Its own goroutine delivers the messages that come, or a client that waits
// for one: whichever is first.
type mail struct {
	n      *node
	poller *poller

	mu  sync.Mutex // held while connections are served
	ack [128 * headerSize]byte
}

// A mailConn is a connection of a link.
type mailConn struct {
	watched
	mail   *mail
	stream *stream
	out    *outLink // or
	in     *inLink
	have   int
	buf    [headerSize]byte // a part of an acknowledgement
}

func newMail(n *node) (*mail, error) {
	p, err := newPoller()
	if err != nil {
		return nil, err
	}
	return &mail{n: n, poller: p}, nil
}

// newConn returns the connection of a link: out, or in.
func (p *mail) newConn(s *stream, out *outLink, in *inLink) *mailConn {
	c := &mailConn{mail: p, stream: s, out: out, in: in, watched: watched{fd: s.fd}}
	c.pollable = c
	return c
}

// add watches a connection.
func (p *mail) add(c *mailConn) error {
	if err := p.poller.add(&c.watched); err != nil {
		return err
	}
	if c.stream.tls != nil {
		p.poller.sendBack(&c.watched) // TLS may have read more than the hello
	}
	return nil
}

// remove closes a connection, to which nothing is written any more.
func (p *mail) remove(c *mailConn) {
	p.poller.remove(&c.watched)
	p.mu.Lock() // nothing is read
	defer p.mu.Unlock()
	c.stream.close()
}

func (p *mail) run() {
	p.poller.run(p.n.Now, p.poller.park, func() int {
		p.mu.Lock()
		n := p.poller.serve()
		p.mu.Unlock()
		if n > 0 {
			runtime.Gosched() // the woken clients go first
		}
		return n
	})
}

// poll delivers what has come, unless another goroutine does, and returns how many connections had something.
func (p *mail) poll() (n int) {
	if p.poller.count.Load() > 0 && p.mu.TryLock() {
		n = p.poller.serve()
		p.mu.Unlock()
	}
	return n
}

// set returns the epoll descriptor of the mail, or -1 when there is none to watch.
func (p *mail) set() int {
	if p.poller.count.Load() == 0 || p.poller.stopped.Load() {
		return -1
	}
	return p.poller.set
}

// serve takes what a connection has; mu is held.
func (c *mailConn) serve(events uint32) {
	p := c.mail
	var more bool
	var err error
	switch {
	case c.in == nil:
		more, err = p.serveOut(c)
	case events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 && c.in.isFull():
		// The kernel would report it again and again, and nothing may be read. The rest will come over a new connection.
		err = ErrLost
	default:
		if _, more, err = c.in.turn(c); err == nil && c.in.isFull() {
			err = p.poller.change(&c.watched, 0) // until acknowledge finds that there is room
		}
	}
	if err != nil {
		c.drop(err)
	} else if more {
		p.poller.sendBack(&c.watched)
	}
}

// drop ends a connection; mu is held. The goroutine of an outgoing one closes it.
func (c *mailConn) drop(why error) {
	p := c.mail
	p.poller.remove(&c.watched)
	if l := c.out; l != nil {
		if errors.Is(why, ErrProtocol) {
			p.n.Report(fmt.Errorf("connection to %v: %w", l.Peer.ID, why))
		}
		l.Mu.Lock()
		l.broke(c)
		l.Mu.Unlock()
		return
	}
	if errors.Is(why, ErrProtocol) {
		p.n.Report(fmt.Errorf("connection from %v: %w", c.in.peer.ID, why))
	}
	c.in.mu.Lock()
	if c.in.conn == c {
		c.in.conn = nil
	}
	c.in.mu.Unlock()
	c.stream.close()
}

// serveOut takes acknowledgements, for a while, and writes on when there is room. It reports whether there may be more.
func (p *mail) serveOut(c *mailConn) (more bool, err error) {
	left, err := c.stream.flush()
	if err != nil {
		return false, err
	}
	if left == 0 {
		if err := p.poller.change(&c.watched, forInput); err != nil {
			return false, err
		}
		c.out.Mu.Lock()
		c.out.Flush()
		c.out.Mu.Unlock()
	}
	for range readsPerTurn {
		k, err := c.stream.read(p.ack[:])
		if isAgain(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for _, b := range p.ack[:k] {
			c.buf[c.have] = b
			if c.have++; c.have < headerSize {
				continue
			}
			c.have = 0
			var h header
			if _, err := h.parse(c.buf[:]); err != nil {
				return false, err
			}
			if h.kind != frameAck || h.length != headerSize {
				return false, fmt.Errorf("%w: a frame of kind %d where an acknowledgement is due", ErrProtocol, h.kind)
			}
			if err := c.out.acknowledged(c, h.number); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// acknowledge acknowledges to all senders what was delivered, and reads on from those that had to wait.
func (p *mail) acknowledge() {
	for _, w := range p.poller.all() {
		c := w.pollable.(*mailConn)
		if c.in == nil {
			continue
		}
		c.in.mu.Lock()
		if c.in.conn == c && c.in.delivered != c.in.acked {
			_ = c.in.acknowledge() // the reader finds out what is wrong
		}
		on, err := false, error(nil)
		if c.in.conn == c {
			on, err = c.in.goesOn()
		}
		c.in.mu.Unlock()
		if err == nil && on {
			err = p.poller.change(w, forInput)
		}
		if err != nil {
			c.stream.end() // the reader finds out
		} else if on && c.stream.tls != nil {
			p.poller.sendBack(w) // epoll does not report what TLS has read already
		}
	}
}

// drain delivers what a node that has gone has sent, and shuts it out.
func (p *mail) drain(l *inLink) {
	l.mu.Lock()
	c := l.conn
	l.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if c != nil {
		c.stream.refresh()
		// What has come by now, and no more: a node that was declared dead may go on sending for ever.
		limit, _ := unix.IoctlGetInt(c.stream.fd, unix.TIOCINQ)
		for n, more := 0, true; more && n <= limit+inBuffer; {
			var k int
			k, more, _ = l.turn(c)
			n += k
		}
	}
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.cut()
}

// close gives everything back when nothing uses it any more.
func (p *mail) close() {
	for _, w := range p.poller.all() {
		w.pollable.(*mailConn).stream.close()
	}
	p.poller.close()
}
