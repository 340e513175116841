package mcs

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// A ticket is a client's in the queue of a lock: C of Algorithm 1.
type ticket struct {
	lock    fabric.Addr
	id      fabric.ClientID // under which it is in the queue
	granted bool            // C.flag
	next    fabric.ClientID // C.next, 0 is null
	token   lock.Token
}

// A Locker is one client's access to MCS locks.
type Locker struct {
	baseline.Client
	wide    fabric.Wide
	tickets baseline.Tickets[ticket]
}

var _ lock.Locker = (*Locker)(nil)

// New returns a client's Locker. The fabric must have masked atomics (capability Masked), which fetch-and-store is made of.
func New(port fabric.Port, cfg Config) *Locker {
	return &Locker{Client: baseline.New(port, cfg.Plain)}
}

// Acquire implements lock.Locker.
func (l *Locker) Acquire(h *lock.Hold, r *lock.Request) error {
	if err := baseline.Check(h, r); err != nil {
		return err
	}
	if l.find(r.Lock) != nil {
		return fmt.Errorf("%w: %v has %v already", lock.ErrMisuse, l.Port().ID(), r.Lock)
	}
	t := l.tickets.New()
	*t = ticket{lock: r.Lock, id: l.Port().ID()}
	l.tickets.Queued = append(l.tickets.Queued, t)
	if err := l.acquire(t, r); err != nil {
		return fmt.Errorf("mcs: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	*h = lock.Hold{Lock: r.Lock, Mode: r.Mode, Token: t.token, Aux: t, Word: uint64(t.id), Held: true}
	l.Counters.Acquires++
	return nil
}

// acquire is MCS-ACQUIRE. If it fails, the ticket is given back.
func (l *Locker) acquire(t *ticket, r *lock.Request) error {
	prev, err := l.enter(t, r)
	switch {
	case err != nil && t.granted:
		return errors.Join(err, l.release(t, nil))
	case err != nil:
		l.tickets.Drop(t)
		return err
	case prev == 0:
		l.Counters.Immediate++
		return nil
	case r.Try:
		l.tickets.Drop(t)
		l.Counters.Busy++
		return fmt.Errorf("%w: queue ends with %v", lock.ErrBusy, prev)
	}
	l.Counters.Waits++
	m := fabric.Message{Kind: msgSuccessor, Body: [7]uint64{uint64(t.lock), uint64(prev)}}
	if err := l.Port().Send(prev, &m); err != nil {
		return l.leave(t, err) // the predecessor has crashed, and the lock with it
	}
	deadline := r.Until()
	for !t.granted {
		if err := baseline.Receive(l.Port(), &l.tickets, deadline); err != nil {
			return l.leave(t, err)
		}
	}
	if len(r.Reads) > 0 {
		if err := l.Port().Do(r.Reads); err != nil {
			return errors.Join(err, l.release(t, nil))
		}
	}
	return nil
}

// enter is the fetch-and-store of line 2, with the token and the caller's READs
// behind it, which count if the lock was free. With Try it is a CAS from null.
func (l *Locker) enter(t *ticket, r *lock.Request) (prev fabric.ClientID, err error) {
	l.wide = fabric.Wide{Swap: [2]uint64{uint64(t.id)}, SwapMask: [2]uint64{^uint64(0)}}
	if r.Try {
		l.wide.CmpMask[0] = ^uint64(0)
	}
	l.Ops[0] = fabric.Op{Kind: fabric.OpMaskedCAS, Addr: r.Lock, Wide: &l.wide}
	n := 1
	if !l.Plain {
		l.Ops[1] = fabric.Load(r.Lock.Add(baseline.TokenOffset))
		n++
	}
	first := n
	n += copy(l.Ops[n:], r.Reads)
	err = l.Port().Do(l.Ops[:n])
	l.Counters.AcquireOps += uint64(first)
	done := fabric.Executed(err, n)
	if done == 0 {
		return 0, err
	}
	w := word(l.wide.Old[0])
	switch {
	case w.corrupt():
		l.Ops[0] = fabric.CAS(r.Lock, uint64(t.id), uint64(w)) // as it was
		return 0, errors.Join(baseline.Corrupt(r.Lock, uint64(w)), l.Port().Do(l.Ops[:1]))
	case w != 0:
		return w.tail(), nil // what the READs found does not matter
	}
	t.granted = true
	if !l.Plain && done > 1 {
		t.token = lock.Token(l.Ops[1].Old) + 1
	}
	copy(r.Reads, l.Ops[first:n])
	return 0, err
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
		t.granted, t.token = true, lock.Token(m.Body[2])
	}
}

// leave ends a wait that err has ended.
func (l *Locker) leave(t *ticket, err error) error {
	return errors.Join(l.GaveUp(err), l.abandon(t))
}

// abandon leaves the ticket to the node's agent, and the client ID with it.
func (l *Locker) abandon(t *ticket) error {
	return baseline.Abandon(l.Port(), &l.tickets, t, l.delegate)
}

// delegate leaves the ticket to the node's agent. tickets is how many it is to
// expect of the client ID, this one included; 0 if it has learnt that before.
func (l *Locker) delegate(t *ticket, tickets int) error {
	granted := uint64(0)
	if t.granted {
		granted = 1
	}
	m := fabric.Message{Kind: msgAbandoned, Body: [7]uint64{uint64(t.lock), uint64(t.id), uint64(t.token), granted, uint64(t.next), uint64(tickets)}}
	l.tickets.Drop(t)
	return l.Port().Send(fabric.AgentOf(t.id.CN()), &m)
}

// Release implements lock.Locker.
func (l *Locker) Release(h *lock.Hold, before []fabric.Op) error {
	t, ok := h.Aux.(*ticket)
	if !h.Held || !ok || l.find(h.Lock) != t || len(before) > lock.MaxPiggyback {
		return baseline.Misuse(h, before)
	}
	h.Held, h.Aux = false, nil
	if err := l.release(t, before); err != nil {
		return fmt.Errorf("mcs: release %v %v: %w", h.Mode, h.Lock, err)
	}
	return nil
}

// release is MCS-RELEASE. The ticket is given back in any case.
func (l *Locker) release(t *ticket, before []fabric.Op) error {
	for t.next == 0 { // C.next: the message may be in the inbox
		if err := baseline.Receive(l.Port(), &l.tickets, 0); err != nil {
			break
		}
	}
	if t.id != l.Port().ID() || t.next != 0 {
		err := l.Port().Do(before)
		if t.id != l.Port().ID() {
			return errors.Join(err, l.delegate(t, 0)) // messages to the old ID come to the agent
		}
		return errors.Join(err, l.handOver(t))
	}
	freed, done, err := l.free(t, before)
	if freed || !done {
		l.tickets.Drop(t)
		return err
	}
	return errors.Join(err, baseline.HandOn(l.Port(), &l.tickets, t, l.abandon, l.handOver))
}

// free sets the tail to null if it is the ticket's (line 8), in one chain with the operations of before.
// If one of those fails, the tail is set all the same. done is false if the CAS was not executed, or that is unknown.
func (l *Locker) free(t *ticket, before []fabric.Op) (freed, done bool, err error) {
	var last [2]fabric.Op
	n := t.freeOps(last[:], l.Plain)
	done, err = l.Last(before, last[:n]...)
	return done && last[n-1].Swapped(), done, err
}

// freeOps puts the operations that free the lock if the ticket is its queue's last into
// ops, and returns how many they are. The last is the CAS.
func (t *ticket) freeOps(ops []fabric.Op, plain bool) int {
	n := 0
	if !plain && t.token != 0 {
		ops[0] = fabric.Store(t.lock.Add(baseline.TokenOffset), uint64(t.token))
		n++
	}
	ops[n] = fabric.CAS(t.lock, uint64(t.id), 0)
	return n + 1
}

// handOver sets the successor's flag (line 11).
func (l *Locker) handOver(t *ticket) error {
	l.Counters.HandoversRemote++
	m := t.handover()
	next := t.next
	l.tickets.Drop(t)
	return l.Port().Send(next, &m)
}

func (t *ticket) handover() fabric.Message {
	return fabric.Message{Kind: msgHandover, Body: [7]uint64{uint64(t.lock), uint64(t.next), uint64(t.token) + 1}}
}

// find returns the client's ticket for a lock, or nil.
func (l *Locker) find(a fabric.Addr) *ticket {
	return l.tickets.Find(func(t *ticket) bool { return t.lock == a })
}
