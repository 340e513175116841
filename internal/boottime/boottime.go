// Package boottime is a clock that goes on while the machine is suspended, and never steps: for leases.
package boottime

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A lease is looked at for each chain, and in Go the kernel's clock that counts suspension (CLOCK_BOOTTIME) is a system call, unlike those of the wall and of the time that
// the machine has run. So the kernel is asked now and then only. In between, its clock is as far ahead of the time that the machine has run as before, unless the machine was
// suspended: then the wall clock is ahead of that, too, by as much. A wall clock that is set has the kernel asked once more than needed.
//
// So a suspension would go unseen only if the wall clock were set back by as much, to within slack, and both came within the fresh time after a question.

const (
	// fresh is how long, of the time that the machine runs, an answer of the kernel is good for.
	fresh = 10 * time.Millisecond
	// slack is by how much the two clocks may seem to differ, which are not read at one instant. A suspension that is shorter goes unseen.
	slack = time.Millisecond
)

// Now returns the time since the machine has started, also that for which it was suspended. Processes of a machine see one clock, which never goes back.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // Linux has it since 2.6.39
	}
	return time.Duration(t.Nano())
}

// Near is Now to within 2 ms, at a tenth of the price: of what it returns, one may be less than one before. Leases have more to spare (coordinator/etcd).
func Near() time.Duration { return machine.near() }

// A clock is that of a machine.
type clock struct {
	run  func() moment
	boot func() time.Duration // asks the kernel
	last atomic.Pointer[answer]
}

// A moment is what the clocks show that cost no system call.
type moment struct {
	ran  time.Duration // while the machine was not suspended
	wall time.Duration
}

// An answer is what the kernel has said just after a moment.
type answer struct {
	moment
	boot time.Duration
}

var begun = time.Now()

var machine = clock{
	run: func() moment {
		now := time.Now()
		return moment{now.Sub(begun), time.Duration(now.UnixNano())}
	},
	boot: Now,
}

func (c *clock) near() time.Duration {
	at := c.run()
	if a := c.last.Load(); a != nil && at.ran-a.ran < fresh && at.follows(a.moment) {
		return a.boot + at.ran - a.ran
	}
	boot := c.boot()
	if after := c.run(); after.ran-at.ran < slack && after.follows(at) {
		c.last.Store(&answer{at, boot})
	}
	return boot
}

// follows reports whether the machine was not suspended between two moments.
func (m moment) follows(before moment) bool {
	jump := m.wall - before.wall - (m.ran - before.ran)
	return -slack < jump && jump < slack
}
