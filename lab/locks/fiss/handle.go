package fiss

import (
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// handle does what a message asks for, whichever Port of the machine got it.
func (p *Pool) handle(port fabric.Port, m *fabric.Message) {
	l, o := fabric.Addr(m.Body[0]), opID(m.Body[1])
	switch {
	case m.Kind == fabric.MsgView:
		p.viewed(port)
		return
	case m.Kind == msgAck:
		p.acked(port, m)
		return
	case p.framed(m):
		p.receive(port, m)
		return
	case m.Kind == msgLook && p.view != nil:
		p.presume(port, m.Body[2])
		return
	case m.Kind >= msgRound && m.Kind <= msgResume || m.Kind == msgJoined:
		p.recovers(port, m)
		return
	case o.round() != inRound(p.round):
		return
	}
	switch m.Kind {
	case msgAsk:
		p.toldOf(port, m)
	case msgLeave:
		p.leaves(port, m)
	case msgMove, msgWaiters:
		p.comes(port, m)
	case msgGranted, msgBusy, msgOutside, msgAgain, msgGrant, msgQueued, msgHeld, msgReleased, msgFreed, msgRefused, msgMoved:
		if o.cn() != p.cn || o.slot() >= len(p.slots) {
			return
		}
		t := &p.slots[o.slot()]
		switch wants := t.op == o && t.lock == l && t.phase != idle; {
		case wants && (m.Kind != msgGrant || t.phase <= holds):
			p.answered(port, t, m)
		case m.Kind == msgGrant: // to a copy of a request that is over
			p.send(port, fabric.AgentOf(m.From.CN()), msgLeave, uint64(l), uint64(o), 0)
		}
	}
}

// answered goes on with what a message answers.
func (p *Pool) answered(port fabric.Port, t *ticket, m *fabric.Message) {
	waits := t.phase == asked || t.phase == waiting
	switch {
	case m.Kind == msgGranted && t.phase == asked:
		t.direct = true
		if m.Body[2]&withAgent != 0 {
			t.known = true
			p.install(port, t.lock, t.op, uint64(uint32(m.Body[2])), nil, t.op.slot())
		}
		p.grant(port, t)
	case m.Kind == msgGrant && waits:
		t.known = true
		p.grant(port, t)
	case m.Kind == msgHeld:
		t.known = true
		if t.phase == asked { // the switch's own message is late or lost
			p.grant(port, t)
		}
	case m.Kind == msgQueued && t.phase == asked:
		t.phase, t.known = waiting, true
	case m.Kind == msgBusy && t.phase == asked && t.behind && !t.left: // by now the switch may know that it is free
		t.op = t.op.next(t.op & (opTry | opMode))
		p.ask(port, t)
	case (m.Kind == msgBusy || m.Kind == msgOutside) && t.phase == asked:
		if t.phase = refusedIt; m.Kind == msgOutside {
			t.phase, p.outside[t.lock] = outside, true
		}
		if t.left {
			p.end(t)
			return
		}
		p.wake(port, t)
	case m.Kind == msgAgain && t.phase == asked && t.left:
		p.end(t)
	case m.Kind == msgAgain && t.phase == asked:
		t.op, t.Tries = t.op.next(t.op&(opTry|opMode)), 0
		if p.ask(port, t); t.phase != asked {
			p.wake(port, t)
		}
	case m.Kind == msgReleased && t.phase == releasing:
		p.end(t)
	case t.phase == leaving:
		p.departed(port, t, m)
	}
}

// releases reports whether a release of a lock by this machine is under way.
func (p *Pool) releases(l fabric.Addr) bool {
	a := p.agents[l]
	return a != nil && len(a.holders) == 0 ||
		slices.ContainsFunc(p.slots, func(t ticket) bool { return t.lock == l && (t.phase == leaving || t.phase == releasing) })
}

// departed ends the departure of an agent, or takes it back.
func (p *Pool) departed(port fabric.Port, t *ticket, m *fabric.Message) {
	a := t.agent
	switch m.Kind {
	case msgFreed, msgMoved:
		p.spare = append(p.spare, a)
		p.end(t)
	case msgRefused:
		if t.next != 0 {
			a.queue = slices.Insert(a.queue, 0, t.next)
		}
		t.phase, t.agent = kept, nil
		p.agents[t.lock] = a
		if len(a.beyond) == 0 && a.seen == uint64(uint32(m.Body[2])) { // it has come to know of all meanwhile
			p.leaveIfEmpty(port, a)
		}
	}
}

// toldOf handles ACQUIRE at the agent's machine.
func (p *Pool) toldOf(port fabric.Port, m *fabric.Message) {
	l, o, origin := fabric.Addr(m.Body[0]), opID(m.Body[1]), fabric.AgentOf(opID(m.Body[1]).cn())
	a, byTheSwitch := p.agentOf(l), m.Body[2]&withAgent != 0
	switch {
	case byTheSwitch:
		known := false
		if a != nil {
			var isNew bool
			if isNew, known = a.see(&p.cfg, uint64(uint32(m.Body[2]))); isNew {
				a.add(o)
				if a.passed >= p.cfg.Passes {
					p.send(port, p.to, msgBar, uint64(l), uint64(newOp(p.cn, 0, p.round)), 1)
				}
			}
		}
		if !known {
			p.bounce(port, m, msgBounce)
			return
		}
		p.send(port, origin, msgHeld, uint64(l), uint64(o))
	case a == nil:
		p.send(port, fabric.ClientID(m.Body[3]), msgAgain, uint64(l), uint64(o))
	case a.home && p.isOver(o):
		if o.try() { // the answer may have been lost
			p.send(port, origin, msgBusy, uint64(l), uint64(o))
		}
		p.leaveIfEmpty(port, a)
	case a.home && slices.Contains(a.holders, o): // the answer went to a client that has given up, perhaps
		p.send(port, origin, msgGrant, uint64(l), uint64(o))
	case slices.Contains(a.holders, o) || slices.Contains(a.queue, o):
		p.send(port, origin, msgQueued, uint64(l), uint64(o))
	default:
		p.admit(port, a, m)
	}
}

// admit grants an operation that the agent did not know, or queues it.
func (p *Pool) admit(port fabric.Port, a *agent, m *fabric.Message) {
	o := opID(m.Body[1])
	if m.Body[2]&barred != 0 && (len(a.queue) == 0 || a.passed < p.cfg.Passes) { // the bar is of another agent's time
		p.send(port, p.to, msgBar, uint64(a.lock), uint64(newOp(p.cn, 0, p.round)), 0)
	}
	switch origin := fabric.AgentOf(o.cn()); {
	case a.admits(&p.cfg, o.mode()):
		a.add(o)
		if a.home { // the request is not over
			origin = fabric.ClientID(m.Body[3])
		}
		p.send(port, origin, msgGrant, uint64(a.lock), uint64(o))
	case o.try(): // else the switch has answered
		p.ends(o)
		p.send(port, fabric.ClientID(m.Body[3]), msgBusy, uint64(a.lock), uint64(o))
	default:
		a.queue = append(a.queue, o)
		p.send(port, origin, msgQueued, uint64(a.lock), uint64(o))
	}
}

// see notes a grant of the switch, by its incarnation. known is false if the grant is none that this agent can know of.
func (a *agent) see(cfg *Config, incarnation uint64) (isNew, known bool) {
	d := cfg.ahead(incarnation, a.seen)
	switch {
	case d <= 0:
		return false, true
	case a.mode != lock.Shared:
		return false, false
	case a.beyond[incarnation]:
		return false, true
	case d > 1:
		if a.beyond == nil {
			a.beyond = map[uint64]bool{}
		}
		a.beyond[incarnation] = true
		return true, true
	}
	for next := incarnation; next == incarnation || a.beyond[next]; next = cfg.wrap(next + 1) {
		a.seen = next
		delete(a.beyond, next)
	}
	return true, true
}

// leaves handles RELEASE at the agent's machine.
func (p *Pool) leaves(port fabric.Port, m *fabric.Message) {
	l, o := fabric.Addr(m.Body[0]), opID(m.Body[1])
	a := p.agentOf(l)
	switch {
	case a == nil:
	case a.drop(o), a.home: // or it has been released: no other may hold the lock that its home does not know
		if a.home {
			p.ends(o)
		}
		p.send(port, fabric.AgentOf(o.cn()), msgReleased, uint64(l), uint64(o))
		p.leaveIfEmpty(port, a)
		return
	case a.mode == lock.Exclusive || len(a.beyond) == 0 && a.seen == uint64(uint32(m.Body[2])): // it has been released
		p.send(port, fabric.AgentOf(o.cn()), msgReleased, uint64(l), uint64(o))
		return
	}
	if m.From == p.to {
		p.bounce(port, m, msgRelease)
	}
}

// maxBounces is how often a packet goes back to the switch where it is sent anew anyhow: copies of it would become more and more.
const maxBounces = 4

// bounce sends a packet that is for another machine, or has come too early, back to the switch.
func (p *Pool) bounce(port fabric.Port, m *fabric.Message, kind fabric.MsgKind) {
	if m.Body[4]++; p.cfg.ResendNs == 0 || m.Body[4] <= maxBounces {
		m.Kind = kind
		_ = port.Send(p.to, m)
	}
}

// comes handles an agent that comes, with its queue.
func (p *Pool) comes(port fabric.Port, m *fabric.Message) {
	l, o := fabric.Addr(m.Body[0]), opID(m.Body[1])
	key := int(o.cn())<<slotBits | o.slot()
	v := p.moves[key]
	if v == nil {
		v = new(move)
		p.moves[key] = v
	}
	d := int32(o.number() - v.number)
	if v.any && d <= 0 {
		if d == 0 && m.Kind == msgMove {
			p.send(port, fabric.AgentOf(o.cn()), msgMoved, uint64(l), uint64(o))
		}
		return
	}
	if v.op != o {
		if int32(o.number()-v.op.number()) < 0 {
			return
		}
		v.op, v.here, v.queue = o, false, v.queue[:0]
	}
	if m.Kind == msgMove {
		if v.here {
			return
		}
		v.head, v.here = *m, true
		n := min(int(m.Body[4]), inMove)
		v.put(0, m.Body[5:5+n])
	} else {
		v.put(int(m.Body[2]), m.Body[3:])
	}
	if !v.here || len(v.queue) < int(v.head.Body[4]) || slices.Contains(v.queue[:v.head.Body[4]], 0) {
		return
	}
	p.arrived(port, v)
}

// put puts waiters into a queue that comes in parts.
func (v *move) put(at int, waiters []uint64) {
	for i, w := range waiters {
		if w == 0 {
			return
		}
		for len(v.queue) <= at+i {
			v.queue = append(v.queue, 0)
		}
		v.queue[at+i] = opID(w)
	}
}

// arrived installs an agent that is here with all its queue.
func (p *Pool) arrived(port fabric.Port, v *move) {
	l, next := fabric.Addr(v.head.Body[0]), opID(v.head.Body[3])
	t := &p.slots[next.slot()]
	if t.op != next || t.lock != l || t.phase != asked && t.phase != waiting {
		// It waited for a copy of an ACQUIRE of long ago: nobody has the lock.
		if len(p.idle) == 0 {
			p.m = v.head
			v.here = false
			_ = port.Send(p.self, &p.m) // and tries anew
			return
		}
		i := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		t = &p.slots[i]
		*t = ticket{op: t.op.next(next & opMode), lock: l, client: p.self, phase: waiting, left: true}
	}
	v.number, v.any = v.op.number(), true
	p.send(port, fabric.AgentOf(v.op.cn()), msgMoved, uint64(l), uint64(v.op))
	t.known = true
	p.install(port, l, t.op, uint64(uint32(v.head.Body[2])), v.queue[:v.head.Body[4]], t.op.slot())
	p.grant(port, t)
}
