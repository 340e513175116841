package tcp

import (
	"runtime"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/inbox"
)

const (
	// Every so many rounds of a spin other goroutines may run.
	roundsPerYield = 2
	// A waiter that is away for so long between two rounds had to leave the processor to other programs.
	awayTime = 150 * fabric.Microsecond
	// Then no waiter spins for so many times as long, so that not more than that part of the time is lost; for twice the
	// time of before, if spinning has not been of use so many times since.
	crowdedFactor  = 32
	maxCrowded     = 2 * fabric.Second
	usesPerRelapse = 256
)

// patience is how long a waiter spins before it parks. By far the most of a short park is the wakeup: an answer that comes after 30 microseconds wakes
// a parked waiter after 100 to 200, and must make it spin longer, not shorter.
var patience = inbox.Patience{Min: 4 * fabric.Microsecond, Max: 100 * fabric.Microsecond, Short: 400 * fabric.Microsecond}

// A crowding records whether more threads want a processor than there are processors. Then spinning is worse than useless:
// a waiter that burns the processor's time is last in line when its answer has come.
type crowding struct {
	until   atomic.Int64 // no waiter spins before
	penalty atomic.Int64 // how long that was
	uses    atomic.Int64
}

// machine is the crowding of this machine.
var machine crowding

// crowded reports whether waiters should park at once.
func (c *crowding) crowded(now fabric.Time) bool { return int64(now) < c.until.Load() }

// lost notes that a spinning waiter had to leave the processor for some time.
func (c *crowding) lost(now, away fabric.Time) {
	p := int64(crowdedFactor * away)
	if c.uses.Swap(0) < usesPerRelapse {
		p = max(p, 2*c.penalty.Load())
	}
	p = min(p, int64(maxCrowded))
	c.penalty.Store(p)
	c.until.Store(int64(now) + p)
}

// A spinner decides for a waiter between another round and a park. The zero value is ready.
type spinner struct {
	limit fabric.Time // how long it spins
	until fabric.Time // of this spin; 0: it has not begun
	last  fabric.Time
	round int
}

// found notes that a round has found something.
func (k *spinner) found() {
	if k.until != 0 {
		k.until = 0
		machine.uses.Add(1)
	}
}

// again notes that a round has found nothing. It reports whether there should be another; else it is time to park.
func (k *spinner) again(now fabric.Time) bool {
	switch {
	case k.until == 0:
		if machine.crowded(now) {
			return false
		}
		k.limit = max(k.limit, patience.Min)
		k.until, k.last = now+k.limit, now
	case k.last != 0 && now-k.last > awayTime:
		machine.lost(now, now-k.last)
		k.until = 0
		return false
	case now >= k.until:
		k.until = 0
		return false
	}
	k.last = now
	if k.round++; k.round%roundsPerYield == 0 {
		runtime.Gosched()
		k.last = 0 // away, but in favour of our own
	}
	return true
}

// parked notes how long a park was.
func (k *spinner) parked(d fabric.Time) { k.limit = patience.Next(k.limit, d) }
