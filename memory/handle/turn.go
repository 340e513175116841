package handle

import (
	"sync/atomic"

	"github.com/declock/declock/fabric"
)

// A Turn is what one client of a compute node has at a time: to open a store or tree anew, say. The zero value is free.
type Turn struct{ taken atomic.Bool }

// How long a client waits for its turn in all, and how often it looks.
const (
	turnWaitNs = fabric.Second
	minTurnNs  = 10 * fabric.Microsecond
	maxTurnNs  = fabric.Millisecond
)

// Try takes the turn, if no other client has it.
func (t *Turn) Try() bool { return t.taken.CompareAndSwap(false, true) }

// Take waits for the turn, for a second at most. The error is that of the Port, whose user has no time left.
func (t *Turn) Take(port fabric.Port) (bool, error) {
	until, pause := port.Now()+turnWaitNs, minTurnNs
	for !t.Try() {
		now := port.Now()
		if now >= until {
			return false, nil
		}
		if err := port.Pause(now + pause); err != nil {
			return false, err
		}
		pause = min(2*pause, maxTurnNs)
	}
	return true, nil
}

// End gives the turn to the next client.
func (t *Turn) End() { t.taken.Store(false) }
