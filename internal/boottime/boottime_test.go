package boottime

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A machine is suspended, its wall clock is set, it stands still between two looks at its clocks: what Near returns is what the kernel says, and the kernel is asked rarely.
func TestSuspension(t *testing.T) {
	var ran, asleep, set, stop time.Duration
	asked := 0
	c := clock{
		run: func() moment { return moment{ran, ran + asleep + set} },
		boot: func() time.Duration {
			asked++
			ran += stop
			stop = 0
			return ran + asleep
		},
	}
	look := func(what string, times int) {
		t.Helper()
		asked = 0
		for range 100 {
			ran += 50 * time.Microsecond
			if now, want := c.near(), ran+asleep; now-want > slack || want-now > slack {
				t.Fatalf("%s: Near is %v, the kernel says %v", what, now, want)
			}
		}
		if asked > times {
			t.Errorf("%s: the kernel was asked %d times in 5 ms", what, asked)
		}
	}
	look("at the start", 1)
	for _, d := range []time.Duration{time.Hour, time.Second, 2 * time.Millisecond} {
		asleep += d
		look("after a suspension", 2)
		set -= d // as late as this, nothing is hidden by it
		look("the wall clock is set back", 2)
	}
	for range 20 { // each too short to be seen, but not together
		asleep += slack / 4
		look("after a short suspension", 2)
	}
	ran += fresh
	stop = fresh / 2
	asked = 0
	if c.near(); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	look("after a stop while the kernel answered", 1)
}

// Near is near Now, and both count from the start of the machine.
func TestNear(t *testing.T) {
	for range 1000 {
		before, near, after := Now(), Near(), Now()
		if near < before-2*slack || near > after+2*slack {
			t.Fatalf("%v, and the kernel says %v to %v", near, before, after)
		}
	}
	var run unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &run); err != nil || Now() < time.Duration(run.Nano()) {
		t.Errorf("%v is less than the machine has run", Now())
	}
}

func BenchmarkNear(b *testing.B) {
	for b.Loop() {
		Near()
	}
}
