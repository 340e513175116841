package check

import (
	"testing"

	"github.com/declock/declock/fabric/sim"
)

// runSwitched runs the seeds of a class, none of which may fail.
func runSwitched(t *testing.T, class Class, grants uint64) *Summary {
	t.Helper()
	u := seedsOf(t, class, 100)
	if u.Grants < grants {
		t.Errorf("%d operations: that is too little", u.Grants)
	}
	return u
}

// FissLock keeps the promises of a lock whatever its switch does to packets.
func TestSwitched(t *testing.T) { runSwitched(t, Switched, 3000) }

// It does so while compute nodes and the switch crash.
func TestSwitchedCrash(t *testing.T) {
	if u := runSwitched(t, SwitchedCrash, 3000); u.Effects[sim.Kills] < 50 {
		t.Errorf("%v", &u.Effects)
	}
}

// It does so while compute nodes leave in order, and join.
func TestSwitchedLeave(t *testing.T) { runSwitched(t, SwitchedLeave, 3000) }

// It does so whatever becomes of messages between its machines, too.
func TestSwitchedLoss(t *testing.T) { runSwitched(t, SwitchedLoss, 3000) }
