package check

import (
	"flag"
	"testing"
	"time"
)

var (
	flagExplore = flag.String("explore", "", "explore programs that contain this; all: all of them")
	flagWall    = flag.Duration("wall", 0, "bound of each exploration (default: 2s, and 20s for all)")
)

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
