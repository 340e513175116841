package app

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/control"
)

// Progress has no rate before it means something.
func TestProgress(t *testing.T) {
	p := control.Progress{Ops: 2_500_000, Reads: 1000, Hits: 912}
	for _, c := range []struct {
		measuring bool
		most      uint64
		since     time.Duration
		p         control.Progress
		want      string
	}{
		{true, 5_000_000, 4 * time.Second, p, "replaying  50%, 2,500,000 operations, 625,000/s, hit ratio 0.912"},
		{true, 0, time.Microsecond, p, "replaying, 2,500,000 operations, hit ratio 0.912"},
		{false, 5, 2 * time.Second, control.Progress{Warmed: 3000}, "filling, 3,000 objects, 1,500/s"},
	} {
		if got := strings.Join(progressParts(c.measuring, c.most, c.since, c.p), ", "); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// The rate of the replay is its own: filling before it does not count.
func TestProgressBeginsAnewWithMeasuring(t *testing.T) {
	b := &bar{line: command.NewLine(io.Discard), began: time.Now().Add(-time.Hour)}
	b.show(false, control.Progress{Warmed: 10})
	if time.Since(b.began) < time.Hour {
		t.Error("the filling has begun anew")
	}
	b.show(true, control.Progress{Ops: 1})
	if time.Since(b.began) >= time.Hour {
		t.Error("the rate counts the filling")
	}
}
