package check

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/declock/declock/fabric/sim"
)

var (
	flagExplore = flag.String("explore", "", "explore programs that contain this; all: all of them")
	flagWall    = flag.Duration("wall", 0, "bound of each exploration (default: 2s, and 20s for all)")
)

// Of these, all schedules are tried, however long it takes: exploration that stops early, or states that do not merge any
// more, show here.
func TestExploresAll(t *testing.T) {
	const maxStates = 3000
	for _, name := range []string{
		"cql [1x 2x] x1, 4 entries, 27 version bits", "cql [1s 2x] x2, 2 entries, 27 version bits",
		"cql [1s 2x] x1, 4 entries, 27 version bits, one cancellation", "cql [1s 2x] x1, 4 entries, 27 version bits, one crash",
		"declock-tf [1s 1x] x1, 4 entries, 27 version bits", "declock-pf [1s 1x] x1, 4 entries, 27 version bits",
		"declock [1s 1x] x1, 4 entries, 27 version bits", "declock [1s 2x] x1, 4 entries, 27 version bits, one cancellation",
		"cas [1x 2x] x1, 4 entries, 27 version bits", "sherman [1x 2x] x1, 4 entries, 27 version bits", "shift [1x 2x] x1, 4 entries, 27 version bits",
	} {
		x, err := ParseExploration(name)
		if err != nil {
			t.Fatal(err)
		}
		if r := Explore(x, Bounds{States: maxStates}); !r.Exhaustive {
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
		"declock [1s 1x] x1, 4 entries, 27 version bits", "declock [1s 2x] x1, 4 entries, 27 version bits, one crash", "mcs [1x 2x] x1, 4 entries, 27 version bits",
	} {
		x, err := ParseExploration(name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := x.config()
		sleeping := sim.Explore(cfg, x.build)
		cfg.Sleep = false
		r := sim.Explore(cfg, x.build)
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

// The small programs hold under every schedule that fits into some seconds; "declock sim explore" takes all, and the time they need.
func TestExplore(t *testing.T) {
	list, each, total := Explorations(true, ""), 2*time.Second, 20*time.Second
	if *flagExplore != "" {
		match := *flagExplore
		if match == "all" {
			match = ""
		}
		list, total = Explorations(false, match), 24*time.Hour
	}
	if *flagWall != 0 {
		each = *flagWall
	}
	begin := time.Now()
	var out []Explored
	for _, x := range list {
		if time.Since(begin) > total {
			t.Logf("%d of %d programs in %v", len(out), len(list), total)
			break
		}
		e := Explored{x, Explore(x, Bounds{Wall: each})}
		if e.Report.Failure != nil {
			t.Error(&e)
		}
		out = append(out, e)
	}
	t.Log("\n" + ExploreTable(out))
}
