package dslr

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// msgOrphan, to the own agent: wait in my place. Body: the lock, prev, resetFrom, mode.
const msgOrphan = fabric.MsgLock + 0x30

// errFailure is Failure of the algorithms: begin again.
var errFailure = errors.New("dslr: passed over")

// A Locker is one client's access to DSLR locks.
type Locker struct {
	port  fabric.Port
	cfg   Config
	stats lock.Stats
	ops   [fabric.MaxChain]fabric.Op
	spare []*ticket
}

var _ lock.Locker = (*Locker)(nil)

// New returns a client's Locker.
func New(port fabric.Port, cfg Config) *Locker {
	return &Locker{port: port, cfg: cfg.withDefaults()}
}

// Port implements lock.Locker.
func (l *Locker) Port() fabric.Port { return l.port }

// Stats implements lock.Locker.
func (l *Locker) Stats() *lock.Stats { return &l.stats }

// Acquire implements lock.Locker.
func (l *Locker) Acquire(h *lock.Hold, r *lock.Request) error {
	if h.Held {
		return fmt.Errorf("%w: Hold of %v is in use", lock.ErrMisuse, h.Lock)
	}
	if len(r.Reads) > lock.MaxPiggyback {
		return fmt.Errorf("%w: %d READs, at most %d", lock.ErrMisuse, len(r.Reads), lock.MaxPiggyback)
	}
	t := l.newTicket(r)
	h.Token = 0
	var err error
	if r.Try {
		err = l.try(t, h, r)
	} else {
		var o overflow
		for err = errFailure; err == errFailure; {
			err = l.acquire(t, h, r, &o)
		}
	}
	if err != nil {
		l.spare = append(l.spare, t)
		return fmt.Errorf("dslr: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	t.mine = l
	h.Lock, h.Mode, h.Aux, h.Held = r.Lock, r.Mode, t, true
	l.stats.Acquires++
	return nil
}

// acquire is AcquireLock of Algorithm 1.
func (l *Locker) acquire(t *ticket, h *lock.Hold, r *lock.Request, o *overflow) error {
	asked := l.port.Now()
	prev, done, err := l.post(h, r, fabric.FAA(r.Lock, uint64(drawn(r.Mode))))
	if done == 0 {
		return err
	}
	if prev.full(l.cfg.CountMax) {
		return l.withdraw(r, prev, o)
	}
	t.draw(prev, l.cfg.CountMax, asked)
	if !t.grants(prev) {
		return l.handleConflict(t, h, r) // what the READs found does not matter
	}
	if err != nil {
		return errors.Join(err, l.release(t, nil))
	}
	l.stats.Immediate++
	return nil
}

// post posts the first chain: the atomic that draws a ticket, the token, the caller's READs. It
// returns what the atomic found and how many operations were executed for certain.
func (l *Locker) post(h *lock.Hold, r *lock.Request, atomic fabric.Op) (prev word, done int, err error) {
	l.ops[0] = atomic
	n := 1 + l.tokenOp(1, r)
	first := n
	n += copy(l.ops[n:], r.Reads)
	err = l.port.Do(l.ops[:n])
	l.stats.AcquireOps += uint64(first)
	done = executed(err, n)
	if done > 1 {
		l.take(h, r, first)
	}
	return word(l.ops[0].Old), done, err
}

// executed returns how many operations of a chain of n were executed for certain.
func executed(err error, n int) int {
	if err == nil {
		return n
	}
	var ce *fabric.ChainError
	if errors.As(err, &ce) {
		return ce.Index
	}
	return 0
}

// tokenOp puts the operation that fetches the token into ops[i], and returns
// the number of operations put.
func (l *Locker) tokenOp(i int, r *lock.Request) int {
	if l.cfg.Plain {
		return 0
	}
	if r.Mode == lock.Exclusive {
		l.ops[i] = fabric.FAA(r.Lock.Add(tokenOffset), 1)
	} else {
		l.ops[i] = fabric.Load(r.Lock.Add(tokenOffset))
	}
	return 1
}

// take takes token and READs from a chain in which the READs begin at first.
func (l *Locker) take(h *lock.Hold, r *lock.Request, first int) {
	if !l.cfg.Plain {
		h.Token = lock.Token(l.ops[first-1].Old)
		if r.Mode == lock.Exclusive {
			h.Token++
		}
	}
	copy(r.Reads, l.ops[first:first+len(r.Reads)])
}

// handleConflict is HandleConflict of Algorithm 2: it polls until it is the ticket's turn.
func (l *Locker) handleConflict(t *ticket, h *lock.Hold, r *lock.Request) error {
	for {
		asked := l.port.Now()
		val, err := l.retry(fabric.Load(t.lock))
		if err != nil {
			return err // the lease takes the ticket back
		}
		switch t.look(val, asked, l.cfg.LeaseNs) {
		case granted:
			return l.granted(t, h, r)
		case passed:
			l.stats.Aborts++
			return errFailure
		case stuck:
			l.stats.Resets++
			if _, err := l.retry(fabric.CAS(t.lock, uint64(val), uint64(t.reset(val)))); err != nil {
				return err
			}
			continue // to see what has become of it
		}
		if err := l.pause(r, t.pause(&l.cfg, l.port.Rand())); err != nil {
			return l.giveUp(t, err)
		}
	}
}

func (l *Locker) retry(op fabric.Op) (word, error) {
	l.ops[0] = op
	l.stats.AcquireOps++
	l.stats.Retries++
	err := l.port.Do(l.ops[:1])
	return word(l.ops[0].Old), err
}

// granted fetches token and READs after a wait.
func (l *Locker) granted(t *ticket, h *lock.Hold, r *lock.Request) error {
	l.stats.Waits++
	n := l.tokenOp(0, r)
	first := n
	n += copy(l.ops[n:], r.Reads)
	if n == 0 {
		return nil
	}
	if err := l.port.Do(l.ops[:n]); err != nil {
		return errors.Join(err, l.release(t, nil))
	}
	l.stats.AcquireOps += uint64(first)
	l.take(h, r, first)
	return nil
}

// try draws a ticket by CAS if that is granted at once.
func (l *Locker) try(t *ticket, h *lock.Hold, r *lock.Request) error {
	asked := l.port.Now()
	l.ops[0] = fabric.Load(r.Lock)
	l.stats.AcquireOps++
	if err := l.port.Do(l.ops[:1]); err != nil {
		return err
	}
	val := word(l.ops[0].Old)
	for {
		t.draw(val, l.cfg.CountMax, asked)
		if val.full(l.cfg.CountMax) || !t.grants(val) {
			l.stats.Busy++
			return fmt.Errorf("%w: %v", lock.ErrBusy, val)
		}
		asked = l.port.Now()
		old, done, err := l.post(h, r, fabric.CAS(r.Lock, uint64(val), uint64(val+drawn(r.Mode))))
		switch {
		case done == 0:
			return err
		case old == val && err != nil:
			return errors.Join(err, l.release(t, nil))
		case old == val:
			t.looked = asked
			l.stats.Immediate++
			return nil
		}
		val = old
	}
}

// pause waits before the next look, or says why there is none.
func (l *Locker) pause(r *lock.Request, ns fabric.Time) error {
	now := l.port.Now()
	until := now + ns
	if r.Deadline != 0 {
		if now >= r.Deadline {
			return lock.ErrTimeout
		}
		until = min(until, r.Deadline)
	}
	err := l.port.Pause(until)
	if errors.Is(err, fabric.ErrInterrupted) {
		return lock.ErrCanceled
	}
	return err
}

// giveUp gives the ticket of a waiter up: back to the lock if nobody has drawn one since, else to
// the node's agent.
func (l *Locker) giveUp(t *ticket, cause error) error {
	l.stats.Cancels++
	val := t.seen
	for {
		next, ok := t.recall(val, l.cfg.CountMax)
		if !ok {
			m := fabric.Message{Kind: msgOrphan, Body: [7]uint64{uint64(t.lock), uint64(t.prev), uint64(t.resetFrom), uint64(t.mode)}}
			return errors.Join(cause, l.port.Send(fabric.AgentOf(l.port.ID().CN()), &m))
		}
		asked := l.port.Now()
		old, err := l.retry(fabric.CAS(t.lock, uint64(val), uint64(next)))
		if err != nil {
			return errors.Join(cause, err)
		}
		if old == val {
			return cause
		}
		val = old
		switch t.look(val, asked, l.cfg.LeaseNs) {
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
		return fmt.Errorf("%w: %v, %d operations before release", lock.ErrMisuse, h.Lock, len(before))
	}
	h.Held, h.Aux = false, nil
	t.mine = nil
	err := l.release(t, before)
	l.spare = append(l.spare, t)
	if err != nil {
		return fmt.Errorf("dslr: release %v %v: %w", h.Mode, h.Lock, err)
	}
	return nil
}

// release is ReleaseLock of Algorithm 3.
func (l *Locker) release(t *ticket, before []fabric.Op) error {
	if elapsed := l.port.Now() - t.looked; elapsed >= l.cfg.LeaseNs {
		return fmt.Errorf("%w: held for %d us, longer than the lease of %d", lock.ErrLost,
			elapsed/fabric.Microsecond, l.cfg.LeaseNs/fabric.Microsecond)
	}
	n := copy(l.ops[:], before)
	l.ops[n] = fabric.FAA(t.lock, uint64(returned(t.mode)))
	err := l.port.Do(l.ops[:n+1])
	copy(before, l.ops[:n])
	if err != nil {
		if errors.Is(err, fabric.ErrUnknownOutcome) || executed(err, n+1) >= n {
			return err
		}
		l.ops[0] = l.ops[n]
		if e := l.port.Do(l.ops[:1]); e != nil {
			return errors.Join(err, e)
		}
	}
	if t.resetFrom != 0 {
		err = errors.Join(err, l.resetCounters(t))
	}
	return err
}

func (l *Locker) newTicket(r *lock.Request) *ticket {
	var t *ticket
	if n := len(l.spare); n > 0 {
		t, l.spare = l.spare[n-1], l.spare[:n-1]
	} else {
		t = new(ticket)
	}
	*t = ticket{lock: r.Lock, mode: r.Mode}
	return t
}
