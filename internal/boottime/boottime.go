// Package boottime is a clock that goes on while the machine is suspended, and never steps: for leases.
package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since the machine has started, also that for which it was suspended.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // Linux has it since 2.6.39
	}
	return time.Duration(t.Nano())
}
