package tcp

import (
	"errors"
	"fmt"
	"sync"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

const (
	// maxBatch is how many messages go in one frame.
	maxBatch = 255
	// ackEvery is after how many messages a receiver acknowledges them; else with its next heartbeat.
	ackEvery = 128
)

// An outLink is a connection for the messages to one incarnation of a compute node: there are two between each pair of nodes that talk. A sender
// writes, unless another goroutine is writing: then that one writes all that has gathered.
type outLink struct {
	*peer.Link
	n *node

	// Under Mu.

	conn    *mailConn // nil while it is not connected
	idle    *sync.Cond
	writing bool
	asking  bool // the next frame asks for an acknowledgement
	asked   int  // how often it may say so though nothing new has come
	frame   []byte
	seen    uint64 // by watch
	stalled int
}

// NewWire is peer.Network.NewWire.
func (n *node) NewWire(l *peer.Link) (peer.Wire, error) {
	return &outLink{Link: l, n: n, idle: sync.NewCond(&l.Mu)}, nil
}

// Flush writes what was not written, unless another goroutine is writing; Mu is held, and released while
// the kernel works.
func (l *outLink) Flush() {
	if l.writing {
		return
	}
	l.writing = true
	for conn := l.conn; conn != nil && conn == l.conn && (l.Written < l.Filled || l.asking); {
		if conn.stream.backlogged() > 0 {
			if err := l.n.mail.poller.change(&conn.watched, forInput|forRoom); err != nil {
				l.broke(conn)
			}
			break
		}
		l.gather()
		l.Mu.Unlock()
		err := conn.stream.write(l.frame)
		l.Mu.Lock()
		if err != nil {
			l.broke(conn)
		}
	}
	l.writing = false
	l.idle.Broadcast()
}

// gather makes a frame of messages that were not written; Mu is held.
func (l *outLink) gather() {
	count := int(min(l.Filled-l.Written, maxBatch))
	h := header{length: headerSize + count*fabric.MaxMessage, kind: frameMessages, count: count, number: l.Written}
	if l.asking && l.Written+uint64(count) == l.Filled {
		h.status, l.asking = ackNow, false
		l.asked++
	}
	l.frame = append(l.frame[:0], make([]byte, headerSize)...)
	h.put(l.frame)
	for range count {
		l.frame = append(l.frame, l.At(l.Written)[:]...)
		l.Written++
	}
}

// Ask is peer.Wire.Ask.
func (l *outLink) Ask() {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.asking = true
	l.Flush()
}

// Unsent is peer.Wire.Unsent.
func (l *outLink) Unsent() bool {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return !l.Stopped && l.Acked != l.Filled
}

// acknowledged notes how many messages have been delivered.
func (l *outLink) acknowledged(conn *mailConn, number uint64) error {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if conn != l.conn {
		return nil
	}
	if number < l.Acked || number > l.Written {
		return fmt.Errorf("%w: %v has got %d messages of %d to %d", ErrProtocol, l.Peer.ID, number, l.Acked, l.Written)
	}
	if number == l.Acked {
		if l.asked == 0 {
			return fmt.Errorf("%w: %v says again that it has got %d messages", ErrProtocol, l.Peer.ID, number)
		}
		l.asked--
	}
	l.Ack(number)
	return nil
}

// broke has Connect replace the connection; Mu is held.
func (l *outLink) broke(conn *mailConn) {
	if conn != l.conn {
		return
	}
	l.conn = nil
	conn.stream.end()
	l.Break()
}

// Cut is peer.Wire.Cut.
func (l *outLink) Cut() {
	if l.conn != nil {
		l.broke(l.conn)
	}
}

// Release is peer.Wire.Release.
func (l *outLink) Release() {}

// watch is called now and then: it gives the connection up when the receiver has acknowledged nothing new of
// what was written, limit times.
func (l *outLink) watch(limit int) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.conn == nil || l.Acked == l.Written || l.Acked != l.seen {
		l.seen, l.stalled = l.Acked, 0
		return
	}
	if l.stalled++; l.stalled >= limit {
		l.stalled = 0
		l.broke(l.conn)
	}
}

// Connect is peer.Wire.Connect.
func (l *outLink) Connect() error {
	n := l.n
	h := hello{role: roleLink, cn: uint8(n.Own.ID), from: uint64(n.Own.Incarnation), to: uint64(l.Peer.Incarnation), revision: n.Revision()}
	s, r, err := dial(l.Ctx, &n.Config, peer.ComputeNode(l.Peer), h, false)
	if err != nil {
		return err
	}
	conn := n.mail.newConn(s, l, nil)
	if err = n.mail.add(conn); err == nil {
		if err = l.begin(conn, r.number); err == nil {
			select {
			case <-l.Ctx.Done():
			case <-l.Broken:
			}
		}
	}
	l.Mu.Lock()
	l.broke(conn)
	for l.writing {
		l.idle.Wait()
	}
	l.Mu.Unlock()
	n.mail.remove(conn)
	return err
}

// begin sends on, from where the receiver has got to.
func (l *outLink) begin(conn *mailConn, delivered uint64) error {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	ask := l.asking || l.Acked != l.Filled // for a Close that waits
	if err := l.Resume(delivered); err != nil {
		return err
	}
	l.asking, l.asked, l.conn = ask, 0, conn
	l.Flush()
	return nil
}

// An inLink receives messages of one incarnation of a compute node. It outlives its connections.
type inLink struct {
	n    *node
	peer member.CN

	mu        sync.Mutex // held while messages are delivered
	conn      *mailConn  // nil while there is none, or it has been cut
	ended     bool
	delivered uint64
	acked     uint64 // last acknowledged
	in        []byte
	have      int
	full      bool // a client does not take its messages: nothing is read until it does
	fullOf    int  // its index
}

// maxInbox is how many messages for a client that does not take them make a receiver stop reading.
const maxInbox = 1 << 16

// inBuffer is how much is read at a time.
const inBuffer = 32 << 10

// admit answers a compute node that wants to send messages.
func (n *node) admit(g guest) (reply, func(*stream), error) {
	if g.role != roleLink {
		return reply{}, nil, fmt.Errorf("%w: this is %v, which takes no lanes", ErrProtocol, n.Own.ID)
	}
	var r reply
	var take func(*stream)
	err := n.Await(n.Ctx, func(*member.State) (err error) {
		n.Mu.Lock()
		defer n.Mu.Unlock()
		r, take, err = n.enter(&g)
		return err
	})
	return r, take, err
}

// enter lets a peer in, or says why not; Mu is held.
func (n *node) enter(g *guest) (r reply, take func(*stream), err error) {
	st, _ := n.State()
	from, err := n.Sender(st, g.caller())
	if err != nil {
		return r, nil, err
	}
	l := n.arrived[from.Incarnation]
	if l == nil {
		l = &inLink{n: n, peer: from, in: make([]byte, inBuffer)}
		n.arrived[from.Incarnation] = l
	}
	return reply{known: true, number: l.cut(), revision: st.Revision}, func(s *stream) {
		if s != nil {
			l.begin(s)
		}
	}, nil
}

// cut ends the old connection: messages that came over it and were not delivered will come again. It returns
// how many messages have been delivered.
func (l *inLink) cut() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.stream.end()
		l.conn = nil
	}
	// If it is full it stays so: with each new connection there would be room for a little more.
	l.have, l.acked = 0, l.delivered
	return l.delivered
}

// begin receives over a connection.
func (l *inLink) begin(s *stream) {
	l.mu.Lock()
	if l.ended || l.conn != nil {
		// The sender has gone meanwhile; or another connection was faster, and the sender does not want this one any more.
		l.mu.Unlock()
		s.close()
		return
	}
	c := l.n.mail.newConn(s, nil, l)
	l.conn = c
	l.mu.Unlock()
	if l.n.mail.add(c) != nil {
		l.cut()
		s.close()
	}
}

// turn delivers what has come over a connection, for a while: however fast one sends, others have their turn. It returns the
// number of bytes and whether there may be more, or why the connection has ended.
func (l *inLink) turn(c *mailConn) (n int, more bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range readsPerTurn {
		if c != l.conn {
			return n, false, errReplaced
		}
		if l.full {
			return n, false, nil
		}
		k, err := c.stream.read(l.in[l.have:])
		if isAgain(err) {
			return n, false, nil
		}
		if err != nil {
			return n, false, err
		}
		n += k
		l.have += k
		drained := l.have < len(l.in) && c.stream.tls == nil
		if err := l.deliver(); err != nil || drained {
			return n, false, err
		}
	}
	return n, true, nil
}

var errReplaced = errors.New("tcp: replaced by a new connection")

// deliver delivers the messages that have come as a whole; mu is held.
func (l *inLink) deliver() error {
	at := 0
	var h header
	var m fabric.Message
	now := false
	for !l.full {
		ok, err := h.parse(l.in[at:l.have])
		if err != nil {
			return err
		}
		if h.length > len(l.in) {
			return fmt.Errorf("%w: a frame of %d bytes", ErrProtocol, h.length)
		}
		if !ok {
			break
		}
		if h.kind != frameMessages || h.number != l.delivered || h.length != headerSize+h.count*fabric.MaxMessage {
			return fmt.Errorf("%w: frame %d, of kind %d, with %d messages in %d bytes, where message %d is due",
				ErrProtocol, h.number, h.kind, h.count, h.length, l.delivered)
		}
		for i := range h.count {
			from, to := (*peer.WireMessage)(l.in[at+headerSize+i*fabric.MaxMessage:]).Decode(&m)
			m.From = fabric.Client(l.peer.ID, from)
			l.n.Table.Deliver(to, &m)
			if l.n.Table.Len(to) >= maxInbox {
				l.full, l.fullOf = true, to
			}
		}
		l.delivered += uint64(h.count)
		now = now || h.status&ackNow != 0
		at += h.length
	}
	l.have = copy(l.in, l.in[at:l.have])
	if now || l.delivered-l.acked >= ackEvery {
		return l.acknowledge()
	}
	return nil
}

func (l *inLink) isFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.full
}

// goesOn reads again if the client that had too many messages has taken some; mu is held.
func (l *inLink) goesOn() (bool, error) {
	if !l.full || l.n.Table.Len(l.fullOf) > maxInbox/2 {
		return false, nil
	}
	l.full = false
	err := l.deliver()
	return !l.full, err
}

// acknowledge acknowledges what was delivered; mu is held.
func (l *inLink) acknowledge() error {
	if l.conn == nil {
		return nil
	}
	s := l.conn.stream
	if left, err := s.flush(); left > 0 || err != nil {
		return err // it does not read; it will
	}
	h := header{length: headerSize, kind: frameAck, number: l.delivered}
	var b [headerSize]byte
	h.put(b[:])
	l.acked = l.delivered
	return s.write(b[:])
}
