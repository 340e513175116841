package shift

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// errRecovered: the lock was recovered while the client waited; begin again.
var errRecovered = errors.New("shift: recovered")

// A Locker is one client's access to ShiftLocks.
type Locker struct {
	node   fabric.Node
	port   fabric.Port
	cfg    Config
	stats  lock.Stats
	ops    [fabric.MaxChain]fabric.Op
	wide   fabric.Wide
	places []*place // as a writer, of all locks
	spare  []*place
}

var _ lock.Locker = (*Locker)(nil)

// New returns a client's Locker. The fabric must have 16-byte masked atomics.
func New(port fabric.Port, node fabric.Node, cfg Config) (*Locker, error) {
	if err := unsupported(port.Caps()); err != nil {
		return nil, err
	}
	return &Locker{node: node, port: port, cfg: cfg.withDefaults()}, nil
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
	if l.find(r.Lock) != nil {
		return fmt.Errorf("%w: %v has %v already", lock.ErrMisuse, l.port.ID(), r.Lock)
	}
	var p *place
	err := errRecovered
	for err == errRecovered {
		p = l.newPlace(r)
		if r.Mode == lock.Exclusive {
			err = l.acquireWriter(p, h, r)
		} else {
			err = l.acquireReader(p, h, r)
		}
		if err == errRecovered {
			l.stats.Aborts++
			l.drop(p)
		}
	}
	if err != nil {
		return fmt.Errorf("shift: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	p.mine = l
	h.Lock, h.Mode, h.Aux, h.Held = r.Lock, r.Mode, p, true
	l.stats.Acquires++
	return nil
}

// post posts the first chain: the atomic and the caller's READs. It returns what the atomic found, and
// how many operations were executed for certain.
func (l *Locker) post(r *lock.Request, atomic fabric.Op) (e entry, done int, err error) {
	l.ops[0] = atomic
	n := 1 + copy(l.ops[1:], r.Reads)
	err = l.port.Do(l.ops[:n])
	l.stats.AcquireOps++
	copy(r.Reads, l.ops[1:n])
	return found(&l.wide), executed(err, n), err
}

// acquireReader is READER-ACQUIRE of Algorithm 2.
func (l *Locker) acquireReader(p *place, h *lock.Hold, r *lock.Request) error {
	asked := l.port.Now()
	e, done, err := l.post(r, addReader(r.Lock, &l.wide))
	if done == 0 {
		l.drop(p)
		return err
	}
	p.begin(e, asked)
	switch {
	case e.corrupt():
		return errors.Join(corrupt(r.Lock, e), l.takeBack(p))
	case e.tail() == 0:
		p.granted, p.at = true, asked
		if err != nil {
			return errors.Join(err, l.release(p, nil))
		}
		h.Token = lock.Token(e.rel)
		l.stats.Immediate++
		return nil
	case r.Try:
		l.stats.Busy++
		return errors.Join(fmt.Errorf("%w: %v", lock.ErrBusy, e), l.takeBack(p))
	}
	l.stats.Waits++
	for k := 1; ; k++ {
		asked = l.port.Now()
		val, err := l.retry(fabric.Load(r.Lock))
		if err != nil {
			l.drop(p)
			return err // the lease takes the count back
		}
		if val&epochBit != p.epoch {
			return l.grantedReader(p, h, r, asked)
		}
		if err := l.check(p, asked); err == errRecovered {
			return err
		} else if err != nil {
			l.drop(p)
			return err
		}
		if err := l.mayGoOn(r, k); err != nil {
			return errors.Join(l.gaveUp(err), l.takeBack(p))
		}
	}
}

// grantedReader makes a reader that waited a holder, if it is in the era that it waited in.
func (l *Locker) grantedReader(p *place, h *lock.Hold, r *lock.Request, asked fabric.Time) error {
	l.ops[0] = fabric.Load(r.Lock.Add(relOffset))
	n := 1 + copy(l.ops[1:], r.Reads)
	err := l.port.Do(l.ops[:n])
	l.stats.AcquireOps++
	if executed(err, n) == 0 {
		l.drop(p)
		return err
	}
	rel := l.ops[0].Old
	if eraOf(rel) != p.era {
		return errRecovered
	}
	copy(r.Reads, l.ops[1:n])
	p.granted, p.at = true, asked
	if err != nil {
		return errors.Join(err, l.release(p, nil))
	}
	h.Token = lock.Token(rel)
	return nil
}

// takeBack takes the count of a reader back that waits. If the epoch has changed, the reader has been granted,
// and releases.
func (l *Locker) takeBack(p *place) error {
	defer l.drop(p)
	era := uint64(p.era) << eraShift
	n := uint64(1)
	for {
		op := extCAS(p.lock, &l.wide,
			entry{p.epoch | n<<rdrShift, era}, entry{epochBit | rdrMask, eraMask},
			entry{(n - 1) << rdrShift, 0}, entry{rdrMask, 0})
		if _, err := l.retry(op); err != nil {
			return err
		}
		switch e := found(&l.wide); {
		case eraOf(e.rel) != p.era: // the recovery took it back
			return nil
		case e.epoch() != p.epoch:
			_, err := l.retry(leaveReader(p.lock, &l.wide))
			return err
		case e.readers() == n:
			return nil
		case e.readers() == 0:
			return corrupt(p.lock, e)
		default:
			n = e.readers()
		}
	}
}

// acquireWriter is WRITER-ACQUIRE of Algorithm 2.
func (l *Locker) acquireWriter(p *place, h *lock.Hold, r *lock.Request) error {
	self := entry{uint64(p.id), 0}
	enter := extCAS(r.Lock, &l.wide, entry{}, entry{}, self, entry{tailMask, 0})
	if r.Try {
		enter = extCAS(r.Lock, &l.wide, entry{}, entry{tailMask | rdrMask, 0}, self, entry{tailMask, 0})
	}
	asked := l.port.Now()
	e, done, err := l.post(r, enter)
	if done == 0 {
		l.drop(p)
		return err
	}
	p.begin(e, asked)
	switch {
	case e.corrupt():
		undo := extCAS(r.Lock, &l.wide, self, entry{tailMask, 0}, e, entry{tailMask, 0})
		_, e2 := l.retry(undo)
		l.drop(p)
		return errors.Join(corrupt(r.Lock, e), e2)
	case e.tail() == 0 && e.readers() == 0:
		p.granted, p.at = true, asked
		h.Token = lock.Token(p.rel) + 1
		l.stats.Immediate++
		if err != nil {
			err = errors.Join(err, l.release(p, nil))
		}
		return err
	case r.Try:
		l.drop(p)
		l.stats.Busy++
		return fmt.Errorf("%w: %v", lock.ErrBusy, e)
	case e.tail() != 0:
		m := p.message(msgSuccessor, e.tail())
		// If the predecessor is dead, the lock is recovered.
		_ = l.port.Send(e.tail(), &m)
	default:
		p.polls, p.expected = true, e.rel+e.readers()
	}
	l.stats.Waits++
	if err := l.await(p, r); err != nil {
		return err
	}
	h.Token = lock.Token(p.rel) + 1
	if len(r.Reads) > 0 {
		if err := l.port.Do(r.Reads); err != nil {
			return errors.Join(err, l.release(p, nil))
		}
	}
	return nil
}

// begin takes note of the entry that the place's first atomic found.
func (p *place) begin(e entry, now fabric.Time) {
	p.era, p.epoch = eraOf(e.rel), e.epoch()
	p.rel, p.base = e.rel, e.rel
	p.seen, p.changed = e.rel, now
}

// await waits until the place is granted: for a message, and, told so, for readers to leave.
func (l *Locker) await(p *place, r *lock.Request) error {
	deadline := r.Deadline
	if deadline == 0 {
		deadline = fabric.Forever
	}
	next := l.port.Now() + l.cfg.LeaseNs/2
	for k := 1; !p.granted; k++ {
		if p.polls {
			asked := l.port.Now()
			rel, err := l.retry(fabric.Load(p.lock.Add(relOffset)))
			switch {
			case err != nil:
				l.drop(p)
				return err
			case p.reached(rel, asked):
				return nil
			}
			if err := l.judge(p, rel, asked); err != nil {
				return err
			}
			if err := l.mayGoOn(r, k); err != nil {
				return l.leave(p, err)
			}
			continue
		}
		err := l.receive(min(deadline, next))
		if errors.Is(err, fabric.ErrDeadline) && next < deadline {
			next = l.port.Now() + l.cfg.LeaseNs/2
			err = l.checkNow(p)
			if err == errRecovered {
				return err
			}
		}
		if err != nil {
			return l.leave(p, l.waitError(err))
		}
	}
	return nil
}

func (l *Locker) retry(op fabric.Op) (uint64, error) {
	l.ops[0] = op
	l.stats.AcquireOps++
	l.stats.Retries++
	err := l.port.Do(l.ops[:1])
	return l.ops[0].Old, err
}

// check looks at RelCnt, if half a lease has passed since the last look (section 3.6). It returns
// errRecovered if the lock has been recovered.
func (l *Locker) check(p *place, now fabric.Time) error {
	if now-p.looked < l.cfg.LeaseNs/2 {
		return nil
	}
	return l.checkNow(p)
}

func (l *Locker) checkNow(p *place) error {
	now := l.port.Now()
	p.looked = now
	rel, err := l.retry(fabric.Load(p.lock.Add(relOffset)))
	if err != nil {
		return err
	}
	return l.judge(p, rel, now)
}

// judge judges RelCnt. If a client has failed, it asks for a recovery, and gives that time.
func (l *Locker) judge(p *place, rel uint64, now fabric.Time) error {
	leapt, stuck := p.look(rel, now, l.cfg.LeaseNs)
	switch {
	case leapt:
		return errRecovered
	case stuck:
		l.stats.Resets++
		p.changed = now - 2*l.cfg.LeaseNs // ask again after a lease
		m := p.recover()
		// A server that cannot be reached is not the server for long.
		_ = l.port.Send(serverOf(l.node), &m)
	}
	return nil
}

// serverOf returns the agent that is the lock server: that of the lowest live node.
func serverOf(n fabric.Node) fabric.ClientID {
	cn, _ := n.View().Live.Next(0)
	return fabric.AgentOf(cn)
}

// lookEvery and lookNs: only a Pause that waits notices an interrupt.
const (
	lookEvery = 16
	lookNs    = fabric.Microsecond
)

// mayGoOn says why a client that polls may not do so any longer. k counts polls.
func (l *Locker) mayGoOn(r *lock.Request, k int) error {
	now := l.port.Now()
	if r.Deadline != 0 && now >= r.Deadline {
		return lock.ErrTimeout
	}
	until := now + 1
	if k%lookEvery == 0 {
		until = now + lookNs
	}
	return l.waitError(l.port.Pause(until))
}

// waitError translates what a Port's wait returns.
func (l *Locker) waitError(err error) error {
	switch {
	case errors.Is(err, fabric.ErrDeadline):
		return lock.ErrTimeout
	case errors.Is(err, fabric.ErrInterrupted):
		return lock.ErrCanceled
	}
	return err
}

// gaveUp counts a wait that the caller ended.
func (l *Locker) gaveUp(err error) error {
	if errors.Is(err, lock.ErrTimeout) || errors.Is(err, lock.ErrCanceled) {
		l.stats.Cancels++
	}
	return err
}

// receive takes the next message, and notes what it says about a place.
func (l *Locker) receive(deadline fabric.Time) error {
	m, err := l.port.Recv(deadline)
	if err != nil {
		return err
	}
	if p := l.find(fabric.Addr(m.Body[0])); p != nil && uint64(p.id) == m.Body[1] {
		p.note(&m, l.port.Now())
	}
	return nil
}

func corrupt(a fabric.Addr, e entry) error {
	return fmt.Errorf("%w: words at %v are %#x, %#x", lock.ErrCorrupt, a, e.head, e.rel)
}
