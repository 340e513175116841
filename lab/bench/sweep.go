package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// Locks of the figures, by the paper's names: CASLock, DSLR+ (mended, and with the overflowing backoff of the
// published comparison), ShiftLock, DecLock-TF, DecLock-PF; and our best.
var figureLocks = []string{"cas", "dslr+", "dslr+-overflow", "shift", "shift-artifact", "declock-tf", "declock-pf", "declock"}

// A course is a sweep of one parameter of the default point.
type course struct {
	param string
	axis  Axis
	set   func(m *Micro, v float64)
}

var (
	byClients = course{"clients", clientAxis, func(m *Micro, v float64) { m.Clients = int(v) }}
	byLength  = course{"cs_len", lengthAxis, func(m *Micro, v float64) { m.CSLen = int(v) }}
	byReads   = course{"read_pct", readAxis, func(m *Micro, v float64) { m.ReadPct = int(v) }}
	byLocks   = course{"locks", lockAxis, func(m *Micro, v float64) { m.Locks = int(v) }}
	bySkew    = course{"theta", skewAxis, func(m *Micro, v float64) { m.Theta = v }}
)

// points returns the points of locks at each value.
func (c *course) points(o Options, locks []string, values []float64, near nearBar) []Point {
	var points []Point
	for _, v := range values {
		for _, name := range locks {
			p := o.point(name, nil, func(m *Micro) { c.set(m, v) })
			p.Near = near.at(name, v)
			points = append(points, p)
		}
	}
	return points
}

// A nearBar says which locks of a sweep, at which values, are Point.Near; nil: none.
type nearBar func(lock string, v float64) bool

func (n nearBar) at(lock string, v float64) bool { return n != nil && n(lock, v) }

// anyOf is a nearBar of locks at each value.
func anyOf(locks ...string) nearBar {
	return func(lock string, _ float64) bool { return slices.Contains(locks, lock) }
}

// delayed is ShiftLock as its authors run it: waiters pause for 1862 ns between two READs, as their client has it by default, and messages within a compute node are delayed by 1 us (section
// 4.1), to make up for what is faster there. shift-artifact does neither. (The other locks have the model's, which wake a client of the same node in 150 ns.)
const delayed = "shift-artifact+delay"

// delayNs is that microsecond, and delay the model's 150 ns with it.
const delayNs = fabric.Microsecond

var delay = fmt.Sprintf("LocalWake=%d", sim.CX4().LocalWake+delayNs)

// slow is declock whose messages within a node take as long as those of MCS, ShiftLock and RMA-RW do in ShiftLock's evaluation; atOnce, behind the name of one of these, says
// that its do not. (ShiftLock without is shift-artifact.)
const (
	slow   = "declock, messages within a node delayed"
	atOnce = ", not delayed"
)

// named returns the default point of a lock, by its name in a figure.
func named(name string) Micro {
	lock, _, _ := strings.Cut(name, ", ")
	m := Default(lock)
	switch name {
	case delayed:
		m.Lock, m.Tune = pauses, delay
	case slow:
		m.Tune = delay
	}
	return m
}

// terms takes back what a testbed has changed, as far as a name says so.
func (m *Micro) terms(name string) {
	if strings.HasSuffix(name, atOnce) {
		m.Tune = ""
	}
}

// farMessages has messages within a compute node take as long as those between nodes, if the lock is one of those named: its servers, or the clients that it hands
// locks to, are on machines of their own in its paper.
func (m *Micro) farMessages(locks ...string) {
	name, _, _ := strings.Cut(m.Lock, ":")
	if n, err := sim.Preset(m.NIC); err == nil && slices.Contains(locks, name) {
		m.Tune = fmt.Sprintf("LocalWake=%d", (n.MessageMin+n.MessageMax)/2)
	}
}

// point returns the default point of a lock with a change. Its rows have parameters before and after those of a microbenchmark.
func (o Options) point(lock string, front Params, change func(m *Micro), back ...Param) Point {
	m := named(lock)
	m.NIC = o.NIC
	change(&m)
	m.terms(lock)
	m = m.sized(o)
	params := m.WithDefaults().Params()
	params[0].Value = lock
	return m.point(slices.Concat(front, params, back), false)
}

// sized returns m as long as the run, and as large: tiny for tests.
func (m Micro) sized(o Options) Micro {
	m.Quick = o.Quick
	if o.Tiny {
		m.CNs, m.Clients, m.Locks = 2, min(m.Clients, 16), min(m.Locks, 1000)
		m.WarmupNs, m.WindowNs = 20_000, 100_000
	}
	return m
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

// A sweep describes a figure of another lock's paper: all locks at each value of a parameter, under each load.
type sweep struct {
	testbed func(m *Micro) // as its authors had it
	loads   []load
	locks   []string
	ends    []string // locks beside these that are measured at the last value alone
	more    []string // so are these in quick runs, else at each
	mutexes []string // locks that its authors ran without shared holders
	of      string   // whose figures its rows have, where the paper's are among them
	near    nearBar
	course
	all, few []float64
	log      bool // throughput is drawn by orders of magnitude
}

// A load is a workload of a figure, by its name there.
type load struct {
	name string
	set  func(m *Micro)
}

// points returns the points of the figure. Rows have the load as their part.
func (s *sweep) points(o Options) (points []Point) {
	for _, l := range s.loads {
		values := pick(o, s.all, s.few...)
		for i, v := range values {
			locks := s.locks
			if last := i == len(values)-1; last {
				locks = slices.Concat(locks, s.more, s.ends)
			} else if !o.Quick {
				locks = slices.Concat(locks, s.more)
			}
			for _, lock := range locks {
				front := Params{{"part", l.name}}
				if s.of != "" {
					front = append(front, Param{"of", s.of})
				}
				if (Micro{}).Params().Get(s.param) == nil {
					front = append(front, Param{s.param, v})
				}
				p := o.point(lock, front, func(m *Micro) {
					s.testbed(m)
					l.set(m)
					s.set(m, v)
					if slices.Contains(s.mutexes, lock) {
						m.ReadPct = 0
					}
				})
				p.Near = s.near.at(lock, v)
				points = append(points, p)
			}
		}
	}
	return points
}

// plots are throughput over the parameter, one for each load.
func (s *sweep) plots(name, title string) func(Rows) []Plot {
	return func(rows Rows) (plots []Plot) {
		for i, l := range s.loads {
			p := throughputPlot(fmt.Sprintf("%s-%d", name, i+1), title+": "+l.name, s.param, rows.Where("part", l.name), s.axis)
			p[0].Y.Log = s.log
			plots = append(plots, p...)
		}
		return plots
	}
}

// OverBest is Along for a lock over the best of others at each value at which all have been measured: that with the most, or with the least of a latency.
func (rs Rows) OverBest(lock string, others []string, param, metric string, best func([]float64) float64) Along {
	a := Along{Param: param, Neutral: 1}
	for _, v := range rs.Distinct(param) {
		at := rs.Where(param, v)
		var list []float64
		var with Rows
		for _, name := range others {
			r := at.Find("lock", name)
			if x := valueOf(r, metric); !math.IsNaN(x) {
				list, with = append(list, x), append(with, r)
			}
		}
		if len(list) > 0 && len(list) == len(others) {
			a.addRatio(v, at.Find("lock", lock), with[slices.Index(list, best(list))], metric)
		}
	}
	return a
}
