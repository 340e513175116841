//go:build linux

package tcp

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A mail has the connections to and from other compute nodes. A goroutine of its own delivers what comes, or a client that
// waits for a message, whoever looks first.
type mail struct {
	n       *node
	poller  *poller
	stopped atomic.Bool
	count   atomic.Int32 // connections

	mu     sync.Mutex // held while connections are looked at
	events [32]unix.EpollEvent
	again  []*mailConn // that may have more, and were sent to the back
	ack    [128 * headerSize]byte

	listMu sync.Mutex
	conns  map[int32]*mailConn
	last   int32
}

// A mailConn is a connection of a link.
type mailConn struct {
	id     int32
	stream *stream
	out    *outLink // or
	in     *inLink
	again  bool // it is in the mail's again
	have   int
	buf    [headerSize]byte // a part of an acknowledgement
}

func newMail(n *node) (*mail, error) {
	p, err := newPoller()
	if err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	return &mail{n: n, poller: p, conns: map[int32]*mailConn{}}, nil
}

// add watches the connection of a link.
func (p *mail) add(s *stream, out *outLink, in *inLink) (int32, error) {
	p.listMu.Lock()
	p.last++
	c := &mailConn{id: p.last, stream: s, out: out, in: in}
	p.conns[c.id] = c
	p.listMu.Unlock()
	p.count.Add(1)
	if err := p.poller.add(s.fd, c.id, forInput); err != nil {
		p.forget(c.id)
		return c.id, err
	}
	if s.tls != nil {
		// It may have read more than the hello.
		p.mu.Lock()
		p.serve(c)
		p.mu.Unlock()
	}
	return c.id, nil
}

func (p *mail) forget(id int32) {
	p.listMu.Lock()
	defer p.listMu.Unlock()
	if p.conns[id] != nil {
		delete(p.conns, id)
		p.count.Add(-1)
	}
}

// remove closes a connection. Nobody writes to it any more.
func (p *mail) remove(id int32, s *stream) {
	p.forget(id)
	p.poller.remove(s.fd)
	p.mu.Lock() // nobody reads
	defer p.mu.Unlock()
	s.close()
}

// wantRoom makes the mail flush an outgoing connection when there is room.
func (p *mail) wantRoom(s *stream, out *outLink) error {
	p.listMu.Lock()
	id := int32(0)
	for _, c := range p.conns {
		if c.stream == s {
			id = c.id
		}
	}
	p.listMu.Unlock()
	if id == 0 {
		return ErrLost
	}
	return p.poller.change(s.fd, id, forInput|forRoom)
}

func (p *mail) run() {
	p.poller.run(p.n.Now, func() (int, bool) {
		p.mu.Lock()
		n := p.look()
		p.mu.Unlock()
		if n > 0 {
			runtime.Gosched() // to those who were woken
		}
		return n, !p.stopped.Load()
	})
}

// poll delivers what has come, unless somebody else is at it, or nobody should look.
func (p *mail) poll() {
	if p.count.Load() > 0 && !machine.here(p.n.Now()) && p.mu.TryLock() {
		p.look()
		p.mu.Unlock()
	}
}

// look serves the connections that have something; mu is held.
func (p *mail) look() int {
	n := p.poller.ready(p.events[:])
	for _, e := range p.events[:n] {
		if e.Fd == signalID {
			p.poller.calm()
			continue
		}
		p.listMu.Lock()
		c := p.conns[e.Fd]
		p.listMu.Unlock()
		switch {
		case c == nil:
		case e.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 && c.in != nil && c.in.isFull():
			// The kernel would say so again and again, and we must not read. What is left will come over a new connection.
			p.drop(c, ErrLost)
		default:
			p.serve(c)
		}
	}
	if again := p.again; len(again) > 0 {
		p.again = nil
		for _, c := range again {
			p.listMu.Lock()
			there := p.conns[c.id] == c
			p.listMu.Unlock()
			if c.again = false; there {
				p.serve(c)
			}
		}
	}
	return n
}

// serve takes what a connection has; mu is held.
func (p *mail) serve(c *mailConn) {
	var more bool
	var err error
	if c.in != nil {
		_, more, err = c.in.turn(c.stream)
		if err == nil && c.in.isFull() {
			err = p.poller.change(c.stream.fd, c.id, 0) // until acknowledge finds that there is room
		}
		if err != nil {
			p.drop(c, err)
		}
	} else if more, err = p.serveOut(c); err != nil {
		if errors.Is(err, ErrProtocol) {
			p.n.Report(fmt.Errorf("connection to %v: %w", c.out.Peer.ID, err))
		}
		p.poller.remove(c.stream.fd)
		c.out.Mu.Lock()
		c.out.broke(c.stream) // and its goroutine removes it
		c.out.Mu.Unlock()
	}
	if more {
		p.sendBack(c)
	}
}

// sendBack has a connection served once more, after the others; mu is held.
func (p *mail) sendBack(c *mailConn) {
	if !c.again {
		c.again = true
		p.again = append(p.again, c)
		p.poller.wake()
	}
}

// drop ends an incoming connection; mu is held.
func (p *mail) drop(c *mailConn, why error) {
	if errors.Is(why, ErrProtocol) {
		p.n.Report(fmt.Errorf("connection from %v: %w", c.in.peer.ID, why))
	}
	p.forget(c.id)
	p.poller.remove(c.stream.fd)
	c.in.mu.Lock()
	if c.in.conn == c.stream {
		c.in.conn = nil
	}
	c.in.mu.Unlock()
	c.stream.close()
}

// serveOut takes acknowledgements, for a while, and writes on when there is room. It tells whether there may be more.
func (p *mail) serveOut(c *mailConn) (more bool, err error) {
	left, err := c.stream.flush()
	if err != nil {
		return false, err
	}
	if left == 0 {
		if err := p.poller.change(c.stream.fd, c.id, forInput); err != nil {
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
				return false, fmt.Errorf("%w: %v where an acknowledgement is due", ErrProtocol, h.kind)
			}
			if err := c.out.acknowledged(c.stream, h.number); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// acknowledge tells all senders how many messages have been delivered, if they do not know, and reads on from
// those that had to wait.
func (p *mail) acknowledge() {
	p.listMu.Lock()
	var list []*mailConn
	for _, c := range p.conns {
		if c.in != nil {
			list = append(list, c)
		}
	}
	p.listMu.Unlock()
	for _, c := range list {
		c.in.mu.Lock()
		if c.in.conn == c.stream && c.in.delivered != c.in.acked {
			_ = c.in.acknowledge() // who reads hears of what is wrong
		}
		on, err := false, error(nil)
		if c.in.conn == c.stream {
			on, err = c.in.goesOn()
		}
		c.in.mu.Unlock()
		if err == nil && on {
			err = p.poller.change(c.stream.fd, c.id, forInput)
		}
		if err != nil {
			c.stream.end() // and who reads hears of it
		} else if on && c.stream.tls != nil {
			p.mu.Lock()
			p.sendBack(c) // what TLS has read already, the kernel does not tell of
			p.mu.Unlock()
		}
	}
}

// drain delivers what a node that has gone has sent, and shuts it out.
func (p *mail) drain(l *inLink) {
	l.mu.Lock()
	s := l.conn
	l.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if s != nil {
		// What has come by now, and no more: a node that has been declared dead may go on sending for ever.
		limit, _ := unix.IoctlGetInt(s.fd, unix.TIOCINQ)
		for n, more := 0, true; more && n <= limit+inBuffer; {
			var k int
			k, more, _ = l.turn(s)
			n += k
		}
	}
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.cut()
}

func (p *mail) stop() {
	p.stopped.Store(true)
	p.poller.wake()
}

// close gives everything back when nobody uses it any more.
func (p *mail) close() {
	for _, c := range p.conns {
		c.stream.close()
	}
	p.poller.close()
}
