package shm

import (
	"time"

	"github.com/declock/declock/fabric"
	"golang.org/x/sys/unix"
)

// A clock is the cluster's: CLOCK_MONOTONIC, which all processes of a machine
// share and which never steps, plus what made it Unix time when the cluster was
// created. Go reads CLOCK_MONOTONIC too, but tells only differences: start is a
// moment of which both are known.
type clock struct {
	start time.Time
	base  fabric.Time // the cluster's time at start
}

func newClock(offset int64) (c clock, err error) {
	// The two are read one after the other, and the process may be stopped in
	// between: the closest of many is right to some 50 ns.
	best := time.Duration(1 << 62)
	origin := time.Now()
	for range 64 {
		before := time.Since(origin)
		mono, err := monotonic()
		if err != nil {
			return c, err
		}
		if took := time.Since(origin) - before; took < best {
			best = took
			c.start = origin
			c.base = fabric.Time(offset + mono - int64(before+took/2))
		}
	}
	return c, nil
}

func (c *clock) now() fabric.Time { return c.base + fabric.Time(time.Since(c.start)) }

func monotonic() (int64, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano(), err
}

// clockOffset returns Unix time minus CLOCK_MONOTONIC.
func clockOffset() (int64, error) {
	mono, err := monotonic()
	return time.Now().UnixNano() - mono, err
}
