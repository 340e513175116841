package check

import (
	"flag"
	"testing"
	"time"
)

var (
	flagExplore = flag.String("explore", "", "explore programs that contain this; all: all of them")
	flagWall    = flag.Duration("wall", 3*time.Second, "bound of each exploration")
)

func TestExplore(t *testing.T) {
	list := Explorations(true, "")
	if *flagExplore != "" {
		match := *flagExplore
		if match == "all" {
			match = ""
		}
		list = Explorations(false, match)
	}
	out := ExploreAll(list, Bounds{Wall: *flagWall}, func(e *Explored) {
		if f := e.Report.Failure; f != nil {
			t.Errorf("%v\n%v", e.Exploration, f)
		}
	})
	t.Log("\n" + ExploreTable(out))
}
