package ncosed

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// A Locker is one client's access to N-CoSED locks.
type Locker struct {
	baseline.Client
	mail    mailer
	tickets baseline.Tickets[ticket]
}

var _ lock.Locker = (*Locker)(nil)

// New returns a client's Locker. home is the first: see HomeOf.
func New(port fabric.Port, home fabric.ClientID, cfg Config) *Locker {
	return &Locker{Client: baseline.New(port, cfg.Plain), mail: mailer{port: port, first: home, homes: cfg.Homes}}
}

// Acquire implements lock.Locker.
func (l *Locker) Acquire(h *lock.Hold, r *lock.Request) (err error) {
	if err := baseline.Check(h, r); err != nil {
		return err
	}
	if l.find(r.Lock) != nil {
		return fmt.Errorf("%w: %v has %v already", lock.ErrMisuse, l.Port().ID(), r.Lock)
	}
	t := l.tickets.New()
	*t = ticket{lock: r.Lock, id: l.Port().ID(), mode: r.Mode, readers: t.readers[:0]}
	l.tickets.Queued = append(l.tickets.Queued, t)
	if r.Mode == lock.Exclusive {
		err = l.acquireWriter(t, h, r)
	} else {
		err = l.acquireReader(t, h, r)
	}
	if err != nil {
		return fmt.Errorf("ncosed: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	h.Lock, h.Mode, h.Aux, h.Held = r.Lock, r.Mode, t, true
	if l.Counters.Acquires++; r.Mode == lock.Shared {
		h.Aux = l // no message will come
		l.tickets.Drop(t)
	}
	return nil
}

// acquireWriter makes the ticket the tail. If it fails, the ticket has been given back.
func (l *Locker) acquireWriter(t *ticket, h *lock.Hold, r *lock.Request) error {
	mine := makeWord(t.id, 0)
	old, done, err := l.First(h, r, fabric.CAS(t.lock, 0, uint64(mine)))
	found := word(old)
	switch {
	case err != nil && (done == 0 || found != 0):
		l.tickets.Drop(t)
		return err
	case err != nil:
		return errors.Join(err, l.release(t, nil))
	case found == 0:
		l.Counters.Immediate++
		return nil
	}
	if r.Try {
		if err := l.unread(t, r, found); err != nil {
			l.tickets.Drop(t)
			return err
		}
	}
	for {
		if found.corrupt() {
			l.tickets.Drop(t)
			return baseline.Corrupt(t.lock, uint64(found))
		}
		expect := found
		old, err = l.Retry(fabric.CAS(t.lock, uint64(expect), uint64(mine)))
		if found = word(old); err == nil && found == expect {
			break
		}
		if err == nil && r.Try {
			err = l.busy(found)
		}
		if err != nil {
			l.tickets.Drop(t)
			return err
		}
	}
	if tail := found.tail(); tail != 0 {
		err = l.mail.send(tail, msgWriter, [7]uint64{uint64(t.lock), uint64(tail), uint64(t.id), uint64(found.readers())})
	} else {
		err = l.mail.await(t.lock, t.id, found.readers())
	}
	return l.wait(t, h, r, err)
}

// unread returns an error if a lock has a tail, or readers that have not released.
func (l *Locker) unread(t *ticket, r *lock.Request, found word) error {
	if found.corrupt() || found.tail() != 0 {
		return l.busy(found)
	}
	if err := l.mail.send(l.mail.home(t.lock), msgAsk, [7]uint64{uint64(t.lock), uint64(t.id)}); err != nil {
		return err
	}
	for t.releases == 0 {
		if err := l.receive(r.Until()); err != nil {
			return l.GaveUp(err)
		}
	}
	if t.releases-1 != uint64(found.readers()) {
		return l.busy(found)
	}
	return nil
}

func (l *Locker) busy(found word) error {
	if found.corrupt() {
		return fmt.Errorf("%w: %v", lock.ErrCorrupt, found)
	}
	l.Counters.Busy++
	return fmt.Errorf("%w: %v", lock.ErrBusy, found)
}

// acquireReader counts the reader. If it fails, the ticket has been given back.
func (l *Locker) acquireReader(t *ticket, h *lock.Hold, r *lock.Request) error {
	if r.Try {
		return l.tryReader(t, h, r)
	}
	old, done, err := l.First(h, r, fabric.FAA(t.lock, uint64(oneReader)))
	found := word(old)
	switch {
	case done == 0:
		l.tickets.Drop(t)
		return err
	case found.corrupt():
		l.tickets.Drop(t)
		l.Ops[0] = fabric.CAS(t.lock, old+uint64(oneReader), old) // as it was
		return errors.Join(baseline.Corrupt(t.lock, old), l.Port().Do(l.Ops[:1]))
	case found.tail() == 0:
		return l.counted(t, err)
	}
	e := l.mail.send(found.tail(), msgReader, [7]uint64{uint64(t.lock), uint64(found.tail()), uint64(t.id)})
	return l.wait(t, h, r, errors.Join(err, e))
}

// counted is the end of the acquisition of a reader that found no tail; err says that its READs have failed.
func (l *Locker) counted(t *ticket, err error) error {
	if err != nil {
		l.tickets.Drop(t)
		return errors.Join(err, l.mail.released(t.lock))
	}
	l.Counters.Immediate++
	return nil
}

// tryReader counts the reader if there is no tail.
func (l *Locker) tryReader(t *ticket, h *lock.Hold, r *lock.Request) error {
	expect, err := l.Look(t.lock)
	for err == nil && !word(expect).corrupt() && word(expect).tail() == 0 {
		old, done, err := l.First(h, r, fabric.CAS(t.lock, expect, expect+uint64(oneReader)))
		if done == 0 {
			l.tickets.Drop(t)
			return err
		}
		if old == expect {
			return l.counted(t, err)
		}
		expect = old
	}
	if err == nil {
		err = l.busy(word(expect))
	}
	l.tickets.Drop(t)
	return err
}

// wait waits until the ticket is granted, and fetches token and READs. If it fails, or err is not nil, the ticket is left to the agent.
func (l *Locker) wait(t *ticket, h *lock.Hold, r *lock.Request, err error) error {
	l.Counters.Waits++
	for err == nil && !t.granted {
		err = l.receive(r.Until())
	}
	if err != nil {
		return errors.Join(l.GaveUp(err), l.abandon(t))
	}
	if err := l.Fetch(h, r); err != nil {
		return errors.Join(err, l.release(t, nil))
	}
	return nil
}

// receive takes the next message, which may be about a ticket.
func (l *Locker) receive(deadline fabric.Time) error {
	return baseline.Receive[*ticket](l.Port(), &l.tickets, deadline)
}

// abandon leaves the ticket to the node's agent, and the client ID with it.
func (l *Locker) abandon(t *ticket) error {
	return baseline.Abandon[*ticket](l.Port(), &l.tickets, t, l.delegate)
}

// States of a ticket in the message that leaves it to the agent.
const (
	isWriter = 1 << iota
	isGranted
	isEnded
	isBehind
)

// delegate leaves the ticket to the node's agent, and readers that it knows of. tickets is how many the agent is to expect of the client ID, this one
// included; 0 if it has learnt that before.
func (l *Locker) delegate(t *ticket, tickets int) (err error) {
	state := uint64(0)
	for i, is := range [...]bool{t.mode == lock.Exclusive, t.granted, t.ended, t.behind} {
		if is {
			state |= 1 << i
		}
	}
	agent, heard := fabric.AgentOf(t.id.CN()), t.heard-uint32(len(t.readers))
	all := [7]uint64{uint64(t.lock), uint64(t.id), state, uint64(heard)<<32 | uint64(t.count), uint64(t.next), uint64(t.before), uint64(tickets)}
	for _, r := range t.readers { // before: what the agent hears of a ticket, it keeps
		err = errors.Join(err, l.mail.send(agent, msgReader, [7]uint64{uint64(t.lock), uint64(t.id), uint64(r)}))
	}
	l.tickets.Drop(t)
	return errors.Join(err, l.mail.send(agent, msgAbandoned, all))
}

// Release implements lock.Locker.
func (l *Locker) Release(h *lock.Hold, before []fabric.Op) (err error) {
	t, writes := h.Aux.(*ticket)
	switch by, reads := h.Aux.(*Locker); {
	case !h.Held || len(before) > lock.MaxPiggyback:
		return baseline.Misuse(h, before)
	case writes && l.find(h.Lock) == t:
		err = l.release(t, before)
	case reads && by == l:
		err = errors.Join(l.Port().Do(before), l.mail.released(h.Lock))
	default:
		return baseline.Misuse(h, before)
	}
	h.Held, h.Aux = false, nil
	if err != nil {
		return fmt.Errorf("ncosed: release %v %v: %w", h.Mode, h.Lock, err)
	}
	return nil
}

// release releases what has been granted. The ticket is given back in any case.
func (l *Locker) release(t *ticket, before []fabric.Op) (err error) {
	t.granted = true
	for t.next == 0 && t.mode == lock.Exclusive { // messages may be in the inbox
		if err := l.receive(0); err != nil {
			break
		}
	}
	switch {
	case t.id != l.Port().ID():
		err = l.Port().Do(before)
		return errors.Join(err, l.delegate(t, 0)) // messages to the old ID come to the agent
	case t.next != 0 || t.mode == lock.Shared:
		err = l.Port().Do(before)
	default:
		t.count = t.heard
		end := [1]fabric.Op{t.endOp()}
		done := false
		if done, err = l.Last(before, end[:]...); !done {
			l.tickets.Drop(t)
			return err
		}
		t.found(word(end[0].Old))
	}
	for {
		done, e := t.advance(&l.mail, l.Ops[:])
		if err = errors.Join(err, e); done {
			l.tickets.Drop(t)
			return err
		}
		if e := l.receive(fabric.Forever); e != nil {
			if errors.Is(e, fabric.ErrInterrupted) {
				e = nil
			}
			return errors.Join(err, e, l.abandon(t))
		}
	}
}

// find returns the client's ticket for a lock, or nil.
func (l *Locker) find(a fabric.Addr) *ticket {
	return l.tickets.Find(func(t *ticket) bool { return t.lock == a })
}
