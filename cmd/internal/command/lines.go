package command

import (
	"fmt"
	"io"

	"github.com/declock/declock/cmd/internal/report"
)

// A LineWriter writes text until an error.
type LineWriter struct {
	W   io.Writer
	Err error // the first
}

// Printf writes as fmt.Fprintf does.
func (p *LineWriter) Printf(format string, args ...any) {
	if p.Err == nil {
		_, p.Err = fmt.Fprintf(p.W, format, args...)
	}
}

// NameWidth is the width of the names that Line writes.
const NameWidth = 15

// Line writes a line with a name before its text.
func (p *LineWriter) Line(name, format string, args ...any) {
	p.Printf("  %-*s "+format+"\n", append([]any{NameWidth, name}, args...)...)
}

// Table writes a table that has rows.
func (p *LineWriter) Table(t *report.Table) {
	if p.Err == nil && len(t.Rows) > 0 {
		p.Err = t.Write(p.W)
	}
}
