package hier

import (
	"testing"

	"github.com/declock/declock/fabric"
)

// Locks that have been reset since a death are not suspected, but for another death.
func TestSuspicionOfAnotherDeath(t *testing.T) {
	var s suspicion
	l, other := fabric.At(0, 64), fabric.At(0, 128)
	want := func(now fabric.Time, l fabric.Addr, want bool) {
		t.Helper()
		if got := s.suspects(l, now); got != want {
			t.Errorf("at %d: %v suspected: %v", now, l, got)
		}
	}
	want(1, l, false)
	s.suspect(1)
	s.clear(l, 2)
	want(3, l, false)
	want(3, other, true)
	s.suspect(4)
	want(5, l, true)
	want(4+suspectNs, l, false)
}

// After the restart of a memory node, locks may count holders that do not know of them any more.
func TestSuspicionAfterARestart(t *testing.T) {
	table := NewTable(Policy{})
	l := fabric.At(0, 64)
	table.lifeOf(0, 1, 1)
	if table.suspects(l, 2) {
		t.Error("a lock is suspected before anything has happened")
	}
	table.lifeOf(0, 2, 3)
	if !table.suspects(l, 4) {
		t.Error("no lock is suspected after a restart")
	}
}
