package app

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/cmd/internal/control"
)

// The line of progress never wraps, and has no rate before it means something.
func TestProgressLine(t *testing.T) {
	big := control.Progress{Warmed: math.MaxUint64, Ops: math.MaxUint64, Reads: 2, Hits: 1, Errors: math.MaxUint64}
	for columns := -1; columns < 120; columns++ {
		for _, measuring := range []bool{false, true} {
			if line := progressLine(columns, measuring, 7, time.Hour, big); len(line) > max(columns, 0) {
				t.Errorf("%d columns: %q", columns, line)
			}
		}
	}
	p := control.Progress{Ops: 2_500_000, Reads: 1000, Hits: 912}
	if got, want := progressLine(79, true, 5_000_000, 4*time.Second, p), "replaying  50%, 2,500,000 operations, 625,000/s, hit ratio 0.912"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := progressLine(79, true, 0, time.Microsecond, p), "replaying, 2,500,000 operations, hit ratio 0.912"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := progressLine(79, false, 5, 2*time.Second, control.Progress{Warmed: 3000}), "filling, 3,000 objects, 1,500/s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The rate of the replay is its own: filling before it does not count.
func TestProgressBeginsAnewWithMeasuring(t *testing.T) {
	var out bytes.Buffer
	b := &bar{w: &out, width: func() int { return 80 }, max: 100, began: time.Now().Add(-time.Hour)}
	b.show(false, control.Progress{Warmed: 10})
	b.show(true, control.Progress{Ops: 1})
	b.show(true, control.Progress{Ops: 2}) // too soon to be shown
	b.finish()
	if got := out.String(); strings.Count(got, "\r") != 3 || strings.Contains(got, "operations, ") || !strings.Contains(got, "replaying   1%") {
		t.Errorf("%q", got)
	}
}
