package check

import (
	"slices"
	"testing"

	"github.com/declock/declock/lab/explore"
)

// Every small program holds under every schedule: exploration that stops early, or states that do not merge any
// more, show here, too. "declock-lab sim explore" takes all programs, and the time they need.
func TestExploresAll(t *testing.T) {
	const maxStates = 8000
	list := Explorations(true, "")
	if testing.Short() {
		list = slices.DeleteFunc(list, func(x Exploration) bool { return len(x.Clients) > len("1s 2s") })
	}
	for _, x := range list {
		r := Explore(x, Bounds{States: maxStates})
		if e := (Explored{x, r}); r.Failure != nil {
			t.Error(&e)
		} else if !r.Exhaustive {
			t.Errorf("%v: %v", x, r)
		}
	}
}

// Sleep sets leave out executions, and no end.
func TestSleepReachesTheSameEnds(t *testing.T) {
	all, some := 0, 0
	for _, name := range []string{
		"cql [1s 2x] x2, 2 entries, 27 version bits", "cql [1s 1x 2x] x1, 4 entries, 27 version bits", "cql [1s 2s 3x] x1, 4 entries, 27 version bits",
		"cql [1s 2x] x1, 4 entries, 27 version bits, one cancellation", "cql [1x 2s] x1, 4 entries, 27 version bits, one crash",
		"declock [1s 1x] x1, 4 entries, 27 version bits", "declock [1s 2x] x1, 4 entries, 27 version bits, one crash", "cql [1x 2s] x1, 4 entries, 27 version bits, one crash, news one by one", "mcs [1x 2x] x1, 4 entries, 27 version bits",
	} {
		x, err := ParseExploration(name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := x.config()
		sleeping := explore.Explore(cfg, x.build)
		cfg.Sleep = false
		r := explore.Explore(cfg, x.build)
		if !r.Exhaustive || !sleeping.Exhaustive || !slices.Equal(r.Ends, sleeping.Ends) {
			t.Errorf("%v: %v; without sleep sets %v", x, sleeping, r)
		}
		all += r.Schedules + r.Pruned
		some += sleeping.Schedules + sleeping.Pruned
	}
	if t.Logf("%d executions, %d without sleep sets", some, all); some >= all {
		t.Error("nothing sleeps")
	}
}
