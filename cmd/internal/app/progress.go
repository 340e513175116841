package app

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/units"
	"golang.org/x/term"
)

// A bar shows the progress of a replay in one line of a terminal, and nothing elsewhere.
type bar struct {
	w     io.Writer  // nil: not a terminal
	width func() int // of the terminal, in columns
	max   uint64     // operations; 0: not known

	mu        sync.Mutex
	measuring bool
	began     time.Time // the measuring, or the filling before it
	shown     time.Time
}

// showEvery is how often the line is written anew.
const showEvery = 100 * time.Millisecond

func newBar(w io.Writer, o *replayOptions) *bar {
	b := &bar{began: time.Now()}
	if o.trace == "" {
		b.max = o.do.Requests
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		b.w = w
		b.width = func() int {
			n, _, err := term.GetSize(int(f.Fd()))
			if err != nil || n <= 0 {
				n = 80
			}
			return n
		}
	}
	return b
}

// show shows how far the replay is.
func (b *bar) show(measuring bool, p control.Progress) {
	if b.w == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if measuring && !b.measuring {
		b.measuring, b.began, b.shown = true, now, time.Time{}
	}
	if now.Sub(b.shown) < showEvery {
		return
	}
	b.shown = now
	// Behind the text the rest of the line is cleared. A terminal that has gone is no error of the replay.
	fmt.Fprintf(b.w, "\r%s\x1b[K", progressLine(b.width()-1, measuring, b.max, now.Sub(b.began), p))
}

func (b *bar) finish() {
	if b.w == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprint(b.w, "\r\x1b[K")
}

// settled is after what time a rate means something.
const settled = time.Second

// progressLine returns the progress in so many columns at most: what does not fit is left out, the least important first.
func progressLine(columns int, measuring bool, most uint64, since time.Duration, p control.Progress) string {
	what, n, unit := "filling", p.Warmed, "objects"
	if measuring {
		what, n, unit = "replaying", p.Ops, "operations"
	}
	var parts []string
	if measuring && most > 0 {
		what = fmt.Sprintf("%s %3d%%", what, 100*min(n, most)/most)
	}
	parts = append(parts, what, fmt.Sprintf("%s %s", units.Count(n), unit))
	if since >= settled {
		parts = append(parts, units.Count(uint64(float64(n)/since.Seconds()))+"/s")
	}
	if measuring && p.Errors > 0 {
		parts = append(parts, units.Count(p.Errors)+" errors")
	}
	if measuring && p.Reads > 0 {
		parts = append(parts, fmt.Sprintf("hit ratio %.3f", float64(p.Hits)/float64(p.Reads)))
	}
	line := ""
	for _, part := range parts {
		if line != "" {
			part = ", " + part
		}
		if len(line)+len(part) > columns {
			break
		}
		line += part
	}
	return strings.TrimSpace(line)
}
