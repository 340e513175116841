package lab

import (
	"io"
	"os"
	"time"

	"github.com/declock/declock/lab/bench"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// steps shows how far a bench is, on a terminal, and nothing elsewhere.
type steps struct {
	w   io.Writer // nil: not a terminal
	bar *progressbar.ProgressBar
}

func newSteps(w io.Writer) *steps {
	s := &steps{}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.w = w
		s.bar = progressbar.NewOptions64(1000, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription("measuring"),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))
	}
	return s
}

// tell shows progress in thousandths of the work, which is not the number of measurements: some take longer.
func (s *steps) tell(p bench.Progress) {
	if s.w == nil {
		return
	}
	s.bar.Describe(p.Experiment)
	_ = s.bar.Set64(int64(1000 * p.Cost / max(p.TotalCost, 1))) // the terminal may be gone
}

func (s *steps) finish() {
	if s.w != nil {
		_ = s.bar.Finish()
		_ = s.bar.Clear()
	}
}
