//go:build linux

package tcp

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// Messages from one compute node to another go over a connection of their own, so
// that there are two between each pair of nodes that talk. A number counts the messages of a
// sender's life to a receiver. The receiver says now and then how many it has delivered, and the sender keeps
// what comes after: when a connection breaks, that is sent again over the next one, and so nothing is
// lost, doubled or turned around.
const (
	// maxQueue is how many messages a sender keeps for a node, sent or not. More are refused.
	maxQueue = 1 << 20
	// minQueue is the length of a queue that is kept when it has become empty.
	minQueue = 256
	// maxBatch is how many messages go in one frame.
	maxBatch = 255
	// ackEvery is after how many messages a receiver says how far it is; else with its next heartbeat.
	ackEvery = 128
)

// An outLink has the messages to one life of a compute node. Who sends writes, unless somebody is
// at it: then that one writes all that has gathered.
type outLink struct {
	n      *node
	peer   member.CN
	ctx    context.Context // ends when the link is stopped
	cancel context.CancelFunc
	broken chan struct{} // gets a token when the connection fails

	mu      sync.Mutex
	conn    *stream // nil while it is not connected
	idle    *sync.Cond
	stopped bool
	writing bool
	asking  bool // the receiver is to say how far it is
	asked   int  // how often it may say so though nothing new has come
	// Numbers of messages: those before acked have been delivered, those before written
	// were given to the connection, those before filled are in queue, by number.
	acked, written, filled uint64
	queue                  []peer.WireMessage // its length is a power of two
	frame                  []byte
	seen                   uint64 // by watch
	stalled                int
}

// link returns the link to a compute node that lives.
func (n *node) link(cn fabric.CNID) (*outLink, error) {
	if n.fenced.Load() {
		return nil, n.dead(cn)
	}
	if l := n.links[cn].Load(); l != nil {
		return l, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.links[cn].Load(); l != nil {
		return l, nil
	}
	st, _ := n.State()
	to, ok := peer.Find(st, cn)
	if !ok || n.closed.Load() {
		return nil, n.dead(cn)
	}
	l := &outLink{n: n, peer: to, broken: make(chan struct{}, 1), queue: make([]peer.WireMessage, minQueue)}
	l.idle = sync.NewCond(&l.mu)
	l.ctx, l.cancel = context.WithCancel(n.ctx)
	n.links[cn].Store(l)
	n.tasks.Go(l.run)
	return l, nil
}

// send queues a message, and writes what may be written.
func (l *outLink) send(from, to int, m *fabric.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.filled - l.acked
	switch {
	case l.stopped:
		return l.n.dead(l.peer.ID)
	case n >= maxQueue:
		return fmt.Errorf("%w: %d messages wait for %v", fabric.ErrResources, n, l.peer.ID)
	case n == uint64(len(l.queue)):
		l.resize(2 * n)
	}
	l.at(l.filled).Encode(from, to, m)
	l.filled++
	l.flush()
	return nil
}

func (l *outLink) at(number uint64) *peer.WireMessage { return &l.queue[number&uint64(len(l.queue)-1)] }

// resize changes the length of the queue; mu is held.
func (l *outLink) resize(size uint64) {
	q := make([]peer.WireMessage, size)
	for i := l.acked; i != l.filled; i++ {
		q[i&(size-1)] = *l.at(i)
	}
	l.queue = q
}

// flush writes what was not written, unless somebody is at it; mu is held, and released while
// the kernel works.
func (l *outLink) flush() {
	if l.writing {
		return
	}
	l.writing = true
	for conn := l.conn; conn != nil && conn == l.conn && (l.written < l.filled || l.asking); {
		if conn.backlogged() > 0 {
			if err := l.n.mail.wantRoom(conn, l); err != nil {
				l.broke(conn)
			}
			break
		}
		l.gather()
		l.mu.Unlock()
		err := conn.write(l.frame)
		l.mu.Lock()
		if err != nil {
			l.broke(conn)
		}
	}
	l.writing = false
	l.idle.Broadcast()
}

// gather makes a frame of messages that were not written; mu is held.
func (l *outLink) gather() {
	count := int(min(l.filled-l.written, maxBatch))
	h := header{length: headerSize + count*fabric.MaxMessage, kind: frameMessages, count: count, number: l.written}
	if l.asking && l.written+uint64(count) == l.filled {
		h.status, l.asking = ackNow, false
		l.asked++
	}
	l.frame = append(l.frame[:0], make([]byte, headerSize)...)
	h.put(l.frame)
	for range count {
		l.frame = append(l.frame, l.at(l.written)[:]...)
		l.written++
	}
}

// ask makes the receiver say how far it is, behind all that is queued.
func (l *outLink) ask() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asking = true
	l.flush()
}

// unacknowledged tells whether messages are still on their way to a peer that lives.
func (l *outLink) unacknowledged() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.stopped && l.acked != l.filled
}

// acknowledged takes note of how many messages have been delivered.
func (l *outLink) acknowledged(conn *stream, number uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if conn != l.conn {
		return nil
	}
	if number < l.acked || number > l.written {
		return fmt.Errorf("%w: %v has got %d messages of %d to %d", ErrProtocol, l.peer.ID, number, l.acked, l.written)
	}
	if number == l.acked {
		if l.asked == 0 {
			return fmt.Errorf("%w: %v says again that it has got %d messages", ErrProtocol, l.peer.ID, number)
		}
		l.asked--
	}
	l.acked = number
	if l.acked == l.filled && len(l.queue) > minQueue {
		l.queue = make([]peer.WireMessage, minQueue) // a burst must not hold its memory for ever
	}
	return nil
}

// broke makes run replace the connection; mu is held.
func (l *outLink) broke(conn *stream) {
	if conn != l.conn {
		return
	}
	l.conn = nil
	conn.end()
	select {
	case l.broken <- struct{}{}:
	default:
	}
}

// stop ends the link: the peer is not there any more, or we are not.
func (l *outLink) stop() {
	l.cancel() // first: a new connection in the place of the broken one would throw away what has arrived over that
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	if l.conn != nil {
		l.broke(l.conn)
	}
}

// watch is called now and then: it gives the connection up when the receiver does not say that it has got
// anything of what was written, limit times.
func (l *outLink) watch(limit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil || l.acked == l.written || l.acked != l.seen {
		l.seen, l.stalled = l.acked, 0
		return
	}
	if l.stalled++; l.stalled >= limit {
		l.stalled = 0
		l.broke(l.conn)
	}
}

// run keeps the link connected until it is stopped.
func (l *outLink) run() {
	told := ""
	for l.ctx.Err() == nil {
		err := l.connect()
		if err == nil || l.ctx.Err() != nil {
			told = ""
			continue
		}
		if err.Error() != told {
			told = err.Error()
			l.n.o.Report(fmt.Errorf("connect to %v: %w", l.peer.ID, err))
		}
		peer.Pause(l.ctx, redialEvery)
	}
}

// connect connects the link, and returns when it has failed or is stopped.
func (l *outLink) connect() error {
	n := l.n
	h := hello{role: roleLink, cn: uint8(n.own.ID), from: uint64(n.own.Life), to: uint64(l.peer.Life), revision: n.revision()}
	conn, r, err := dial(l.ctx, &n.o, peer.ComputeNode(l.peer), h, false)
	if err != nil {
		return err
	}
	id, err := n.mail.add(conn, l, nil)
	if err == nil {
		if err = l.begin(conn, r.number); err == nil {
			select {
			case <-l.ctx.Done():
			case <-l.broken:
			}
		}
	}
	l.mu.Lock()
	l.broke(conn)
	for l.writing {
		l.idle.Wait()
	}
	l.mu.Unlock()
	n.mail.remove(id, conn)
	return err
}

// begin sends on, from where the receiver has got to.
func (l *outLink) begin(conn *stream, delivered uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if delivered < l.acked || delivered > l.written {
		return fmt.Errorf("%w: %v has got %d messages of %d to %d", ErrProtocol, l.peer.ID, delivered, l.acked, l.written)
	}
	if l.stopped {
		return l.n.dead(l.peer.ID)
	}
	select {
	case <-l.broken: // the one before
	default:
	}
	l.asking = l.asking || l.acked != l.filled // so that a Close that waits hears of it
	l.acked, l.written, l.asked = delivered, delivered, 0
	l.conn = conn
	l.flush()
	return nil
}

// An inLink receives messages of one life of a compute node. It outlives its connections.
type inLink struct {
	n    *node
	peer member.CN

	mu        sync.Mutex // held while messages are delivered
	conn      *stream    // nil while there is none, or it has been cut
	ended     bool
	delivered uint64
	acked     uint64 // what the sender was told last
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
		return reply{}, nil, fmt.Errorf("%w: this is %v, which takes no %v", ErrProtocol, n.own.ID, g.role)
	}
	var r reply
	var take func(*stream)
	err := n.Await(n.ctx, func(*member.State) (err error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		r, take, err = n.enter(&g)
		return err
	})
	return r, take, err
}

// enter lets a peer in, or says why not; mu is held.
func (n *node) enter(g *guest) (r reply, take func(*stream), err error) {
	st, _ := n.State()
	from, ok := peer.Find(st, fabric.CNID(g.cn))
	switch ok = ok && uint64(from.Life) == g.from; {
	case g.to != uint64(n.own.Life):
		return r, nil, fmt.Errorf("%w: this is another compute node", fabric.ErrNodeDown)
	case !peer.Lives(st, n.own) || !ok && st.Revision < g.revision: // a state from before this node joined knows others that have gone since
		return r, nil, fmt.Errorf("%w: %v", peer.ErrBehind, n.own.ID)
	case !ok:
		return r, nil, fmt.Errorf("%w: cn%d is no member in that life", fabric.ErrFenced, g.cn)
	}
	if g.cert != nil {
		if err := peer.ParseContact(from.Addr).Owns(g.cert); err != nil {
			return r, nil, peer.Denied(err)
		}
	}
	l := n.arrived[from.Life]
	if l == nil {
		l = &inLink{n: n, peer: from, in: make([]byte, inBuffer)}
		n.arrived[from.Life] = l
	}
	return reply{known: true, number: l.cut(), revision: st.Revision}, func(s *stream) {
		if s != nil {
			l.begin(s)
		}
	}, nil
}

// cut ends the connection of before: what it has brought and was not delivered will come again. It returns
// how many messages have been delivered.
func (l *inLink) cut() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.end()
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
		// Gone meanwhile; or another connection was faster, and the sender does not want this one any more.
		l.mu.Unlock()
		s.close()
		return
	}
	l.conn = s
	l.mu.Unlock()
	if _, err := l.n.mail.add(s, nil, l); err != nil {
		l.cut()
		s.close()
	}
}

// turn delivers what has come over a connection, for a while: however fast one sends, others have their turn. It returns how
// many bytes that was and whether there may be more, or why the connection has ended.
func (l *inLink) turn(s *stream) (n int, more bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range readsPerTurn {
		if s != l.conn {
			return n, false, errReplaced
		}
		if l.full {
			return n, false, nil
		}
		k, err := s.read(l.in[l.have:])
		if isAgain(err) {
			return n, false, nil
		}
		if err != nil {
			return n, false, err
		}
		n += k
		l.have += k
		drained := l.have < len(l.in) && s.tls == nil
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
			return fmt.Errorf("%w: %v %d of %d messages in %d bytes, where message %d is due",
				ErrProtocol, h.kind, h.number, h.count, h.length, l.delivered)
		}
		for i := range h.count {
			from, to := (*peer.WireMessage)(l.in[at+headerSize+i*fabric.MaxMessage:]).Decode(&m)
			m.From = fabric.Client(l.peer.ID, from)
			l.n.table.Deliver(to, &m)
			if l.n.table.Len(to) >= maxInbox {
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
	if !l.full || l.n.table.Len(l.fullOf) > maxInbox/2 {
		return false, nil
	}
	l.full = false
	err := l.deliver()
	return !l.full, err
}

// acknowledge tells the sender how many messages have been delivered; mu is held.
func (l *inLink) acknowledge() error {
	s := l.conn
	if s == nil {
		return nil
	}
	if left, err := s.flush(); left > 0 || err != nil {
		return err // it does not listen; it will
	}
	h := header{length: headerSize, kind: frameAck, number: l.delivered}
	var b [headerSize]byte
	h.put(b[:])
	l.acked = l.delivered
	return s.write(b[:])
}
