package bench

import (
	"context"
	"maps"
	"strings"
	"sync"

	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
)

// A Micro determines its figures, and several experiments have points in common: what has been measured once is kept.
var memo sync.Map // of measurand: *once

// A measurand is what determines figures: a Micro whose model of the network is nic. How long messages between
// compute nodes take is left out for locks that send none.
type measurand struct {
	Micro
	nic sim.NIC
}

func (m Micro) measurand() measurand {
	m = m.WithDefaults()
	n, _ := m.model() // Validate reports the error
	w := measurand{m, n}
	if l, err := locks.Lookup(m.Lock); err == nil && l.Silent {
		w.nic.MessageMin, w.nic.MessageMax, w.nic.MessageScale = 0, 0, 0
	}
	w.NIC, w.Tune, w.MessageScale, w.MessageExtraNs = "", "", 0, 0
	return w
}

// A once is one measurement.
type once struct {
	mu      sync.Mutex // while it is taken
	metrics Metrics
}

// measure returns the metrics of Sim, which it calls unless that has been done.
func (m Micro) measure(ctx context.Context) (Metrics, error) {
	m = m.WithDefaults()
	if err := m.Validate(); err != nil {
		return nil, err
	}
	v, _ := memo.LoadOrStore(m.measurand(), new(once))
	o := v.(*once)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.metrics != nil {
		return o.metrics, nil
	}
	r, err := Sim(ctx, m)
	if err != nil {
		return nil, err
	}
	o.metrics = r.Metrics()
	return o.metrics, nil
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
