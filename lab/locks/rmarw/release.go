package rmarw

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// Release implements lock.Locker.
func (l *Locker) Release(h *lock.Hold, before []fabric.Op) (err error) {
	t, writes := h.Aux.(*ticket)
	switch by, reads := h.Aux.(*Locker); {
	case !h.Held || len(before) > lock.MaxPiggyback:
		return baseline.Misuse(h, before)
	case writes && l.find(h.Lock) == t:
		err = l.release(t, before)
	case reads && by == l:
		_, err = l.Last(before, fabric.FAA(h.Lock.Add(countsOffset), uint64(oneDepart)))
	default:
		return baseline.Misuse(h, before)
	}
	h.Held, h.Aux, h.Word = false, nil, 0
	if err != nil {
		return fmt.Errorf("rmarw: release %v %v: %w", h.Mode, h.Lock, err)
	}
	return nil
}

// release gives the place at the head of the queue to the next writer, and lets readers in before if it is their turn. The ticket is given back
// in any case.
func (l *Locker) release(t *ticket, before []fabric.Op) error {
	for t.next == 0 { // the message may be in the inbox
		if err := l.receive(0); err != nil {
			break
		}
	}
	if t.id != l.Port().ID() {
		err := l.Port().Do(before)
		return errors.Join(err, l.delegate(t, 0)) // messages to the old ID come to the agent
	}
	if !t.resets(&l.cfg) {
		if err := l.Port().Do(before); err != nil {
			return errors.Join(err, l.pass(t))
		}
		return l.pass(t)
	}
	look := [1]fabric.Op{fabric.Load(t.lock.Add(countsOffset))}
	done, err := l.Last(before, look[:]...)
	if !done {
		l.tickets.Drop(t)
		return err
	}
	n := t.resetOps(l.Ops[:], counts(look[0].Old), l.Plain)
	t.mark = false
	if e := l.Port().Do(l.Ops[:n]); e != nil {
		l.tickets.Drop(t)
		return errors.Join(err, e)
	}
	return errors.Join(err, l.pass(t))
}

// pass makes the next writer the first of the queue, or leaves the queue empty.
func (l *Locker) pass(t *ticket) error {
	if t.next == 0 {
		l.Ops[0] = fabric.CAS(t.lock, uint64(t.id), 0)
		if err := l.Port().Do(l.Ops[:1]); err != nil || l.Ops[0].Swapped() {
			l.tickets.Drop(t)
			return err
		}
	}
	return baseline.HandOn[*ticket](l.Port(), &l.tickets, t, l.abandon, l.handOver)
}

// handOver makes the successor the first of the queue.
func (l *Locker) handOver(t *ticket) error {
	l.Counters.HandoversRemote++
	m, next := t.handover(), t.next
	l.tickets.Drop(t)
	return l.Port().Send(next, &m)
}

// receive takes the next message, which may be about a ticket.
func (l *Locker) receive(deadline fabric.Time) error {
	return baseline.Receive[*ticket](l.Port(), &l.tickets, deadline)
}

// leave ends a wait in the queue that err has ended.
func (l *Locker) leave(t *ticket, err error) error {
	return errors.Join(l.GaveUp(err), l.abandon(t))
}

// abandon leaves the ticket to the node's agent, and the client ID with it.
func (l *Locker) abandon(t *ticket) error {
	return baseline.Abandon[*ticket](l.Port(), &l.tickets, t, l.delegate)
}

// States of a ticket in the message that leaves it to the agent.
const (
	isFirst = 1 << iota
	isMarked
)

// delegate leaves the ticket to the node's agent. tickets is how many it is to expect of the client ID, this one included; 0 if it has
// learnt that before.
func (l *Locker) delegate(t *ticket, tickets int) error {
	state := uint64(0)
	if t.first {
		state |= isFirst
	}
	if t.mark {
		state |= isMarked
	}
	m := fabric.Message{Kind: msgAbandoned, Body: [7]uint64{uint64(t.lock), uint64(t.id), uint64(t.token), t.row, state, uint64(t.next), uint64(tickets)}}
	l.tickets.Drop(t)
	return l.Port().Send(fabric.AgentOf(t.id.CN()), &m)
}
