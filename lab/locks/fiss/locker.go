package fiss

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
	l := &Locker{Client: switched.Client{Client: baseline.New(port, pool.cfg.Plain), Server: server.New(port, pool.cfg.first(), pool.cfg.Server), Name: "fiss"}, pool: pool}
	l.Server.Incarnation = pool.incarnationOf(pool.cn)
	l.Server.Other = func(m *fabric.Message) {
		pool.mu.Lock()
		pool.handle(port, m)
		pool.mu.Unlock()
	}
	return l
}

// Acquire implements lock.Locker.
func (l *Locker) Acquire(h *lock.Hold, r *lock.Request) error {
	return l.Client.Acquire(h, r, l.ask, l.release)
}

// ask acquires a lock of the switch. Hold.Word is its slot.
func (l *Locker) ask(h *lock.Hold, r *lock.Request) error {
	slot, err := l.acquire(r)
	if err == nil {
		h.Word = uint64(slot)
	}
	return err
}

// slotNs is how long a client waits before it looks again for a free slot: one is free when a message has come.
const slotNs = fabric.Microsecond

// acquire asks, and waits until the lock is granted.
func (l *Locker) acquire(r *lock.Request) (slot int, err error) {
	p, port := l.pool, l.Port()
	if p.cfg.LocalNs > 0 && p.near(r.Lock) {
		if err := l.Pause(r, p.cfg.LocalNs, 0); err != nil {
			return -1, err
		}
	}
	for {
		p.mu.Lock()
		slot = p.begin(port, r)
		p.mu.Unlock()
		if slot >= 0 {
			break
		}
		if err := l.Pause(r, slotNs, 0); err != nil {
			return -1, err
		}
	}
	for local := true; ; local = false {
		p.mu.Lock()
		t := &p.slots[slot]
		phase, direct := t.phase, t.direct
		if phase == refusedIt || phase == outside {
			p.end(t)
		}
		p.mu.Unlock()
		switch {
		case phase == outside:
			return -1, switched.ErrOutside
		case phase == refusedIt:
			l.Counters.Busy++
			return -1, lock.ErrBusy
		case phase == holds && local:
			l.Counters.LocalJoins++
			return slot, nil
		case phase == holds && direct:
			l.Counters.Immediate++
			return slot, nil
		case phase == holds:
			l.Counters.Waits++
			return slot, nil
		}
		var err error
		l.m, err = port.Recv(r.Until())
		p.mu.Lock()
		if err == nil {
			p.handle(port, &l.m)
		} else {
			p.giveUp(port, &p.slots[slot])
		}
		p.mu.Unlock()
		if err != nil {
			return -1, l.GaveUp(err)
		}
	}
}

// release releases what a slot holds.
func (l *Locker) release(h *lock.Hold) {
	l.pool.mu.Lock()
	l.pool.release(l.Port(), &l.pool.slots[h.Word])
	l.pool.mu.Unlock()
}

// Release implements lock.Locker.
func (l *Locker) Release(h *lock.Hold, before []fabric.Op) error {
	return l.Client.Release(h, before, l.release)
}
