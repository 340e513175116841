package qplock

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// A Locker is one client's access to asymmetric locks.
type Locker struct {
	baseline.Client
	cfg     Config
	at      words
	near    fabric.Local
	line    []byte // ALock: where READs of a lock go
	tickets baseline.Tickets[ticket]
}

var _ lock.Locker = (*Locker)(nil)

// New returns a client's Locker.
func New(port fabric.Port, cfg Config) *Locker {
	l := &Locker{Client: baseline.New(port, cfg.Plain), cfg: cfg, at: cfg.words(), near: fabric.LocalOf(port)}
	if cfg.ALock {
		l.line = port.Alloc(lineSize)
	}
	return l
}

// cohortOf returns the cohort of the client at a lock.
func (l *Locker) cohortOf(a fabric.Addr) cohort {
	if l.near == nil || !l.near.Near(a.MN()) || l.cfg.Loopback != nil && l.cfg.Loopback(l.Port().ID()) {
		return remote
	}
	return local
}

// Acquire implements lock.Locker.
func (l *Locker) Acquire(h *lock.Hold, r *lock.Request) error {
	if err := baseline.Check(h, r); err != nil {
		return err
	}
	for i := range r.Reads {
		if r.Reads[i].Addr.MN() != r.Lock.MN() {
			return &fabric.ChainError{Op: r.Reads[i], Unposted: true, Err: fmt.Errorf("%w: a READ for %v with a lock on %v", fabric.ErrBadChain, r.Reads[i].Addr.MN(), r.Lock.MN())}
		}
	}
	if l.find(r.Lock) != nil {
		return fmt.Errorf("%w: %v has %v already", lock.ErrMisuse, l.Port().ID(), r.Lock)
	}
	t := l.tickets.New()
	*t = ticket{lock: r.Lock, id: l.Port().ID(), of: l.cohortOf(r.Lock), near: l.near}
	l.tickets.Queued = append(l.tickets.Queued, t)
	if err := l.acquire(t, r); err != nil {
		return fmt.Errorf("qplock: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	*h = lock.Hold{Lock: r.Lock, Mode: r.Mode, Aux: t, Word: uint64(t.id), Held: true}
	if !l.Plain {
		h.Token = t.last
	}
	l.Counters.Acquires++
	return nil
}

// acquire is pLock of Algorithm 1, with qLock in it. If it fails, the ticket is given back.
func (l *Locker) acquire(t *ticket, r *lock.Request) error {
	prev, err := l.enter(t, r.Try)
	switch {
	case err != nil:
		l.tickets.Drop(t)
		return err
	case prev == 0:
		t.granted = true
	case r.Try:
		l.tickets.Drop(t)
		l.Counters.Busy++
		return fmt.Errorf("%w: the cohort's queue ends with %v", lock.ErrBusy, prev)
	default:
		l.Counters.Waits++
		if err := l.await(t, prev, r.Until()); err != nil {
			return err
		}
	}
	if !t.owns {
		retries := l.Counters.Retries
		if err := l.lead(t, r); err != nil {
			return errors.Join(err, l.release(t, nil))
		}
		switch {
		case prev != 0: // counted
		case l.Counters.Retries == retries:
			l.Counters.Immediate++
		default:
			l.Counters.Waits++
		}
		t.owns, t.budget = true, l.cfg.budget(t.of)
	}
	t.last++
	t.budget--
	if len(r.Reads) > 0 {
		if err := t.do(l.Port(), r.Reads); err != nil {
			return errors.Join(err, l.release(t, nil))
		}
	}
	return nil
}

// enter swaps the ticket into the tail of its cohort, by CASes, and returns what it has found there. With try it gives up where there is something.
func (l *Locker) enter(t *ticket, try bool) (prev fabric.ClientID, err error) {
	for old := uint64(0); ; {
		op := fabric.CAS(t.lock.Add(l.at.tail[t.of]), old, uint64(t.id))
		if op, err = l.one(t, op); err != nil {
			return 0, err
		}
		switch old = op.Old; {
		case corrupt(old):
			return 0, baseline.Corrupt(t.lock, old)
		case op.Swapped(), try:
			return fabric.ClientID(old), nil
		}
	}
}

// one executes an operation of an acquisition.
func (l *Locker) one(t *ticket, op fabric.Op) (fabric.Op, error) {
	l.Ops[0] = op
	err := l.steps(t, 1)
	return l.Ops[0], err
}

// steps executes the first operations of Ops for an acquisition.
func (l *Locker) steps(t *ticket, n int) error {
	l.Counters.AcquireOps += uint64(n)
	return t.do(l.Port(), l.Ops[:n])
}

// await waits in the queue, behind prev.
func (l *Locker) await(t *ticket, prev fabric.ClientID, deadline fabric.Time) error {
	m := fabric.Message{Kind: msgSuccessor, Body: [7]uint64{uint64(t.lock), uint64(prev)}}
	if err := l.Port().Send(prev, &m); err != nil {
		return l.leave(t, err) // the predecessor has crashed, and the lock with it
	}
	for !t.granted {
		if err := baseline.Receive(l.Port(), &l.tickets, deadline); err != nil {
			return l.leave(t, err)
		}
	}
	return nil
}

// lead is what a leader does: Peterson's algorithm. Then it has the whole lock.
func (l *Locker) lead(t *ticket, r *lock.Request) error {
	if err := l.yield(t); err != nil {
		return err
	}
	for k := 1; ; k++ {
		other, victim, err := l.look(t)
		switch {
		case err != nil:
			return err
		case corrupt(other):
			return baseline.Corrupt(t.lock, other)
		case other == 0 || victim != t.of.victim():
			return l.fetchToken(t)
		case r.Try:
			l.Counters.Busy++
			return fmt.Errorf("%w: the other cohort's queue ends with %v", lock.ErrBusy, fabric.ClientID(other))
		}
		l.Counters.Retries++
		if err := l.Pause(r, baseline.Soon(k), 0); err != nil {
			return err
		}
	}
}

// yield makes the own cohort the victim.
func (l *Locker) yield(t *ticket) error {
	at, mine := t.lock.Add(l.at.victim), t.of.victim()
	if !l.cfg.ALock || t.of == local {
		_, err := l.one(t, fabric.Store(at, mine))
		return err
	}
	// As published: a swap, of CASes. A local leader's store may come between the halves of such a CAS, which then writes as a WRITE a moment later would.
	for old := uint64(0); ; {
		op, err := l.one(t, fabric.CAS(at, old, mine))
		if err != nil || op.Swapped() {
			return err
		}
		old = op.Old
	}
}

// look returns the other cohort's tail, and the victim.
func (l *Locker) look(t *ticket) (other, victim uint64, err error) {
	if l.cfg.ALock && t.of == remote {
		if _, err = l.one(t, fabric.Read(t.lock, l.line)); err != nil {
			return 0, 0, err
		}
		return word(l.line, l.at.tail[local]), word(l.line, l.at.victim), nil
	}
	l.Ops[0], l.Ops[1] = fabric.Load(t.lock.Add(l.at.tail[t.of.other()])), fabric.Load(t.lock.Add(l.at.victim))
	err = l.steps(t, 2)
	return l.Ops[0].Old, l.Ops[1].Old, err
}

// word returns the little-endian word at an offset.
func word(b []byte, at uint64) (v uint64) {
	for i := range uint64(8) {
		v |= uint64(b[at+i]) << (8 * i)
	}
	return v
}

// fetchToken reads the token of the last holder, which was of the other cohort, perhaps.
func (l *Locker) fetchToken(t *ticket) error {
	if l.Plain {
		return nil
	}
	op, err := l.one(t, fabric.Load(t.lock.Add(l.at.token)))
	t.last = lock.Token(op.Old)
	return err
}

// leave ends a wait in the queue that err has ended.
func (l *Locker) leave(t *ticket, err error) error {
	return errors.Join(l.GaveUp(err), l.abandon(t))
}

// abandon leaves the ticket to the node's agent, and the client ID with it.
func (l *Locker) abandon(t *ticket) error {
	return baseline.Abandon(l.Port(), &l.tickets, t, l.delegate)
}

func (l *Locker) delegate(t *ticket, tickets int) error {
	m := t.abandoned(tickets)
	cn := t.id.CN()
	l.tickets.Drop(t)
	return l.Port().Send(fabric.AgentOf(cn), &m)
}

// Release implements lock.Locker.
func (l *Locker) Release(h *lock.Hold, before []fabric.Op) error {
	t, ok := h.Aux.(*ticket)
	if !h.Held || !ok || l.find(h.Lock) != t || len(before) > lock.MaxPiggyback {
		return baseline.Misuse(h, before)
	}
	h.Held, h.Aux = false, nil
	if err := l.release(t, before); err != nil {
		return fmt.Errorf("qplock: release %v %v: %w", h.Mode, h.Lock, err)
	}
	return nil
}

// release is qUnlock of Algorithm 2, of a holder, or of a leader that gives up. The ticket is given back in any case.
func (l *Locker) release(t *ticket, before []fabric.Op) error {
	looks := t.of == remote && !l.cfg.ALock // a look into the inbox takes less than a CAS by NIC, and more than one by CPU
	for looks && t.next == 0 {
		if baseline.Receive(l.Port(), &l.tickets, 0) != nil {
			break
		}
	}
	var last [2]fabric.Op
	if gone := t.id != l.Port().ID(); gone || t.next != 0 && (looks || t.of == local) {
		_, err := l.end(t, before, last[:t.passOps(last[:], &l.cfg)])
		if gone {
			return errors.Join(err, l.delegate(t, 0)) // messages to the old ID come to the agent
		}
		return errors.Join(err, l.handOver(t))
	}
	n := t.freeOps(last[:], &l.cfg)
	done, err := l.end(t, before, last[:n])
	if !done || last[n-1].Swapped() {
		l.tickets.Drop(t)
		return err
	}
	return errors.Join(err, baseline.HandOn(l.Port(), &l.tickets, t, l.abandon, l.handOver))
}

// end executes the operations of before, and those that end a hold: see baseline.Client.Last.
func (l *Locker) end(t *ticket, before, last []fabric.Op) (done bool, err error) {
	return l.LastBy(func(ops []fabric.Op) error { return t.do(l.Port(), ops) }, before, last...)
}

// handOver hands the cohort's lock to the successor.
func (l *Locker) handOver(t *ticket) error {
	l.Counters.HandoversRemote++
	m, next := t.handover(), t.next
	l.tickets.Drop(t)
	return l.Port().Send(next, &m)
}

// find returns the client's ticket for a lock, or nil.
func (l *Locker) find(a fabric.Addr) *ticket {
	return l.tickets.Find(func(t *ticket) bool { return t.lock == a })
}
