package check

import (
	"flag"
	"testing"

	"github.com/declock/declock/fabric"
)

var flagStarve = flag.Int64("starve", 6, "milliseconds of virtual time of the demonstration")

// In the paper's timestamp policies a node of readers keeps the writers of others out (design,
// section 4), and the readers behind them. In ours it does not: the writers' p99 is below 1 ms, and where all readers are busy the
// total throughput is no less than under the paper's policy. Where one node alone is, it is a little less: the
// writes have a price, and the readers of the other nodes come in only between two tenures of the busy one.
func TestWritersStarveInThePaper(t *testing.T) {
	list, err := Starve(StarveOptions{NIC: "cx4", Nodes: 8, Clients: 8, SpanNs: fabric.Time(*flagStarve) * fabric.Millisecond, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + StarvationTable(list))
	type key struct{ load, policy string }
	by := map[key]Starvation{}
	for _, s := range list {
		by[key{s.Load, s.Policy}] = s
		if s.Violations != 0 {
			t.Errorf("%s: %d violations", s.Policy, s.Violations)
		}
	}
	for _, l := range loads {
		for ours, theirs := range map[string]string{"declock-tf": "paper-tf", "declock-pf": "paper-pf", "declock": "paper-pf"} {
			a, b := by[key{l.name, ours}], by[key{l.name, theirs}]
			if b.Writes > 8 || b.ShutOut == 0 {
				t.Errorf("%s, %s: %d writes, %d readers shut out: nobody starves", l.name, theirs, b.Writes, b.ShutOut)
			}
			if a.Writes < 30 || a.WriteP99 >= fabric.Millisecond || a.ShutOut > 0 {
				t.Errorf("%s, %s: %d writes, p99 %d ns, %d readers shut out", l.name, ours, a.Writes, a.WriteP99, a.ShutOut)
			}
			least := b.Mops
			if l.busy != 0 {
				least *= 0.9
			}
			if a.Mops < least {
				t.Errorf("%s: %s has %.2f Mops, %s %.2f", l.name, ours, a.Mops, theirs, b.Mops)
			}
		}
	}
}
