package shift

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// Release implements lock.Locker.
func (l *Locker) Release(h *lock.Hold, before []fabric.Op) error {
	t, ok := h.Aux.(*ticket)
	if !h.Held || !ok || t.mine != l || len(before) > lock.MaxPiggyback {
		return baseline.Misuse(h, before)
	}
	h.Held, h.Aux = false, nil
	t.mine = nil
	if err := l.release(t, before); err != nil {
		return fmt.Errorf("shift: release %v %v: %w", h.Mode, h.Lock, err)
	}
	return nil
}

// release releases, if the lease allows it. The ticket is given back in any case.
func (l *Locker) release(t *ticket, before []fabric.Op) error {
	if err := l.Expired(t.at, l.cfg.LeaseNs); err != nil {
		l.tickets.Drop(t)
		return err
	}
	if t.mode == lock.Exclusive {
		return l.releaseWriter(t, before)
	}
	// READER-RELEASE of Algorithm 3.
	_, _, err := l.last(before, leaveReader(t.lock, &l.wide))
	l.tickets.Drop(t)
	return err
}

// releaseWriter is WRITER-RELEASE of Algorithm 3.
func (l *Locker) releaseWriter(t *ticket, before []fabric.Op) error {
	for t.next == 0 { // the message may be in the inbox
		if err := l.receive(0); err != nil {
			break
		}
	}
	if t.id != l.Port().ID() {
		err := l.Port().Do(before)
		return errors.Join(err, l.delegate(t, 0)) // messages to the old ID come to the agent
	}
	var err error
	if t.next == 0 {
		old, done, e := l.last(before, t.free(&l.wide))
		freed, lost := t.freed(old)
		switch {
		case !done, !lost && freed:
			l.tickets.Drop(t)
			return e
		case lost:
			l.tickets.Drop(t)
			return errors.Join(e, fmt.Errorf("%w: recovered", lock.ErrLost))
		}
		err, before = e, nil
		for limit := l.Port().Now() + l.cfg.LeaseNs; t.next == 0; {
			if e := l.receive(limit); e != nil {
				return errors.Join(err, l.leaveRelease(t, e))
			}
		}
	}
	return errors.Join(err, l.give(t, before))
}

// give gives the lock to the successor, or to the readers (lines 15 to 23).
func (l *Locker) give(t *ticket, before []fabric.Op) error {
	l.Counters.HandoversRemote++
	defer l.tickets.Drop(t)
	var old entry
	var err error
	if op, ok := t.gives(&l.wide, &l.cfg); ok {
		var done bool
		old, done, err = l.last(before, op)
		if !done {
			return err
		}
		if old.rel != t.base {
			return errors.Join(err, fmt.Errorf("%w: recovered", lock.ErrLost))
		}
	} else if len(before) > 0 {
		err = l.Port().Do(before)
	}
	m := t.gift(old, &l.cfg)
	// If the successor has crashed, the lock is recovered.
	_ = l.Port().Send(t.next, &m)
	return err
}

// last executes the operations of before and the wide atomic behind them.
func (l *Locker) last(before []fabric.Op, op fabric.Op) (old entry, done bool, err error) {
	done, err = l.Last(before, op)
	return found(&l.wide), done, err
}

// leave ends a writer's wait that err has ended.
func (l *Locker) leave(t *ticket, err error) error {
	return errors.Join(err, l.abandon(t))
}

// leaveRelease is leave for a release, which an interrupt does not end: the agent goes on with it. If the
// successor does not come forward within a lease, the lock is dropped, to be recovered.
func (l *Locker) leaveRelease(t *ticket, err error) error {
	switch {
	case errors.Is(err, fabric.ErrDeadline):
		l.tickets.Drop(t)
		return nil
	case errors.Is(err, fabric.ErrInterrupted):
		err = nil
	}
	return errors.Join(err, l.abandon(t))
}

// abandon leaves a writer's ticket to the node's agent, and the client ID with it.
func (l *Locker) abandon(t *ticket) error {
	tickets := uint64(0)
	for _, q := range l.tickets.Queued {
		if q.id == t.id {
			tickets++
		}
	}
	if err := l.Port().Abandon(); err != nil {
		l.tickets.Drop(t)
		return nil // the lock is recovered
	}
	return l.delegate(t, tickets)
}

// delegate leaves the ticket to the node's agent, in messages of what it knows. tickets is how many it is to
// expect of the client ID, this one included; 0 if it has learnt that before.
func (l *Locker) delegate(t *ticket, tickets uint64) error {
	agent := fabric.AgentOf(t.id.CN())
	abandoned := t.message(msgAbandoned, t.id, tickets, uint64(t.next), t.seen)
	heard := t.message(msgHandover, t.id, t.rel, t.base, t.epoch|uint64(t.cons))
	if t.polls {
		heard = t.message(msgModeChanged, t.id, t.expected, t.epoch)
	}
	hear := t.granted || t.polls
	l.tickets.Drop(t)
	err := l.Port().Send(agent, &abandoned)
	if hear {
		err = errors.Join(err, l.Port().Send(agent, &heard))
	}
	return err
}

// find returns the client's ticket as a writer for a lock, or nil.
func (l *Locker) find(a fabric.Addr) *ticket {
	return l.tickets.Find(func(t *ticket) bool { return t.lock == a })
}

func (l *Locker) newTicket(r *lock.Request) *ticket {
	t := l.tickets.New()
	*t = ticket{lock: r.Lock, id: l.Port().ID(), mode: r.Mode, looked: l.Port().Now()}
	if r.Mode == lock.Exclusive {
		l.tickets.Queued = append(l.tickets.Queued, t)
	}
	return t
}
