package dslr

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// Upgrade implements lock.Upgrader: it polls until the readers before the ticket have left.
func (l *Locker) Upgrade(h *lock.Hold, r *lock.Request) error {
	t, ok := h.Aux.(*ticket)
	if !h.Held || !ok || t.mine != l || t.mode != lock.Update {
		return baseline.Misuse(h, nil)
	}
	since := t.looked // its lease does not begin anew
	for {
		asked := l.Port().Now()
		val, err := l.retry(fabric.Load(t.lock))
		if err == nil {
			over := t.look(val, asked, &l.cfg) == passed
			t.looked = since
			if err = l.expired(t); err == nil && over {
				err = fmt.Errorf("%w: passed over", lock.ErrLost)
			}
		}
		switch {
		case errors.Is(err, lock.ErrLost):
			h.Held, h.Aux, t.mine = false, nil, nil
			l.tickets.Drop(t)
			fallthrough
		case err != nil:
			return fmt.Errorf("dslr: upgrade %v: %w", h.Lock, err)
		case t.alone(val):
			t.mode, h.Mode = lock.Exclusive, lock.Exclusive
			return nil
		case r.Try:
			l.Counters.Busy++
			return fmt.Errorf("dslr: upgrade %v: %w: %v", h.Lock, lock.ErrBusy, val)
		}
		if err := l.Pause(r, t.pause(&l.cfg, l.Port().Rand()), 0); err != nil {
			return fmt.Errorf("dslr: upgrade %v: %w", h.Lock, err)
		}
	}
}

// releaseUpdate releases a ticket for update that was not upgraded. If readers from before still hold, one of them may not have seen yet that it does: were
// the ticket given back, it would take itself for passed over. So the agent waits in the client's place, as a writer does.
func (l *Locker) releaseUpdate(t *ticket, before []fabric.Op) error {
	t.mode = lock.Exclusive
	look := [1]fabric.Op{fabric.Load(t.lock)}
	done, err := l.Last(before, look[:]...)
	switch {
	case !done:
		return err // the lease takes the ticket back
	case t.alone(word(look[0].Old)):
		return errors.Join(err, l.release(t, nil))
	}
	return errors.Join(err, l.delegate(t, msgAbandoned))
}

// expired returns the error of a holder whose lease has ended.
func (l *Locker) expired(t *ticket) error {
	return l.Expired(t.looked, l.cfg.LeaseNs*fabric.Time(t.slots))
}
