package qplock

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A ticket is a client's in the queue of its cohort: the descriptor of Algorithm 2.
type ticket struct {
	lock fabric.Addr
	id   fabric.ClientID // under which it is in the queue
	of   cohort
	near fabric.Local    // of the local cohort: how it reaches the lock
	next fabric.ClientID // 0 is null
	// granted: it is the head of the queue. owns: it has the whole lock.
	granted, owns bool
	// budget is what its successor gets. What it is given itself it passes on as it is, unless it becomes a holder.
	budget uint32
	last   lock.Token // of the last holder, if it owns the lock
}

// Named implements baseline.Ticket.
func (t *ticket) Named() (fabric.Addr, fabric.ClientID) { return t.lock, t.id }

// Next implements baseline.Successor.
func (t *ticket) Next() fabric.ClientID { return t.next }

// Hear implements baseline.Ticket.
func (t *ticket) Hear(m *fabric.Message) {
	switch m.Kind {
	case msgSuccessor:
		t.next = m.From
	case msgHandover:
		t.granted, t.last, t.budget = true, lock.Token(m.Body[2]), uint32(m.Body[3])
		t.owns = t.budget > 0
	}
}

// do executes a chain by the way of the ticket's cohort.
func (t *ticket) do(p fabric.Port, ops []fabric.Op) error {
	if t.of == local {
		return t.near.DoLocal(ops)
	}
	return p.Do(ops)
}

// leaveToken puts the operation that leaves the last token in memory into ops, if there is one, and returns how many they are.
func (t *ticket) leaveToken(ops []fabric.Op, cfg *Config) int {
	if cfg.Plain || !t.owns {
		return 0
	}
	ops[0] = fabric.Store(t.lock.Add(cfg.words().token), uint64(t.last))
	return 1
}

// freeOps puts the operations that free the cohort's lock, if the ticket is its queue's last, into ops, and returns how many they are. The last is the CAS.
func (t *ticket) freeOps(ops []fabric.Op, cfg *Config) int {
	n := t.leaveToken(ops, cfg)
	ops[n] = fabric.CAS(t.lock.Add(cfg.words().tail[t.of]), uint64(t.id), 0)
	return n + 1
}

// passOps puts what comes before the message to the successor into ops, and returns how many operations that is: a successor with an empty budget
// finds the token in memory, once the other cohort has had the lock.
func (t *ticket) passOps(ops []fabric.Op, cfg *Config) int {
	if t.budget > 0 {
		return 0
	}
	return t.leaveToken(ops, cfg)
}

// handover returns the message to the successor.
func (t *ticket) handover() fabric.Message {
	return fabric.Message{Kind: msgHandover, Body: [7]uint64{uint64(t.lock), uint64(t.next), uint64(t.last), uint64(t.budget)}}
}

// Bits of a ticket in a message to the agent.
const (
	bitGranted = 1 << iota
	bitOwns
	bitLocal
)

// abandoned returns the message that leaves the ticket to the node's agent, which is to expect so many tickets of the client ID; 0: it has learned that before.
func (t *ticket) abandoned(tickets int) fabric.Message {
	bits := uint64(t.of) * bitLocal
	if t.granted {
		bits |= bitGranted
	}
	if t.owns {
		bits |= bitOwns
	}
	return fabric.Message{Kind: msgAbandoned,
		Body: [7]uint64{uint64(t.lock), uint64(t.id), uint64(t.last), uint64(t.budget), bits, uint64(t.next), uint64(tickets)}}
}

// adopted returns the ticket of such a message, and the number.
func adopted(m *fabric.Message, near fabric.Local) (t ticket, tickets uint64) {
	b := &m.Body
	t = ticket{lock: fabric.Addr(b[0]), id: fabric.ClientID(b[1]), last: lock.Token(b[2]), budget: uint32(b[3]), near: near,
		granted: b[4]&bitGranted != 0, owns: b[4]&bitOwns != 0, next: fabric.ClientID(b[5])}
	if b[4]&bitLocal != 0 {
		t.of = local
	}
	return t, b[6]
}
