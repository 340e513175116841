package peer

import (
	"time"

	"github.com/declock/declock/fabric"
)

// A Clock is a node's: Unix time that does not step.
type Clock struct {
	start time.Time
	base  fabric.Time // Unix time at start
}

// NewClock returns a clock that shows the present time.
func NewClock() Clock {
	now := time.Now()
	return Clock{now, fabric.Time(now.UnixNano())}
}

// Now is fabric.Node.Now.
func (c Clock) Now() fabric.Time { return c.base + fabric.Time(time.Since(c.start)) }
