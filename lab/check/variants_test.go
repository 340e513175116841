package check

import (
	"flag"
	"strings"
	"testing"
)

var flagVariants = flag.Int("variants", 200, "TestVariants: scenarios around each one")

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
			v := Variant(s, number)
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
