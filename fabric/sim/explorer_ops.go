package sim

import (
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
)

// launch takes a chain that has been posted.
func (ex *explorer) launch(ch *chain) {
	ch.state = chainFlying
	ch.wrote = false
	ex.print.port(ch.port)
	ex.chains = append(ex.chains, ch)
	if ex.c.cur == nil {
		// A Port that is used to set the scene: nothing else happens meanwhile.
		for ch.state == chainFlying {
			ex.effect(ch)
		}
	}
}

// forget takes a chain off the list.
func (ex *explorer) forget(ch *chain) {
	for i, x := range ex.chains {
		if x == ch {
			ex.chains = append(ex.chains[:i], ex.chains[i+1:]...)
			return
		}
	}
}

// effect makes the next operation of a chain happen, whole.
func (ex *explorer) effect(ch *chain) {
	op := &ch.ops[ch.cur]
	if !ex.reaches(ch, op) {
		return
	}
	old, new := ex.execute(ch, op)
	ex.effected(ch, op, old, new)
}

// reaches tells whether an operation reaches its memory node and is admitted; otherwise the chain ends.
func (ex *explorer) reaches(ch *chain, op *fabric.Op) bool {
	c := ex.c
	ex.print.accesses(ch, op)
	if ch.qp.mn.dead {
		ex.print.node(ch.port.node)
		c.markDown(ch)
		ex.refuse(ch, fabric.ErrUnknownOutcome)
		return false
	}
	if err := c.admissible(ch, op); err != nil {
		ex.refuse(ch, err)
		return false
	}
	return true
}

func (ex *explorer) refuse(ch *chain, err error) {
	i := int(ch.cur)
	ch.err = &fabric.ChainError{Index: i, Op: ch.ops[i], Err: err}
	ex.say("%v %v: %v", ch.port.id, ch.ops[i], err)
	ex.finish(ch)
}

// execute does an operation and keeps the memory node's hash up to date.
func (ex *explorer) execute(ch *chain, op *fabric.Op) (old, new uint64) {
	mn := ch.qp.mn
	if op.Kind == fabric.OpRead {
		return ex.c.execute(&mn.mem, op)
	}
	before := mn.mem.hash(op.Addr.Offset(), op.Size())
	old, new = ex.c.execute(&mn.mem, op)
	after := mn.mem.hash(op.Addr.Offset(), op.Size())
	mn.sum += after - before
	ch.wrote = ch.wrote || op.Kind == fabric.OpWrite || after != before
	return old, new
}

func (ex *explorer) effected(ch *chain, op *fabric.Op, old, new uint64) {
	c := ex.c
	ch.part = 0
	if t := ch.port.waiter; t != nil {
		t.acted = true
	}
	c.note(StepEffect, ch.port.id, uint64(op.Kind)<<56^uint64(op.Addr), old)
	if c.cfg.Observer != nil {
		c.observe(Event{Step: StepEffect, Client: ch.port.id, Chain: ch.pending(), Index: int(ch.cur), Op: op, Old: old, New: new})
	}
	if ch.cur++; int(ch.cur) == len(ch.ops) {
		ex.finish(ch)
	}
}

// finish completes a chain. Its client goes on by an event of its own.
func (ex *explorer) finish(ch *chain) {
	c, p := ex.c, ch.port
	p.inflight--
	if ch.hasRA {
		p.inflightRA--
	}
	if ch.orphan || p.closed && !p.awaits(ch) {
		ex.forget(ch)
		c.releaseChain(ch)
		return
	}
	c.note(StepComplete, p.id, uint64(ch.index), uint64(ch.cur))
	if c.cfg.Observer != nil {
		c.observe(Event{Step: StepComplete, Client: p.id, Chain: ch.pending(), Index: int(ch.cur), Err: ch.err})
	}
	ch.state = chainDone
	if p.awaits(ch) {
		p.ready = true
	}
}

// pieces returns into how many pieces the next operation of a chain tears.
func (ex *explorer) pieces(ch *chain) int {
	op := &ch.ops[ch.cur]
	if ex.c.cfg.Tear.Prob == 0 || op.Kind.IsAtomic() || len(op.Buf) <= 8 {
		return 1
	}
	grain := uint64(ex.c.cfg.Tear.Grain)
	first, last := op.Addr.Offset()/grain, (op.Addr.Offset()+uint64(len(op.Buf))-1)/grain
	return int(min(last-first+1, maxParts))
}

// pieceOf returns the bounds in the buffer of piece b of n of an operation.
func (ex *explorer) pieceOf(op *fabric.Op, b, n int) (from, to int) {
	grain := ex.c.cfg.Tear.Grain
	off := int(op.Addr.Offset() % uint64(grain))
	grains := (off + len(op.Buf) + grain - 1) / grain
	cut := func(i int) int { return min(max(grains*i/n*grain-off, 0), len(op.Buf)) }
	return cut(b), cut(b + 1)
}

// piece makes a piece of a torn operation happen.
func (ex *explorer) piece(ch *chain, b uint8) {
	c := ex.c
	op := &ch.ops[ch.cur]
	if !ex.reaches(ch, op) {
		return
	}
	n := ex.pieces(ch)
	from, to := ex.pieceOf(op, int(b), n)
	m, off := &ch.qp.mn.mem, op.Addr.Offset()+uint64(from)
	if op.Kind == fabric.OpRead {
		m.read(off, op.Buf[from:to])
	} else {
		before := m.hash(off, to-from)
		m.write(off, op.Buf[from:to])
		ch.qp.mn.sum += m.hash(off, to-from) - before
		ch.wrote = true
	}
	ch.part |= 1 << b
	if ch.part == 1<<n-1 {
		ex.effected(ch, op, 0, 0)
		return
	}
	c.note(StepPart, ch.port.id, uint64(op.Addr), uint64(ch.part))
	if c.cfg.Observer != nil {
		c.observe(Event{Step: StepPart, Client: ch.port.id, Chain: ch.pending(), Index: int(ch.cur), Op: op})
	}
}

// send takes a message that is under way.
func (ex *explorer) send(i uint32) {
	f := &ex.c.flights[i]
	p := ex.c.inboxOf(f.to)
	switch n := ex.c.cns[f.to.CN()]; {
	case p != nil:
		ex.print.sendsTo(p)
	case n.dead:
		ex.print.node(n)
	default:
		ex.print.all = true
	}
	if p == nil {
		ex.c.deliver(i) // it is dropped: nobody can see when
		return
	}
	for k := range ex.pairs {
		if p := &ex.pairs[k]; p.from == f.msg.From && p.to == f.to {
			p.queue = append(p.queue, i)
			return
		}
	}
	ex.pairs = append(ex.pairs, pair{f.msg.From, f.to, []uint32{i}})
}

func (ex *explorer) deliver(k uint32) {
	p := &ex.pairs[k]
	to := ex.c.inboxOf(p.to)
	fuses := to != nil && to.wait == waitRecv && ex.fuses(p, to)
	if ex.print.all = ex.print.all || to == nil; to != nil {
		ex.print.port(to)
	}
	i := p.queue[0]
	p.queue = p.queue[1:]
	ex.c.deliver(i)
	if fuses {
		ex.stepped()
		ex.resume(to)
	}
}

// dropMessages drops what nobody will receive any more.
func (ex *explorer) dropMessages() {
	c := ex.c
	for k := range ex.pairs {
		p := &ex.pairs[k]
		from, to := c.cns[p.from.CN()], c.cns[p.to.CN()]
		if len(p.queue) > 0 && (c.inboxOf(p.to) == nil || from != nil && from != to && !to.knows(from)) {
			for _, i := range p.queue {
				c.deliver(i)
			}
			p.queue = nil
		}
	}
}

// fenced drops what a node that is fenced now has under way.
func (ex *explorer) fenced(n *Node) {
	for i := 0; i < len(ex.chains); {
		ch := ex.chains[i]
		if ch.orphan && ch.port.node == n && ch.qp.mn.refuses(n) { // all do, by the rules
			ex.chains = append(ex.chains[:i], ex.chains[i+1:]...)
			ex.c.releaseChain(ch)
			continue
		}
		i++
	}
	ex.dropMessages()
}

// orphan takes a chain of a killed node: those that the memory nodes do not
// have are gone, the others may take effect until the node is fenced. Nobody can tell whether READs do.
func (ex *explorer) orphan(ch *chain) {
	ch.orphan, ch.again = true, false
	reads := !slices.ContainsFunc(ch.ops[min(int(ch.cur), len(ch.ops)):], func(op fabric.Op) bool { return op.Kind != fabric.OpRead })
	if ch.state != chainFlying || ex.c.cfg.Late == LateDrop || reads {
		ex.forget(ch)
		ex.c.releaseChain(ch)
	}
}

// expires tells whether a port waits for a time.
func (ex *explorer) expires(p *Port) bool {
	switch p.wait {
	case waitRecv:
		return p.until != fabric.Forever && !ex.cfg.NoDeadlines
	case waitPause:
		return p.until != fabric.Forever
	}
	return false
}

// expire lets the time pass that a port waits for.
func (ex *explorer) expire(p *Port) {
	ex.c.now = max(ex.c.now, p.until)
	ex.say("%v: deadline %d passes", p.id, p.until)
	ex.resume(p)
}

// putOn puts the clock of a node on, and of no other: what their clients do next
// does not depend on the order of that and this.
func (ex *explorer) putOn(n *Node, d fabric.Time) {
	n.clock.Offset += d
	for _, p := range ex.c.ports {
		if p.node == n && p.wait >= waitRecv && p.until != fabric.Forever {
			p.until = max(p.until-d, ex.c.now)
		}
	}
}

// force makes happen what happens only when nothing else can: the passing of
// the next deadline, or another round of a client that polls. It returns false if
// there is nothing left to happen.
func (ex *explorer) force() bool {
	c := ex.c
	const (
		nothing = iota
		timer
		poll
		again
		call
	)
	what, which, due := nothing, 0, fabric.Forever
	consider := func(w, i int, at fabric.Time) {
		if at < due {
			what, which, due = w, i, at
		}
	}
	// Who polls in vain asks again after a time, and when that does not help after a longer one.
	round := c.now + fabric.Microsecond*fabric.Time(1+ex.idle)
	for i, p := range c.ports {
		switch {
		case p.node.paused || c.live == 0 && p.wait != waitPause:
		case ex.expires(p):
			consider(timer, i, max(p.until, c.now))
		case p.wait == waitPoll:
			consider(poll, i, round)
		}
	}
	for i, ch := range ex.chains {
		if ex.enabled(i) && !ch.port.node.paused {
			consider(again, i, round+ch.port.tries)
		}
	}
	for i, t := range ex.calls {
		if c.live > 0 {
			consider(call, i, max(t.at, c.now))
		}
	}
	if what == nothing {
		if c.live > 0 {
			c.fail(&DeadlockError{Time: c.now, Blocked: c.blocked()})
		}
		return false
	}
	ex.idle++
	c.now = due
	switch what {
	case timer:
		ex.expire(c.ports[which])
	case poll:
		ex.resume(c.ports[which])
	case again:
		ch := ex.chains[which]
		ch.port.tries++ // the others first, next time
		for ch.state == chainFlying {
			ex.effect(ch)
		}
		ex.stepped()
	case call:
		i := ex.calls[which].i
		ex.calls = append(ex.calls[:which], ex.calls[which+1:]...)
		f := c.calls[i]
		c.calls[i] = nil
		ex.say("a call of Cluster.At")
		f()
		ex.regular()
		ex.stepped()
	}
	return true
}

// blockOutside is what Port.block does outside of clients: time passes for this Port alone.
func (ex *explorer) blockOutside(p *Port) {
	if p.wait == waitChain || p.ready {
		p.wait, p.ready = waitNone, false
		return
	}
	if p.until == fabric.Forever {
		panic(fmt.Sprintf("sim: port %v, used outside of a client, waits for ever for %s", p.id, p.waitsFor()))
	}
	ex.c.now = max(ex.c.now, p.until)
	p.wait = waitNone
}
