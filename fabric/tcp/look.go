//go:build linux

package tcp

import (
	"runtime"
	"sync/atomic"

	"github.com/declock/declock/fabric"
)

const (
	// A waiter spins for a while before it parks: to be woken takes ten microseconds and
	// more. How long it spins follows what comes.
	minLook = 4 * fabric.Microsecond
	maxLook = 100 * fabric.Microsecond
	// A sleep shorter than this was not worth it. (By far the most of it is the waking: what would have
	// been found after 30 microseconds of looking takes who sleeps 100 to 200, and must make him look longer, not shorter.)
	shortSleep = 400 * fabric.Microsecond
	// Every so many looks other goroutines may run.
	looksPerYield = 2
	// Who is away for so long between two looks had to leave the processor to other programs.
	awayTime = 150 * fabric.Microsecond
	// Then nobody looks for so many times as long, so that not more than that part of the time is lost; for twice the
	// time of before, if looking has not been of use so many times since.
	crowdedFactor = 32
	maxCrowded    = 2 * fabric.Second
	usesPerTrust  = 256
)

// A crowd knows whether there are more who want a processor than processors. Then looking is worse than useless:
// who burns the processor's time is last in line when what he waits for has come.
type crowd struct {
	until   atomic.Int64 // nobody looks before
	penalty atomic.Int64 // how long that was
	uses    atomic.Int64
}

// machine is the crowd of this machine.
var machine crowd

func (c *crowd) here(now fabric.Time) bool { return int64(now) < c.until.Load() }

// met is called by who had to leave the processor for some time while he looked.
func (c *crowd) met(now, away fabric.Time) {
	p := int64(crowdedFactor * away)
	if c.uses.Swap(0) < usesPerTrust {
		p = max(p, 2*c.penalty.Load())
	}
	p = min(p, int64(maxCrowded))
	c.penalty.Store(p)
	c.until.Store(int64(now) + p)
}

// useful is called when looking has found something.
func (c *crowd) useful() { c.uses.Add(1) }

// A looker decides, for one who waits, between looking again and going to sleep. The zero value is ready.
type looker struct {
	look  fabric.Time // how long
	until fabric.Time // of this look; 0: it has not begun
	last  fabric.Time
	round int
}

// found is called when a look has found something.
func (k *looker) found() {
	if k.until != 0 {
		k.until = 0
		machine.useful()
	}
}

// again is called when a look has found nothing. It tells whether to look again; else it is time to sleep.
func (k *looker) again(now fabric.Time) bool {
	switch {
	case k.until == 0:
		if machine.here(now) {
			return false
		}
		k.look = max(k.look, minLook)
		k.until, k.last = now+k.look, now
	case k.last != 0 && now-k.last > awayTime:
		machine.met(now, now-k.last)
		k.until = 0
		return false
	case now >= k.until:
		k.until = 0
		return false
	}
	k.last = now
	if k.round++; k.round%looksPerYield == 0 {
		runtime.Gosched()
		k.last = 0 // away, but in favour of our own
	}
	return true
}

// slept is called after a sleep. The next look is longer if a longer one would have saved the sleep, else shorter.
func (k *looker) slept(d fabric.Time) {
	if d < shortSleep {
		k.look = min(2*k.look, maxLook)
	} else {
		k.look = max(k.look/2, minLook)
	}
}
