package bench

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
)

// A measurand is what determines figures: a Micro or an Index, and the model of the network. How long messages between compute
// nodes take is left out for locks that send none, and so are names that change nothing.
type measurand struct {
	run any
	nic sim.NIC
}

func newMeasurand(run any, lock string, n sim.NIC) measurand {
	if l, err := locks.Lookup(lock); err == nil && l.Silent {
		n.MessageMin, n.MessageMax, n.MessageScale = 0, 0, 0
	}
	return measurand{run, n}
}

func (m Micro) measurand() measurand {
	m = m.WithDefaults()
	n, _ := m.model() // Validate reports the error
	m.NIC, m.Tune, m.MessageScale, m.MessageExtraNs = "", "", 0, 0
	return newMeasurand(m, m.Lock, n)
}

func (x Index) measurand() measurand {
	n, _ := x.model() // runIndex reports the error
	x.NIC, x.Tune, x.Mix.Name = "", "", ""
	return newMeasurand(x, x.Lock, n)
}

// ofRun are the fields of a txnRun that do not say what it measures: what it has while it runs, and the Micro, which is told apart as a whole.
var ofRun = []string{"simulation", "m", "nearBar", "before", "plans", "each", "used", "aborts", "broken", "failed"}

// measurand of transactions has the values of all other fields.
func (r txnRun) measurand(o Options) measurand {
	n, _ := r.m.model() // run reports the error
	m := r.m
	m.NIC, m.Tune, m.MessageScale, m.MessageExtraNs = "", "", 0, 0
	load := fmt.Sprintf("transactions, tiny %v, %+v,", o.Tiny, m)
	v := reflect.ValueOf(r)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; !slices.Contains(ofRun, name) {
			load += fmt.Sprintf(" %s %v", name, v.Field(i))
		}
	}
	return newMeasurand(load, m.Lock, n)
}

// take returns the metrics of a measurand, which it measures unless that has been done.
func (w measurand) take(measure func() (Metrics, error)) (Metrics, error) {
	what := fmt.Sprintf("%+v", w)
	m, err := known.find(what)
	if m != nil || err != nil {
		return m, err
	}
	if m, err = measure(); err == nil {
		err = known.keep(what, m)
	}
	return m, err
}

// measure returns the metrics of Sim.
func (m Micro) measure(ctx context.Context) (Metrics, error) {
	m = m.WithDefaults()
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m.measurand().take(func() (Metrics, error) {
		r, err := Sim(ctx, m)
		if err != nil {
			return nil, err
		}
		return r.Metrics(), nil
	})
}

// Point returns the measurement of a microbenchmark on the simulator.
func (m Micro) Point() Point { return m.point(m.WithDefaults().Params(), false) }

// point is Point with other parameters for its rows, and the quantiles of the most contended
// lock if hot.
func (m Micro) point(params Params, hot bool) Point {
	full := m.WithDefaults().timed() // a guess
	return Point{
		Cost: float64(full.WarmupNs+full.WindowNs) * float64(min(full.Clients, 64)),
		Same: m.measurand(),
		Measure: one(params, func(ctx context.Context, seed uint64) (Metrics, error) {
			m := m
			m.Seed = seed
			metrics, err := m.measure(ctx)
			metrics = maps.Clone(metrics)
			maps.DeleteFunc(metrics, func(name string, _ float64) bool { return !hot && strings.HasPrefix(name, hotPrefix) })
			return metrics, err
		}),
	}
}
