package app

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/declock/declock/cmd/internal/control"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A bar shows progress on a terminal, and nothing elsewhere.
type bar struct {
	w   io.Writer // nil: not a terminal
	max int64     // operations; -1: not known

	mu      sync.Mutex
	bar     *progressbar.ProgressBar
	warming bool
}

func newBar(w io.Writer, o *replayOptions) *bar {
	b := &bar{max: int64(o.ops.n)}
	if o.trace != "" {
		b.max = -1
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		b.w = w
		b.begin("filling", -1)
		b.warming = true
	}
	return b
}

func (b *bar) begin(what string, most int64) {
	b.bar = progressbar.NewOptions64(most, progressbar.OptionSetWriter(b.w), progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("op"),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))
}

// tell shows how far the replay is.
func (b *bar) tell(measuring bool, p control.Progress) {
	if b.w == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if measuring && b.warming {
		_ = b.bar.Finish()
		b.warming = false
		b.begin("replaying", b.max)
	}
	n := p.Warmed
	if measuring {
		n = p.Ops
		ratio := 0.0
		if p.Reads > 0 {
			ratio = float64(p.Hits) / float64(p.Reads)
		}
		b.bar.Describe(fmt.Sprintf("replaying, hit ratio %.3f, errors %d", ratio, p.Errors))
	}
	_ = b.bar.Set64(int64(n)) // a terminal that has gone: the result says it
}

func (b *bar) finish() {
	if b.w == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.bar.Finish()
	_ = b.bar.Clear()
}
