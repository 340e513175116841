package bench

import (
	"encoding/binary"

	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
)

// usedLocks have locks look as if they had been used before the run: of 10 million a run of milliseconds uses most for the first time. A word is written when a
// client first asks for its lock.
type usedLocks struct {
	c       *sim.Cluster
	plan    *plan
	word    []byte // that a reader leaves
	readers uint64 // of 100 locks
	seen    []bool
}

// newUsedLocks returns nil if it makes no difference to a lock.
func newUsedLocks(c *sim.Cluster, p *plan, m *Micro, word uint64) *usedLocks {
	if !m.Used || word == 0 {
		return nil
	}
	return &usedLocks{c: c, plan: p, word: binary.LittleEndian.AppendUint64(nil, word), readers: uint64(m.ReadPct), seen: make([]bool, p.locks)}
}

// over returns a client's Locker over such locks.
func (u *usedLocks) over(l lock.Locker) lock.Locker {
	if u == nil {
		return l
	}
	return &usedLocker{l, u}
}

type usedLocker struct {
	lock.Locker
	used *usedLocks
}

// Acquire implements lock.Locker.
func (l *usedLocker) Acquire(h *lock.Hold, r *lock.Request) error {
	u := l.used
	i := (r.Lock.Offset() - u.plan.at.Offset() - planBase) / u.plan.span
	if !u.seen[i] {
		u.seen[i] = true
		const mix = 0x9e3779b97f4a7c15
		if (i*mix)>>32%100 < u.readers {
			u.c.Poke(r.Lock, u.word)
		}
	}
	return l.Locker.Acquire(h, r)
}
