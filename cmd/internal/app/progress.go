package app

import (
	"fmt"
	"io"
	"time"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/units"
)

// A bar shows the progress of a replay.
type bar struct {
	line      *command.Line
	max       uint64 // operations; 0: not known
	measuring bool
	began     time.Time // the measuring, or the filling before it
}

func newBar(w io.Writer, o *replayOptions) *bar {
	b := &bar{line: command.NewLine(w), began: time.Now()}
	if o.trace == "" {
		b.max = o.do.Requests
	}
	return b
}

// show shows how far the replay is.
func (b *bar) show(measuring bool, p control.Progress) {
	anew := measuring && !b.measuring
	if anew {
		b.measuring, b.began = true, time.Now()
	}
	b.line.Show(anew, progressParts(measuring, b.max, time.Since(b.began), p)...)
}

// settled is after what time a rate means something.
const settled = time.Second

// progressParts returns the progress, the most important first.
func progressParts(measuring bool, most uint64, since time.Duration, p control.Progress) []string {
	what, n, unit := "filling", p.Warmed, "objects"
	if measuring {
		what, n, unit = "replaying", p.Ops, "operations"
	}
	if measuring && most > 0 {
		what = fmt.Sprintf("%s %3d%%", what, 100*min(n, most)/most)
	}
	parts := []string{what, fmt.Sprintf("%s %s", units.Count(n), unit)}
	if since >= settled {
		parts = append(parts, units.Count(uint64(float64(n)/since.Seconds()))+"/s")
	}
	if measuring && p.Errors > 0 {
		parts = append(parts, units.Count(p.Errors)+" errors")
	}
	if measuring && p.Reads > 0 {
		parts = append(parts, fmt.Sprintf("hit ratio %.3f", float64(p.Hits)/float64(p.Reads)))
	}
	return parts
}
