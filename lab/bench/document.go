package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// ModelNote says what figures of the simulator are worth.
const ModelNote = "fitted to the paper's figures, not measured: ratios between locks say something, absolute values do not"

// A Document is a run of experiments, to be printed.
type Document struct {
	Name     string
	Commit   string
	Config   Config
	Wall     time.Duration
	Outcomes []Outcome
}

// Plots returns the plots of all experiments.
func (d *Document) Plots() []Plot {
	var list []Plot
	for _, o := range d.Outcomes {
		list = append(list, o.plots()...)
	}
	return list
}

// plots returns the plots of an experiment.
func (o *Outcome) plots() []Plot {
	if o.Experiment.Plots == nil || len(o.Rows) == 0 {
		return nil
	}
	return o.Experiment.Plots(o.Rows)
}

// Claims returns the claims of all experiments.
func (d *Document) Claims() []Claim {
	var list []Claim
	for _, o := range d.Outcomes {
		list = append(list, o.Claims...)
	}
	return list
}

// verdicts counts claims by verdict, those of each origin apart.
func verdicts(claims []Claim) string {
	var parts []string
	for i, of := range origins {
		var n [4]int
		for _, c := range claims {
			if c.origin() == i {
				n[c.Verdict]++
			}
		}
		if n == [4]int{} {
			continue
		}
		text := fmt.Sprintf("%d of %d %s", n[ComesOut], n[ComesOut]+n[DoesNot]+n[InPart], of.count)
		if n[InPart] > 0 {
			text += fmt.Sprintf(" (and %d in part)", n[InPart])
		}
		if n[NotMeasured] > 0 {
			text += fmt.Sprintf(" (%d were not measured)", n[NotMeasured])
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// WriteText writes tables for a terminal.
func (d *Document) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, o := range d.Outcomes {
		fmt.Fprintf(&b, "%s: %s\n", o.Experiment.Name, o.Experiment.Title)
		if o.Cut {
			b.WriteString("  (cut short: not all was measured)\n")
		}
		if len(o.Rows) > 0 {
			writeTable(&b, o.table())
		}
		if len(o.Claims) > 0 {
			b.WriteByte('\n')
			claimTable(&b, o.Claims)
		}
		b.WriteByte('\n')
	}
	for _, line := range append(d.Unsteady(), d.Costs()...) {
		b.WriteString(line + "\n")
	}
	fmt.Fprintf(&b, "%s. Seed %d, %s, NIC model %s where a figure has none of its own: %s.\n", verdicts(d.Claims()), d.Config.Seed, d.Config.Runs(), d.Config.NIC, ModelNote)
	_, err := io.WriteString(w, b.String())
	return err
}

// table returns the columns of an experiment, and when its rows were steady: names, and the cells of each row.
func (o *Outcome) table() [][]string {
	head := slices.Clone(o.Experiment.Columns)
	if slices.ContainsFunc(o.Rows, func(r Row) bool { _, ok := r.Metrics["steady"]; return ok }) {
		head = append(head, SteadyColumn)
	}
	cells := [][]string{head}
	for _, r := range o.Rows {
		var line []string
		for _, c := range head {
			line = append(line, r.Cell(c))
		}
		cells = append(cells, line)
	}
	return cells
}

// SteadyColumn is a cell of rows ([Row.Cell]): it says after how long a run was measured, in milliseconds, and whether it was not steady then.
const SteadyColumn = "steady_after_ms"

// Cell returns a parameter or metric as a table has it.
func (r Row) Cell(name string) string {
	if _, ok := r.Metrics["steady"]; ok && name == SteadyColumn {
		after := Figure(r.Value("settle_us") / 1e3)
		if r.Value("steady") < 1 {
			after = "not after " + after
		}
		return after
	}
	e, ok := r.Metrics[name]
	switch {
	case !ok:
		return r.Text(name)
	case e.N > 1 && e.Half > 0.02*e.Mean:
		return fmt.Sprintf("%s±%.2g", Figure(e.Mean), e.Half)
	}
	return Figure(e.Mean)
}

// claimTable writes claims: ours, the paper's, the prototype's, the ratio, the verdict.
func claimTable(b *strings.Builder, claims []Claim) {
	cells := [][]string{{"claim", "ours", "paper", "ours/paper", "prototype", "bar", "comes out"}}
	for _, c := range claims {
		cells = append(cells, append([]string{c.label()}, c.cells()...))
	}
	writeTable(b, cells)
	for _, c := range claims {
		if c.remark() != "" {
			fmt.Fprintf(b, "  %s: %s\n", c.Text, c.remark())
		}
	}
}

// label returns the text of a claim, and says so if it is the project's own.
func (c Claim) label() string {
	if c.Own {
		return "(own) " + c.Text
	}
	return c.Text
}

// remark returns the row of a claim, and its note.
func (c Claim) remark() string {
	if c.Row == "" || c.Note == "" {
		return c.Row + c.Note
	}
	return c.Row + ". " + c.Note
}

// missed reports whether a claim does not come out, or in part.
func (c Claim) missed() bool { return c.Verdict == DoesNot || c.Verdict == InPart }

// WriteClaims writes the claims as a table in Markdown.
func (d *Document) WriteClaims(w io.Writer) error {
	var b strings.Builder
	for i, of := range origins {
		if !slices.ContainsFunc(d.Claims(), func(c Claim) bool { return c.origin() == i }) {
			continue
		}
		fmt.Fprintf(&b, "## %s\n\n| experiment | claim | ours | paper | bar | comes out |\n|---|---|---|---|---|---|\n", of.title)
		for _, c := range d.Claims() {
			if c.origin() == i {
				cells := c.cells()
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", c.Experiment, c.Text, cells[0], cells[1], cells[4], verdictCell(c.Verdict))
			}
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteReasons writes, as a list in Markdown, the rows of claims that name the best point of a sweep, and what explains those that do
// not come out.
func (d *Document) WriteReasons(w io.Writer) error {
	var b strings.Builder
	for _, c := range d.Claims() {
		if c.Verdict == NotMeasured || c.Row == "" && !c.missed() {
			continue
		}
		fmt.Fprintf(&b, "- `%s`, %s (%s)", c.Experiment, c.Text, verdictCell(c.Verdict))
		if c.Row != "" {
			b.WriteString(": " + c.Row)
		}
		b.WriteString("\n")
		if c.missed() && c.Note != "" {
			b.WriteString("  - " + c.Note + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func verdictCell(v Verdict) string {
	return [...]string{NotMeasured: v.String(), ComesOut: v.String(), DoesNot: "**no**", InPart: "*in part*"}[v]
}

// cells returns what a table says of a claim, without its text.
func (c Claim) cells() []string {
	unit := c.Unit
	if unit != "" && unit != "x" && unit != "%" {
		unit = " " + unit
	}
	ours, paper, ratio := "-", "-", "-"
	if c.Verdict != NotMeasured {
		ours = Figure(c.Ours) + unit
	}
	if c.Paper != 0 {
		paper = Figure(c.Paper) + unit
		if c.Verdict != NotMeasured {
			ratio = fmt.Sprintf("%.2f", c.Ratio())
		}
	}
	return []string{ours, paper, ratio, cmp.Or(c.Prototype, "-"), c.Bar, c.Verdict.String()}
}

// writeTable aligns columns; the first to the left, figures to the right.
func writeTable(b *strings.Builder, cells [][]string) {
	width := make([]int, len(cells[0]))
	for _, line := range cells {
		for i, c := range line {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, line := range cells {
		var text strings.Builder
		for i, c := range line {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i > 0 && strings.Trim(c, "0123456789.-±%x") == "" {
				text.WriteString("  " + pad + c)
			} else {
				text.WriteString("  " + c + pad)
			}
		}
		b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}
}
