package rmarw

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// A Locker is one client's access to RMA-RW locks.
type Locker struct {
	baseline.Client
	cfg     Config
	wide    fabric.Wide
	tickets baseline.Tickets[ticket]
}

var _ lock.Locker = (*Locker)(nil)

// New returns a client's Locker. The fabric must have masked atomics (capability Masked), which fetch-and-store is made of.
func New(port fabric.Port, cfg Config) *Locker {
	return &Locker{Client: baseline.New(port, cfg.Plain), cfg: cfg.withDefaults()}
}

// Acquire implements lock.Locker.
func (l *Locker) Acquire(h *lock.Hold, r *lock.Request) (err error) {
	if err := baseline.Check(h, r); err != nil {
		return err
	}
	*h = lock.Hold{Lock: r.Lock, Mode: r.Mode}
	if r.Mode == lock.Exclusive {
		err = l.acquireWriter(h, r)
	} else if err = l.acquireReader(h, r); err == nil {
		h.Aux = l
	}
	if err != nil {
		return fmt.Errorf("rmarw: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	h.Held = true
	l.Counters.Acquires++
	return nil
}

func (l *Locker) acquireWriter(h *lock.Hold, r *lock.Request) error {
	if l.find(r.Lock) != nil {
		return fmt.Errorf("%w: %v has %v already", lock.ErrMisuse, l.Port().ID(), r.Lock)
	}
	t := l.tickets.New()
	*t = ticket{lock: r.Lock, id: l.Port().ID()}
	l.tickets.Queued = append(l.tickets.Queued, t)
	waits := l.Counters.Waits
	if err := l.queue(t, r); err != nil {
		return err
	}
	err := l.becomeWriter(t, r)
	if err == nil {
		err = l.read(t, r)
	}
	if err != nil {
		return errors.Join(err, l.release(t, nil))
	}
	if l.Counters.Waits == waits {
		l.Counters.Immediate++
	}
	h.Token, h.Aux, h.Word = t.token, t, uint64(t.id)
	if l.Plain {
		h.Token = 0
	}
	return nil
}

// queue enters the queue of writers, and waits until the ticket is its first. If it fails, the ticket has been given back.
func (l *Locker) queue(t *ticket, r *lock.Request) error {
	prev, err := l.enter(t, r.Try)
	switch {
	case err != nil && t.first:
		return errors.Join(err, l.release(t, nil))
	case err != nil:
		l.tickets.Drop(t)
		return err
	case prev == 0:
		return nil
	case r.Try:
		l.tickets.Drop(t)
		return l.busy(fmt.Sprintf("queue ends with %v", prev))
	}
	l.Counters.Waits++
	m := fabric.Message{Kind: msgSuccessor, Body: [7]uint64{uint64(t.lock), uint64(prev)}}
	if err := l.Port().Send(prev, &m); err != nil {
		return l.leave(t, err) // the predecessor has crashed, and the lock with it
	}
	for !t.first {
		if err := l.receive(r.Until()); err != nil {
			return l.leave(t, err)
		}
	}
	return nil
}

func (l *Locker) busy(why string) error {
	l.Counters.Busy++
	return fmt.Errorf("%w: %s", lock.ErrBusy, why)
}

// enter makes the ticket the queue's last, and reads the token. With try only if the queue is empty.
func (l *Locker) enter(t *ticket, try bool) (prev fabric.ClientID, err error) {
	l.wide = fabric.Wide{Swap: [2]uint64{uint64(t.id)}, SwapMask: [2]uint64{^uint64(0)}}
	if try {
		l.wide.CmpMask[0] = ^uint64(0)
	}
	l.Ops[0] = fabric.Op{Kind: fabric.OpMaskedCAS, Addr: t.lock, Wide: &l.wide}
	n := 1
	if !l.Plain {
		l.Ops[1] = fabric.Load(t.lock.Add(tokenOffset))
		n++
	}
	err = l.Port().Do(l.Ops[:n])
	l.Counters.AcquireOps += uint64(n)
	if fabric.Executed(err, n) == 0 {
		return 0, err
	}
	switch w := l.wide.Old[0]; {
	case w > tailMask:
		l.Ops[0] = fabric.CAS(t.lock, uint64(t.id), w) // as it was
		return 0, errors.Join(baseline.Corrupt(t.lock, w), l.Port().Do(l.Ops[:1]))
	case w != 0:
		return fabric.ClientID(w), nil
	}
	t.first = true
	if !l.Plain {
		t.token = lock.Token(l.Ops[1].Old) + 1
	}
	return 0, err
}

// becomeWriter sets the write bit for the first of the queue, unless one before it has, and waits until there are no readers.
func (l *Locker) becomeWriter(t *ticket, r *lock.Request) error {
	if t.mark {
		return nil
	}
	if err := l.awaitReaders(t, r); err != nil {
		return err
	}
	l.Ops[0] = fabric.FAA(t.lock.Add(countsOffset), uint64(writeBit))
	l.Counters.AcquireOps++
	if err := l.Port().Do(l.Ops[:1]); err != nil {
		return err
	}
	// If there were no readers, the READ that follows is that of Locker.read, if it has any.
	if counts(l.Ops[0].Old).readers() || len(r.Reads) == 0 {
		if err := l.awaitReaders(t, r); err != nil {
			l.Ops[0] = fabric.FAA(t.lock.Add(countsOffset), noWrite)
			return errors.Join(err, l.Port().Do(l.Ops[:1]))
		}
	}
	t.mark, t.row = true, 0
	return nil
}

// read does the caller's READs for a writer, behind one of the counts: all are on the lock's memory node, or refused.
func (l *Locker) read(t *ticket, r *lock.Request) error {
	if len(r.Reads) == 0 {
		return nil
	}
	l.Ops[0] = fabric.Load(t.lock.Add(countsOffset))
	n := 1 + copy(l.Ops[1:], r.Reads)
	l.Counters.AcquireOps++
	err := l.Port().Do(l.Ops[:n])
	copy(r.Reads, l.Ops[1:n])
	return err
}

// awaitReaders waits until all readers that have arrived have departed or backed out.
func (l *Locker) awaitReaders(t *ticket, r *lock.Request) error {
	found, err := l.look(t.lock)
	for k := 1; err == nil && found.readers(); k++ {
		if r.Try {
			return l.busy(found.String())
		}
		if k == 1 {
			l.Counters.Waits++
		}
		if err = l.Pause(r, baseline.Soon(k), 0); err == nil {
			l.Counters.Retries++
			found, err = l.look(t.lock)
		}
	}
	return err
}

// look reads the counts of a lock.
func (l *Locker) look(a fabric.Addr) (counts, error) {
	old, err := l.Look(a.Add(countsOffset))
	if err == nil && counts(old).corrupt() {
		err = baseline.Corrupt(a, old)
	}
	return counts(old), err
}

// acquireReader arrives, and backs out and tries again while there are writers, or have been enough readers.
func (l *Locker) acquireReader(h *lock.Hold, r *lock.Request) error {
	for tries := 0; ; tries++ {
		found, done, err := l.arrive(h, r)
		switch {
		case err == nil && found.corrupt():
			err = baseline.Corrupt(r.Lock, uint64(found))
			fallthrough
		case err != nil:
			if done {
				l.backOut(r.Lock)
			}
			return err
		case !found.write() && found.arrive() < l.cfg.Readers:
			if tries == 0 {
				l.Counters.Immediate++
			} else {
				l.Counters.Waits++
			}
			return nil
		}
		err = l.resetForReaders(r.Lock, found)
		if e := l.backOut(r.Lock); err == nil {
			err = e
		}
		if err == nil {
			err = l.awaitWriters(r)
		}
		if err != nil {
			return err
		}
	}
}

// arrive counts the reader in, and reads the token and what the caller wants. done reports whether it is counted.
func (l *Locker) arrive(h *lock.Hold, r *lock.Request) (found counts, done bool, err error) {
	l.Ops[0] = fabric.FAA(r.Lock.Add(countsOffset), uint64(oneArrive))
	n := 1
	if !l.Plain {
		l.Ops[1] = fabric.Load(r.Lock.Add(tokenOffset))
		n++
	}
	all := n + copy(l.Ops[n:], r.Reads)
	err = l.Port().Do(l.Ops[:all])
	l.Counters.AcquireOps += uint64(n)
	if err == nil {
		copy(r.Reads, l.Ops[n:all])
		if !l.Plain {
			h.Token = lock.Token(l.Ops[1].Old)
		}
	}
	return counts(l.Ops[0].Old), fabric.Executed(err, all) > 0, err
}

func (l *Locker) backOut(a fabric.Addr) error {
	l.Ops[0] = fabric.FAA(a.Add(countsOffset), ^uint64(0)) // -1
	return l.Port().Do(l.Ops[:1])
}

// resetForReaders resets the counts if the reader is the one that is too many, and no writer waits. It does so alone: it sets the reset bit first.
func (l *Locker) resetForReaders(a fabric.Addr, found counts) error {
	if found.write() || found.arrive() != l.cfg.Readers {
		return nil
	}
	tail, err := l.Look(a)
	if err != nil || tail != 0 {
		return err
	}
	l.wide = fabric.Wide{Swap: [2]uint64{uint64(resetBit)}, SwapMask: [2]uint64{uint64(resetBit)}, CmpMask: [2]uint64{uint64(resetBit)}}
	l.Ops[0] = fabric.Op{Kind: fabric.OpMaskedCAS, Addr: a.Add(countsOffset), Wide: &l.wide}
	l.Ops[1] = fabric.Load(a.Add(countsOffset))
	if err := l.Port().Do(l.Ops[:2]); err != nil || counts(l.wide.Old[0])&resetBit != 0 {
		return err
	}
	l.Ops[0] = fabric.FAA(a.Add(countsOffset), counts(l.Ops[1].Old).reset())
	return l.Port().Do(l.Ops[:1])
}

// awaitWriters waits until a reader may try again.
func (l *Locker) awaitWriters(r *lock.Request) error {
	for k := 1; ; k++ {
		found, err := l.look(r.Lock)
		if err != nil || !found.write() && found.arrive() <= l.cfg.Readers && !r.Try {
			return err
		}
		if r.Try {
			return l.busy(found.String())
		}
		if err := l.Pause(r, baseline.Soon(k), 0); err != nil {
			return fmt.Errorf("%w: %v", err, found)
		}
		l.Counters.Retries++
	}
}

// find returns the client's ticket for a lock, or nil.
func (l *Locker) find(a fabric.Addr) *ticket {
	return l.tickets.Find(func(t *ticket) bool { return t.lock == a })
}
