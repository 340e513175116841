package sim

import (
	"fmt"

	"github.com/declock/declock/fabric"
)

// The way of a chain:
//
//	post -> queue pair -> [arrive -> effect (-> tear)* ...]+ -> complete
//
// A queue pair sends its chains in order, and a chain in segments: a segment
// ends where the next operation needs a fence, that is the answers to all READs
// and atomics before it. At most one event is under way for each chain.
type chainState uint8

const (
	chainFree   chainState = iota
	chainQueued            // in the queue pair, nothing of it under way
	chainFlying            // an event is under way
	chainDone              // completed, not yet waited for
)

// A Chain is a chain that a client has posted.
type Chain struct {
	ops   []fabric.Op
	port  *Port
	qp    *queuePair
	index uint32
	gen   uint32 // of the users of this slot
	next  uint32 // in the queue pair, or of the free list
	state chainState

	orphan bool // its client was killed and does not wait
	drop   bool // its client was killed: what has not happened will not
	cpu    bool // it is executed by the CPU of its client's machine
	fence  bool // the first operation needs a fence
	hasRA  bool // it has READs or atomics

	sent uint8 // operations before it have been sent
	cur  uint8 // the next to take effect
	part uint8 // next part of a torn operation

	broken uint8 // 1 + the first operation whose answer is held up for too long; 0: none
	lost   bool  // so is its request
	late   bool  // it is what became of such a request: no client waits for it. See Cluster.linger

	// Of a late chain.
	known   bool        // its client has heard that the outcome is unknown
	of      *queuePair  // the request's
	until   fabric.Time // its connection is known to be shut out then, not before
	remains *Chain      // of a lost request: its late chain, or nil

	exchanged uint16 // a bit for each READ that is executed after the next, which is a READ, too

	wrote    bool // it has changed memory; in an untimed cluster
	answered bool // its answer is under way, in an untimed cluster: see Untimed.finish

	epoch    uint32 // of the memory node, as the client knew it at the post: chains of another are refused
	backup   uint32 // the number of the replica that it is for, if that is a backup
	err      error
	rung     fabric.Time // when the CPU rings the doorbell
	tearSeed uint64

	// Of the segment under way, by operation: when the first part takes
	// effect, and the last, if it tears.
	when [fabric.MaxChain]span
}

// A span is when an operation takes effect: at one instant, or in parts.
type span struct{ at, end fabric.Time }

// A queuePair connects a core to a memory node, in order.
type queuePair struct {
	index      uint32
	node       *Node
	mn         *memNode
	head, tail uint32 // chains that are not sent whole

	lastArrive fabric.Time
	lastEffect fabric.Time

	// READs and atomics under way: those that have not taken effect, and the
	// times at which the others' answers come, in order.
	pending int
	answers []fabric.Time
	blocked bool // the head waits for answers
	kicking bool // a kick event is under way

	lingering int // late chains of it: it sends nothing until they are over
}

// qp returns the queue pair of a core to a memory node.
func (c *Cluster) qp(p *Port, mn *memNode) *queuePair {
	co := p.core
	for int(mn.id) >= len(co.qps) {
		co.qps = append(co.qps, nil)
	}
	q := co.qps[mn.id]
	if q == nil {
		q = &queuePair{index: uint32(len(c.qps)), node: p.node, mn: mn, head: none, tail: none}
		c.qps = append(c.qps, q)
		co.qps[mn.id] = q
	}
	return q
}

func (c *Cluster) newChain() *Chain {
	if c.freeChain == none {
		ch := &Chain{index: uint32(len(c.chains))}
		c.chains = append(c.chains, ch)
		return ch
	}
	ch := c.chains[c.freeChain]
	c.freeChain = ch.next
	*ch = Chain{index: ch.index, gen: ch.gen}
	return ch
}

func (c *Cluster) releaseChain(ch *Chain) {
	ch.state = chainFree
	ch.gen++
	ch.ops, ch.err = nil, nil
	ch.next = c.freeChain
	c.freeChain = ch.index
}

func (c *Cluster) drawPost() fabric.Time {
	n := c.nic
	if n.PostMax == n.PostMin {
		return n.PostMin
	}
	return n.PostMin + fabric.Time(c.timing.Uint64n(uint64(n.PostMax-n.PostMin+1)))
}

// Do posts a chain and waits for it.
func (p *Port) Do(ops []fabric.Op) error {
	ch, err := p.postTo(lane{short: p.c.cfg.ShortWay && p.inflight == 0}, ops) // a chain that is under way would be overtaken
	if ch == nil {
		return err
	}
	return p.waitChain(ch)
}

// Post posts a chain.
func (p *Port) Post(ops []fabric.Op) (fabric.Pending, error) {
	ch, err := p.postTo(lane{}, ops)
	if ch == nil {
		return nothing, err
	}
	return ch.pending(), nil
}

// nothing is the Pending of an empty chain. No other has its low half.
const nothing = fabric.Pending(none)

func (ch *Chain) pending() fabric.Pending {
	return fabric.Pending(ch.gen)<<32 | fabric.Pending(ch.index)
}

// Wait waits for a posted chain.
func (p *Port) Wait(pd fabric.Pending) error {
	p.enter()
	if pd == nothing {
		return nil
	}
	i := uint32(pd)
	if p.closed && (int(i) >= len(p.c.chains) || p.c.chains[i].pending() != pd) {
		return fmt.Errorf("sim: Wait on %v: %w; %w", p.id, fabric.ErrClosed, fabric.ErrUnknownOutcome)
	}
	if int(i) >= len(p.c.chains) || p.c.chains[i].pending() != pd || p.c.chains[i].port != p || p.c.chains[i].state == chainFree {
		panic(fmt.Sprintf("sim: Wait(%#x) on %v: no such chain, or waited for already", uint64(pd), p.id))
	}
	return p.waitChain(p.c.chains[i])
}

// awaits reports whether the client waits for the completion of a chain, or of any.
func (p *Port) awaits(ch *Chain) bool {
	return p.wait == WaitChain && p.waitFor == ch.index || p.wait == WaitRoom
}

func (p *Port) waitChain(ch *Chain) error {
	for giveUp := fabric.Time(0); ch.state != chainDone; {
		p.waitFor = ch.index
		if p.inHaste() && p.overdue(&giveUp) {
			return p.stats.CountError(p.leave(ch))
		}
		if t := p.blocks(WaitChain); t != nil {
			t.goesOn(t.yield(struct{}{}))
		}
	}
	if ch.err == nil && !p.node.leased(ch.ops[0].Addr.MN()) {
		ch.err = &fabric.ChainError{Op: ch.ops[0], Err: fmt.Errorf("sim: the lease of %v has run out: %w", p.node.id, fabric.ErrUnknownOutcome)}
	}
	err := ch.err
	if err != nil {
		_ = p.stats.CountError(err)
	}
	if u := p.c.untimed; u != nil {
		u.told(ch)
	}
	p.c.releaseChain(ch)
	return err
}

// A lane says which memory node a chain goes to: the zero lane, to the one that serves the number.
type lane struct {
	mn     *memNode
	backup uint32 // the number of the replica
	short  bool   // the CPU executes it, if it can
}

// postTo checks a chain, charges the CPU and hands the chain to its queue pair.
// It returns no chain if there is nothing to wait for.
func (p *Port) postTo(to lane, ops []fabric.Op) (*Chain, error) {
	p.enter()
	if p.closed {
		return nil, fabric.ErrClosed
	}
	if len(ops) == 0 {
		return nil, nil
	}
	if err := p.check(ops); err != nil {
		return nil, err
	}
	for giveUp := fabric.Time(0); p.inflight >= p.c.nic.SendQueue; {
		if p.inHaste() && p.overdue(&giveUp) {
			return nil, &fabric.ChainError{Op: ops[0], Err: fmt.Errorf("sim: no room for a chain: %w", p.reason())}
		}
		p.block(WaitRoom)
	}
	if p.closed { // meanwhile
		return nil, fabric.ErrClosed
	}
	c := p.c
	id := ops[0].Addr.MN()
	if to.short && p.Near(id) {
		p.stats.Count(ops)
		return p.launchLocal(ops), nil
	}
	ch := c.newChain()
	mn, shut := to.mn, false
	if mn == nil {
		mn, shut = p.node.server(id)
	}
	ch.ops, ch.port, ch.qp = ops, p, c.qp(p, mn)
	ch.epoch, ch.backup = p.epoch(id), to.backup
	for i := range ops {
		ch.hasRA = ch.hasRA || ops[i].Kind != fabric.OpWrite
	}
	// What follows a READ or atomic of this client, other than a READ, is fenced.
	ch.fence = c.nic.Fence && p.inflightRA > 0 && ops[0].Kind != fabric.OpRead
	p.inflight++
	if ch.hasRA {
		p.inflightRA++
	}
	p.stats.Count(ops)
	if c.untimed != nil {
		c.untimed.listener.Posted(ch)
	}
	p.core.free = max(p.core.free, c.now) + c.drawPost()
	ch.rung = p.core.free
	for i := range ops {
		c.observeOp(StepPost, ch, i, &ops[i], 0, 0)
	}
	lapsed := !p.node.leased(id)
	if shut || lapsed || p.knowsDown(ch.qp.mn) {
		ch.state = chainFlying
		why := fabric.ErrNodeDown
		if lapsed || shut && p.node.fenced {
			why = fabric.ErrFenced
		}
		ch.err = &fabric.ChainError{Index: 0, Op: ops[0], Err: fmt.Errorf("sim: %v: %w", ch.qp.mn.id, why)}
		c.post(p.core.free+c.nic.Poll, evComplete, ch.index, 0)
		return ch, nil
	}
	if c.untimed != nil {
		c.untimed.launch(ch)
	} else {
		c.enqueue(ch)
	}
	return ch, nil
}

// check refuses what is refused before anything is posted.
func (p *Port) check(ops []fabric.Op) error {
	if err := fabric.CheckChain(ops, p.c.caps()); err != nil {
		return err
	}
	for i := range ops {
		o := &ops[i]
		if !p.mem.Owns(o.Buf) {
			return &fabric.ChainError{Index: i, Op: *o, Unposted: true, Err: fabric.ErrBadBuffer}
		}
	}
	if mn := ops[0].Addr.MN(); int(mn) >= len(p.c.mns) {
		return &fabric.ChainError{Index: 0, Op: ops[0], Err: fmt.Errorf("sim: there is no %v: %w", mn, fabric.ErrNodeDown)}
	}
	return nil
}

func (p *Port) knowsDown(mn *memNode) bool {
	d := p.node.downMN
	return int(mn.id) < len(d) && d[mn.id]
}

// enqueue puts a chain into its queue pair.
func (c *Cluster) enqueue(ch *Chain) {
	q := ch.qp
	ch.state = chainQueued
	ch.next = none
	if q.head == none {
		q.head = ch.index
		q.tail = ch.index
		c.kick(q)
		return
	}
	c.chains[q.tail].next = ch.index
	q.tail = ch.index
}

// needsFence reports whether operation i must wait for the answers of those before it in the chain.
func (ch *Chain) needsFence(i int) bool {
	return ch.port.c.nic.Fence && ch.ops[i].Kind != fabric.OpRead && ch.ops[i-1].Kind != fabric.OpWrite
}

// kick sends what the queue pair may send.
func (c *Cluster) kick(q *queuePair) {
	for q.head != none {
		ch := c.chains[q.head]
		if ch.state != chainQueued {
			return // its segment is under way; the answer kicks
		}
		if q.lingering > 0 || q.node.lingers(q.mn) {
			if q.node.turnsBack(q.mn) {
				ch.state = chainFlying
				c.refuse(ch, fabric.ErrNodeDown, c.now)
			}
			return // settled kicks
		}
		from := int(ch.sent)
		to, ra := from, 0
		for to < len(ch.ops) && (to == from || !ch.needsFence(to)) {
			if ch.ops[to].Kind != fabric.OpWrite {
				ra++
			}
			to++
		}
		q.forget(c.now)
		busy := q.pending + len(q.answers)
		fenced := ch.fence && from == 0 || from > 0
		if busy > 0 && (fenced || ra > 0 && busy+ra > c.nic.MaxAtomics) {
			q.blocked = true
			if len(q.answers) > 0 {
				c.kickAt(q, q.answers[0])
			}
			return
		}
		q.blocked = false
		q.pending += ra
		ch.sent = uint8(to)
		if to == len(ch.ops) {
			q.head = ch.next
		}
		c.transmit(ch, from, to)
	}
}

// forget drops the answers that have come.
func (q *queuePair) forget(now fabric.Time) {
	n := 0
	for n < len(q.answers) && q.answers[n] <= now {
		n++
	}
	if n > 0 {
		q.answers = q.answers[:copy(q.answers, q.answers[n:])]
	}
}

func (c *Cluster) kickAt(q *queuePair, t fabric.Time) {
	if !q.kicking {
		q.kicking = true
		c.post(t, evKick, q.index, 0)
	}
}

// transmit puts a segment on the wire.
func (c *Cluster) transmit(ch *Chain, from, to int) {
	q, n := ch.qp, ch.port.node
	bytes := 0
	for i := from; i < to; i++ {
		bytes += c.nic.Overhead + requestBytes(&ch.ops[i])
	}
	at := fabric.Time(0)
	if q.mn == n.host {
		at = q.mn.nic.loop(c.nic, c.now, ch.rung, to-from)
	} else {
		at = n.nic.out.carry(c.now, max(c.now, ch.rung), bytes, c.nic.BytePs) + c.nic.OneWay
	}
	ch.state = chainFlying
	if len(c.links) > 0 {
		var there fabric.Time
		if at, there = c.request(ch, at); ch.lost {
			if c.cfg.BrokenLate > 0 {
				c.linger(ch, from, to, at, there)
			}
			c.post(at, evArrive, ch.index, 0)
			return
		}
	}
	q.lastArrive = max(q.lastArrive, at)
	c.post(q.lastArrive, evArrive, ch.index, 0)
}

// arrive takes a segment through the memory node's NIC.
func (c *Cluster) arrive(ch *Chain) {
	mn, q := ch.qp.mn, ch.qp
	switch {
	case ch.drop:
		c.finish(ch, c.now)
		return
	case ch.lost:
		c.refuse(ch, fabric.ErrUnknownOutcome, c.now)
		c.unsettled(ch)
		return
	case mn.dead:
		c.lose(ch)
		return
	}
	if c.cfg.ExchangeReads > 0 {
		c.exchangeReads(ch)
	}
	for i := int(ch.cur); i < int(ch.sent); i++ {
		op := &ch.ops[ch.nth(i)]
		at := max(mn.nic.admit(c.nic, c.now, op), q.lastEffect+1) // in order: no two at one instant
		end := at
		if c.cfg.SplitAtomics && op.Kind.IsAtomic() { // it holds its slot from its READ to its WRITE
			at = max(at-c.nic.Atomic, c.now, q.lastEffect+1)
		}
		if c.cfg.Tear.Prob > 0 && op.Size() > 8 && !op.Kind.IsAtomic() && c.faults.Float64() < c.cfg.Tear.Prob {
			end += 1 + fabric.Time(c.faults.Uint64n(uint64(c.cfg.Tear.Window)))
		}
		ch.when[i] = span{at, end}
		q.lastEffect = end
	}
	c.post(ch.when[ch.cur].at, evEffect, ch.index, 0)
}

// exchangeReads draws which READs of the segment under way are executed after the next.
func (c *Cluster) exchangeReads(ch *Chain) {
	for i := int(ch.cur); i+1 < int(ch.sent); i++ {
		if ch.ops[i].Kind == fabric.OpRead && ch.ops[i+1].Kind == fabric.OpRead && c.faults.Float64() < c.cfg.ExchangeReads {
			ch.exchanged |= 1 << i
			i++
		}
	}
}

// nth returns which operation of a chain is executed as the i-th.
func (ch *Chain) nth(i int) int {
	switch {
	case ch.exchanged>>i&1 != 0:
		return i + 1
	case i > 0 && ch.exchanged>>(i-1)&1 != 0:
		return i - 1
	}
	return i
}

// lose gives a chain up whose memory node does not answer.
func (c *Cluster) lose(ch *Chain) {
	if ch.late {
		c.finish(ch, c.now)
		return
	}
	c.markDown(ch)
	c.refuse(ch, fabric.ErrUnknownOutcome, c.now+c.nic.Retry)
}

// markDown notes that a node has found the memory node of a chain silent.
func (c *Cluster) markDown(ch *Chain) {
	if len(ch.port.node.downMN) < len(c.mns) {
		ch.port.node.downMN = append(ch.port.node.downMN, make([]bool, len(c.mns)-len(ch.port.node.downMN))...)
	}
	ch.port.node.downMN[ch.qp.mn.id] = true
}

// refuse ends a chain with an error at its present operation.
func (c *Cluster) refuse(ch *Chain, err error, answer fabric.Time) {
	i := int(ch.cur)
	i = min(i, ch.nth(i))
	ch.err = &fabric.ChainError{Index: i, Op: ch.ops[i], Err: err}
	c.finish(ch, answer)
}

// finish ends a chain whose answer comes at a time: nothing more of it will happen.
func (c *Cluster) finish(ch *Chain, answer fabric.Time) {
	q := ch.qp
	for i := int(ch.cur); i < int(ch.sent); i++ {
		if ch.ops[i].Kind != fabric.OpWrite {
			q.pending--
		}
	}
	if int(ch.sent) < len(ch.ops) && q.head == ch.index {
		q.head = ch.next
		c.kickAt(q, c.now)
	} else if q.blocked {
		c.kickAt(q, c.now)
	}
	c.post(answer+c.nic.Poll, evComplete, ch.index, 0)
}

// complete lets the client see the completion of a chain.
func (c *Cluster) complete(ch *Chain, waited bool) {
	p := ch.port
	if ch.late {
		c.settled(ch)
		return
	}
	if !waited && p.core.free > c.now-c.nic.Poll {
		p.core.free += c.nic.Poll
		c.post(p.core.free, evComplete, ch.index, 1)
		return
	}
	if !waited {
		p.core.free = c.now
	}
	p.landed(ch)
	if ch.orphan || p.closed && !p.awaits(ch) {
		c.releaseChain(ch)
		return
	}
	if len(c.ledger.Groups) > 0 {
		c.cut(ch)
	}
	c.completed(ch)
	if p.awaits(ch) {
		c.wake(p)
	}
}

// landed counts a chain that is not under way any more.
func (p *Port) landed(ch *Chain) {
	p.inflight--
	if ch.hasRA {
		p.inflightRA--
	}
}

// completed notes that a chain has completed, which its client learns by Wait.
func (c *Cluster) completed(ch *Chain) {
	c.note(StepComplete, ch.port.id, uint64(ch.index), uint64(ch.cur))
	if c.cfg.Observer != nil { // an Event takes time to make
		c.observe(Event{Step: StepComplete, Client: ch.port.id, Chain: ch.pending(), Index: int(ch.cur), Err: ch.err})
	}
	ch.state = chainDone
}
