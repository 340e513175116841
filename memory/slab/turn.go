package slab

import (
	"sync/atomic"

	"github.com/declock/declock/fabric"
)

// A Turn is what one client of a compute node has at a time: to take a run, or to open a store or tree anew, say. The zero value is free.
type Turn struct{ taken atomic.Bool }

// A Patience is how long a client waits for its turn in all, and how long until it looks again, at first and at last.
type Patience struct{ All, First, Last fabric.Time }

// Try takes the turn, if no other client has it.
func (t *Turn) Try() bool { return t.taken.CompareAndSwap(false, true) }

// Take waits for the turn, unless over says that it is not needed any more. The error is that of the Port, whose user has no time left.
func (t *Turn) Take(port fabric.Port, p Patience, over func() bool) (bool, error) {
	until := port.Now() + p.All
	for pause := p.First; !t.Try(); pause = min(2*pause, p.Last) {
		now := port.Now()
		if over() || now >= until {
			return false, nil
		}
		if err := port.Pause(now + pause); err != nil {
			return false, err
		}
	}
	return true, nil
}

// End gives the turn to the next client.
func (t *Turn) End() { t.taken.Store(false) }
