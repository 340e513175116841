package bench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// document runs experiments, tiny.
func document(t *testing.T, list ...*Experiment) *Document {
	t.Helper()
	return &Document{Name: "test", Commit: "abc", Config: Config{Options: Options{NIC: DefaultNIC}, Seed: 7, Seeds: 2}, Wall: time.Second, Outcomes: runTiny(t, 2, list...)}
}

// The report is one page with every experiment, plot and claim, all constants of the model with
// their origin, seed and commit; nothing is loaded from elsewhere.
func TestReportHoldsEverything(t *testing.T) {
	d := document(t, expFig12a, expFig14, expFig15)
	var b bytes.Buffer
	if err := d.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, o := range d.Outcomes {
		for _, want := range []string{`id="` + o.Experiment.Name + `"`, o.Experiment.Title} {
			if !strings.Contains(page, want) {
				t.Errorf("no %q", want)
			}
		}
	}
	if got, want := strings.Count(page, "<svg"), len(d.Plots()); got != want {
		t.Errorf("%d pictures, want %d", got, want)
	}
	model, err := Constants("cx4")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(model, LoadConstants()[:2]...) {
		if !strings.Contains(page, "<td>"+c.Name+"</td><td>"+c.Value+"</td><td>"+c.Origin+"</td>") {
			t.Errorf("no constant %+v", c)
		}
	}
	for _, want := range []string{"seed 7", "Commit abc", "fitted"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	if found := regexp.MustCompile(`(src|href)="[^#]`).FindString(page); found != "" {
		t.Errorf("the page loads something: %q", found)
	}
}

// docs/baselines.md has the constants of locks and loads as the code has them.
func TestLoadConstantsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/baselines.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range LoadConstants() {
		if row := fmt.Sprintf("| %s | %s | %s | %s |\n", c.Name, c.Value, c.Origin, c.Meaning); !strings.Contains(string(page), row) {
			t.Errorf("docs/baselines.md has no row %q", row)
		}
	}
}

// Plots are pictures that parse, with axes that are labelled, of lines, bars and of nothing.
func TestPlotsDraw(t *testing.T) {
	plots := document(t, expFig12a, expFig14, expShift4, expShift6, expShift12, expTPCC, expDSLR8, expDSLR9, expDSLR10, expDSLR11, expDSLR17).Plots()
	plots = append(plots, Plot{Name: "empty", X: Axis{Label: "x", Log: true}, Y: Axis{Label: "y", Log: true}},
		Plot{Name: "zero", X: Axis{Label: "x"}, Y: Axis{Label: "y", Log: true}, Series: []Series{{Label: "a", XY: []XY{{1, 0, 0}}}}},
		Plot{Name: "bars", X: Axis{Label: "x"}, Y: Axis{Label: "y"}, Groups: []string{"one", "two"},
			Series: []Series{{Label: "cas", XY: []XY{{0, 3, 1}, {1, 2, 0}}}, {Label: "other", XY: []XY{{0, 1, 0}}}}})
	for _, p := range plots {
		if p.X.Label == "" || p.Y.Label == "" || p.Name == "" {
			t.Errorf("plot %q of %q: labels %q, %q", p.Name, p.Title, p.X.Label, p.Y.Label)
		}
		var b bytes.Buffer
		if err := p.WriteSVG(&b); err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		picture := b.String()
		for _, g := range p.Groups {
			for line := range strings.SplitSeq(g, "\n") {
				if !strings.Contains(picture, ">"+line+"<") {
					t.Errorf("%s: group %s has no label", p.Name, g)
				}
			}
		}
		for _, s := range p.Series {
			if len(s.XY) > 0 && p.Name != "zero" && !strings.Contains(picture, s.Label) {
				t.Errorf("%s: no legend for %s", p.Name, s.Label)
			}
		}
		for d := xml.NewDecoder(&b); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("%s: %v", p.Name, err)
				break
			}
		}
		if strings.Contains(picture, "NaN") || strings.Contains(picture, "Inf") {
			t.Errorf("%s has coordinates that are no numbers", p.Name)
		}
	}
}

// A plot of panels has each figure in its colour, the words and the legend, and leaves out what was not measured.
func TestPanelsDraw(t *testing.T) {
	p := Plot{Name: "panels", Title: "title", Scale: &throughputScale, Panels: [][]Panel{{{Title: "one", Across: "clients", Columns: []string{"1", "2"}, Rows: []string{"8 nodes", "64 nodes"},
		Cells: map[[2]string]Cell{{"1", "8 nodes"}: {Value: 0.5, Word: "other"}, {"2", "8 nodes"}: {Value: 1}, {"1", "64 nodes"}: {Value: 12.3}, {"2", "64 nodes"}: {Value: missing}}}}, {{Title: "two"}}}}
	var b bytes.Buffer
	if err := p.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	picture := b.String()
	for _, want := range []string{"title", "one", "two", "clients", "1", "8 nodes", "64 nodes", "0.50", "other", "1.00", "12", "below 0.75", p.Scale.Note} {
		if !strings.Contains(picture, ">"+want+"<") {
			t.Errorf("no %q", want)
		}
	}
	for v, want := range map[float64]string{0.5: "#B2182B", 1: "#F2F2F2", 12.3: "#2166AC"} {
		if n := strings.Count(picture, want); n != 2 { // and in the legend
			t.Errorf("%v: %d shapes of colour %s, want 2", v, n, want)
		}
	}
	if strings.Contains(picture, "NaN") {
		t.Error("a cell that was not measured is drawn")
	}
	if err := xml.Unmarshal(b.Bytes(), new(struct{})); err != nil {
		t.Error(err)
	}
}

// Lines that share a plot look different without colours too.
func TestLooksDiffer(t *testing.T) {
	for _, set := range [][]string{figureLocks, fig3Locks, policyLocks()} {
		seen := map[string]string{}
		for i, name := range set {
			l := lookOf(&Series{Label: name}, i)
			var key strings.Builder
			for _, d := range l.dashes {
				key.WriteString(Figure(float64(d)) + " ")
			}
			k := key.String() + strings.TrimPrefix(strings.ReplaceAll(typeName(l.shape), "draw.", ""), "*")
			if other, ok := seen[k]; ok {
				t.Errorf("%s and %s look the same in grey: %s", name, other, k)
			}
			seen[k] = name
		}
	}
}

// The text names verdicts and what the model is worth.
func TestText(t *testing.T) {
	d := document(t, expFig12a)
	var b bytes.Buffer
	if err := d.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"fig12a: ", "declock-tf", "comes out", "claims of the paper come out", "not measured: ratios"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// The claims are tables, the paper's and the project's apart; rows and reasons are with those that do not come out.
func TestClaimsInMarkdown(t *testing.T) {
	d := Document{Outcomes: []Outcome{{Claims: []Claim{
		{Experiment: "x", Text: "paper's", Paper: 2, Row: "by n, 1: 2", Note: "not shown", Verdict: ComesOut, Bar: "at least 1", Ours: 2, Unit: "x"},
		{Experiment: "x", Text: "ours", Own: true, Note: "because", Verdict: DoesNot, Bar: "at most 1", Ours: 3},
		{Experiment: "x", Text: "fine", Own: true, Note: "not shown", Verdict: ComesOut, Bar: "at most 1"},
	}}}}
	var claims, reasons bytes.Buffer
	if err := errors.Join(d.WriteClaims(&claims), d.WriteReasons(&reasons)); err != nil {
		t.Fatal(err)
	}
	const head = "\n\n| experiment | claim | ours | paper | bar | comes out |\n|---|---|---|---|---|---|\n"
	want := "## The paper's claims" + head + "| `x` | paper's | 2x | 2x | at least 1 | yes |\n\n" +
		"## The project's own" + head + "| `x` | ours | 3 | - | at most 1 | **no** |\n| `x` | fine | 0 | - | at most 1 | yes |\n\n"
	if claims.String() != want {
		t.Errorf("%s", claims.String())
	}
	if want := "- `x`, paper's (yes): by n, 1: 2\n- `x`, ours (**no**)\n  - because\n"; reasons.String() != want {
		t.Errorf("%s", reasons.String())
	}
}

// Every claim of the documentation that does not come out, or in part, has a reason there.
func TestEveryNoHasAReason(t *testing.T) {
	claims, err := os.ReadFile("../../docs/claims.md")
	if err != nil {
		t.Fatal(err)
	}
	reasons, err := os.ReadFile("../../docs/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(claims)) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		if len(cells) != 6 || !strings.Contains(cells[5], "*") {
			continue
		}
		n++
		_, after, ok := strings.Cut(string(reasons), fmt.Sprintf("- %s, %s (%s)", cells[0], cells[1], cells[5]))
		if _, next, _ := strings.Cut(after, "\n"); !ok || !strings.HasPrefix(next, "  - ") {
			t.Errorf("%s: %s (%s): no reason in docs/reasons.md", cells[0], cells[1], cells[5])
		} else if why, _, _ := strings.Cut(next, "\n"); slices.ContainsFunc([]string{"`tatp", "`tpcc", "`shift", "`dslr", "`others"}, func(of string) bool { return strings.HasPrefix(cells[0], of) }) && !aboutLocksOf(cells[1], why) {
			t.Errorf("%s: %s: a reason that names none of its locks: %s", cells[0], cells[1], why)
		}
	}
	if n == 0 {
		t.Error("no claims that do not come out")
	}
}

// aboutLocksOf reports whether the words of a reason, which lists of figures by lock are not, name a lock of a claim that sets one over another.
func aboutLocksOf(claim, why string) bool {
	if !strings.Contains(claim, " over ") {
		return true
	}
	why = regexp.MustCompile(` by lock: .*?(\. |$)`).ReplaceAllString(why, "")
	some := false
	for _, name := range []string{"declock", "dslr", "drtm", "mcs", "rma-?rw", "rpc", "shift", "n-?cosed", "traditional|parlock", `\bcas|retry-on-fail`} {
		of := regexp.MustCompile("(?i)" + name)
		if of.MatchString(claim) {
			if some = true; of.MatchString(why) {
				return true
			}
		}
	}
	return !some
}

// The documentation has each claim of each experiment of "bench all", and no others; what explains claims has their texts and verdicts.
func TestClaimsOfEachExperiment(t *testing.T) {
	claims, err := os.ReadFile("../../docs/claims.md")
	if err != nil {
		t.Fatal(err)
	}
	reasons, err := os.ReadFile("../../docs/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]string{} // by the experiment and the text of a claim
	for _, m := range regexp.MustCompile("(?m)^\\| (`[^`]+`) \\| ([^|]+) \\|.*\\| ([^|]+) \\|$").FindAllStringSubmatch(string(claims), -1) {
		verdicts[m[1]+", "+m[2]] = m[3]
	}
	for line := range strings.Lines(string(reasons)) {
		text, ok := strings.CutPrefix(line, "- ")
		if end := strings.LastIndex(text, " ("+verdictIn(text)+")"); ok && (end < 0 || verdicts[text[:end]] != verdictIn(text)) {
			t.Errorf("docs/reasons.md: no such claim, or another verdict, in docs/claims.md: %s", line)
		}
	}
	for _, e := range Experiments() {
		if e.Long || e.Apart || e.Judge == nil {
			continue
		}
		for _, c := range e.Judge(nil) {
			key := fmt.Sprintf("`%s`, %s", e.Name, c.Text)
			if verdicts[key] == "" {
				t.Errorf("docs/claims.md has no %s", key)
			}
			delete(verdicts, key)
		}
	}
	for key := range verdicts {
		t.Errorf("docs/claims.md has a claim that no experiment of bench all makes: %s", key)
	}
}

// docs/experiments.md lists each experiment, and counts the claims of docs/claims.md and those that come out.
func TestExperimentsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/experiments.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range Experiments() {
		if !strings.Contains(string(page), "`"+e.Name+"`") {
			t.Errorf("docs/experiments.md does not name %s", e.Name)
		}
	}
	claims, err := os.ReadFile("../../docs/claims.md")
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]*[4]int{"paper": {}, "own": {}, "others": {}, "fiss": {}}
	of := ""
	for line := range strings.Lines(string(claims)) {
		for title, name := range map[string]string{"## The paper's claims": "paper", "## The project's own": "own", "## Claims of the papers": "others"} {
			if strings.HasPrefix(line, title) {
				of = name
			}
		}
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		for v := ComesOut; v <= InPart && len(cells) == 6; v++ {
			name := of
			if of == "others" && strings.HasPrefix(cells[0], "`fiss") {
				name = "fiss"
			}
			if cells[5] == verdictCell(v) {
				n[name][v]++
			}
		}
	}
	count := func(name, first, second string) string {
		of := n[name]
		text := fmt.Sprintf("%d %s %d%s", of[ComesOut]+of[DoesNot]+of[InPart], first, of[ComesOut], second)
		if of[InPart] > 0 {
			text += fmt.Sprintf(" and %d in part", of[InPart])
		}
		return text
	}
	want := "Of " + count("paper", "claims of the paper", " come out") + "; of " + count("others", "of the papers on ShiftLock and DSLR", "") + ", of " + count("fiss", "of FissLock's", "") +
		"; of " + count("own", "of the project's own", "") + "."
	if !strings.Contains(string(page), want) {
		t.Errorf("docs/experiments.md does not say: %s", want)
	}
}

// verdictIn returns the verdict of a line of docs/reasons.md.
func verdictIn(line string) string {
	at := len(line)
	verdict := ""
	for v := ComesOut; v <= InPart; v++ {
		if i := strings.Index(line, " ("+verdictCell(v)+")"); i >= 0 && i < at {
			at, verdict = i, verdictCell(v)
		}
	}
	return verdict
}

func typeName(x any) string { return reflect.TypeOf(x).String() }

func policyLocks() (list []string) {
	for _, p := range policies {
		list = append(list, p.lock)
	}
	return list
}
