package shift

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Release implements lock.Locker.
func (l *Locker) Release(h *lock.Hold, before []fabric.Op) error {
	p, ok := h.Aux.(*place)
	if !h.Held || !ok || p.mine != l || len(before) > lock.MaxPiggyback {
		return fmt.Errorf("%w: %v, %d operations before release", lock.ErrMisuse, h.Lock, len(before))
	}
	h.Held, h.Aux = false, nil
	if err := l.release(p, before); err != nil {
		return fmt.Errorf("shift: release %v %v: %w", h.Mode, h.Lock, err)
	}
	return nil
}

// release releases, if the lease allows it. The place is given back in any case.
func (l *Locker) release(p *place, before []fabric.Op) error {
	if elapsed := l.port.Now() - p.at; elapsed >= l.cfg.LeaseNs {
		l.drop(p)
		return fmt.Errorf("%w: held for %d us, longer than the lease of %d", lock.ErrLost,
			elapsed/fabric.Microsecond, l.cfg.LeaseNs/fabric.Microsecond)
	}
	if p.mode == lock.Exclusive {
		return l.releaseWriter(p, before)
	}
	// READER-RELEASE of Algorithm 3.
	_, _, err := l.last(before, leaveReader(p.lock, &l.wide))
	l.drop(p)
	return err
}

// releaseWriter is WRITER-RELEASE of Algorithm 3.
func (l *Locker) releaseWriter(p *place, before []fabric.Op) error {
	for p.next == 0 { // the message may be in the inbox
		if err := l.receive(0); err != nil {
			break
		}
	}
	if p.id != l.port.ID() {
		err := l.port.Do(before)
		return errors.Join(err, l.bequeath(p, 0)) // messages to the old name come to the agent
	}
	var err error
	if p.next == 0 {
		old, done, e := l.last(before, p.free(&l.wide))
		freed, lost := p.freed(old)
		switch {
		case !done, !lost && freed:
			l.drop(p)
			return e
		case lost:
			l.drop(p)
			return errors.Join(e, fmt.Errorf("%w: recovered", lock.ErrLost))
		}
		err, before = e, nil
		for limit := l.port.Now() + l.cfg.LeaseNs; p.next == 0; {
			if e := l.receive(limit); e != nil {
				return errors.Join(err, l.leaveRelease(p, e))
			}
		}
	}
	return errors.Join(err, l.give(p, before))
}

// give gives the lock to the successor, or to the readers (lines 15 to 23).
func (l *Locker) give(p *place, before []fabric.Op) error {
	l.stats.HandoversRemote++
	defer l.drop(p)
	var old entry
	var err error
	if op, ok := p.gives(&l.wide, &l.cfg); ok {
		var done bool
		old, done, err = l.last(before, op)
		if !done {
			return err
		}
		if old.rel != p.base {
			return errors.Join(err, fmt.Errorf("%w: recovered", lock.ErrLost))
		}
	} else if len(before) > 0 {
		err = l.port.Do(before)
	}
	m := p.gift(old, &l.cfg)
	// If the successor is dead, the lock is recovered.
	_ = l.port.Send(p.next, &m)
	return err
}

// last executes the operations of before and the wide atomic behind them in one chain. If one of before
// fails, the atomic is executed all the same. done is false if it was not, or nobody knows.
func (l *Locker) last(before []fabric.Op, op fabric.Op) (old entry, done bool, err error) {
	n := copy(l.ops[:], before)
	l.ops[n] = op
	err = l.port.Do(l.ops[:n+1])
	copy(before, l.ops[:n])
	if err != nil {
		if errors.Is(err, fabric.ErrUnknownOutcome) || executed(err, n+1) >= n {
			return entry{}, false, err
		}
		l.ops[0] = op
		if e := l.port.Do(l.ops[:1]); e != nil {
			return entry{}, false, errors.Join(err, e)
		}
	}
	return found(&l.wide), true, err
}

// leave leaves a writer's place to the node's agent, which does what is still to be done in the name
// that the client leaves behind.
func (l *Locker) leave(p *place, err error) error {
	return errors.Join(l.gaveUp(err), l.abandon(p))
}

// leaveRelease is leave for a release, which an interrupt does not end: the agent goes on with it. If the
// successor does not come forward within a lease, the lock is dropped, to be recovered.
func (l *Locker) leaveRelease(p *place, err error) error {
	switch {
	case errors.Is(err, fabric.ErrDeadline):
		l.drop(p)
		return nil
	case errors.Is(err, fabric.ErrInterrupted):
		err = nil
	}
	return errors.Join(err, l.abandon(p))
}

// abandon leaves the client's name, and the place with it, to the agent.
func (l *Locker) abandon(p *place) error {
	owed := uint64(0)
	for _, q := range l.places {
		if q.id == p.id {
			owed++
		}
	}
	if err := l.port.Abandon(); err != nil {
		l.drop(p)
		return nil // the lock is recovered
	}
	return l.bequeath(p, owed)
}

// bequeath gives the place to the node's agent, in messages of what it knows. owed is how many places it is to
// expect of the name, this one included, if it has not been told yet.
func (l *Locker) bequeath(p *place, owed uint64) error {
	agent := fabric.AgentOf(p.id.CN())
	orphan := p.message(msgOrphan, p.id, owed, uint64(p.next), p.seen)
	told := p.message(msgHandover, p.id, p.rel, p.base, p.epoch|uint64(p.cons))
	if p.polls {
		told = p.message(msgModeChanged, p.id, p.expected, p.epoch)
	}
	tell := p.granted || p.polls
	l.drop(p)
	err := l.port.Send(agent, &orphan)
	if tell {
		err = errors.Join(err, l.port.Send(agent, &told))
	}
	return err
}

// find returns the client's place as a writer for a lock, or nil.
func (l *Locker) find(a fabric.Addr) *place {
	for _, p := range l.places {
		if p.lock == a {
			return p
		}
	}
	return nil
}

func (l *Locker) newPlace(r *lock.Request) *place {
	var p *place
	if n := len(l.spare); n > 0 {
		p, l.spare = l.spare[n-1], l.spare[:n-1]
	} else {
		p = new(place)
	}
	*p = place{lock: r.Lock, id: l.port.ID(), mode: r.Mode, looked: l.port.Now()}
	if r.Mode == lock.Exclusive {
		l.places = append(l.places, p)
	}
	return p
}

// drop gives a place back.
func (l *Locker) drop(p *place) {
	p.mine = nil
	l.spare = append(l.spare, p)
	for i, q := range l.places {
		if q == p {
			n := len(l.places) - 1
			l.places[i] = l.places[n]
			l.places = l.places[:n]
			return
		}
	}
}
