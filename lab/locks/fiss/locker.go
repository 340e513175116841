package fiss

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
	// server is the Locker of locks for which the switch has no registers.
	server *server.Locker
	m      fabric.Message
}

var _ lock.Locker = (*Locker)(nil)

// New returns the Locker of a client of a pool's machine.
func New(port fabric.Port, pool *Pool) *Locker {
	first := pool.to.CN()
	if pool.cfg.Device {
		first++
	}
	l := &Locker{Client: baseline.New(port, pool.cfg.Plain), pool: pool, server: server.New(port, first, pool.cfg.Server)}
	l.server.Other = func(m *fabric.Message) {
		pool.mu.Lock()
		pool.handle(port, m)
		pool.mu.Unlock()
	}
	return l
}

// Acquire implements lock.Locker.
func (l *Locker) Acquire(h *lock.Hold, r *lock.Request) error {
	if err := baseline.Check(h, r); err != nil {
		return err
	}
	*h = lock.Hold{Lock: r.Lock, Mode: r.Mode}
	slot, err := l.acquire(r)
	if errors.Is(err, errOutside) {
		return l.acquireAtServer(h, r)
	}
	if err != nil {
		return fmt.Errorf("fiss: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	h.Word = uint64(slot)
	if err := l.FetchBehind(h, r); err != nil {
		l.release(slot)
		return fmt.Errorf("fiss: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	h.Aux, h.Held = l, true
	l.Counters.Acquires++
	return nil
}

// errOutside: the switch has no registers for the lock.
var errOutside = errors.New("outside")

// acquireAtServer acquires a lock that a server has. Token and READs are fetched as of any other.
func (l *Locker) acquireAtServer(h *lock.Hold, r *lock.Request) error {
	ask := *r
	ask.Reads = nil
	if err := l.atServer(func() error { return l.server.Acquire(h, &ask) }); err != nil {
		return err
	}
	if err := l.FetchBehind(h, r); err != nil {
		return errors.Join(fmt.Errorf("fiss: acquire %v %v: %w", r.Mode, r.Lock, err), l.atServer(func() error { return l.server.Release(h, nil) }))
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

// slotNs is how long a client waits before it looks again for a free slot: one is free when a message has come.
const slotNs = fabric.Microsecond

// acquire asks, and waits until the lock is granted.
func (l *Locker) acquire(r *lock.Request) (slot int, err error) {
	p, port := l.pool, l.Port()
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
			return -1, errOutside
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
func (l *Locker) release(slot int) {
	l.pool.mu.Lock()
	l.pool.release(l.Port(), &l.pool.slots[slot])
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
	l.release(int(h.Word))
	if err != nil {
		return fmt.Errorf("fiss: release %v %v: %w", h.Mode, h.Lock, err)
	}
	return nil
}
