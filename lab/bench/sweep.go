package bench

import (
	"slices"

	"github.com/declock/declock/lab/locks"
)

// Locks of the figures, by the paper's names: CASLock, DSLR+ (mended, and with the overflowing backoff of the
// published comparison), ShiftLock, DecLock-TF, DecLock-PF; and our best.
var figureLocks = []string{"cas", "dslr+", "dslr+-overflow", "shift", "shift-artifact", "declock-tf", "declock-pf", "declock"}

// sweep returns the points of all locks of the figures at each change of the default point.
func sweep(o Options, names []string, changes []func(m *Micro)) []Point {
	var points []Point
	for _, change := range changes {
		for _, name := range registered(names) {
			points = append(points, o.point(name, nil, change))
		}
	}
	return points
}

// delayed is ShiftLock as its authors run it, messages within a compute node included: they delay these by 1 us (section 4.1), to make up for
// what is faster there. (The other locks have the model's, which wake a client of the same node in 150 ns.)
const delayed = "shift-artifact+delay"

// delay is the model's 150 ns and that microsecond.
const delay = "LocalWake=1150"

// point returns the default point of a lock with a change. Its rows have parameters before and after those of a microbenchmark.
func (o Options) point(lock string, front Params, change func(m *Micro), back ...Param) Point {
	m := Default(lock)
	if lock == delayed {
		m.Lock, m.Tune = "shift-artifact", delay
	}
	m.NIC = o.NIC
	change(&m)
	m = m.sized(o)
	params := m.WithDefaults().Params()
	params[0].Value = lock
	return m.point(slices.Concat(front, params, back), false)
}

// registered returns the locks that there are.
func registered(names []string) (list []string) {
	for _, name := range names {
		if _, err := locks.Lookup(name); err == nil || name == delayed {
			list = append(list, name)
		}
	}
	return list
}

// sized returns m as large as the run: tiny for tests.
func (m Micro) sized(o Options) Micro {
	if o.Tiny {
		return m.tiny()
	}
	return m
}

// tiny returns m made so small that it takes no time: for tests.
func (m Micro) tiny() Micro {
	m.Clients = min(m.Clients, 16)
	m.Locks = min(m.Locks, 1000)
	m.CNs = 2
	m.WarmupNs, m.WindowNs = 20_000, 100_000
	return m
}

// changes returns a change for each value.
func changes[T any](values []T, set func(m *Micro, v T)) []func(m *Micro) {
	var list []func(m *Micro)
	for _, v := range values {
		list = append(list, func(m *Micro) { set(m, v) })
	}
	return list
}

// pick returns few of the values if the run is quick, and two if it is tiny.
func pick[T any](o Options, all []T, few ...T) []T {
	switch {
	case o.Tiny:
		return []T{few[0], few[len(few)-1]}
	case o.Quick:
		return few
	}
	return all
}
