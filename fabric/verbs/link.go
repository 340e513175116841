//go:build cgo && !shmonly

package verbs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/internal/ram"
	"github.com/declock/declock/fabric/member"
)

// Messages from one compute node to another go over a queue pair of their own, so
// that there are two between each pair of nodes that talk. The sender may
// send as many as the receiver has posted receives for; the receiver sends credits
// back, without data.
const (
	// linkWindow is how many receives are posted for a sender.
	linkWindow = 64
	// linkCredit is how many messages a credit is for.
	linkCredit = linkWindow / 4
	// linkRing is how many messages may be with the device.
	linkRing = 128
	// linkSignal is how often a completion is asked for. It divides linkRing.
	linkSignal = 16

	creditSlots = 16 // receives for credits: at most linkWindow/linkCredit are under way
	grantSlots  = 16

	outEntries = linkRing + creditSlots + 2
	inEntries  = linkWindow + grantSlots + 2

	opMessage = 0
	opMark    = 1 // the message is a mark: see mark
)

// An outLink is a queue pair for the messages to one incarnation of a compute node.
type outLink struct {
	*peer.Link
	n     *node
	block ram.Slab // the ring's memory
	ring  *[linkRing]peer.WireMessage

	// Under Mu.

	q       *qp // nil while it is not connected
	id      uint32
	marked  bool   // everything that was to go has gone
	allowed uint64 // messages before it have a receive
	buf     [pollBatch]wrOp
}

// NewWire is peer.Network.NewWire.
func (n *node) NewWire(l *peer.Link) (peer.Wire, error) {
	b, err := n.pool.Take(int(unsafe.Sizeof([linkRing]peer.WireMessage{})))
	return &outLink{Link: l, n: n, block: b, ring: (*[linkRing]peer.WireMessage)(b.At)}, err
}

// Flush posts messages that have a credit; Mu is held. Each is in the ring until its completion: those from Acked on.
func (l *outLink) Flush() {
	for l.q != nil {
		n, end := 0, min(l.Filled, l.allowed, l.Acked+linkRing)
		for ; n < len(l.buf) && l.Written+uint64(n) < end; n++ {
			l.describe(&l.buf[n], l.Written+uint64(n))
		}
		if n == 0 {
			return
		}
		if _, err := l.q.post(l.buf[:n]); err != nil {
			l.Break()
			return
		}
		l.Written += uint64(n)
	}
}

// describe puts a message into the ring, and describes it to the device; Mu is held.
func (l *outLink) describe(o *wrOp, number uint64) {
	slot := &l.ring[number%linkRing]
	*slot = *l.At(number)
	*o = wrOp{id: kindSend<<kindShift | uint64(l.id)<<8 | opMessage, kind: wrSend}
	if (number+1)%linkSignal == 0 {
		o.flags |= flagSignaled
	}
	if slot.IsMark() {
		o.id |= opMark
		o.flags |= flagSignaled
	}
	if l.q.inline >= len(slot) {
		o.flags |= flagInline
	}
	o.setLocal(unsafe.Pointer(slot), len(slot), l.block.Key)
}

// Ask is peer.Wire.Ask: it sends a message that says nothing. Once that has arrived, so have all others.
func (l *outLink) Ask() {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.Filled == 0 {
		l.marked = true
		return
	}
	l.Add().Mark()
	l.Flush()
}

// Unsent is peer.Wire.Unsent.
func (l *outLink) Unsent() bool {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return !l.Stopped && !l.marked
}

// Cut is peer.Wire.Cut. Connect does it, when Ctx ends.
func (l *outLink) Cut() {}

// Release is peer.Wire.Release.
func (l *outLink) Release() { l.n.pool.Give(l.block) }

// handle handles a completion.
func (l *outLink) handle(kind uint64, w *wc) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	switch {
	case uint32(w.id>>8) != l.id || l.q == nil:
		return // of a queue pair that has been replaced
	case w.status != 0:
		l.Break()
	case kind == kindCredit:
		l.allowed += uint64(w.imm)
		if l.q.receive(kindCredit<<kindShift|uint64(l.id)<<8, nil, 0, 0, 0, 1, 1) != nil {
			l.Break()
			return
		}
		l.Flush()
	case w.id&0xff == opMark:
		l.marked = true
	default:
		l.Ack((l.Acked/linkSignal + 1) * linkSignal)
		l.Flush()
	}
}

// Connect is peer.Wire.Connect.
func (l *outLink) Connect() error {
	n := l.n
	cq, err := n.pump.messages.reserve(n.dev, outEntries)
	if err != nil {
		return err
	}
	defer cq.give(outEntries)
	q, err := n.dev.newQP(cq.q, cq.q, linkRing+1, creditSlots, fabric.MaxMessage, false)
	if err != nil {
		return err
	}
	q.resends()
	id := n.outs.add(l)
	defer func() {
		l.Mu.Lock()
		l.q = nil
		l.Mu.Unlock()
		q.close()
		n.pump.messages.drain() // what had completed must not be taken for another's
		n.outs.remove(id)
	}()
	s, err := dial(l.Ctx, peer.ComputeNode(l.Peer), &n.o)
	if err != nil {
		return err
	}
	n.Go(s.run)
	defer func() { s.close(); <-s.done }()
	ctx, cancel := context.WithTimeout(l.Ctx, n.DeadAfter)
	defer cancel()
	st, _ := n.State()
	req := linkRequest{peer.Caller{ID: n.Own.ID, From: n.Own.Incarnation, To: l.Peer.Incarnation, Revision: st.Revision}, q.end()}
	var r linkReply
	if err := s.call(ctx, askLink, req, &r); err != nil {
		return err
	}
	if err := q.receive(kindCredit<<kindShift|uint64(id)<<8, nil, 0, 0, 0, creditSlots, creditSlots); err != nil {
		return err
	}
	if err := q.connect(r.End); err != nil {
		return err
	}
	if err := l.begin(q, id, r.Delivered); err != nil {
		return err
	}
	select {
	case <-l.Ctx.Done():
	case <-l.Broken:
	case <-s.done:
	}
	return nil
}

// begin sends on, from where the receiver has got to.
func (l *outLink) begin(q *qp, id uint32, delivered uint64) error {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if err := l.Resume(delivered); err != nil {
		return err
	}
	l.q, l.id, l.allowed = q, id, delivered+linkWindow
	l.Flush()
	return nil
}

// An inLink receives messages of one incarnation of a compute node.
type inLink struct {
	n     *node
	peer  member.CN
	cq    *completionQueue
	q     *qp
	id    uint32
	block ram.Slab
	ring  *[linkWindow]peer.WireMessage
	once  sync.Once

	// What follows is changed by the goroutine that handles completions, one at a time.

	posted    atomic.Int32 // receives
	delivered atomic.Uint64
	unposted  int  // messages taken for which no receive was posted again
	last      int  // the client that the last one was for
	over      bool // the queue pair is about to be closed
	ungranted int  // receives posted of which the sender does not know
	granting  int  // credits under way
	buf       [1]wrOp
}

// accept makes a queue pair for a sender.
func (n *node) accept(s *session, r linkRequest) (any, error) {
	r.Cert = s.cert
	if err := n.Await(n.Work, func(st *member.State) error { _, err := n.Sender(st, &r.Caller); return err }); err != nil {
		return nil, err
	}
	n.linkMu.Lock()
	defer n.linkMu.Unlock()
	l, err := n.prepare(s, &r)
	if err == nil {
		err = n.place(s, l)
	}
	if err != nil {
		return nil, err
	}
	return linkReply{End: l.q.end(), Delivered: l.delivered.Load()}, nil
}

// prepare makes the link of a sender that the state in force lets in, and ends the one that it had; linkMu is held.
func (n *node) prepare(s *session, r *linkRequest) (*inLink, error) {
	n.Mu.Lock()
	st, _ := n.State()
	from, err := n.Sender(st, &r.Caller)
	var old *inLink
	var before *session // of it
	for c, l := range n.inLinks {
		switch {
		case l.peer.Incarnation == r.From:
			before, old = c, l
		case c == s && err == nil:
			err = fmt.Errorf("%w: a second link over one connection", ErrProtocol)
		}
	}
	n.Mu.Unlock()
	if err != nil {
		return nil, err
	}
	if old != nil {
		old.drain() // until then it is in its place, where take finds it
	}
	l := &inLink{n: n, peer: from}
	n.Mu.Lock()
	delete(n.inLinks, before)
	l.delivered.Store(n.arrived[r.From])
	n.Mu.Unlock()
	if err := l.open(r.End); err != nil {
		return nil, err
	}
	return l, nil
}

// place puts a link into its place, unless its sender has gone: Shut, with the state that says so, ran before
// the link was there. linkMu is held.
func (n *node) place(s *session, l *inLink) error {
	n.Mu.Lock()
	st, _ := n.State()
	in := peer.Present(st, l.peer)
	if in {
		n.inLinks[s] = l
	}
	n.Mu.Unlock()
	if in {
		return nil
	}
	l.drain()
	return fmt.Errorf("%w: %v is not a member any more", fabric.ErrFenced, l.peer.ID)
}

func (l *inLink) open(from end) (err error) {
	n := l.n
	if l.cq, err = n.pump.messages.reserve(n.dev, inEntries); err != nil {
		return err
	}
	if l.block, err = n.pool.Take(int(unsafe.Sizeof(*l.ring))); err != nil {
		l.cq.give(inEntries)
		return err
	}
	l.ring = (*[linkWindow]peer.WireMessage)(l.block.At)
	l.id = n.ins.add(l)
	if l.q, err = n.dev.newQP(l.cq.q, l.cq.q, grantSlots, linkWindow, 0, false); err == nil {
		l.q.resends()
		if err = l.receive(linkWindow); err == nil {
			err = l.q.connect(from)
		}
	}
	if err != nil {
		l.drain()
	}
	return err
}

// receive posts receives for the next n messages behind those that are posted.
func (l *inLink) receive(n int) error {
	first := int((l.delivered.Load() + uint64(l.posted.Load())) % linkWindow)
	err := l.q.receive(kindReceive<<kindShift|uint64(l.id)<<8, unsafe.Pointer(l.ring), fabric.MaxMessage, l.block.Key, first, n, linkWindow)
	if err == nil {
		l.posted.Add(int32(n))
	}
	return err
}

// handle handles a completion.
func (l *inLink) handle(kind uint64, w *wc) {
	if kind == kindGrant {
		if l.granting--; w.status == 0 {
			l.grant()
		}
		return
	}
	if w.status != 0 {
		l.posted.Add(-1) // the sender notices too, and comes again
		return
	}
	if w := &l.ring[l.delivered.Load()%linkWindow]; !w.IsMark() {
		var m fabric.Message
		from, to := w.Decode(&m)
		m.From = fabric.Client(l.peer.ID, from)
		l.n.Table.Deliver(to, &m)
		l.last = to
	}
	l.posted.Add(-1)
	l.delivered.Add(1)
	l.unposted++
	l.refill()
}

// refill posts receives in the place of those that were used, and sends a credit; unless a client does not take its
// messages: then the sender has to wait until it does, see node.Beat.
func (l *inLink) refill() {
	for l.unposted >= linkCredit && !l.over && l.n.Table.Len(l.last) < l.n.o.inboxLimit {
		if l.receive(linkCredit) != nil {
			return // the queue pair has failed
		}
		l.unposted -= linkCredit
		l.ungranted += linkCredit
		l.grant()
	}
}

// Beat is peer.Network.Beat: senders go on if clients take their messages again.
func (n *node) Beat() {
	n.Mu.Lock()
	links := slices.Collect(maps.Values(n.inLinks))
	n.Mu.Unlock()
	for _, l := range links {
		l.cq.mu.Lock()
		l.refill()
		l.cq.mu.Unlock()
	}
}

// grant sends a credit for receives that the sender does not know of.
func (l *inLink) grant() {
	if l.ungranted == 0 || l.granting == grantSlots {
		return
	}
	l.buf[0] = wrOp{id: kindGrant<<kindShift | uint64(l.id)<<8, kind: wrSendImm, imm: uint32(l.ungranted), flags: flagSignaled}
	if _, err := l.q.post(l.buf[:]); err == nil {
		l.ungranted = 0
		l.granting++
	}
}

// drain destroys the queue pair when all that has come is delivered.
func (l *inLink) drain() {
	l.once.Do(func() {
		n := l.n
		if l.q != nil {
			l.q.fail()
			for limit := time.Now().Add(drainLimit); l.posted.Load() > 0 && time.Now().Before(limit); {
				if n.pump.messages.drain() == 0 {
					time.Sleep(100 * time.Microsecond)
				}
			}
			l.cq.mu.Lock()
			l.over = true
			l.cq.mu.Unlock()
			l.q.close()
		}
		n.pump.messages.drain()
		n.ins.remove(l.id)
		n.pool.Give(l.block)
		l.cq.give(inEntries)
		n.Mu.Lock()
		n.arrived[l.peer.Incarnation] = l.delivered.Load()
		n.Mu.Unlock()
	})
}

// ended runs after a session that a peer has opened has ended.
func (n *node) ended(s *session) {
	n.linkMu.Lock()
	defer n.linkMu.Unlock()
	n.Mu.Lock()
	l := n.inLinks[s]
	delete(n.inLinks, s)
	n.Mu.Unlock()
	if l != nil {
		l.drain()
	}
}
