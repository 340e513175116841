//go:build linux && cgo

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
// back, without data. A number counts the messages of a sender's life: what
// was on its way when a queue pair fails is sent again from where the receiver says
// it has got to, and so nothing is lost, doubled or turned around.
const (
	// linkWindow is how many receives are posted for a sender.
	linkWindow = 64
	// linkCredit is how many messages a credit is for.
	linkCredit = linkWindow / 4
	// linkRing is how many messages a sender keeps: those under way and some
	// that wait for their credit.
	linkRing = 128
	// linkSignal is how often a completion is asked for. It divides linkRing.
	linkSignal = 16

	// maxQueue is how many messages may wait for a receiver, besides those of the ring.
	maxQueue = 1 << 20

	creditSlots = 16 // receives for credits: at most linkWindow/linkCredit are under way
	grantSlots  = 16

	outEntries = linkRing + creditSlots + 2
	inEntries  = linkWindow + grantSlots + 2

	opMessage = 0
	opMark    = 1 // the message is a mark: see mark
)

// An outLink has the messages to one life of a compute node.
type outLink struct {
	n      *node
	peer   member.CN
	ctx    context.Context // ends when the link is stopped
	cancel context.CancelFunc
	broken chan struct{} // gets a token when the queue pair fails
	block  ram.Slab      // the ring's memory
	ring   *[linkRing]peer.WireMessage

	mu      sync.Mutex
	q       *qp // nil while it is not connected
	id      uint32
	stopped bool
	marked  bool // everything that was to go has gone
	// Numbers of messages: those before done have arrived, those before posted
	// are with the device, those before filled are in the ring, and the rest is in queue.
	done, posted, filled uint64
	allowed              uint64 // those before it have a receive
	queue                []peer.WireMessage
	head                 int // of queue
	buf                  [pollBatch]wrOp
}

// link returns the link to a compute node that lives.
func (n *node) link(cn fabric.CNID) (*outLink, error) {
	if l := n.links[cn].Load(); l != nil && !n.fenced.Load() {
		return l, nil
	}
	if n.fenced.Load() {
		return nil, n.dead(cn)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.links[cn].Load(); l != nil {
		return l, nil
	}
	st, _ := n.State()
	to, ok := peer.Find(st, cn)
	if !ok || n.at.Err() != nil {
		return nil, n.dead(cn)
	}
	b, err := n.pool.Take(int(unsafe.Sizeof([linkRing]peer.WireMessage{})))
	if err != nil {
		return nil, err
	}
	l := &outLink{n: n, peer: to, broken: make(chan struct{}, 1), block: b, ring: (*[linkRing]peer.WireMessage)(b.At)}
	l.ctx, l.cancel = context.WithCancel(n.ctx)
	n.links[cn].Store(l)
	n.tasks.Go(l.run)
	return l, nil
}

// send queues a message and posts what may be posted.
func (l *outLink) send(from, to int, m *fabric.Message) error {
	var w peer.WireMessage
	w.Encode(from, to, m)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := len(l.queue) - l.head; {
	case l.stopped:
		return l.n.dead(l.peer.ID)
	case n >= maxQueue:
		return fmt.Errorf("%w: %d messages wait for %v", fabric.ErrResources, n, l.peer.ID)
	}
	l.put(&w)
	return nil
}

// put queues a message; mu is held.
func (l *outLink) put(w *peer.WireMessage) {
	if l.head == len(l.queue) && l.filled-l.done < linkRing {
		l.ring[l.filled%linkRing] = *w
		l.filled++
	} else {
		l.queue = append(l.queue, *w)
	}
	l.post()
}

// post posts messages that have a credit; mu is held.
func (l *outLink) post() {
	for l.head < len(l.queue) && l.filled-l.done < linkRing {
		l.ring[l.filled%linkRing] = l.queue[l.head]
		l.filled++
		if l.head++; l.head == len(l.queue) {
			l.queue, l.head = l.queue[:0], 0
			if cap(l.queue) > 4*linkRing {
				l.queue = nil // a burst must not hold its memory for ever
			}
		}
	}
	for l.q != nil && l.posted < min(l.filled, l.allowed) {
		n := 0
		for ; n < len(l.buf) && l.posted+uint64(n) < min(l.filled, l.allowed); n++ {
			l.describe(&l.buf[n], l.posted+uint64(n))
		}
		if _, err := l.q.post(l.buf[:n]); err != nil {
			l.breaks()
			return
		}
		l.posted += uint64(n)
	}
}

// describe describes a message to the device; mu is held.
func (l *outLink) describe(o *wrOp, number uint64) {
	*o = wrOp{}
	slot := &l.ring[number%linkRing]
	op := uint64(opMessage)
	if (number+1)%linkSignal == 0 {
		o.flag(flagSignaled)
	}
	if slot.IsMark() {
		op = opMark
		o.flag(flagSignaled)
	}
	if l.q.inline >= len(slot) {
		o.flag(flagInline)
	}
	o.set(kindSend<<kindShift|uint64(l.id)<<8|op, wrSend, 0, 0)
	o.setLocal(unsafe.Pointer(slot), len(slot), l.block.Key)
}

// mark sends a message that says nothing: once it has arrived, so have all others.
func (l *outLink) mark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == 0 && l.filled == 0 && len(l.queue) == 0 {
		l.marked = true
		return
	}
	var w peer.WireMessage
	w.Mark()
	l.put(&w)
}

// pending reports whether messages are still on their way to a peer that lives.
func (l *outLink) pending() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.stopped && !l.marked
}

// handle handles a completion.
func (l *outLink) handle(kind uint64, w *wc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case uint32(w.wrID()>>8) != l.id || l.q == nil:
		return // of a queue pair that has been replaced
	case w.code() != 0:
		l.breaks()
	case kind == kindCredit:
		l.allowed += uint64(w.immData())
		if l.q.receive(kindCredit<<kindShift|uint64(l.id)<<8, nil, 0, 0, 0, 1, 1) != nil {
			l.breaks()
			return
		}
		l.post()
	case w.wrID()&0xff == opMark:
		l.marked = true
	default:
		l.done = (l.done/linkSignal + 1) * linkSignal
		l.post()
	}
}

// breaks makes run replace the queue pair; mu is held.
func (l *outLink) breaks() {
	select {
	case l.broken <- struct{}{}:
	default:
	}
}

// stop ends the link: the peer is not in the view any more.
func (l *outLink) stop() {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	l.cancel()
}

// run keeps the link connected until it is stopped.
func (l *outLink) run() {
	defer l.n.pool.Give(l.block)
	for l.ctx.Err() == nil {
		if err := l.connect(); err != nil {
			if l.ctx.Err() == nil {
				l.n.o.Report(fmt.Errorf("connect to %v: %w", l.peer.ID, err))
			}
			peer.Pause(l.ctx, redialEvery)
		}
	}
}

// connect connects the link, and returns when it has failed or is stopped.
func (l *outLink) connect() error {
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
		l.mu.Lock()
		l.q = nil
		l.mu.Unlock()
		q.close()
		n.pump.messages.drain() // what had completed must not be taken for another's
		n.outs.remove(id)
	}()
	s, err := dial(l.ctx, peer.ComputeNode(l.peer), &n.o)
	if err != nil {
		return err
	}
	n.tasks.Go(s.run)
	defer func() { s.close(); <-s.done }()
	ctx, cancel := context.WithTimeout(l.ctx, n.o.DeadAfter)
	defer cancel()
	st, _ := n.State()
	req := linkRequest{caller{n.own.ID, n.own.Life, l.peer.Life, st.Revision}, q.end()}
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
	case <-l.ctx.Done():
	case <-l.broken:
	case <-s.done:
	}
	return nil
}

// begin sends on, from where the receiver has got to.
func (l *outLink) begin(q *qp, id uint32, delivered uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if delivered < l.done || delivered > l.posted {
		return fmt.Errorf("%w: %v has got %d messages of %d to %d", ErrProtocol, l.peer.ID, delivered, l.done, l.posted)
	}
	select {
	case <-l.broken: // of the one before
	default:
	}
	l.q, l.id = q, id
	l.done, l.posted, l.allowed = delivered, delivered, delivered+linkWindow
	l.post()
	return nil
}

// An inLink receives messages of one life of a compute node.
type inLink struct {
	n     *node
	peer  member.CN
	cq    *completionQueue
	q     *qp
	id    uint32
	block ram.Slab
	ring  *[linkWindow]peer.WireMessage
	once  sync.Once

	// What follows is changed by whoever handles completions, one at a time.

	posted    atomic.Int32 // receives
	delivered atomic.Uint64
	owed      int  // messages taken for which no receive was posted again
	last      int  // the client that the last one was for
	over      bool // the queue pair is about to be closed
	ungranted int  // receives posted of which the sender does not know
	granting  int  // credits under way
	buf       [1]wrOp
}

// accept makes a queue pair for a sender.
func (n *node) accept(s *session, r linkRequest) (any, error) {
	judge := func(st *member.State) error { return n.judge(st, s, &r) }
	if err := n.Await(n.at, judge); err != nil {
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

// judge reports whether who asks for a link is let in by a state.
func (n *node) judge(st *member.State, s *session, r *linkRequest) error {
	if r.To != n.own.Life {
		return fmt.Errorf("%w: this is %v in another life", fabric.ErrNodeDown, n.own.ID)
	}
	if !peer.Lives(st, n.own) { // a state from before this node joined knows others that have gone since
		return fmt.Errorf("%w: %v", peer.ErrBehind, n.own.ID)
	}
	if err := r.in(st, peer.Find); err != nil {
		return err
	}
	from, _ := peer.Find(st, r.ID)
	return s.of(from)
}

// prepare makes the link of a sender whom the state in force lets in, and ends the one that he had; linkMu is held.
func (n *node) prepare(s *session, r *linkRequest) (*inLink, error) {
	n.mu.Lock()
	st, _ := n.State()
	err := n.judge(st, s, r)
	from, _ := peer.Find(st, r.ID)
	var old *inLink
	var before *session // of it
	for c, l := range n.inLinks {
		switch {
		case l.peer.Life == r.From:
			before, old = c, l
		case c == s && err == nil:
			err = fmt.Errorf("%w: a second link over one connection", ErrProtocol)
		}
	}
	n.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if old != nil {
		old.drain() // until then it is in its place, where take finds it
	}
	l := &inLink{n: n, peer: from}
	n.mu.Lock()
	delete(n.inLinks, before)
	l.delivered.Store(n.arrived[r.From])
	n.mu.Unlock()
	if err := l.open(r.End); err != nil {
		return nil, err
	}
	return l, nil
}

// place puts a link into its place, unless its sender has gone: who has taken the state that says so has looked before
// the link was there. linkMu is held.
func (n *node) place(s *session, l *inLink) error {
	n.mu.Lock()
	st, _ := n.State()
	in := peer.Lives(st, l.peer)
	if in {
		n.inLinks[s] = l
	}
	n.mu.Unlock()
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
		if l.granting--; w.code() == 0 {
			l.grant()
		}
		return
	}
	if w.code() != 0 {
		l.posted.Add(-1) // the sender notices too, and comes again
		return
	}
	if w := &l.ring[l.delivered.Load()%linkWindow]; !w.IsMark() {
		var m fabric.Message
		from, to := w.Decode(&m)
		m.From = fabric.Client(l.peer.ID, from)
		l.n.table.Deliver(to, &m)
		l.last = to
	}
	l.posted.Add(-1)
	l.delivered.Add(1)
	l.owed++
	l.refill()
}

// refill posts receives in the place of those that were used, and tells the sender; unless a client does not take its
// messages: then the sender has to wait until it does, see node.watch.
func (l *inLink) refill() {
	for l.owed >= linkCredit && !l.over && l.n.table.Len(l.last) < l.n.o.inboxLimit {
		if l.receive(linkCredit) != nil {
			return // the queue pair has failed
		}
		l.owed -= linkCredit
		l.ungranted += linkCredit
		l.grant()
	}
}

// watch looks now and then whether clients take their messages again.
func (n *node) watch() {
	t := time.NewTicker(n.o.Heartbeat)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-n.ctx.Done():
			return
		}
		n.mu.Lock()
		links := slices.Collect(maps.Values(n.inLinks))
		n.mu.Unlock()
		for _, l := range links {
			l.cq.mu.Lock()
			l.refill()
			l.cq.mu.Unlock()
		}
	}
}

// grant tells the sender of receives that it does not know of.
func (l *inLink) grant() {
	if l.ungranted == 0 || l.granting == grantSlots {
		return
	}
	o := &l.buf[0]
	*o = wrOp{}
	o.set(kindGrant<<kindShift|uint64(l.id)<<8, wrSendImm, 0, 0)
	o.setImm(uint32(l.ungranted))
	o.flag(flagSignaled)
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
		n.mu.Lock()
		n.arrived[l.peer.Life] = l.delivered.Load()
		n.mu.Unlock()
	})
}

// ended runs after a session that a peer has opened has ended.
func (n *node) ended(s *session) {
	n.linkMu.Lock()
	defer n.linkMu.Unlock()
	n.mu.Lock()
	l := n.inLinks[s]
	delete(n.inLinks, s)
	n.mu.Unlock()
	if l != nil {
		l.drain()
	}
}
