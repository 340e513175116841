package report

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
)

// A Report is the one object that --json prints.
type Report struct {
	Experiment string         `json:"experiment"`
	Fabric     string         `json:"fabric"`
	Seed       uint64         `json:"seed"`
	Commit     string         `json:"commit"`
	Config     map[string]any `json:"config"`
	Rows       []any          `json:"rows"`
	// Claims are what experiments were judged by; other commands have none.
	Claims any `json:"claims,omitempty"`
}

// Rows returns rows of one type as those of a Report.
func Rows[T any](list []T) (rows []any) {
	for _, row := range list {
		rows = append(rows, row)
	}
	return rows
}

// WriteJSON writes a report as one indented object.
func (r *Report) WriteJSON(w io.Writer) error {
	if r.Commit == "" {
		r.Commit = Commit()
	}
	if r.Config == nil {
		r.Config = map[string]any{}
	}
	if r.Rows == nil {
		r.Rows = []any{}
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// Commit returns the revision that this program was built from, with "+" if the
// tree had changes; "unknown" if the build did not record it ("go run" does not).
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return noCommit
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+"
		}
	}
	switch {
	case revision != "":
		return revision + modified
	case strings.HasPrefix(info.Main.Version, "v"): // go install MODULE@VERSION
		return info.Main.Version
	}
	return noCommit
}

// noCommit is the commit of what was built without a checkout, or with -buildvcs=false.
const noCommit = "unknown: built without version control information"

// A Table is columns of text. Cells that look like numbers go to the right.
type Table struct {
	Head []string
	Rows [][]string
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Write writes a table that has rows, indented by two blanks.
func (t *Table) Write(w io.Writer) {
	if len(t.Rows) == 0 {
		return
	}
	width := make([]int, len(t.Head))
	right := make([]bool, len(t.Head))
	for i := range t.Head {
		width[i] = len([]rune(t.Head[i]))
		right[i] = true
		for _, r := range t.Rows {
			width[i] = max(width[i], len([]rune(r[i])))
			right[i] = right[i] && isNumber(r[i])
		}
	}
	var b strings.Builder
	for _, r := range append([][]string{t.Head}, t.Rows...) {
		var line strings.Builder
		for i, cell := range r {
			pad := strings.Repeat(" ", width[i]-len([]rune(cell)))
			line.WriteString("  ")
			if right[i] {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, _ = io.WriteString(w, b.String())
}

func isNumber(s string) bool {
	return s == "" || s == "-" || strings.Trim(s, "0123456789.,-+%") == ""
}
