package shift

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// errRecovered: the lock was recovered while the client waited; begin again.
var errRecovered = errors.New("shift: recovered")

// A Locker is one client's access to ShiftLocks.
type Locker struct {
	baseline.Client
	node    fabric.Node
	cfg     Config
	wide    fabric.Wide
	once    lock.Request             // of tryFirst
	tickets baseline.Tickets[ticket] // writers' are queued
}

var _ lock.Locker = (*Locker)(nil)

// New returns a client's Locker. The fabric must have 16-byte masked atomics (capability Atomic16).
func New(port fabric.Port, node fabric.Node, cfg Config) *Locker {
	return &Locker{Client: baseline.New(port, true), node: node, cfg: cfg.withDefaults()}
}

// Acquire implements lock.Locker.
func (l *Locker) Acquire(h *lock.Hold, r *lock.Request) error {
	if err := baseline.Check(h, r); err != nil {
		return err
	}
	if l.find(r.Lock) != nil {
		return fmt.Errorf("%w: %v has %v already", lock.ErrMisuse, l.Port().ID(), r.Lock)
	}
	t, err := l.tryFirst(h, r)
	for err == errRecovered {
		t = l.newTicket(r)
		if r.Mode == lock.Exclusive {
			err = l.acquireWriter(t, h, r)
		} else {
			err = l.acquireReader(t, h, r)
		}
		if err == errRecovered {
			l.Counters.Aborts++
			l.tickets.Drop(t)
		}
	}
	if err != nil {
		return fmt.Errorf("shift: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	t.mine = l
	h.Lock, h.Mode, h.Aux, h.Held = r.Lock, r.Mode, t, true
	l.Counters.Acquires++
	return nil
}

// tryFirst has a writer try to take a free lock, as often as the configuration says. If none succeeds, it returns errRecovered: begin.
func (l *Locker) tryFirst(h *lock.Hold, r *lock.Request) (t *ticket, err error) {
	err = errRecovered
	for k := 0; k < l.cfg.Tries && r.Mode == lock.Exclusive && !r.Try && err == errRecovered; k++ {
		l.once = *r
		l.once.Try = true
		t = l.newTicket(r)
		if err = l.acquireWriter(t, h, &l.once); errors.Is(err, lock.ErrBusy) {
			l.Counters.Busy--
			l.Counters.Retries++
			err = errRecovered
			if l.cfg.PauseNs > 0 && k+1 < l.cfg.Tries {
				err = cmp.Or(l.Pause(r, l.cfg.PauseNs<<k, 0), err)
			}
		}
	}
	return t, err
}

// first posts the first chain: the atomic and the caller's READs.
func (l *Locker) first(h *lock.Hold, r *lock.Request, atomic fabric.Op) (e entry, done int, err error) {
	_, done, err = l.First(h, r, atomic)
	return found(&l.wide), done, err
}

// acquireReader is READER-ACQUIRE of Algorithm 2.
func (l *Locker) acquireReader(t *ticket, h *lock.Hold, r *lock.Request) error {
	asked := l.Port().Now()
	e, done, err := l.first(h, r, addReader(r.Lock, &l.wide))
	if done == 0 {
		l.tickets.Drop(t)
		return err
	}
	t.begin(e, asked)
	switch {
	case e.corrupt():
		return errors.Join(baseline.Corrupt(r.Lock, e.head, e.rel), l.takeBack(t))
	case e.tail() == 0:
		t.granted, t.at = true, asked
		if err != nil {
			return errors.Join(err, l.release(t, nil))
		}
		h.Token = lock.Token(e.rel)
		l.Counters.Immediate++
		return nil
	case r.Try:
		l.Counters.Busy++
		return errors.Join(fmt.Errorf("%w: %v", lock.ErrBusy, e), l.takeBack(t))
	}
	l.Counters.Waits++
	for k := 1; ; k++ {
		if l.cfg.PauseNs > 0 {
			if err := l.Pause(r, l.cfg.PauseNs, 0); err != nil {
				return errors.Join(err, l.takeBack(t))
			}
		}
		asked = l.Port().Now()
		val, err := l.Retry(fabric.Load(r.Lock))
		if err != nil {
			l.tickets.Drop(t)
			return err // the lease takes the count back
		}
		if val&epochBit != t.epoch {
			return l.grantedReader(t, h, r, asked)
		}
		if err := l.check(t, asked); err == errRecovered {
			return err
		} else if err != nil {
			l.tickets.Drop(t)
			return err
		}
		if err := l.Pause(r, baseline.Soon(k), 0); err != nil {
			return errors.Join(err, l.takeBack(t))
		}
	}
}

// grantedReader makes a waiting reader a holder, if the era is that in which it began to wait.
func (l *Locker) grantedReader(t *ticket, h *lock.Hold, r *lock.Request, asked fabric.Time) error {
	l.Ops[0] = fabric.Load(r.Lock.Add(relOffset))
	n := 1 + copy(l.Ops[1:], r.Reads)
	err := l.Port().Do(l.Ops[:n])
	l.Counters.AcquireOps++
	if fabric.Executed(err, n) == 0 {
		l.tickets.Drop(t)
		return err
	}
	rel := l.Ops[0].Old
	if eraOf(rel) != t.era {
		return errRecovered
	}
	copy(r.Reads, l.Ops[1:n])
	t.granted, t.at = true, asked
	if err != nil {
		return errors.Join(err, l.release(t, nil))
	}
	h.Token = lock.Token(rel)
	return nil
}

// takeBack takes the count of a reader back that waits. If the epoch has changed, the reader has been granted,
// and releases.
func (l *Locker) takeBack(t *ticket) error {
	defer l.tickets.Drop(t)
	era := uint64(t.era) << eraShift
	n := uint64(1)
	for {
		op := extCAS(t.lock, &l.wide,
			entry{t.epoch | n<<rdrShift, era}, entry{epochBit | rdrMask, eraMask},
			entry{(n - 1) << rdrShift, 0}, entry{rdrMask, 0})
		if _, err := l.Retry(op); err != nil {
			return err
		}
		switch e := found(&l.wide); {
		case eraOf(e.rel) != t.era: // the recovery took it back
			return nil
		case e.epoch() != t.epoch:
			_, err := l.Retry(leaveReader(t.lock, &l.wide))
			return err
		case e.readers() == n:
			return nil
		case e.readers() == 0:
			return baseline.Corrupt(t.lock, e.head, e.rel)
		default:
			n = e.readers()
		}
	}
}

// acquireWriter is WRITER-ACQUIRE of Algorithm 2.
func (l *Locker) acquireWriter(t *ticket, h *lock.Hold, r *lock.Request) error {
	self := entry{uint64(t.id), 0}
	enter := extCAS(r.Lock, &l.wide, entry{}, entry{}, self, entry{tailMask, 0})
	if r.Try {
		enter = extCAS(r.Lock, &l.wide, entry{}, entry{tailMask | rdrMask, 0}, self, entry{tailMask, 0})
	}
	asked := l.Port().Now()
	e, done, err := l.first(h, r, enter)
	if done == 0 {
		l.tickets.Drop(t)
		return err
	}
	t.begin(e, asked)
	switch {
	case e.corrupt():
		undo := extCAS(r.Lock, &l.wide, self, entry{tailMask, 0}, e, entry{tailMask, 0})
		_, e2 := l.Retry(undo)
		l.tickets.Drop(t)
		return errors.Join(baseline.Corrupt(r.Lock, e.head, e.rel), e2)
	case e.tail() == 0 && e.readers() == 0:
		t.granted, t.at = true, asked
		h.Token = lock.Token(t.rel) + 1
		l.Counters.Immediate++
		if err != nil {
			err = errors.Join(err, l.release(t, nil))
		}
		return err
	case r.Try:
		l.tickets.Drop(t)
		l.Counters.Busy++
		return fmt.Errorf("%w: %v", lock.ErrBusy, e)
	case e.tail() != 0:
		m := t.message(msgSuccessor, e.tail())
		// If the predecessor has crashed, the lock is recovered.
		_ = l.Port().Send(e.tail(), &m)
	default:
		t.polls, t.expected = true, e.rel+e.readers()
	}
	l.Counters.Waits++
	if err := l.await(t, r); err != nil {
		return err
	}
	h.Token = lock.Token(t.rel) + 1
	if len(r.Reads) > 0 {
		if err := l.Port().Do(r.Reads); err != nil {
			return errors.Join(err, l.release(t, nil))
		}
	}
	return nil
}

// begin begins a ticket with the entry that its first atomic has found.
func (t *ticket) begin(e entry, now fabric.Time) {
	t.era, t.epoch = eraOf(e.rel), e.epoch()
	t.rel, t.base = e.rel, e.rel
	t.seen, t.changed = e.rel, now
}

// await waits for the grant: for a message, and if that says so, for readers to leave.
func (l *Locker) await(t *ticket, r *lock.Request) error {
	deadline := r.Until()
	next := l.Port().Now() + l.cfg.LeaseNs/2
	for k := 1; !t.granted; k++ {
		if t.polls {
			asked := l.Port().Now()
			rel, err := l.Retry(fabric.Load(t.lock.Add(relOffset)))
			switch {
			case err != nil:
				l.tickets.Drop(t)
				return err
			case t.reached(rel, asked):
				return nil
			}
			if err := l.judge(t, rel, asked); err != nil {
				return err
			}
			if err := l.Pause(r, max(baseline.Soon(k), l.cfg.PauseNs), 0); err != nil {
				return l.leave(t, err)
			}
			continue
		}
		err := l.receive(min(deadline, next))
		if errors.Is(err, fabric.ErrDeadline) && next < deadline {
			next = l.Port().Now() + l.cfg.LeaseNs/2
			err = l.checkNow(t)
			if err == errRecovered {
				return err
			}
		}
		if err != nil {
			return l.leave(t, l.GaveUp(err))
		}
	}
	return nil
}

// check looks at RelCnt, if half a lease has passed since the last look (section 3.6). It returns
// errRecovered if the lock has been recovered.
func (l *Locker) check(t *ticket, now fabric.Time) error {
	if now-t.looked < l.cfg.LeaseNs/2 {
		return nil
	}
	return l.checkNow(t)
}

func (l *Locker) checkNow(t *ticket) error {
	now := l.Port().Now()
	t.looked = now
	rel, err := l.Retry(fabric.Load(t.lock.Add(relOffset)))
	if err != nil {
		return err
	}
	return l.judge(t, rel, now)
}

// judge judges RelCnt. If a client has failed, it asks for a recovery, and gives that time.
func (l *Locker) judge(t *ticket, rel uint64, now fabric.Time) error {
	leapt, silent := t.look(rel, now, l.cfg.LeaseNs)
	switch {
	case leapt:
		return errRecovered
	case silent:
		l.Counters.Resets++
		t.changed = now - 2*l.cfg.LeaseNs // ask again after a lease
		m := t.recover()
		// A server that cannot be reached is not the server for long.
		_ = l.Port().Send(serverOf(l.node), &m)
	}
	return nil
}

// serverOf returns the agent that is the lock server: that of the lowest live node.
func serverOf(n fabric.Node) fabric.ClientID {
	cn, _ := n.View().Live.Next(0)
	return fabric.AgentOf(cn)
}

// receive takes the next message, which may be about a ticket.
func (l *Locker) receive(deadline fabric.Time) error {
	m, err := l.Port().Recv(deadline)
	if err != nil {
		return err
	}
	if t := l.find(fabric.Addr(m.Body[0])); t != nil && uint64(t.id) == m.Body[1] {
		t.hear(&m, l.Port().Now())
	}
	return nil
}
