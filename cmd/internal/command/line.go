package command

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// A Line is a line of a terminal that is written anew, to show how far work is; elsewhere it is nothing. One goroutine uses it.
type Line struct {
	w     io.Writer  // nil: not a terminal
	width func() int // of the terminal, in columns
	shown time.Time
}

// showEvery is how often the line is written anew.
const showEvery = 100 * time.Millisecond

// NewLine returns a line of what w is.
func NewLine(w io.Writer) *Line {
	l := new(Line)
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		l.w = w
		l.width = func() int {
			n, _, err := term.GetSize(int(f.Fd()))
			if err != nil || n <= 0 {
				n = 80
			}
			return n
		}
	}
	return l
}

// Show shows parts, the most important first: those that fit. It does so now, or if the line has been there for a while.
func (l *Line) Show(now bool, parts ...string) {
	if l.w == nil || !now && time.Since(l.shown) < showEvery {
		return
	}
	l.shown = time.Now()
	// Behind the text the rest of the line is cleared. A terminal that has gone is no error of the work.
	fmt.Fprintf(l.w, "\r%s\x1b[K", fit(l.width()-1, parts))
}

// Clear ends the line.
func (l *Line) Clear() {
	if l.w != nil {
		fmt.Fprint(l.w, "\r\x1b[K")
	}
}

// fit returns the first parts, in so many columns at most.
func fit(columns int, parts []string) (line string) {
	for _, part := range parts {
		if line != "" {
			part = ", " + part
		}
		if len(line)+len(part) > columns {
			break
		}
		line += part
	}
	return line
}
