package bench

import (
	"fmt"
	"math"
	"slices"
)

// A Claim is something that the paper (or the project) says, judged by rows.
type Claim struct {
	Experiment string  `json:"experiment"`
	Text       string  `json:"claim"`
	Unit       string  `json:"unit,omitempty"`
	Ours       float64 `json:"ours"`
	// Paper is the paper's figure, 0 if it gives none; Prototype is what a throw-away simulation of
	// the same model gave, as text: it is often a range.
	Paper     float64 `json:"paper,omitempty"`
	Prototype string  `json:"prototype,omitempty"`
	// Bar is what Ours must be for the claim to come out, and Verdict whether it is.
	Bar     string  `json:"bar"`
	Verdict Verdict `json:"verdict"`
	// Note explains: how the figure is taken, or why it does not come out.
	Note string `json:"note,omitempty"`
}

// Verdict says whether a claim comes out.
type Verdict uint8

// Verdicts.
const (
	NotMeasured Verdict = iota // rows are missing
	ComesOut
	DoesNot
)

func (v Verdict) String() string {
	switch v {
	case ComesOut:
		return "yes"
	case DoesNot:
		return "NO"
	}
	return "not measured"
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

// judged returns c with a verdict. A figure that is no number was not measured.
func (c Claim) judged(ours float64, ok bool, bar string) Claim {
	c.Bar = bar
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

// AtLeast judges by a lower bound.
func (c Claim) AtLeast(ours, bar float64) Claim {
	return c.judged(ours, ours >= bar, fmt.Sprintf(">= %g", bar))
}

// AtMost judges by an upper bound.
func (c Claim) AtMost(ours, bar float64) Claim {
	return c.judged(ours, ours <= bar, fmt.Sprintf("<= %g", bar))
}

// Within judges by a range.
func (c Claim) Within(ours, low, high float64) Claim {
	return c.judged(ours, ours >= low && ours <= high, fmt.Sprintf("%g to %g", low, high))
}

// Near judges by the paper's figure: the same to within a factor.
func (c Claim) Near(ours, factor float64) Claim {
	return c.judged(ours, ours >= c.Paper/factor && ours <= c.Paper*factor, fmt.Sprintf("within %gx of the paper's", factor))
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

// Ratios returns the ratios of a metric between two locks at every value of a
// parameter at which both have been measured.
func (rs Rows) Ratios(lockA, lockB, param, metric string) (list []float64) {
	for _, v := range rs.Distinct(param) {
		if r := Ratio(rs.Find("lock", lockA, param, v), rs.Find("lock", lockB, param, v), metric); !math.IsNaN(r) {
			list = append(list, r)
		}
	}
	return list
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
