package check

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
)

var flagVariants = flag.Int("variants", 100, "TestVariants: scenarios around each one")

// What one plan has shown, none near it shows: variants of the scenarios in which a node joins while another's lease runs out.
func TestVariants(t *testing.T) {
	tried := 0
	for _, l := range lines(t, "regressions.txt") {
		if !strings.Contains(l, "joins=") || !strings.Contains(l, "fence") {
			continue
		}
		s, err := ParseScenario(l)
		if err != nil {
			t.Fatal(err)
		}
		tried++
		for number := range uint64(*flagVariants) {
			v := variant(s, number)
			_, f, err := Judge(v, false)
			if err != nil {
				t.Fatalf("variant %d: %v: %s", number, err, v)
			}
			if f != nil {
				t.Errorf("variant %d of %s: %v", number, s, f)
			}
		}
	}
	if tried < 2 {
		t.Errorf("%d scenarios in which a node joins and another is fenced", tried)
	}
}

// variant returns a scenario near another one: the same faults of the same nodes, at times somewhat earlier or later, under another seed
// and policy, with other delays and shares. A bug that one plan has shown by chance shows in some of a thousand of them. The
// same number gives the same variant; 0 is the scenario itself.
func variant(s Scenario, number uint64) Scenario {
	if number == 0 {
		return s
	}
	d := &drawer{sim.NewRand(number, streamVariant)}
	s.Plan = slices.Clone(s.Plan)
	s.Seed = s.Seed + number
	near := func(t fabric.Time) fabric.Time { return t - t/4 + fabric.Time(d.Uint64n(uint64(t/2+1))) }
	if d.percent(50) {
		s.Seed -= number // the same but for what follows
	}
	if d.percent(50) {
		s.Policy = pick(d, append(hier.PolicyNames(), "declock-tf", "declock-pf", "local-bound:1")...)
	}
	if d.percent(50) {
		s.Clients = d.between(1, 2)
	}
	if s.Keys == 0 && d.percent(30) {
		s.Locks, s.Rounds, s.Reads = d.between(1, 2), d.between(2, 6), pick(d, 0, 30, 50, 80)
	}
	if s.NewsNs > 0 && d.percent(30) {
		s.NewsNs = near(s.NewsNs)
	}
	if s.JoinNs > 0 {
		s.JoinNs = near(s.JoinNs)
	}
	for i := range s.Plan {
		f := &s.Plan[i]
		if d.percent(50) {
			continue
		}
		length := f.Until - f.At
		f.At = near(f.At)
		if f.Until != 0 {
			f.Until = f.At + max(1, near(length))
		}
	}
	s.room()
	return s
}
