package fabrictest

import "testing"

// SkipInVirtualTime skips a test that runs in virtual time where the race detector is on: such a test has one thread, and nothing for
// it to find.
func SkipInVirtualTime(t testing.TB) {
	t.Helper()
	if RaceEnabled {
		t.Skip("one thread, in virtual time: nothing for the race detector")
	}
}
