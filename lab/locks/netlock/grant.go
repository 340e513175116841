package netlock

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// What a packet that is recirculated looks for.
const (
	oneWriter = iota // the entry is a writer's, which has the lock now
	ifWriter         // the lock is the entry's if that is a writer's; if it is a reader's, that has been granted
	readers          // grant it and the readers behind it, or the writer that it is
)

// A rest is what a packet that is recirculated carries.
type rest struct {
	at     uint64 // the place of the entry
	what   uint64
	left   uint64 // readers: entries to look at
	known  uint64 // readers: entries that there were, modulo 2^countBits
	passed uint64 // readers that it has granted, modulo 2^countBits
	op     opID   // of msgLast: a writer's entry, behind readers; else 0
	client uint64
}

func restOf(m *fabric.Message) rest {
	b := &m.Body
	return rest{op: opID(b[1]), at: b[2] >> 32, what: b[2] & 0xffffffff, client: b[3], left: b[4] >> 32, known: b[4] & 0xffffffff, passed: b[5]}
}

// recirculate has the packet go through the switch again.
func (p *Program) recirculate(k *packet, kind fabric.MsgKind, r rest) {
	p.out = fabric.Message{From: k.in.From, Kind: kind,
		Body: [7]uint64{k.in.Body[0], uint64(r.op), r.at<<32 | r.what, r.client, r.left<<32 | r.known, r.passed}}
	k.Recirculate(&p.out)
}

// release handles a release: the entry at the head goes, and what is behind it is granted by further passes.
func (p *Program) release(k *packet) {
	mode, goesOn, r, away := k.op.mode(), false, rest{}, uint64(0)
	k.Update(p.counts, k.lock, func(old uint64) uint64 {
		t := unpack(old)
		if k.again || *t.of(mode) == 0 {
			return old
		}
		k.takes = true
		*t.of(mode)--
		n := t.x + t.s
		r.left, r.known = n, n
		if n == 0 {
			away = t.away
		}
		switch {
		case t.chain:
			t.gone = (t.gone + 1) & countMask
		case mode == lock.Shared:
			goesOn, r.what = t.x > 0, ifWriter
		case t.s > 0:
			goesOn, r.what, t.chain, t.gone = true, readers, true, 0
		default:
			goesOn, r.what = t.x > 0, oneWriter
		}
		return t.pack()
	})
	taken := k.Update(p.taken, k.lock, func(old uint64) uint64 { return old })
	if k.takes {
		k.Update(p.head, k.lock, func(old uint64) uint64 { r.at = p.advance(old); return r.at })
	}
	p.send(k, fabric.AgentOf(k.op.cn()), msgReleased, 0)
	if away > 0 {
		p.send(k, fabric.ClientID(k.in.Body[5]), msgRefill, p.upTo(taken, away))
	}
	if goesOn {
		p.recirculate(k, msgNext, r)
	}
}

// next looks at an entry of the queue.
func (p *Program) next(k *packet) {
	r := restOf(k.in)
	n, keep := p.entry(k.lock, place(r.at)), func(old uint64) uint64 { return old }
	op, client := opID(k.Update(p.ops, n, keep)), k.Update(p.clients, n, keep)
	same := client>>clientLap == place(r.at).lap()
	client &= 1<<clientLap - 1
	switch writer := op.mode() != lock.Shared; {
	case !same: // it was a reader's, which has released since, and the place is another's now
	case r.what != readers && writer:
		p.grant(k, op, client)
	case r.what != readers:
	case writer:
		r.op, r.client = op, client
		p.recirculate(k, msgLast, r)
	default:
		p.grant(k, op, client)
		r.at, r.left, r.passed = p.advance(r.at), r.left-1, (r.passed+1)&countMask
		if r.left > 0 {
			p.recirculate(k, msgNext, r)
		} else {
			p.recirculate(k, msgLast, r)
		}
	}
}

// last ends the passes that grant readers, or goes on with what has come meanwhile. The writer behind them has the lock if all of them have released.
func (p *Program) last(k *packet) {
	r, more, free := restOf(k.in), uint64(0), false
	k.Update(p.counts, k.lock, func(old uint64) uint64 {
		t := unpack(old)
		if r.op == 0 {
			more = (t.x + t.s + t.gone - r.known) & countMask
		}
		if more > 0 {
			return old
		}
		free = r.op != 0 && t.gone == r.passed
		t.chain, t.gone = false, 0
		return t.pack()
	})
	switch {
	case more > 0:
		r.left, r.known = more, (r.known+more)&countMask
		p.recirculate(k, msgNext, r)
	case free:
		p.grant(k, r.op, r.client)
	}
}

// grant grants the lock to a request that was in the queue. It may be that of a machine that has gone, and the register that of one in its number.
func (p *Program) grant(k *packet, op opID, client uint64) {
	to := fabric.ClientID(client)
	k.Update(p.outcome, p.slot(op), func(old uint64) uint64 {
		if old>>outcomeNumber != op.number() {
			return old
		}
		if old&outcomeLeft != 0 {
			to = fabric.AgentOf(op.cn())
		}
		return old&^outcomeState | uint64(granted)
	})
	p.out = fabric.Message{Kind: msgGranted, Body: [7]uint64{k.in.Body[0], uint64(op), waited}}
	k.Send(to, &p.out)
}
