package lock_test

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A client that waits for a memory node to be replaced looks again soon at first, and waits longer by a 50th at most than that takes, or by 10 ms; in the 15 s that it waits at most it looks 2,000 times at most.
func TestAgainAfter(t *testing.T) {
	looks, now := 0, fabric.Time(0)
	for ; now < 15*fabric.Second; looks++ {
		pause := lock.AgainAfter(now)
		if pause < 100*fabric.Microsecond || pause > max(now/50, 200*fabric.Microsecond) || pause > 10*fabric.Millisecond {
			t.Fatalf("after %v: a pause of %v", now, pause)
		}
		now += pause
	}
	if looks > 2000 {
		t.Errorf("%d looks", looks)
	}
}
