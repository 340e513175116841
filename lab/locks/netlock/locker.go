package netlock

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lab/locks/internal/switched"
	"github.com/declock/declock/lab/locks/server"
	"github.com/declock/declock/lock"
)

// A Locker is one client's access to the locks.
type Locker struct {
	switched.Client
	pool *Pool
	m    fabric.Message
}

var _ lock.Locker = (*Locker)(nil)

// New returns the Locker of a client of a pool's machine.
func New(port fabric.Port, pool *Pool) *Locker {
	l := &Locker{Client: switched.Client{Client: baseline.New(port, pool.cfg.Plain), Server: server.New(port, pool.server.CN(), pool.cfg.Server), Name: "netlock"}, pool: pool}
	l.Server.Other, l.Server.Incarnation = l.handle, pool.incarnation
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
	return l.Client.Acquire(h, r, l.ask, l.release)
}

// ask acquires a lock of the switch.
func (l *Locker) ask(_ *lock.Hold, r *lock.Request) error {
	if !l.pool.onSwitch(r.Lock) {
		return switched.ErrOutside
	}
	return l.acquire(r)
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
			return switched.ErrOutside
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
	return l.Client.Release(h, before, l.release)
}
