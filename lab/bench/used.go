package bench

import (
	"encoding/binary"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
)

// usedLocks have locks look as if they had been used before the run: of 10 million a run of milliseconds uses most for the first time. A word is written when a
// client first asks for its lock.
type usedLocks struct {
	c    *sim.Cluster
	word []byte              // that a reader leaves
	read func(i uint64) bool // whether a reader had a lock last
	seen []bool
}

// newUsedLocks returns nil if it makes no difference to a lock: its clients leave no word.
func newUsedLocks(c *sim.Cluster, n int, word uint64, read func(i uint64) bool) *usedLocks {
	if word == 0 {
		return nil
	}
	return &usedLocks{c: c, word: binary.LittleEndian.AppendUint64(nil, word), read: read, seen: make([]bool, n)}
}

// ask takes note that a client asks for a lock, by its number and address.
func (u *usedLocks) ask(i uint64, at fabric.Addr) {
	if u == nil || u.seen[i] {
		return
	}
	u.seen[i] = true
	if u.read(i) {
		u.c.Poke(at, u.word)
	}
}

// mostlyRead returns a usedLocks.read of a microbenchmark: that as many locks were read last as operations are reads.
func (m *Micro) mostlyRead() func(i uint64) bool {
	const mix = 0x9e3779b97f4a7c15
	return func(i uint64) bool { return (i*mix)>>32%100 < uint64(m.ReadPct) }
}

// over returns a client's Locker over the locks of a plan.
func (u *usedLocks) over(l lock.Locker, p *plan) lock.Locker {
	if u == nil {
		return l
	}
	return &usedLocker{l, u, p}
}

type usedLocker struct {
	lock.Locker
	used *usedLocks
	plan *plan
}

// Acquire implements lock.Locker.
func (l *usedLocker) Acquire(h *lock.Hold, r *lock.Request) error {
	l.used.ask((r.Lock.Offset()-l.plan.at.Offset()-planBase)/l.plan.span, r.Lock)
	return l.Locker.Acquire(h, r)
}
