package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// An Experiment is a figure of the paper or of that on another lock, or a question of our own.
type Experiment struct {
	Name  string // as in "declock-lab bench NAME": fig12a
	Title string
	// Paper says what the paper shows, with its figures and where they stand.
	Paper string
	// Long: it takes hours, and is not part of "bench all".
	Long bool
	// Apart: it is not part of "bench all" either, which is long enough.
	Apart bool
	// Other: it is a figure of the paper on another lock, and so are its claims but for the project's own.
	Other bool

	// Points are what is to be measured, each once per seed.
	Points func(o Options) []Point
	// Judge says what of the paper comes out. It sees all rows, and copes with
	// rows that are missing because the run was cut short. nil: nothing is claimed.
	Judge func(rows Rows) []Claim
	// Plots are the figures. They too cope with missing rows. nil: none.
	Plots func(rows Rows) []Plot
	// Columns are what the table on the terminal shows: names of parameters and metrics.
	Columns []string
}

// Options say how much is measured.
type Options struct {
	// Quick measures fewer points for a shorter time; Tiny is for tests.
	Quick, Tiny bool
	// NIC is the model of the network: see Micro.NIC.
	NIC string
}

// A Point is one configuration, measured once per seed.
type Point struct {
	// Cost says how long a measurement takes, relative to others: costly points go first.
	Cost float64
	// Seeds is how many seeds it has, unless the run says; 0: one, or several if Near.
	Seeds int
	// Near: claims compare it by a bar that is within some percent of the figure, as much as seeds differ by. It has several seeds, but in a quick run.
	Near bool
	// Same says what is measured, if other points may measure the same: points with equal values that are not nil are measured together.
	Same any
	// Measure takes the figures of one seed: one sample, or several that differ in their
	// parameters (a course of time, say). It must depend on nothing but the seed, and be
	// callable from several goroutines at once.
	Measure func(ctx context.Context, seed uint64) ([]Sample, error)
}

// one returns a Measure that takes one sample, of parameters that are known.
func one(params Params, measure func(ctx context.Context, seed uint64) (Metrics, error)) func(context.Context, uint64) ([]Sample, error) {
	return func(ctx context.Context, seed uint64) ([]Sample, error) {
		m, err := measure(ctx, seed)
		if err != nil {
			return nil, err
		}
		return []Sample{{params, m}}, nil
	}
}

// A Sample is what one measurement gave.
type Sample struct {
	Params  Params
	Metrics Metrics
}

// Params are the parameters that name a row, in the order in which tables have them.
type Params []Param

// A Param is one parameter: a string, an int, a float64 or a bool.
type Param struct {
	Name  string
	Value any
}

// Metrics are figures by name. Names end in their unit: p50_us.
type Metrics map[string]float64

// key is what rows are told apart by.
func (p Params) key() string {
	var b strings.Builder
	for _, x := range p {
		fmt.Fprintf(&b, "%s=%v ", x.Name, x.Value)
	}
	return b.String()
}

// Get returns the value of a parameter, nil if there is none.
func (p Params) Get(name string) any {
	for _, x := range p {
		if x.Name == name {
			return x.Value
		}
	}
	return nil
}

// A Row is what all seeds of a point gave.
type Row struct {
	Experiment string
	Params     Params
	Metrics    map[string]Estimate
	// Spent is how long it took to measure, of real time on one worker; next to nothing if another row has the same points.
	Spent time.Duration
}

// Value returns the mean of a metric over the seeds, or a parameter that is a number;
// 0 if the row has neither.
func (r Row) Value(name string) float64 {
	if e, ok := r.Metrics[name]; ok {
		return e.Mean
	}
	switch v := r.Params.Get(name).(type) {
	case int:
		return float64(v)
	case float64:
		return v
	}
	return 0
}

// Text returns a parameter as text.
func (r Row) Text(name string) string {
	v := r.Params.Get(name)
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// MarshalJSON implements json.Marshaler: one flat object, parameters first, then how many seeds it has, then the metrics, each
// with the half width of its confidence interval as NAME_ci95 if there are several seeds.
func (r Row) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	put := func(name string, v any) error {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		text, err := json.Marshal(v)
		fmt.Fprintf(&b, "%q:%s", name, text)
		return err
	}
	err := put("experiment", r.Experiment)
	for _, p := range r.Params {
		err = cmp.Or(err, put(p.Name, p.Value))
	}
	seeds := 0
	for _, e := range r.Metrics {
		seeds = max(seeds, e.N)
	}
	if err = cmp.Or(err, put("seeds", seeds)); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(r.Metrics)) {
		e := r.Metrics[name]
		err = cmp.Or(err, put(name, round(e.Mean)))
		if e.N > 1 {
			err = cmp.Or(err, put(name+"_ci95", round(e.Half)))
		}
	}
	b.WriteByte('}')
	return []byte(b.String()), err
}

// Rows are the rows of an experiment.
type Rows []Row

// Where returns the rows in which all of the parameters have the given values, as text:
// Where("lock", "cas", "clients", 256).
func (rs Rows) Where(pairs ...any) Rows {
	var found Rows
	for _, r := range rs {
		ok := true
		for i := 0; i+1 < len(pairs); i += 2 {
			ok = ok && r.Text(pairs[i].(string)) == fmt.Sprint(pairs[i+1])
		}
		if ok {
			found = append(found, r)
		}
	}
	return found
}

// Find returns the first row of Where; one without metrics if there is none.
func (rs Rows) Find(pairs ...any) Row {
	if found := rs.Where(pairs...); len(found) > 0 {
		return found[0]
	}
	return Row{}
}

// Max returns the row with the greatest value of a metric; one without metrics of no rows.
func (rs Rows) Max(metric string) Row {
	if len(rs) == 0 {
		return Row{}
	}
	return slices.MaxFunc(rs, func(a, b Row) int { return cmp.Compare(a.Value(metric), b.Value(metric)) })
}

// Values returns a metric of all rows.
func (rs Rows) Values(metric string) (list []float64) {
	for i := range rs {
		list = append(list, rs[i].Value(metric))
	}
	return list
}

// Distinct returns the values of a parameter in the order of the rows.
func (rs Rows) Distinct(name string) []string {
	var list []string
	for i := range rs {
		if v := rs[i].Text(name); !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// Experiments returns all experiments, in the order of the paper's figures.
func Experiments() []*Experiment {
	return []*Experiment{
		expFig1, expFig3, expFig12a, expFig12b, expFig12c, expFig12d, expFig12e, expFig13, expFig14, expFig15, expFig16a, expFig16b,
		expFig17a, expFig17b, expFig18, expBeyond, expCopies, expCx5, expFailover, expGrid, expLocal, expOpenSlots, expSense, expSpin, expYCSB,
		expShift4, expShift7, expShift8, expShift9, expDSLR14, expDSLR15, expDSLR16, expDSLR19, expOthers4, expOthers14, expTATP, expTPCC, expShift6, expShift12, expShift13, expShiftSteps,
		expDSLR8, expDSLR9, expDSLR10, expDSLR11, expDSLR17, expFiss13, expFiss14, expFiss15, expFiss16a, expFiss16b, expFiss17a, expFiss17b, expFiss17c, expALock,
	}
}
