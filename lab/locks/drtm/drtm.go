package drtm

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// A Locker is one client's access to DrTM's locks.
type Locker struct {
	baseline.Client
	node fabric.Node
	cfg  Config
	// incarnation is that of the node.
	incarnation uint64
}

var _ lock.Locker = (*Locker)(nil)

// New returns the Locker of a client of a node.
func New(port fabric.Port, node fabric.Node, cfg Config) *Locker {
	return &Locker{Client: baseline.New(port, cfg.Plain), node: node, cfg: cfg.withDefaults(), incarnation: baseline.Incarnation(node, node.ID())}
}

// Acquire implements lock.Locker.
func (l *Locker) Acquire(h *lock.Hold, r *lock.Request) error {
	if err := baseline.Check(h, r); err != nil {
		return err
	}
	if err := l.acquire(h, r); err != nil {
		return fmt.Errorf("drtm: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	h.Lock, h.Mode, h.Aux, h.Held = r.Lock, r.Mode, l, true
	l.Counters.Acquires++
	return nil
}

// acquire repeats the CAS until it succeeds, or a reader finds a lease that it can join. expect is what the next CAS compares
// with: a free word, or one that may be replaced.
func (l *Locker) acquire(h *lock.Hold, r *lock.Request) error {
	mine := l.mine(r.Mode)
	old, done, err := l.First(h, r, fabric.CAS(r.Lock, 0, uint64(mine)))
	if err != nil {
		if done > 0 && old == 0 {
			l.undo(r.Lock, mine)
		}
		return err
	}
	found, expect := word(old), word(0)
	if l.grants(h, r.Mode, found, expect, mine) {
		l.Counters.Immediate++
		return nil
	}
	for k := 1; ; k++ {
		if found.corrupt() {
			return baseline.Corrupt(r.Lock, uint64(found))
		}
		if expect = 0; l.replaceable(found) {
			expect = found
		} else if err := l.pause(r, found, k); err != nil {
			return err
		}
		mine = l.mine(r.Mode)
		if old, err = l.Retry(fabric.CAS(r.Lock, uint64(expect), uint64(mine))); err != nil {
			return err
		}
		if found = word(old); l.grants(h, r.Mode, found, expect, mine) {
			return l.granted(h, r)
		}
	}
}

// mine returns the word of a lock that this client acquires now.
func (l *Locker) mine(m lock.Mode) word {
	if m == lock.Exclusive {
		return writerWord(l.Port().ID().CN(), l.incarnation)
	}
	return leased(l.Port().Now() + l.cfg.LeaseNs)
}

// grants reports whether a CAS that found a word has acquired the lock: it has succeeded, or the word is a lease that a reader can join. The
// Hold's Word is what the lock's word is then.
func (l *Locker) grants(h *lock.Hold, m lock.Mode, found, expect, mine word) bool {
	h.Word = uint64(mine)
	if found == expect {
		return true
	}
	h.Word = uint64(found)
	return m == lock.Shared && !found.corrupt() && !found.written() && l.cfg.valid(found.end(), l.Port().Now(), l.cfg.left())
}

// replaceable reports whether a lock that is not free can be acquired all the same: its lease has expired, or its writer's node has gone, and another may have its
// number. A node reaches memory once all others know it, and no more when another has its number: so one that is not known is not to come.
func (l *Locker) replaceable(w word) bool {
	if w.written() {
		return !l.node.View().Live.Has(w.owner()) || w.ofAnother(baseline.Incarnation(l.node, w.owner()))
	}
	return l.cfg.expired(w.end(), l.Port().Now())
}

// granted fetches token and READs after a grant that took retries.
func (l *Locker) granted(h *lock.Hold, r *lock.Request) error {
	l.Counters.Waits++
	err := l.Fetch(h, r)
	if err != nil {
		l.undo(r.Lock, word(h.Word))
	}
	return err
}

// pause waits before the next try, or says why there is none. k counts tries.
func (l *Locker) pause(r *lock.Request, w word, k int) error {
	if r.Try {
		l.Counters.Busy++
		return fmt.Errorf("%w: %v", lock.ErrBusy, w)
	}
	if err := l.Pause(r, max(l.cfg.RetryNs, baseline.Soon(k)), 0); err != nil {
		return fmt.Errorf("%w: %v", err, w)
	}
	return nil
}

// undo takes back what a writer's acquisition that failed has put into the word. A lease ends by itself.
func (l *Locker) undo(a fabric.Addr, mine word) {
	if mine.written() {
		l.Ops[0] = fabric.CAS(a, uint64(mine), 0)
		_ = l.Port().Do(l.Ops[:1])
	}
}

// Release implements lock.Locker.
func (l *Locker) Release(h *lock.Hold, before []fabric.Op) error {
	if by, ok := h.Aux.(*Locker); !h.Held || !ok || by != l || len(before) > lock.MaxPiggyback {
		return baseline.Misuse(h, before)
	}
	mine := word(h.Word)
	h.Held, h.Aux, h.Word = false, nil, 0
	if err := l.release(h.Lock, mine, before); err != nil {
		return fmt.Errorf("drtm: release %v %v: %w", h.Mode, h.Lock, err)
	}
	return nil
}

func (l *Locker) release(a fabric.Addr, mine word, before []fabric.Op) error {
	if !mine.written() {
		if now := l.Port().Now(); !l.cfg.valid(mine.end(), now, 0) {
			return fmt.Errorf("%w: at %d us, %v", lock.ErrLost, now/fabric.Microsecond, mine)
		}
		return l.Port().Do(before)
	}
	last := [1]fabric.Op{fabric.CAS(a, uint64(mine), 0)}
	done, err := l.Last(before, last[:]...)
	if done && !last[0].Swapped() {
		err = errors.Join(err, fmt.Errorf("%w: word at %v was %v", lock.ErrLost, a, word(last[0].Old)))
	}
	return err
}
