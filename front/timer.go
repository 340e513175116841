package front

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// timedOf: of so many operations about one is timed.
const timedOf = 16

// A Timer times operations, one in some. Any number of goroutines may use it.
type Timer struct{ count, ns atomic.Uint64 }

// Timed are the operations of one kind that were timed, and how long these took together.
type Timed struct {
	Count uint64 `json:"count"`
	Ns    uint64 `json:"ns"`
}

// Begin begins an operation: End is given what it returns.
func (t *Timer) Begin() (at time.Time) {
	if rand.Uint32()%timedOf == 0 {
		at = time.Now()
	}
	return at
}

// End ends an operation.
func (t *Timer) End(at time.Time) {
	if !at.IsZero() {
		t.ns.Add(uint64(time.Since(at)))
		t.count.Add(1)
	}
}

// Timed returns what has been timed so far.
func (t *Timer) Timed() Timed { return Timed{t.count.Load(), t.ns.Load()} }
