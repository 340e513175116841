package sim

import (
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
)

// An Untimed is a cluster in which no time passes by itself. What can happen is listed, and happens when the owner says so, in any order that
// a fabric allows: this is how package lab/explore decides what happens next. Latencies play no part; each operation takes effect whole, or by the
// parts of Config.Tear. The owner calls Start when the program has been built, and Settle after each step.
//
// The lists are the cluster's: the owner reads them. What Messages, Calls and so on mean stays the same until the next step.
type Untimed struct {
	*Cluster
	// OneByOne: each node hears of a change of the membership by Hear. Otherwise all hear of it at once.
	OneByOne bool

	Starts []*Task  // clients that are to begin: Begin
	Chains []*Chain // not yet waited for, in the order of posting: Effect, EffectPart
	Pairs  []Pair   // messages under way, by sender and receiver: Deliver
	Doomed []*Node  // killed, to be fenced: FenceNext
	News   []uint32 // members that have not heard of the present membership, by number: Hear
	Calls  []Call   // of Cluster.At: Call

	// Touched is what happened has had to do with, since the owner cleared it.
	Touched Footprint

	listener   Listener
	unwinds    []*Task // killed, to unwind
	coroutines *Coroutines
}

// A Listener is called with what clients learn and do. With the code, what a client has learned is all that it goes by.
type Listener interface {
	// Told is called when a client has learned something: the time, an epoch.
	Told(t *Task, v uint64)
	// Posted is called when a client posts a chain, by the method of its Port that the client has called.
	Posted(ch *Chain)
	// Completed is called when a client has learned how a chain has ended.
	Completed(ch *Chain)
	// Received is called when the client of a Port has got a message, or learned that there is none.
	Received(p *Port, m fabric.Message, err error)
	// Acted is called when the client of a Port has sent a message, or paused in vain. err is what it got.
	Acted(p *Port, err error)
	// Waits is called when an agent begins to wait for a message.
	Waits(t *Task)
	// Interrupted is called when a Port is interrupted.
	Interrupted(p *Port)
}

// A Pair is the messages that are under way from one client to another, in order.
type Pair struct {
	From, To fabric.ClientID
	queue    []uint32 // flights
}

// Len returns the number of messages.
func (p *Pair) Len() int { return len(p.queue) }

// A Call is a function that was given to Cluster.At.
type Call struct {
	At fabric.Time
	i  uint32 // in Cluster.calls
}

// NewUntimed returns an empty cluster. It panics like New. Several clusters, one after the other, may share coroutines.
func NewUntimed(cfg Config, l Listener, coroutines *Coroutines) *Untimed {
	u := &Untimed{Cluster: New(cfg), listener: l, coroutines: coroutines}
	u.untimed = u
	return u
}

// Start ends the building of the program: what happens to the membership from now on is news.
func (u *Untimed) Start() { u.begun = true }

// Err returns the first failure.
func (u *Untimed) Err() error { return u.err }

// Live returns the number of clients that are not done, apart from agents.
func (u *Untimed) Live() int { return u.live }

// Running returns the client whose code runs, nil: none.
func (u *Untimed) Running() *Task { return u.cur }

// Tasks, Ports and Nodes return all there are, by their numbers.
func (u *Untimed) Tasks() []*Task { return u.tasks }
func (u *Untimed) Ports() []*Port { return u.ports }
func (u *Untimed) Nodes() []*Node { return u.nodes }

// NodeOf returns a compute node, nil: the fabric itself.
func (u *Untimed) NodeOf(cn fabric.CNID) *Node { return u.cns[cn] }

// Inbox returns the Port that gets the messages for a client, nil if there is none.
func (u *Untimed) Inbox(id fabric.ClientID) *Port { return u.inboxOf(id) }

// Revision returns the number of the present state of the membership.
func (u *Untimed) Revision() uint64 { return u.ledger.Revision }

// post takes an event that a timed cluster would put into its heap.
func (u *Untimed) post(at fabric.Time, kind eventKind, a uint32, b uint64) {
	switch kind {
	case evStart:
		u.Starts = append(u.Starts, u.tasks[a])
	case evUnwind:
		u.unwinds = append(u.unwinds, u.tasks[a])
	case evWake:
		if p := u.ports[a]; p.wait != WaitNone && p.waitGen == b {
			p.ready = true
		}
	case evDetect:
		u.Doomed = append(u.Doomed, u.members[a].node)
	case evCall:
		u.Calls = append(u.Calls, Call{at, a})
	case evDeliver:
		u.sent(a)
	case evComplete:
		u.complete(u.chains[a])
	default:
		panic(fmt.Sprintf("sim: %v event in an untimed cluster", kind))
	}
}

// tell passes to the listener what the client that runs has learned.
func (c *Cluster) tell(v uint64) {
	if c.untimed != nil && c.cur != nil { // else it is to set the scene: the same each time
		c.untimed.listener.Told(c.cur, v)
	}
}

// acted notes for the listener that a client has sent a message, or paused in vain.
func (p *Port) acted(err error) {
	if p.c.untimed != nil {
		p.c.untimed.listener.Acted(p, err)
	}
}

// told ends a chain whose client has learned how it ended.
func (u *Untimed) told(ch *Chain) {
	if u.cur != nil {
		u.listener.Completed(ch)
	}
	u.forgetChain(ch)
}

// Begin has a client begin.
func (u *Untimed) Begin(t *Task) {
	u.Starts = slices.DeleteFunc(u.Starts, func(x *Task) bool { return x == t })
	u.start(t)
}

// GoOn has the client of a Port go on.
func (u *Untimed) GoOn(p *Port) {
	p.ready = false
	u.wake(p)
	if t := u.awake(); t != nil {
		u.resume(t)
	}
}

// Settle ends a step: clients that were killed unwind.
func (u *Untimed) Settle() {
	for len(u.unwinds) > 0 {
		t := u.unwinds[0]
		u.unwinds = u.unwinds[1:]
		u.Touched.Port(t.port)
		u.Touched.Node(t.node)
		u.unwind(t)
		for _, p := range u.ports {
			if p.waiter == t {
				p.wait, p.ready = WaitNone, false
			}
		}
	}
	u.count++
}

// Enabled reports whether the next operation of Chains[i] may take effect: chains of one client to one memory node do so in order.
func (u *Untimed) Enabled(i int) bool {
	ch := u.Chains[i]
	return ch.state == chainFlying && !u.waitsForSplit(ch) && !slices.ContainsFunc(u.Chains[:i], func(x *Chain) bool {
		return x.state == chainFlying && x.port == ch.port && x.qp.mn == ch.qp.mn
	})
}

// launch takes a chain that has been posted.
func (u *Untimed) launch(ch *Chain) {
	ch.state = chainFlying
	u.Touched.Port(ch.port)
	u.Chains = append(u.Chains, ch)
	if u.cur == nil {
		// A Port that is used to set the scene: nothing else happens meanwhile.
		for ch.state == chainFlying {
			_ = u.Effect(ch) // the client learns it
		}
	}
}

// forgetChain takes a chain off the list.
func (u *Untimed) forgetChain(ch *Chain) {
	u.Chains = slices.DeleteFunc(u.Chains, func(x *Chain) bool { return x == ch })
}

// Effect makes the next operation of a chain happen, whole, or its answer arrive. The error is that of a memory node that refuses it, or is down.
func (u *Untimed) Effect(ch *Chain) error {
	if ch.answered {
		u.Touched.Port(ch.port)
		u.complete(ch)
		return nil
	}
	op := &ch.ops[ch.cur]
	if err := u.reaches(ch, op); err != nil {
		return err
	}
	r := ch.region()
	before := uint64(0)
	if op.Kind != fabric.OpRead {
		before = r.mem.hash(op.Addr.Offset(), op.Size())
	}
	split := u.splits(ch)
	if split && ch.part == 0 {
		if fetch(&r.mem, op); changes(op) { // else there is no second half
			ch.part = 1
			u.tookPart(ch, op)
			return nil
		}
	}
	var old, new uint64
	if split {
		old, new = leave(&r.mem, op)
	} else {
		old, new = u.execute(&r.mem, op)
	}
	if op.Kind != fabric.OpRead {
		after := r.mem.hash(op.Addr.Offset(), op.Size())
		r.sum += after - before
		ch.wrote = ch.wrote || op.Kind == fabric.OpWrite || ch.part > 0 || after != before // by what it has found: its state does not say what it has overwritten
	}
	u.took(ch, op, old, new)
	return nil
}

// reaches returns the error of an operation that does not reach its memory node, or is refused there: the chain ends.
func (u *Untimed) reaches(ch *Chain, op *fabric.Op) error {
	off := op.Addr.Offset()
	u.Touched.Port(ch.port)
	u.Touched.Words = append(u.Touched.Words, Access{ch.qp.mn.id, off, off + uint64(op.Size()), op.Kind != fabric.OpRead})
	err := error(fabric.ErrUnknownOutcome)
	if ch.qp.mn.dead {
		u.Touched.Node(ch.port.node)
		u.markDown(ch)
	} else {
		err = u.admissible(ch, op)
	}
	if err == nil {
		return nil
	}
	ch.err = &fabric.ChainError{Index: int(ch.cur), Op: *op, Err: err}
	u.finish(ch)
	return err
}

// took goes on after an operation has taken effect.
func (u *Untimed) took(ch *Chain, op *fabric.Op, old, new uint64) {
	ch.part = 0
	if t := ch.port.waiter; t != nil {
		t.acted = true
	}
	u.note(StepEffect, ch.port.id, uint64(op.Kind)<<56^uint64(op.Addr), old)
	u.observeOp(StepEffect, ch, int(ch.cur), op, old, new)
	if ch.cur++; int(ch.cur) == len(ch.ops) {
		u.finish(ch)
	}
}

// finish ends a chain. What answers for a number that is replicated is a step of its own: the node may hear meanwhile that another memory node serves, and cut the
// connection on which the answer is.
func (u *Untimed) finish(ch *Chain) {
	if u.mns[ch.ops[0].Addr.MN()].replicas > 1 && !ch.orphan && !ch.port.closed {
		ch.answered = true
		return
	}
	u.complete(ch)
}

// complete completes a chain. Its client goes on by an event of its own.
func (u *Untimed) complete(ch *Chain) {
	p := ch.port
	if ch.answered {
		u.cut(ch)
	}
	p.landed(ch)
	if ch.orphan || p.closed && !p.awaits(ch) {
		u.forgetChain(ch)
		u.releaseChain(ch)
		return
	}
	u.completed(ch)
	if p.awaits(ch) {
		p.ready = true
	}
}

// Parts returns into how many parts the next operation of a chain tears; 1: it does not.
func (u *Untimed) Parts(ch *Chain) int {
	if ch.answered {
		return 1
	}
	op := &ch.ops[ch.cur]
	if u.cfg.Tear.Prob == 0 || op.Kind.IsAtomic() || len(op.Buf) <= 8 {
		return 1
	}
	grain := uint64(u.cfg.Tear.Grain)
	first, last := op.Addr.Offset()/grain, (op.Addr.Offset()+uint64(len(op.Buf))-1)/grain
	return int(min(last-first+1, maxParts))
}

// partOf returns the bounds in the buffer of part b of n of an operation.
func (u *Untimed) partOf(op *fabric.Op, b, n int) (from, to int) {
	grain := u.cfg.Tear.Grain
	off := int(op.Addr.Offset() % uint64(grain))
	grains := (off + len(op.Buf) + grain - 1) / grain
	cut := func(i int) int { return min(max(grains*i/n*grain-off, 0), len(op.Buf)) }
	return cut(b), cut(b + 1)
}

// EffectPart makes a part happen of the next operation of a chain, one that has not happened (Chain.Happened).
func (u *Untimed) EffectPart(ch *Chain, b uint8) error {
	op := &ch.ops[ch.cur]
	if err := u.reaches(ch, op); err != nil {
		return err
	}
	n := u.Parts(ch)
	from, to := u.partOf(op, int(b), n)
	r := ch.region()
	m, off := &r.mem, op.Addr.Offset()+uint64(from)
	if op.Kind == fabric.OpRead {
		m.read(off, op.Buf[from:to])
	} else {
		before := m.hash(off, to-from)
		m.write(off, op.Buf[from:to])
		r.sum += m.hash(off, to-from) - before
		ch.wrote = true
	}
	ch.part |= 1 << b
	if ch.part == 1<<n-1 {
		u.took(ch, op, 0, 0)
		return nil
	}
	u.tookPart(ch, op)
	return nil
}

// tookPart goes on after a part of an operation has taken effect.
func (u *Untimed) tookPart(ch *Chain, op *fabric.Op) {
	u.note(StepPart, ch.port.id, uint64(op.Addr), uint64(ch.part))
	u.observeOp(StepPart, ch, int(ch.cur), op, 0, 0)
}

// sent takes a message that is under way.
func (u *Untimed) sent(i uint32) {
	f := &u.flights[i]
	p := u.inboxOf(f.to)
	switch n := u.cns[f.to.CN()]; {
	case p != nil:
		u.Touched.sends(p)
	case n.dead:
		u.Touched.Node(n)
	default:
		u.Touched.All = true
	}
	if p == nil {
		u.deliver(i) // it is dropped, and when cannot be seen
		return
	}
	for k := range u.Pairs {
		if p := &u.Pairs[k]; p.From == f.msg.From && p.To == f.to {
			p.queue = append(p.queue, i)
			return
		}
	}
	u.Pairs = append(u.Pairs, Pair{f.msg.From, f.to, []uint32{i}})
}

// Deliver delivers the next message of Pairs[k].
func (u *Untimed) Deliver(k int) {
	p := &u.Pairs[k]
	if to := u.inboxOf(p.To); to != nil {
		u.Touched.Port(to)
	} else {
		u.Touched.All = true
	}
	i := p.queue[0]
	p.queue = p.queue[1:]
	u.deliver(i)
}

// dropMessages drops what will not be received any more.
func (u *Untimed) dropMessages() {
	for k := range u.Pairs {
		p := &u.Pairs[k]
		from, to := u.cns[p.From.CN()], u.cns[p.To.CN()]
		if len(p.queue) > 0 && (u.inboxOf(p.To) == nil || from != nil && from != to && !to.knows(from)) {
			for _, i := range p.queue {
				u.deliver(i)
			}
			p.queue = nil
		}
	}
}

// FenceNext fences Doomed[i].
func (u *Untimed) FenceNext(i int) {
	n := u.Doomed[i]
	u.Doomed = slices.Delete(u.Doomed, i, i+1)
	u.Fence(n)
}

// fenced drops what a node that is fenced now has under way.
func (u *Untimed) fenced(n *Node) {
	for i := 0; i < len(u.Chains); {
		ch := u.Chains[i]
		if ch.orphan && ch.port.node == n && ch.qp.mn.refuses(n) { // all do, by the rules
			u.Chains = slices.Delete(u.Chains, i, i+1)
			u.releaseChain(ch)
			continue
		}
		i++
	}
	u.dropMessages()
}

// orphaned takes a chain of a killed node: those that the memory nodes do not
// have are gone, the others may take effect until the node is fenced. Whether READs do cannot be seen.
func (u *Untimed) orphaned(ch *Chain) {
	ch.orphan = true
	reads := !slices.ContainsFunc(ch.ops[min(int(ch.cur), len(ch.ops)):], func(op fabric.Op) bool { return op.Kind != fabric.OpRead })
	if ch.state != chainFlying || ch.cpu || u.cfg.Late == LateDrop || reads {
		u.forgetChain(ch)
		u.releaseChain(ch)
	}
}

// tellSoon has a member hear of the present state by Hear, unless it is dead.
func (u *Untimed) tellSoon(m *membership) {
	if n := m.node; m.acts == u.ledger.Revision || n != nil && (n.dead || n.closed) || m.mn != nil && m.mn.dead || slices.Contains(u.News, m.index) {
		return
	}
	u.News = append(u.News, m.index)
	slices.Sort(u.News)
}

// forgetNews drops what a killed node need not hear.
func (u *Untimed) forgetNews(m *membership) {
	u.News = slices.DeleteFunc(u.News, func(i uint32) bool { return i == m.index })
}

// Hear has a member hear of the present state of the membership, and acknowledge it.
func (u *Untimed) Hear(member uint32) {
	m := u.members[member]
	u.forgetNews(m)
	u.hears(m)
}

// PassTo lets time pass, for all.
func (u *Untimed) PassTo(t fabric.Time) { u.now = max(u.now, t) }

// PutOn puts the clock of a node on, and no other: what their clients do next does not depend on the order of that and this.
func (u *Untimed) PutOn(n *Node, d fabric.Time) {
	n.clock.Offset += d
	for _, p := range u.ports {
		if p.node == n && p.wait >= WaitRecv && p.until != fabric.Forever {
			p.until = max(p.until-d, u.now)
		}
	}
}

// Call calls Calls[i].
func (u *Untimed) Call(i int) {
	k := u.Calls[i].i
	u.Calls = slices.Delete(u.Calls, i, i+1)
	f := u.calls[k]
	u.calls[k] = nil
	f()
}

// blockOutside is what Port.block does outside of clients: time passes for this Port alone.
func (u *Untimed) blockOutside(p *Port) {
	if p.wait == WaitChain || p.ready {
		p.wait, p.ready = WaitNone, false
		return
	}
	if p.until == fabric.Forever {
		panic(fmt.Sprintf("sim: port %v, used outside of a client, waits for ever for %s", p.id, p.waitsFor()))
	}
	u.now = max(u.now, p.until)
	p.wait = WaitNone
}
