package check

import (
	"slices"
	"testing"

	"github.com/declock/declock/hier"
)

// Transitions that only tests of package hier take (the story "cancelled", TestTrapEarlyGrantThenReset, TestTakenOverTicketFreesItsID): in the
// simulator no agent acts between a client's Abandon and its next step, and a restart that finds a node with an abandoned ticket and a new client
// before the agent looks is seldom. "early --arrive--> early", a grant that comes twice, is taken by none.
var untaken = []string{
	"waiting --arrive--> early", "early --arrive--> early", "early --quit--> abandoned", "early --fail--> acquiring", "early --freeze--> early",
	"abandoned --take over--> acquiring",
}

// Runs with faults, and exploration, take the transitions of a local lock's state machine, all but those of untaken. One that is not
// legal panics (hier.Table.OnTransition has what is taken).
func TestTransitionsTaken(t *testing.T) {
	taken := map[hier.Transition]int{}
	onTransition = func(tr hier.Transition) { taken[tr]++ }
	defer func() { onTransition = nil }()

	classes := []Class{Cancel, Break, Crash, Zombie, Restart, Lost, Chaos, Resets, Wraps, Pause}
	for seed := range uint64(200) {
		r, err := Run(Draw(seed, classes...))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range r.Violations {
			t.Errorf("seed %d: %v", seed, v)
		}
	}
	for _, name := range []string{
		"cql [1s 2x] x1, 4 entries, 27 version bits, one cancellation", "declock+no-train [1x 1x 2x] x1, 4 entries, 27 version bits, one cancellation",
		"declock+no-train [1x 2x] x1, 4 entries, 27 version bits, one restart, one crash",
	} {
		x, err := ParseExploration(name)
		if err != nil {
			t.Fatal(err)
		}
		if r := Explore(x, Bounds{States: 3000}); r.Failure != nil {
			t.Errorf("%s: %v", name, r)
		}
	}
	legal := hier.Transitions()
	for _, tr := range legal {
		t.Logf("%8d times %v", taken[tr], tr)
		if never := taken[tr] == 0; never != slices.Contains(untaken, tr.String()) {
			t.Errorf("%v: taken %d times", tr, taken[tr])
		}
		delete(taken, tr)
	}
	for tr := range taken {
		t.Errorf("%v is not legal", tr)
	}
}
