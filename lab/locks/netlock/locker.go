package netlock

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lab/locks/server"
	"github.com/declock/declock/lock"
)

// A Locker is one client's access to the locks.
type Locker struct {
	baseline.Client
	pool *Pool
	// server is the Locker of locks that have no queue on the switch.
	server *server.Locker
	m      fabric.Message
}

var _ lock.Locker = (*Locker)(nil)

// New returns the Locker of a client of a pool's machine.
func New(port fabric.Port, pool *Pool) *Locker {
	l := &Locker{Client: baseline.New(port, pool.cfg.Plain), pool: pool, server: server.New(port, pool.server.CN(), pool.cfg.Server)}
	l.server.Other = l.handle
	return l
}

// handle handles a message of the switch.
func (l *Locker) handle(m *fabric.Message) {
	l.pool.mu.Lock()
	l.pool.handle(l.Port(), m)
	l.pool.mu.Unlock()
}

// Acquire implements lock.Locker.
func (l *Locker) Acquire(h *lock.Hold, r *lock.Request) error {
	if err := baseline.Check(h, r); err != nil {
		return err
	}
	*h = lock.Hold{Lock: r.Lock, Mode: r.Mode}
	err := errOutside
	if l.pool.onSwitch(r.Lock) {
		err = l.acquire(r)
	}
	switch {
	case errors.Is(err, errOutside):
		return l.acquireAtServer(h, r)
	case err != nil:
		return fmt.Errorf("netlock: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	if err := l.FetchBehind(h, r); err != nil {
		l.release(h)
		return fmt.Errorf("netlock: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	h.Aux, h.Held = l, true
	l.Counters.Acquires++
	return nil
}

// errOutside: the switch has no queue for the lock.
var errOutside = errors.New("outside")

// acquireAtServer acquires a lock that the server has. Token and READs are fetched as of any other.
func (l *Locker) acquireAtServer(h *lock.Hold, r *lock.Request) error {
	ask := *r
	ask.Reads = nil
	if err := l.atServer(func() error { return l.server.Acquire(h, &ask) }); err != nil {
		return err
	}
	if err := l.FetchBehind(h, r); err != nil {
		return errors.Join(fmt.Errorf("netlock: acquire %v %v: %w", r.Mode, r.Lock, err), l.atServer(func() error { return l.server.Release(h, nil) }))
	}
	return nil
}

// atServer counts as its own what the server's Locker does.
func (l *Locker) atServer(do func() error) error {
	l.server.Counters = l.Counters
	err := do()
	l.Counters = l.server.Counters
	return err
}

// acquire asks the switch, and waits until the lock is granted.
func (l *Locker) acquire(r *lock.Request) error {
	p, port, slot := l.pool, l.Port(), -1
	for slot < 0 {
		p.mu.Lock()
		slot = p.begin(port, r)
		p.mu.Unlock()
		if slot < 0 {
			if err := l.Pause(r, fabric.Microsecond, 0); err != nil { // those that were given up have all slots
				return err
			}
		}
	}
	for {
		var err error
		l.m, err = port.Recv(r.Until())
		p.mu.Lock()
		t := &p.slots[slot]
		if err == nil {
			p.handle(port, &l.m)
		} else {
			p.giveUp(port, t)
		}
		phase, direct := t.phase, t.direct
		if err == nil && phase != asked {
			p.end(port, t)
		}
		p.mu.Unlock()
		switch {
		case err != nil:
			return l.GaveUp(err)
		case phase == elsewhere:
			return errOutside
		case phase == refused:
			l.Counters.Busy++
			return lock.ErrBusy
		case phase == holds && direct:
			l.Counters.Immediate++
			return nil
		case phase == holds:
			l.Counters.Waits++
			return nil
		}
	}
}

// release releases what is held on the switch.
func (l *Locker) release(h *lock.Hold) {
	l.pool.mu.Lock()
	l.pool.release(l.Port(), h.Lock, h.Mode)
	l.pool.mu.Unlock()
}

// Release implements lock.Locker.
func (l *Locker) Release(h *lock.Hold, before []fabric.Op) error {
	if by, ok := h.Aux.(*server.Locker); h.Held && ok && by == l.server && len(before) <= lock.MaxPiggyback {
		return l.atServer(func() error { return l.server.Release(h, before) })
	}
	if by, ok := h.Aux.(*Locker); !h.Held || !ok || by != l || len(before) > lock.MaxPiggyback {
		return baseline.Misuse(h, before)
	}
	h.Held, h.Aux = false, nil
	err := l.Port().Do(before)
	l.release(h)
	if err != nil {
		return fmt.Errorf("netlock: release %v %v: %w", h.Mode, h.Lock, err)
	}
	return nil
}
