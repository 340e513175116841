package fiss

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
)

// With Config.Home each lock is at a machine, its home, as those of a server are. The agent there never leaves, and grants the lock by itself: to its machine's clients without a message, to others by an
// answer to what the switch sends it. The switch has no register for such a lock, so it grants none: whatever it granted, the home would not know in time.
//
// A recovery ends that: from then on locks are where they are asked for.

// isHome reports whether a lock is at this machine.
func (p *Pool) isHome(l fabric.Addr) bool {
	return p.cfg.Home != nil && p.round == 0 && !p.late && p.cfg.homeOf(l) == p.cn
}

// near is isHome for a client.
func (p *Pool) near(l fabric.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isHome(l)
}

// agentOf returns the agent of a lock; nil: it is elsewhere. That of a lock which is at this machine is made when it is looked for, and forgotten when it has neither holders nor waiters.
func (p *Pool) agentOf(l fabric.Addr) *agent {
	a := p.agents[l]
	if a == nil && p.isHome(l) {
		a = p.newAgent(l)
		a.home, a.slot = true, -1
	}
	return a
}

// ends notes that a machine's operation is over, of which packets may still come: granted anew, it would keep others out until its client has given it back.
func (p *Pool) ends(o opID) {
	key := int(o.cn())<<slotBits | o.slot()
	if last, any := p.ended[key]; !any || int32(o.number()-last) > 0 {
		p.ended[key] = o.number()
	}
}

// isOver reports whether an operation is over.
func (p *Pool) isOver(o opID) bool {
	last, any := p.ended[int(o.cn())<<slotBits|o.slot()]
	return any && int32(o.number()-last) <= 0
}

// serve grants a lock that is at this machine, and that nobody holds, to the first that wait.
func (p *Pool) serve(port fabric.Port, a *agent) {
	if len(a.queue) == 0 {
		delete(p.agents, a.lock)
		p.spare = append(p.spare, a)
		return
	}
	queue := a.queue
	a.queue = a.queue[:0]
	for i, o := range queue {
		if i > 0 && !a.admits(&p.cfg, o.mode()) {
			a.queue = append(a.queue, o)
			continue
		}
		a.add(o)
		if t := &p.slots[o.slot()]; o.cn() == p.cn && t.op == o && t.phase == waiting {
			p.grant(port, t)
		} else {
			p.send(port, fabric.AgentOf(o.cn()), msgGrant, uint64(a.lock), uint64(o))
		}
	}
}

// toHome sends a packet to the machine that its lock is at.
func (p *Program) toHome(pass *pswitch.Pass, in *fabric.Message) {
	p.out = *in
	switch in.Kind {
	case msgAcquire:
		p.out.Kind = msgAsk
	case msgRelease:
		p.out.Kind = msgLeave
	default:
		return
	}
	p.out.Body[2] = 0
	pass.Send(fabric.AgentOf(p.cfg.homeOf(fabric.Addr(in.Body[0]))), &p.out)
}
