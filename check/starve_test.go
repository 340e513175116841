package check

import (
	"flag"
	"testing"

	"github.com/declock/declock/fabric"
)

var flagStarve = flag.Int64("starve", 5, "milliseconds of virtual time of the demonstration")

// In the paper's timestamp policies a node of readers keeps the writers of
// others out (design, section 4); in ours it does not, and total throughput is no less.
func TestWritersStarveInThePaper(t *testing.T) {
	list, err := Starve("cx4", 8, 8, fabric.Time(*flagStarve)*fabric.Millisecond, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + StarvationTable(list))
	by := map[string]Starvation{}
	for _, s := range list {
		by[s.Policy] = s
		if s.Violations != 0 {
			t.Errorf("%s: %d violations", s.Policy, s.Violations)
		}
	}
	for _, kind := range []string{"-tf", "-pf"} {
		paper, ours := by["paper"+kind], by["declock"+kind]
		if paper.Writes > 8 {
			t.Errorf("paper%s: %d writes: nobody starves", kind, paper.Writes)
		}
		if ours.Writes < 100 || ours.WriteP99 > fabric.Millisecond {
			t.Errorf("declock%s: %d writes, p99 %d ns", kind, ours.Writes, ours.WriteP99)
		}
	}
}
