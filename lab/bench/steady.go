package bench

import (
	"cmp"
	"math"

	"github.com/declock/declock/fabric"
)

// A run is measured when it is in a steady state, and whether it is, is a test. The run is cut into batches of equal
// length, and the series is the operations of each. (In a closed loop, clients over throughput is the mean
// latency, so a steady throughput is a steady mean latency, too.) Some of the first batches are left out; the
// rest is steady if
//
//   - each of its quarters has the mean of all to within [Pace.Tolerance],
//   - it has so many operations for each client as a wait in the longest queue can take turns,
//   - both hold again when the run has gone on for a while: one test may pass by chance.
//
// Else the run goes on, in longer batches, up to a limit; then its second half is measured, and is marked. What changes
// over times much longer than those that are measured looks steady: no test can see it.

// A Pace says when a run is measured, and for how long.
type Pace struct {
	// WarmupNs and WindowNs are a fixed window, if WindowNs is not 0. It is tested like any other, and marked if it fails.
	WarmupNs, WindowNs fabric.Time
	// Ops is how many operations a fixed window has at least: it goes on for that, to LimitNs at most.
	Ops uint64
	// Ends: what must be steady in a fixed window is how many acquisitions end, also those that were passed over, for few of what they are for is done.
	Ends bool
	// LeastNs and LeastOps are what the measured part has at least, LimitNs is how long all of the run is at most.
	LeastNs, LimitNs fabric.Time
	LeastOps         uint64
	// Tolerance is by how much of the mean a quarter may differ from it.
	Tolerance float64
}

// Defaults of a Pace.
const (
	tolerance = 0.04
	leastNs   = 6 * fabric.Millisecond
	leastOps  = 5000
	// turns is how many operations a client does at least, on average: what changes slowly, changes by turns. (4,096 clients on
	// ShiftLock need some 20 each until they wait for the same few locks, 256 on CASLock some 40 until as many starve as will.)
	turns = 40
	// Quick runs have fewer, which is enough for many, and are shorter.
	quickTurns   = 10
	quickLeastNs = 3 * fabric.Millisecond
	quickLimit   = 8 // by what the limit is divided: what is not steady by then hardly ever is later

	firstBatch = 25 * fabric.Microsecond
	maxBatches = 64 // then each two become one
	minBatches = maxBatches / 2
	testEvery  = maxBatches / 8
)

// paceOf returns the pace of a run of so many clients, of so many operations each; 0: turns.
func paceOf(clients, each int, limit fabric.Time) Pace {
	return Pace{LeastNs: leastNs, LeastOps: max(leastOps, uint64(cmp.Or(each, turns)*clients)), LimitNs: limit, Tolerance: tolerance}
}

// quick returns the pace of a quick run of so many clients.
func (p Pace) quick(clients int) Pace {
	p.LeastNs, p.LeastOps, p.LimitNs = quickLeastNs, uint64(max(leastOps/2, quickTurns*clients)), p.LimitNs/quickLimit
	return p
}

// drift returns by how much of the mean of a series the mean of one of its quarters differs from it, at most.
func drift(series []uint64) float64 {
	mean := meanOf(series)
	if mean == 0 {
		return math.Inf(1)
	}
	worst := 0.0
	for q := range 4 {
		part := series[q*len(series)/4 : (q+1)*len(series)/4]
		worst = max(worst, math.Abs(meanOf(part)/mean-1))
	}
	return worst
}

func meanOf(series []uint64) float64 {
	var sum uint64
	for _, n := range series {
		sum += n
	}
	return float64(sum) / float64(len(series))
}

// steadyFrom returns how many of the first batches of a series, of a length, are to be left out so that the rest is steady.
// If it is not, whatever is left out, it returns half of them and false.
func (p *Pace) steadyFrom(series []uint64, length fabric.Time) (skip int, ok bool) {
	n := len(series)
	if n >= minBatches {
		for _, eighths := range []int{2, 3, 4} {
			skip = n * eighths / 8
			rest := series[skip:]
			if fabric.Time(len(rest))*length >= p.LeastNs && meanOf(rest)*float64(len(rest)) >= float64(p.LeastOps) && drift(rest) <= p.Tolerance {
				return skip, true
			}
		}
	}
	return n / 2, false
}

// A settling is a run as it goes on.
type settling struct {
	Pace
	length fabric.Time // of a batch
	ops    []uint64    // of each batch
	passed bool        // the last test
}

func newSettling(p Pace) *settling { return &settling{Pace: p, length: firstBatch} }

// add takes note of another batch, and reports whether the run is to be measured now, from which batch on, and whether that is steady.
func (s *settling) add(ops uint64) (done bool, skip int, steady bool) {
	s.ops = append(s.ops, ops)
	n := len(s.ops)
	if n >= minBatches && n%testEvery == 0 {
		skip, steady = s.steadyFrom(s.ops, s.length)
		if steady && s.passed {
			return true, skip, true
		}
		s.passed = steady
	}
	if fabric.Time(n)*s.length >= s.LimitNs {
		skip, steady = s.steadyFrom(s.ops, s.length)
		return true, skip, steady
	}
	return false, 0, false
}

// join makes one batch of each two, and reports whether it was time for that.
func (s *settling) join() bool {
	if len(s.ops) < maxBatches {
		return false
	}
	for i := range len(s.ops) / 2 {
		s.ops[i] = s.ops[2*i] + s.ops[2*i+1]
	}
	s.ops = s.ops[:len(s.ops)/2]
	s.length *= 2
	return true
}
