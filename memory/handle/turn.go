package handle

import (
	"sync/atomic"

	"github.com/declock/declock/fabric"
)

// A turn is what one client of a compute node has at a time: to open a store or tree anew, say. The zero value is free.
type turn struct{ taken atomic.Bool }

// How long a client waits for its turn in all, and how often it looks.
const (
	turnWaitNs = fabric.Second
	minTurnNs  = 10 * fabric.Microsecond
	maxTurnNs  = fabric.Millisecond
)

// try takes the turn, if no other client has it.
func (t *turn) try() bool { return t.taken.CompareAndSwap(false, true) }

// take waits for the turn, for a second at most. The error is that of the Port, whose user has no time left.
func (t *turn) take(port fabric.Port) (bool, error) {
	until, pause := port.Now()+turnWaitNs, minTurnNs
	for !t.try() {
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

// end gives the turn to the next client.
func (t *turn) end() { t.taken.Store(false) }
