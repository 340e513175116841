package bench

import (
	"fmt"

	"github.com/declock/declock/bench/locks"
)

// Locks of the figures, by the paper's names: CASLock, DSLR+, ShiftLock, DecLock-TF, DecLock-PF;
// and our best.
var figureLocks = []string{"cas", "dslr+", "shift", "declock-tf", "declock-pf", "declock"}

// sweep returns the points of all locks of the figures at each change of the default point.
func sweep(o Options, names []string, changes []func(m *Micro)) []Point {
	var points []Point
	for _, change := range changes {
		for _, name := range registered(names) {
			m := Default(name)
			m.NIC = o.NIC
			change(&m)
			if o.Tiny {
				m = m.tiny()
			}
			points = append(points, m.Point())
		}
	}
	return points
}

// registered returns the locks that there are.
func registered(names []string) (list []string) {
	for _, name := range names {
		if _, err := locks.Lookup(name); err == nil {
			list = append(list, name)
		}
	}
	return list
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

const paperFig12 = "Section 6.2, Fig. 12"

func init() {
	Register(&Experiment{
		Name: "fig12a", Title: "Throughput by number of clients",
		Paper: paperFig12 + ": CASLock is best up to 24 clients (1.25x DecLock) and collapses beyond. DSLR+ loses 38.9 % and ShiftLock 9.5 % as compute nodes are added; " +
			"DecLock stays at its peak. DecLock-TF is up to 1.74x DSLR+, DecLock-PF up to 1.40x ShiftLock.",
		Columns: []string{"lock", "clients", "mops", "p50_us", "p99_us", "retries_per_acquire", "mn_ops_per_acquire"},
		Points: func(o Options) []Point {
			clients := pick(o, []int{2, 4, 8, 16, 24, 32, 64, 96, 128, 160, 192, 224, 256}, 8, 24, 64, 128, 160, 256)
			return sweep(o, figureLocks, changes(clients, func(m *Micro, v int) { m.Clients = v }))
		},
		Judge: judgeClients,
		Plots: func(rows Rows) []Plot {
			return []Plot{throughputPlot("fig12a", "Number of clients", "clients", rows, Axis{Label: "clients (32 on each compute node)", Ticks: []float64{8, 32, 64, 96, 128, 160, 192, 224, 256}})}
		},
	})
}

// throughputPlot is the plot of throughput over a parameter.
func throughputPlot(name, what, param string, rows Rows, x Axis) Plot {
	return Plot{Name: name, Title: what, X: x, Y: Axis{Label: "throughput (M operations/s)"}, Series: rows.LinesByLock(param, "mops")}
}

func judgeClients(rows Rows) []Claim {
	last := fmt.Sprint(DefaultClients)
	drop := func(lock string) float64 {
		rs := rows.Where("lock", lock)
		return Cut(rs.Find("clients", last), rs.Max("mops"), "mops")
	}
	return []Claim{
		Claim{Text: "CASLock at 256 clients over its peak", Paper: 0.12, Prototype: "0.04 to 0.05"}.
			AtMost(Ratio(rows.Find("lock", "cas", "clients", last), rows.Where("lock", "cas").Max("mops"), "mops"), 0.25),
		Claim{Text: "DSLR+ loses from its peak to 256 clients", Unit: "%", Paper: 38.9, Prototype: "43, with the artifact's backoff"}.
			Near(drop("dslr+"), 1.5),
		Claim{Text: "ShiftLock loses from its peak to 256 clients", Unit: "%", Paper: 9.5}.
			Near(drop("shift"), 2),
		Claim{Text: "DecLock-TF loses from its peak to 256 clients", Unit: "%"}.
			AtMost(drop("declock-tf"), 5),
		Claim{Text: "DecLock-TF over DSLR+, at best", Unit: "x", Paper: 1.74, Prototype: "1.73"}.
			Near(Most(rows.Ratios("declock-tf", "dslr+", "clients", "mops")), 1.25),
		Claim{Text: "DecLock-PF over ShiftLock, at best", Unit: "x", Paper: 1.40, Prototype: "1.31 to 1.82, by the variant of ShiftLock"}.
			Near(Most(rows.Ratios("declock-pf", "shift", "clients", "mops")), 1.25),
	}
}
