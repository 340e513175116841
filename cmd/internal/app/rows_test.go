package app

import (
	"strings"
	"testing"

	"github.com/declock/declock/traces/replay"
)

// The first table says why reads missed, and not more than there is to say.
func TestHitRatioIsExplained(t *testing.T) {
	rows := []replay.Row{{Op: "get", Count: 900, Misses: 300}, {Op: "gets", Count: 100}, {Op: "delete", Count: 70, Misses: 20, Errors: 1}, {Op: "set", Count: 9}}
	for _, c := range []struct {
		total    Total
		rows     []replay.Row
		has, not string
	}{
		{Total{Summary: replay.Summary{HitRatio: 0.7, Counts: replay.Counts{Warmed: 5}}}, rows, "0.700: 300 of 1,000 reads missed\n  misses because  49 objects were deleted by the trace;\n                  nothing stores", "filled before;"},
		{Total{Summary: replay.Summary{HitRatio: 0.7}, Fill: true, Evictions: 1234}, rows, "not filled before;\n                  49 objects were deleted by the trace;\n                  1,234 were evicted: memory was full\n", "--fill"},
		{Total{Summary: replay.Summary{HitRatio: 1}}, []replay.Row{{Op: "get", Count: 9}}, "1.000: 0 of 9 reads missed\n", "because"},
		{Total{}, []replay.Row{{Op: "set", Count: 9}}, "there were no reads", "because"},
	} {
		var b strings.Builder
		if WriteReplay(&b, "title", &c.total, c.rows); !strings.Contains(b.String(), c.has) || strings.Contains(b.String(), c.not) {
			t.Errorf("%s", b.String())
		}
	}
}
