package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Claim is something that the paper (or the project) says, judged by rows. Its text says what is compared; unless it says
// otherwise, both sides have plain data: each operation of a critical section by itself.
type Claim struct {
	Experiment string `json:"experiment"`
	// Own: the claim, or its bar, is the project's and not the paper's. They are counted apart.
	Own bool `json:"own,omitempty"`
	// Other: the claim is of the paper on another lock. It is counted apart, too.
	Other bool    `json:"other,omitempty"`
	Text  string  `json:"claim"`
	Unit  string  `json:"unit,omitempty"`
	Ours  float64 `json:"ours"`
	// Paper is the paper's figure, 0 if it gives none; Prototype is what a throw-away simulation of
	// the same model gave, as text: it is often a range.
	Paper     float64 `json:"paper,omitempty"`
	Prototype string  `json:"prototype,omitempty"`
	// Sweep has the figure at every point of a sweep of which the claim names the best or the worst, and Row has it as text.
	Sweep Along  `json:"-"`
	Row   string `json:"row,omitempty"`
	// Spread is by how much of itself Ours may differ by chance, as far as it is more than chance.
	Spread float64 `json:"spread,omitempty"`
	// Bar is what Ours must be for the claim to come out, and Verdict whether it is.
	Bar     string  `json:"bar"`
	Verdict Verdict `json:"verdict"`
	// Note explains: how the figure is taken, or why it does not come out.
	Note string `json:"note,omitempty"`
}

// origins are whose claims are counted apart, in the order in which tables have them.
var origins = []struct {
	title string // of a table
	count string // "5 of 7 ..."
}{{"The paper's claims", "claims of the paper come out"}, {"The project's own", "of the project's own"}, {"Claims of the papers on other locks", "of the papers on other locks"}}

// origin returns whose claim it is, of origins.
func (c *Claim) origin() int {
	switch {
	case c.Own:
		return 1
	case c.Other:
		return 2
	}
	return 0
}

// Verdict says whether a claim comes out.
type Verdict uint8

// Verdicts.
const (
	NotMeasured Verdict = iota // rows are missing
	ComesOut
	DoesNot
	// InPart: the figure comes out at the best point, and at others it is the other way round; or it is within the bar, and no further from saying
	// that both are alike than by chance.
	InPart
)

func (v Verdict) String() string {
	return [...]string{NotMeasured: "not measured", ComesOut: "yes", DoesNot: "NO", InPart: "in part"}[v]
}

// MarshalText implements encoding.TextMarshaler.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Ratio returns ours over the paper's, 0 if there is nothing to compare.
func (c *Claim) Ratio() float64 {
	if c.Paper == 0 || c.Verdict == NotMeasured {
		return 0
	}
	return c.Ours / c.Paper
}

// chance is by how much of itself a ratio of two rows differs from seed to seed, and a cut in percent of the whole.
const chance = 0.03

// directed judges the direction of a figure that is within its bar: ahead says by how much it is on the side where it is to be, below 0 on the other. There it does
// not come out; and as near to neither side as chance brings it, it comes out in part.
func (c Claim) directed(ours, ahead float64) Claim {
	slack := max(chance, c.Spread)
	if i := slices.Index(c.Sweep.Values, ours); i >= 0 && i < len(c.Sweep.Spreads) {
		slack = max(slack, c.Sweep.Spreads[i])
	}
	switch {
	case c.Verdict != ComesOut:
	case ahead <= 0:
		c.Verdict = DoesNot
	case ahead <= slack:
		c.Verdict = InPart
	}
	return c
}

// spread returns by how much the ratio of rows in a metric may differ by chance, of itself: of each row by the interval of several seeds or, of one seed, by the drift of a run
// that was not steady.
func spread(metric string, rows ...Row) float64 {
	sum := 0.0
	for _, r := range rows {
		e, of := r.Metrics[metric], 0.0
		switch {
		case e.N > 1 && e.Mean > 0:
			of = e.Half / e.Mean
		case e.N == 1 && r.Value("steady") < 1:
			of = r.Value("drift_pct") / 100
		}
		sum += of * of
	}
	return math.Sqrt(sum)
}

// judged returns c with a verdict. A figure that is no number was not measured.
func (c Claim) judged(ours float64, ok bool, bar string) Claim {
	c.Bar, c.Row = bar, cmp.Or(c.Row, c.Sweep.String())
	if math.IsNaN(ours) || math.IsInf(ours, 0) {
		return c
	}
	c.Ours = round(ours)
	c.Verdict = DoesNot
	if ok {
		c.Verdict = ComesOut
	}
	return c
}

// AtLeast judges by a lower bound. A ratio of at least 1, or a cut of at least 0 %, comes out if it is more by more than chance.
func (c Claim) AtLeast(ours, bar float64) Claim {
	c = c.judged(ours, ours >= bar, fmt.Sprintf("at least %g", bar))
	switch {
	case c.Unit == "x" && bar == 1:
		c = c.directed(ours, ours-1)
	case c.Unit == "%" && bar == 0:
		c = c.directed(ours, ours/100)
	}
	return c
}

// AtMost judges by an upper bound. A ratio of at most 1 comes out if it is less by more than chance.
func (c Claim) AtMost(ours, bar float64) Claim {
	c = c.judged(ours, ours <= bar, fmt.Sprintf("at most %g", bar))
	if c.Unit == "x" && bar == 1 {
		c = c.directed(ours, 1/ours-1)
	}
	return c
}

// Within judges by a range.
func (c Claim) Within(ours, low, high float64) Claim {
	return c.judged(ours, ours >= low && ours <= high, fmt.Sprintf("%g to %g", low, high))
}

// Near judges by the paper's figure: the same to within a factor. A ratio is on the paper's side of 1, too, by more than chance.
func (c Claim) Near(ours, factor float64) Claim {
	c = c.judged(ours, ours >= c.Paper/factor && ours <= c.Paper*factor, nearly(factor))
	switch {
	case c.Unit != "x":
	case c.Paper > 1:
		c = c.directed(ours, ours-1)
	case c.Paper < 1:
		c = c.directed(ours, 1/ours-1)
	}
	return c
}

// nearly says in words what it is to be the same to within a factor.
func nearly(factor float64) string {
	switch {
	case factor < 2:
		return fmt.Sprintf("within %g %% of the paper's", math.Round(100*(factor-1)))
	case factor == 2:
		return "within a factor of 2 of the paper's"
	}
	return fmt.Sprintf("the paper's order (within a factor of %g)", factor)
}

// Along is a figure along a sweep: a ratio of two locks at each value of a parameter, say.
type Along struct {
	Param  string
	At     []string
	Values []float64
	// Spreads are by how much of itself each value may differ by chance; nil: not known.
	Spreads []float64
	// Neutral is the value that says that both are alike: 1 of ratios, 0 of cuts.
	Neutral float64
}

func (a *Along) add(at string, v float64) {
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		a.At, a.Values = append(a.At, at), append(a.Values, v)
	}
}

// addRatio adds a ratio of two rows in a metric, and by how much it may differ.
func (a *Along) addRatio(at string, ours, theirs Row, metric string) {
	n := len(a.Values)
	if a.add(at, Ratio(ours, theirs, metric)); len(a.Values) > n {
		a.Spreads = append(a.Spreads, spread(metric, ours, theirs))
	}
}

// at returns the value at a point; not a number if that was not measured.
func (a Along) at(point any) float64 {
	if i := slices.Index(a.At, fmt.Sprint(point)); i >= 0 {
		return a.Values[i]
	}
	return missing
}

// Most and Least return the extremes; not a number if nothing was measured.
func (a Along) Most() float64  { return Most(a.Values) }
func (a Along) Least() float64 { return Least(a.Values) }

// String returns the whole row.
func (a Along) String() string {
	var parts []string
	for i, v := range a.Values {
		parts = append(parts, a.At[i]+": "+strconv.FormatFloat(v, 'g', 3, 64))
	}
	if len(parts) == 0 {
		return ""
	}
	return "by " + a.Param + ", " + strings.Join(parts, ", ")
}

// UpTo judges what the paper says of its best point ("up to 1.81 times") by the best point of a sweep, by a judge
// such as [Claim.AtLeast] with its bar. If at some points of the sweep it is the other way round, by more than 3 %, the claim comes out in part. The claim has the whole row.
func (c Claim) UpTo(a Along, judge func(c Claim, best, bar float64) Claim, bar float64) Claim {
	c.Sweep = a
	c = judge(c, a.Most(), bar)
	slack := 0.03
	if a.Neutral == 0 {
		slack = 3 // of percent
	}
	if c.Verdict == ComesOut && a.Least() < a.Neutral-slack {
		c.Verdict = InPart
	}
	return c
}

// missing is the value of what was not measured.
var missing = math.NaN()

// Ratio returns a/b of a metric between two rows that Find returned; not a number if one
// is missing or b has nothing.
func Ratio(a, b Row, metric string) float64 {
	if a.Metrics == nil || b.Metrics == nil || b.Value(metric) == 0 {
		return missing
	}
	return a.Value(metric) / b.Value(metric)
}

// Cut returns by how much of b's a metric is smaller in a, in percent.
func Cut(a, b Row, metric string) float64 { return 100 * (1 - Ratio(a, b, metric)) }

// Along compares a metric of two locks, by Ratio, at every value of a parameter at which both have been measured.
func (rs Rows) Along(lockA, lockB, param, metric string) Along {
	a := Along{Param: param, Neutral: 1}
	for _, v := range rs.Distinct(param) {
		a.addRatio(v, rs.Find("lock", lockA, param, v), rs.Find("lock", lockB, param, v), metric)
	}
	return a
}

// Cuts is Along for cuts, in percent, of lockB's figure.
func (rs Rows) Cuts(lockA, lockB, param, metric string) Along {
	a := rs.Along(lockA, lockB, param, metric)
	for i, v := range a.Values {
		a.Values[i] = 100 * (1 - v)
	}
	a.Neutral = 0
	return a
}

// Each joins what there is along each part of the rows: each trace, or workload.
func (rs Rows) Each(part string, along func(Rows) Along) (all Along) {
	for _, v := range rs.Distinct(part) {
		a := along(rs.Where(part, v))
		all.Param, all.Neutral = part+" and "+a.Param, a.Neutral
		for i := range a.At {
			all.add(v+" "+a.At[i], a.Values[i])
		}
	}
	return all
}

// better returns the greater of two figures at each point.
func better(a, b Along) Along {
	best := Along{Param: a.Param, Neutral: a.Neutral}
	for i, at := range a.At {
		v := a.Values[i]
		if k := slices.Index(b.At, at); k >= 0 {
			v = math.Max(v, b.Values[k])
		}
		best.add(at, v)
	}
	return best
}

// Most and Least return the extremes of a list; not a number of none, or if one of them is none.
func Most(list []float64) float64 { return extreme(list, slices.Max) }

// Least: see Most.
func Least(list []float64) float64 { return extreme(list, slices.Min) }

func extreme(list []float64, of func([]float64) float64) float64 {
	if len(list) == 0 {
		return missing
	}
	return of(list)
}

// valueOf returns a metric of a row that Find returned; not a number if it is missing.
func valueOf(r Row, metric string) float64 {
	if r.Metrics == nil {
		return missing
	}
	return r.Value(metric)
}

// present returns the values that were measured.
func present(list []float64) []float64 {
	return slices.DeleteFunc(list, math.IsNaN)
}
