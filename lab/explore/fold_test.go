package explore

import (
	"fmt"
	"strings"
	"testing"
)

// A livelock is told by one round of it.
func TestFold(t *testing.T) {
	var trace []string
	for i := range 30 {
		trace = append(trace, fmt.Sprintf("step %s", strings.Repeat("a", i)))
	}
	short := Fold(trace)
	if len(short) != 30 {
		t.Errorf("of 30 lines %d are left", len(short))
	}
	for i := range 5000 {
		trace = append(trace, fmt.Sprintf("cn1 reads at %d", 1000+i), fmt.Sprintf("cn2 reads at %d", 1000+i))
	}
	folded := Fold(trace)
	if len(folded) != 33 || folded[32] != "... 9998 more, the last 2 lines again and again" {
		t.Errorf("%d lines are left, the last %q", len(folded), folded[len(folded)-1])
	}
	if again := strings.Join(folded[30:32], ", "); again != "cn1 reads at 1000, cn2 reads at 1000" {
		t.Errorf("the round is %q", again)
	}
	trace = nil
	for i := range 1000 {
		trace = append(trace, strings.Repeat("b", i))
	}
	if folded = Fold(trace); len(folded) != maxTraced+1 || folded[maxTraced/2] != "... 800 more" {
		t.Errorf("of 1000 lines that differ %d are left", len(folded))
	}
}
