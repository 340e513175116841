package fiss

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/lock"
)

const (
	// closed is in the round's register while packets are executed of no round.
	closed = 1 << roundBits
	// hasGone is in the register of a machine, above Pool.key.
	hasGone = 1 << keyBits
	keyBits = 31
)

// Restart returns the program that runs once the switch has failed: it has empty registers, and executes nothing until a recovery has restored them. The control
// plane has kept the last round and the numbers of the locks' registers, which in the paper a daemon has.
func (p *Program) Restart() (*Program, error) {
	q, err := NewProgram(p.cfg)
	if err != nil {
		return nil, err
	}
	q.numbers, q.rounds = p.numbers, p.rounds+1
	q.round.Store(0, closed)
	return q, nil
}

// serves reports whether a packet is of the round whose packets are executed. The machine is told if the packet is not, and whether any are: the leader may have gone before others knew of the round.
func (p *Program) serves(k *packet) bool {
	round := k.Update(p.round, 0, func(old uint64) uint64 { return old })
	if round != k.op.round() {
		p.tell(round)
		k.Send(fabric.AgentOf(k.op.cn()), &p.out)
	}
	return round == k.op.round()
}

// control does what the leader of a recovery asks the control plane for. Copies change nothing.
func (p *Program) control(pass *pswitch.Pass, in *fabric.Message) {
	p.out = *in
	p.out.Kind = msgDone
	switch round := in.Body[2]; {
	case in.Kind == msgBegin:
		if round == p.rounds+1 {
			p.rounds, p.leader, p.leads = round, in.From, in.Body[4]
			p.begin()
		}
		p.tell(p.round.Load(0))
	case round != p.rounds: // it is over, or the switch has failed since it began
		p.tell(p.round.Load(0))
	case in.Kind == msgOpen:
		p.round.Store(0, inRound(round))
	case p.round.Load(0) == closed:
		p.restore(fabric.Addr(in.Body[0]), opID(in.Body[1]))
	}
	pass.Send(in.From, &p.out)
}

// tell makes what is sent say which round is the last, who has begun it, and whether it is not open yet, by the round's register.
func (p *Program) tell(register uint64) {
	p.out = fabric.Message{Kind: msgRound, Body: [7]uint64{2: p.rounds, 3: uint64(p.leader), 4: p.leads, 5: register / closed}}
}

// begin closes the lock service, and empties the registers.
func (p *Program) begin() {
	p.round.Store(0, closed)
	for _, a := range []*pswitch.Array{p.owner, p.last, p.outcome, p.bar, p.incarnation, p.held, p.shared, p.mid} {
		a.Clear()
	}
}

// restore makes a lock held by a holder whose machine has the agent.
func (p *Program) restore(l fabric.Addr, holder opID) {
	n, ok := p.number(l)
	if !ok {
		return // no lock is held for which there are no registers
	}
	p.held.Store(n, 1)
	p.mid.Store(n, uint64(holder.cn()))
	if holder.mode() == lock.Shared {
		p.shared.Store(n, 1)
	}
}

// joins notes that a machine has begun, which nodes are live by the view that it has joined with, and by its key which view that is. The machine is told if another has gone that had joined, or acquired, before
// the first recovery: no machine that has its Pool now may have seen that. What comes later of those that had gone by then is not executed.
func (p *Program) joins(pass *pswitch.Pass, in *fabric.Message) {
	p.out = fabric.Message{Kind: msgJoined, Body: [7]uint64{1: in.Body[1], 2: in.Body[2]}} // without the nodes: what is there in an answer belongs to frames
	own, key, live := opID(in.Body[1]).cn(), in.Body[2], fabric.CNSet(in.Body[3:])
	for i := 1; i < p.cfg.Machines && p.rounds == 0; i++ {
		switch old := p.owner.Load(i); {
		case fabric.CNID(i) == own && mayOwn(old, key):
			p.owner.Store(i, key)
		case fabric.CNID(i) == own && old != key:
			p.out.Kind = msgTaken
		case live.Has(fabric.CNID(i)):
		case mayOwn(old, key):
			p.owner.Store(i, hasGone|key)
		case old < key: // else it has joined since
			p.out.Kind = msgTaken
		}
	}
	pass.Send(in.From, &p.out)
}
