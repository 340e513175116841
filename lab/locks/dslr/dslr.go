package dslr

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// msgAbandoned, to the own agent: wait with this ticket. Body: the lock, prev, resetFrom, mode, slots.
const msgAbandoned = baseline.MsgDSLR

// errFailure is Failure of the algorithms: begin again.
var errFailure = errors.New("dslr: passed over")

// ErrPassed is wrapped by what Acquire returns if the client was passed over, once [Locker.FailPassed] has been called.
var ErrPassed = errors.New("dslr: others took this client, or one that it waited for, for crashed")

// A Locker is one client's access to DSLR locks.
type Locker struct {
	baseline.Client
	cfg     Config
	tickets baseline.Tickets[ticket]
	vain    []fabric.Addr // locks in whose words tickets are that this client has drawn in vain, and given up to wait for
	passed  error         // what a client gets that was passed over
}

var _ lock.Upgrader = (*Locker)(nil)

// New returns a client's Locker.
func New(port fabric.Port, cfg Config) *Locker {
	return &Locker{Client: baseline.New(port, cfg.Plain), cfg: cfg.withDefaults(), passed: errFailure}
}

// FailPassed has Acquire fail where a client was passed over, as the paper has it (section 4.7): a transaction then releases all locks that it has, pauses for
// [Locker.Backoff], and begins again. Without it Acquire draws the next ticket by itself.
func (l *Locker) FailPassed() { l.passed = ErrPassed }

// Backoff draws the pause of a transaction before it begins again, the c-th time in a row, from 1 (appendix A.3).
func (l *Locker) Backoff(c int) fabric.Time {
	return fabric.Time(l.Port().Rand() % uint64(min(DefaultResetMinNs<<min(c-1, 20), l.cfg.ResetMaxNs)+1))
}

// Acquire implements lock.Locker.
func (l *Locker) Acquire(h *lock.Hold, r *lock.Request) error {
	err := baseline.CheckUpdate(h, r)
	if err != nil {
		return err
	}
	slots, err := l.cfg.slots(r.LeaseNs)
	if err != nil {
		return fmt.Errorf("dslr: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	t := l.tickets.New()
	*t = ticket{lock: r.Lock, mode: r.Mode, slots: slots}
	if r.Try {
		err = l.try(t, h, r)
	} else {
		for err = errFailure; err == errFailure; {
			err = l.acquire(t, h, r)
		}
	}
	if err != nil {
		l.tickets.Drop(t)
		return fmt.Errorf("dslr: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	t.mine = l
	h.Lock, h.Mode, h.Aux, h.Held = r.Lock, r.Mode, t, true
	l.Counters.Acquires++
	return nil
}

// acquire is AcquireLock of Algorithm 1.
func (l *Locker) acquire(t *ticket, h *lock.Hold, r *lock.Request) error {
	if i := slices.Index(l.vain, r.Lock); i >= 0 {
		val, err := l.Look(r.Lock)
		if err != nil {
			return err
		}
		l.vain = slices.Delete(l.vain, i, i+1)
		if word(val).full(l.cfg.CountMax) {
			return l.awaitReset(t, r, word(val))
		}
	}
	asked := l.Port().Now()
	prev, done, err := l.post(h, r, fabric.FAA(r.Lock, uint64(drawn(r.Mode, t.slots))))
	if done == 0 {
		return err
	}
	if prev.full(l.cfg.CountMax) {
		return l.awaitReset(t, r, prev)
	}
	t.draw(prev, l.cfg.CountMax, asked)
	if !t.grants(prev) {
		return l.handleConflict(t, h, r) // what the READs found does not matter
	}
	if err != nil {
		return errors.Join(err, l.release(t, nil))
	}
	l.Counters.Immediate++
	return nil
}

// post posts the first chain, with the atomic that draws a ticket. It returns what that found and how many
// operations were executed for certain.
func (l *Locker) post(h *lock.Hold, r *lock.Request, atomic fabric.Op) (prev word, done int, err error) {
	old, done, err := l.First(h, r, atomic)
	return word(old), done, err
}

// handleConflict is HandleConflict of Algorithm 2: it polls until it is the ticket's turn.
func (l *Locker) handleConflict(t *ticket, h *lock.Hold, r *lock.Request) error {
	for {
		asked := l.Port().Now()
		val, err := l.retry(fabric.Load(t.lock))
		if err != nil {
			return err // the lease takes the ticket back
		}
		switch t.look(val, asked, &l.cfg) {
		case granted:
			return l.granted(t, h, r)
		case passed:
			l.Counters.Aborts++
			return l.passed
		case silent:
			l.Counters.Resets++
			if _, err := l.retry(fabric.CAS(t.lock, uint64(val), uint64(t.reset(val)))); err != nil {
				return err
			}
			continue // to see what has become of it
		}
		if err := l.Pause(r, t.pause(&l.cfg, l.Port().Rand()), 0); err != nil {
			return l.giveUp(t, err)
		}
	}
}

func (l *Locker) retry(op fabric.Op) (word, error) {
	old, err := l.Retry(op)
	return word(old), err
}

// granted fetches token and READs after a wait.
func (l *Locker) granted(t *ticket, h *lock.Hold, r *lock.Request) error {
	l.Counters.Waits++
	if err := l.Fetch(h, r); err != nil {
		return errors.Join(err, l.release(t, nil))
	}
	return nil
}

// try draws a ticket by CAS if that is granted at once.
func (l *Locker) try(t *ticket, h *lock.Hold, r *lock.Request) error {
	asked := l.Port().Now()
	old, err := l.Look(r.Lock)
	if err != nil {
		return err
	}
	val := word(old)
	for {
		t.draw(val, l.cfg.CountMax, asked)
		if val.full(l.cfg.CountMax) || !t.grants(val) {
			l.Counters.Busy++
			return fmt.Errorf("%w: %v", lock.ErrBusy, val)
		}
		asked = l.Port().Now()
		old, done, err := l.post(h, r, fabric.CAS(r.Lock, uint64(val), uint64(val+drawn(r.Mode, t.slots))))
		switch {
		case done == 0:
			return err
		case old == val && err != nil:
			return errors.Join(err, l.release(t, nil))
		case old == val:
			t.looked = asked
			l.Counters.Immediate++
			return nil
		}
		val = old
	}
}

// giveUp gives the ticket of a waiter up: back to the lock if no client has drawn one since, else to
// the node's agent.
func (l *Locker) giveUp(t *ticket, cause error) error {
	val := t.seen
	for {
		next, ok := t.recall(val, l.cfg.CountMax)
		if !ok {
			return errors.Join(cause, l.delegate(t, msgAbandoned))
		}
		asked := l.Port().Now()
		old, err := l.retry(fabric.CAS(t.lock, uint64(val), uint64(next)))
		if err != nil {
			return errors.Join(cause, err)
		}
		if old == val {
			return cause
		}
		val = old
		switch t.look(val, asked, &l.cfg) {
		case granted:
			return errors.Join(cause, l.release(t, nil))
		case passed:
			return cause
		}
	}
}

// Release implements lock.Locker.
func (l *Locker) Release(h *lock.Hold, before []fabric.Op) error {
	t, ok := h.Aux.(*ticket)
	if !h.Held || !ok || t.mine != l || len(before) > lock.MaxPiggyback {
		return baseline.Misuse(h, before)
	}
	h.Held, h.Aux = false, nil
	t.mine = nil
	err := l.release(t, before)
	l.tickets.Drop(t)
	if err != nil {
		return &baseline.Unreleased{Name: "dslr", Mode: h.Mode, Lock: h.Lock, Err: err}
	}
	return nil
}

// release is ReleaseLock of Algorithm 3.
func (l *Locker) release(t *ticket, before []fabric.Op) error {
	if err := l.expired(t); err != nil {
		return err
	}
	if t.mode == lock.Update {
		return l.releaseUpdate(t, before)
	}
	done, err := l.Last(before, fabric.FAA(t.lock, uint64(returned(t.mode, t.slots))))
	if done && t.resetFrom != 0 {
		err = errors.Join(err, l.resetCounters(t))
	}
	return err
}

// delegate leaves the rest of a ticket to the node's agent, which kind says. The agent waits with one for update as with a writer's: given back beside readers from
// before, one of which may not have seen yet that it holds, it would make that one take itself for passed over.
func (l *Locker) delegate(t *ticket, kind fabric.MsgKind) error {
	if t.mode == lock.Update {
		t.mode = lock.Exclusive
	}
	m := fabric.Message{Kind: kind, Body: [7]uint64{uint64(t.lock), uint64(t.prev), uint64(t.resetFrom), uint64(t.mode), uint64(t.slots)}}
	return l.Port().Send(fabric.AgentOf(l.Port().ID().CN()), &m)
}
