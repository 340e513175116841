package bench

import (
	"fmt"
	"slices"
	"strings"
)

// untrained is declock without trains.
const untrained = "declock+no-train"

// gridLocks are compared on the grid, all with plain data: ours with the others.
var (
	gridOthers = []string{"cas", "dslr+", "mcs", "shift", "shift-artifact", "declock-tf", "declock-pf"}
	gridOurs   = []string{"declock", untrained}
	gridLocks  = slices.Concat(gridOthers, gridOurs)
)

// fairLocks are those of the others that let no request be passed without a bound: what p99 is compared with.
var fairLocks = gridOthers[1:]

// A place is a point of the grid: what users have, and not what they choose.
type place struct {
	nodes, each int // compute nodes, and clients on each of them
	change      func(m *Micro)
}

var expGrid = &Experiment{
	Name: "grid", Title: "Which lock when: declock and the best other lock, over nodes, clients, reads, sections, locks, skew and NICs",
	Long: true,
	Paper: "Not in the paper. Each point of a grid of what users have, by all locks, at equal terms: plain data. First all numbers of nodes and clients with the default section, " +
		"locks and skew; then each of the others by itself, with few and with many clients a node.",
	Columns: []string{"nodes", "each", "read_pct", "cs_len", "locks", "theta", "nic", "lock", "mops", "p50_us", "p99_us"},
	Points:  pointsGrid,
	Judge:   judgeGrid,
	Plots:   gridPlots,
}

// gridReads are percentages of readers.
func gridReads(o Options) []int { return pick(o, []int{0, 50, 90, 95, 99, 100}, 0, 50, 95, 99) }

func pointsGrid(o Options) (points []Point) {
	for _, p := range gridPlaces(o) {
		for _, reads := range gridReads(o) {
			for _, name := range gridLocks {
				m := Micro{NIC: o.NIC}
				p.change(&m)
				points = append(points, o.point(name, Params{{"nodes", p.nodes}, {"each", p.each}, {"nic", m.NIC}}, func(x *Micro) {
					x.CNs, x.Clients, x.ReadPct = p.nodes, p.nodes*p.each, reads
					p.change(x)
				}))
			}
		}
	}
	return points
}

// gridPlaces are the places of the grid.
func gridPlaces(o Options) (places []place) {
	for _, nodes := range []int{1, 8, 32, 64, 128} {
		for _, each := range []int{1, 2, 4, 8, 32} {
			if nodes*each > 1 && (!o.Quick || nodes*each <= 256) {
				places = append(places, place{nodes, each, func(*Micro) {}})
			}
		}
	}
	var others []func(m *Micro)
	for _, x := range []struct {
		course
		all, few []float64
	}{
		{byLength, []float64{0, 4, 8, 32}, []float64{8}},
		{byLocks, []float64{1, 1000, 10_000_000}, []float64{1}},
		{bySkew, []float64{0, 0.5, 0.9}, []float64{0}},
	} {
		for _, v := range pick(o, x.all, x.few...) {
			others = append(others, func(m *Micro) { x.set(m, v) })
		}
	}
	for _, nic := range pick(o, []string{"cx5", "cx6", "ideal"}, "ideal") {
		others = append(others, func(m *Micro) { m.NIC = nic })
	}
	for _, change := range others {
		for _, shape := range pick(o, [][2]int{{8, 1}, {64, 1}, {64, 4}, {8, 32}}, [2]int{8, 1}, [2]int{64, 1}, [2]int{8, 32}) {
			places = append(places, place{shape[0], shape[1], change})
		}
	}
	if o.Tiny {
		return places[:2]
	}
	return places
}

// judgeGrid compares declock, and declock without trains, with the best other lock at each point, and says where they are behind.
func judgeGrid(rows Rows) (claims []Claim) {
	behind := func(a Along, worse func(v float64) bool) string {
		var list []string
		for i, v := range a.Values {
			if worse(v) {
				list = append(list, fmt.Sprintf("%s: %.2f", a.At[i], v))
			}
		}
		return fmt.Sprintf("behind at %d of %d points: %s", len(list), len(a.Values), strings.Join(list, "; "))
	}
	for _, lock := range gridOurs {
		most, tails := Along{Param: "point", Neutral: 1}, Along{Param: "point", Neutral: 1}
		for _, at := range rows.points() {
			most.add(at.place(), at.overOthers(lock).ratio)
			tails.add(at.place(), at.tailOverFair(lock).ratio)
		}
		claims = append(claims,
			Claim{Own: true, Text: "the grid: throughput of " + lock + " over the best other lock, at least", Unit: "x", Note: behind(most, slower)}.AtLeast(most.Least(), leastRatio),
			Claim{Own: true, Text: "the grid: p99 of " + lock + " over the least of the fair locks, at most", Unit: "x", Note: behind(tails, later)}.AtMost(tails.Most(), mostTail))
	}
	both := Along{Param: "point", Neutral: 1}
	for _, at := range rows.points() {
		both.add(at.place(), Ratio(at.Find("lock", "declock"), at.Find("lock", untrained), "mops"))
	}
	return append(claims, Claim{Own: true, Text: "the grid: throughput of declock over " + untrained + ", at least", Unit: "x", Note: behind(both, slower)}.AtLeast(both.Least(), leastRatio))
}

// Bars of the grid: a lock is as good as the best other with this much of its throughput, and with a p99 of so much of the fair ones'.
const (
	leastRatio = 0.97
	mostTail   = 1.1
)

func slower(ratio float64) bool { return ratio < leastRatio }
func later(ratio float64) bool  { return ratio > mostTail }

// A duel is a figure of a lock over that of the best other one at a point.
type duel struct {
	ratio float64 // not a number if one was not measured
	other string
}

// overOthers compares the throughput of a lock with the best of the others, at a point.
func (rs Rows) overOthers(lock string) duel {
	var others Rows
	for _, name := range gridOthers {
		others = append(others, rs.Where("lock", name)...)
	}
	best := others.Max("mops")
	return duel{Ratio(rs.Find("lock", lock), best, "mops"), best.Text("lock")}
}

// tailOverFair compares the p99 of a lock with the least of the fair locks, at a point.
func (rs Rows) tailOverFair(lock string) duel {
	var best Row
	for _, name := range fairLocks {
		if r := rs.Find("lock", name); r.Metrics != nil && (best.Metrics == nil || r.Value("p99_us") < best.Value("p99_us")) {
			best = r
		}
	}
	return duel{Ratio(rs.Find("lock", lock), best, "p99_us"), best.Text("lock")}
}

// place names the point of rows.
func (rs Rows) place() string {
	r := &rs[0]
	return fmt.Sprintf("%sx%s at %s %%%s", r.Text("nodes"), r.Text("each"), r.Text("read_pct"), oddities(*r))
}

// points returns the rows of each point: those that differ in nothing but the lock.
func (rs Rows) points() (list []Rows) {
	index := map[string]int{}
	for _, r := range rs {
		key := slices.DeleteFunc(slices.Clone(r.Params), func(p Param) bool { return p.Name == "lock" || p.Name == "capacity" }).key()
		i, ok := index[key]
		if !ok {
			i = len(list)
			index[key] = i
			list = append(list, nil)
		}
		list[i] = append(list[i], r)
	}
	return list
}

// oddities says in what a row differs from the default point, but for nodes, clients and reads.
func oddities(r Row) string {
	d := Default("").WithDefaults()
	text := ""
	for _, p := range []Param{{"cs_len", d.CSLen}, {"locks", d.Locks}, {"theta", d.Theta}, {"nic", d.NIC}} {
		if v := r.Text(p.Name); v != fmt.Sprint(p.Value) {
			text += fmt.Sprintf(", %s %s", p.Name, v)
		}
	}
	return text
}
