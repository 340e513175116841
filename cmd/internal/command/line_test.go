package command

import (
	"bytes"
	"strings"
	"testing"
)

// The line never wraps, is not written too often, and leaves nothing behind.
func TestLine(t *testing.T) {
	parts := []string{"replaying  50%", "2,500,000 operations", "625,000/s"}
	for columns := -1; columns < 60; columns++ {
		if line := fit(columns, parts); len(line) > max(columns, 0) {
			t.Errorf("%d columns: %q", columns, line)
		}
	}
	if got, want := fit(50, parts), "replaying  50%, 2,500,000 operations, 625,000/s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var out bytes.Buffer
	l := &Line{w: &out, width: func() int { return 80 }}
	l.Show(false, "one")
	l.Show(false, "two")
	l.Show(true, "three")
	l.Clear()
	if got := out.String(); strings.Count(got, "\r") != 3 || strings.Contains(got, "two") || !strings.Contains(got, "three") || !strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("%q", got)
	}
	NewLine(&out).Show(true, "not a terminal")
	if strings.Contains(out.String(), "terminal") {
		t.Errorf("%q", out.String())
	}
}
