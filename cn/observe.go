package cn

import (
	"cmp"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/internal/stats"
	"github.com/declock/declock/lock"
)

// SampleEvery is one in how many acquisitions of a session is timed and counted for [Node.Observe].
const SampleEvery = 64

const (
	// minBucket and numBuckets of a Histogram: 128 ns to 8.6 s.
	minBucket  = 7
	numBuckets = 27
)

// A Histogram counts durations. Counts[i] is those below Bound(i) and not below the bound before; the last is all that are longer.
type Histogram struct {
	Counts [numBuckets + 1]uint64
	SumNs  uint64
}

// Bound returns the upper bound of the i-th count, in nanoseconds.
func Bound(i int) uint64 { return 1 << (minBucket + i) }

// Count returns the number of durations.
func (h *Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// add may be called by many at once.
func (h *Histogram) add(t fabric.Time) {
	ns := uint64(max(t, 0))
	atomic.AddUint64(&h.Counts[min(max(bits.Len64(ns)-minBucket, 0), numBuckets)], 1)
	atomic.AddUint64(&h.SumNs, ns)
}

// now returns a copy of a Histogram that others add to.
func (h *Histogram) now() (c Histogram) {
	for i := range h.Counts {
		c.Counts[i] = atomic.LoadUint64(&h.Counts[i])
	}
	c.SumNs = atomic.LoadUint64(&h.SumNs)
	return c
}

// A HotLock is a lock that is acquired often.
type HotLock struct {
	Lock fabric.Addr
	// Share is its part of the acquisitions of this compute node, lately; at most Error too high.
	Share, Error float64
	// WaitNs is how long an acquisition of it took, on average.
	WaitNs fabric.Time
	// Holders and Waiters are those of this compute node, now.
	Holders, Waiters int
}

const (
	hotSlots = 64      // locks that are counted
	hotTotal = 1 << 16 // samples after which all counts are halved
)

// hotLocks finds the locks that are acquired most among samples, in fixed space:
// "space-saving" (Metwally, Agrawal, El Abbadi, ICDT 2005).
type hotLocks struct {
	mu    sync.Mutex
	n     int
	total uint64
	slots [hotSlots]hotSlot
}

type hotSlot struct {
	lock   fabric.Addr
	count  uint64
	extra  uint64 // of count, at most so many were others'
	waitNs uint64
	waits  uint64
}

func (h *hotLocks) add(l fabric.Addr, wait fabric.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.total++; h.total == hotTotal {
		h.halve()
	}
	s := h.slot(l)
	s.count++
	s.waits++
	s.waitNs += uint64(max(wait, 0))
}

// slot returns the slot of a lock; if it has none, it takes that of the lock with the least count, and the count.
func (h *hotLocks) slot(l fabric.Addr) *hotSlot {
	least := 0
	for i := range h.slots[:h.n] {
		if h.slots[i].lock == l {
			return &h.slots[i]
		}
		if h.slots[i].count < h.slots[least].count {
			least = i
		}
	}
	if h.n < hotSlots {
		h.n++
		h.slots[h.n-1] = hotSlot{lock: l}
		return &h.slots[h.n-1]
	}
	s := &h.slots[least]
	*s = hotSlot{lock: l, count: s.count, extra: s.count}
	return s
}

// halve lets the past count less.
func (h *hotLocks) halve() {
	h.total /= 2
	for i := range h.slots[:h.n] {
		s := &h.slots[i]
		s.count, s.extra, s.waitNs, s.waits = s.count/2, s.extra/2, s.waitNs/2, s.waits/2
	}
}

// top returns the hottest locks, the hottest first.
func (h *hotLocks) top(most int) []HotLock {
	h.mu.Lock()
	defer h.mu.Unlock()
	slots := slices.Clone(h.slots[:h.n])
	slices.SortFunc(slots, func(a, b hotSlot) int { return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.lock, b.lock)) })
	var list []HotLock
	for _, s := range slots[:min(most, len(slots))] {
		x := HotLock{Lock: s.lock, Share: float64(s.count) / float64(h.total), Error: float64(s.extra) / float64(h.total)}
		if s.waits > 0 {
			x.WaitNs = fabric.Time(s.waitNs / s.waits)
		}
		list = append(list, x)
	}
	return list
}

// seen is what a compute node has observed of its sessions.
type seen struct {
	acquire, hold Histogram
	hot           hotLocks
}

// An Observation is what a compute node has counted and measured.
// Counters of a session that is open are as of the last of its acquisitions that was sampled.
type Observation struct {
	Locks    lock.Stats
	NIC      fabric.Stats
	Resets   cql.AgentStats
	Sessions int
	Load     hier.Load
	// Acquire and Hold are how long acquisitions took and locks were held: of one in SampleEvery.
	Acquire, Hold Histogram
	// Hot are the locks that are acquired most.
	Hot []HotLock
	// Resetting are the locks in whose resets the node takes part.
	Resetting []fabric.Addr
}

// Observe returns what the node is doing, with so many hot locks at most. Any goroutine may call it at any time.
func (n *Node) Observe(hot int) *Observation {
	o := &Observation{
		Resets: n.agent.Counted(), Load: n.table.Load(),
		Acquire: n.seen.acquire.now(), Hold: n.seen.hold.now(), Hot: n.seen.hot.top(hot),
		Resetting: n.table.Resetting(),
	}
	for i := range o.Hot {
		load := n.table.LoadOf(o.Hot[i].Lock)
		o.Hot[i].Holders, o.Hot[i].Waiters = load.Holders, load.Waiters
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	o.Locks, o.NIC, o.Sessions = n.done, n.doneNIC, len(n.sessions)
	for s := range n.sessions {
		s.locker.mu.Lock()
		stats.Add(&o.Locks, &s.locker.locks)
		stats.Add(&o.NIC, &s.locker.nic)
		s.locker.mu.Unlock()
	}
	return o
}

// A sampler is a session's Locker, which times one in SampleEvery acquisitions.
type sampler struct {
	*hier.Locker
	seen *seen
	use  *lock.InUse
	n    uint32
	held *lock.Hold // the one that is timed
	from fabric.Time

	mu    sync.Mutex // of what follows
	locks lock.Stats // as of the last sample
	nic   fabric.Stats
}

var _ lock.Locker = (*sampler)(nil)

// InUse returns the flag of the session: see lock.InUseOf.
func (s *sampler) InUse() *lock.InUse { return s.use }

// Acquire implements lock.Locker.
func (s *sampler) Acquire(h *lock.Hold, r *lock.Request) error {
	if s.n++; s.n%SampleEvery != 0 {
		return s.Locker.Acquire(h, r)
	}
	return s.timed(h, r)
}

// Release implements lock.Locker.
func (s *sampler) Release(h *lock.Hold, before []fabric.Op) error {
	if h == s.held && h != nil {
		s.held = nil
		s.seen.hold.add(s.Port().Now() - s.from)
	}
	return s.Locker.Release(h, before)
}

func (s *sampler) timed(h *lock.Hold, r *lock.Request) error {
	p := s.Port()
	start := p.Now()
	err := s.Locker.Acquire(h, r)
	if err == nil {
		now := p.Now()
		s.seen.acquire.add(now - start)
		s.seen.hot.add(r.Lock, now-start)
		s.held, s.from = h, now
	}
	s.mu.Lock()
	s.locks, s.nic = *s.Stats(), *p.Stats()
	s.mu.Unlock()
	return err
}
