package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// gridLocks are compared on the grid, all with plain data.
var gridLocks = []string{"cas", "dslr+", "mcs", "shift", "shift-artifact", "declock-tf", "declock-pf", "declock"}

// fairLocks are those of them that serve who came first, or nearly so: what p99 is compared with.
var fairLocks = []string{"dslr+", "mcs", "shift", "declock-tf", "declock-pf"}

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
}

// gridReads are percentages of readers.
func gridReads(o Options) []int { return pick(o, []int{0, 50, 90, 95, 99, 100}, 0, 50, 95) }

func pointsGrid(o Options) (points []Point) {
	for _, p := range gridPlaces(o) {
		for _, reads := range gridReads(o) {
			for _, name := range gridLocks {
				m := Micro{NIC: o.NIC}
				p.change(&m)
				x := o.point(name, Params{{"nodes", p.nodes}, {"each", p.each}, {"nic", m.NIC}}, func(m *Micro) {
					m.CNs, m.Clients, m.ReadPct = p.nodes, p.nodes*p.each, reads
					p.change(m)
				})
				x.Seeds = 1
				points = append(points, x)
			}
		}
	}
	return points
}

// gridPlaces are the places of the grid.
func gridPlaces(o Options) (places []place) {
	for _, nodes := range pick(o, []int{1, 8, 32, 64, 128}, 8, 64) {
		for _, each := range pick(o, []int{1, 2, 4, 8, 32}, 1, 4, 32) {
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

// judgeGrid compares declock with the best other lock at each point, and says where it is behind.
func judgeGrid(rows Rows) []Claim {
	most := Along{Param: "point", Neutral: 1}
	tails := Along{Param: "point", Neutral: 1}
	for _, at := range rows.points() {
		ours := at.Find("lock", "declock")
		name := fmt.Sprintf("%sx%s at %s %%%s", ours.Text("nodes"), ours.Text("each"), ours.Text("read_pct"), oddities(ours))
		best, calmest := 0.0, math.Inf(1)
		for _, r := range at {
			if r.Text("lock") == "declock" {
				continue
			}
			best = math.Max(best, r.Value("mops"))
			if slices.Contains(fairLocks, r.Text("lock")) {
				calmest = math.Min(calmest, r.Value("p99_us"))
			}
		}
		most.add(name, ours.Value("mops")/best)
		tails.add(name, ours.Value("p99_us")/calmest)
	}
	behind := func(a Along, worse func(v float64) bool) string {
		var list []string
		for i, v := range a.Values {
			if worse(v) {
				list = append(list, fmt.Sprintf("%s: %.2f", a.At[i], v))
			}
		}
		return fmt.Sprintf("behind at %d of %d points: %s", len(list), len(a.Values), strings.Join(list, "; "))
	}
	return []Claim{
		Claim{Own: true, Text: "the grid: throughput of declock over the best other lock, at least", Unit: "x",
			Note: behind(most, func(v float64) bool { return v < 0.97 })}.AtLeast(most.Least(), 0.97),
		Claim{Own: true, Text: "the grid: p99 of declock over the least of the fair locks, at most", Unit: "x",
			Note: behind(tails, func(v float64) bool { return v > 1.1 })}.AtMost(tails.Most(), 1.1),
	}
}

// points returns the rows of each point: those that differ in nothing but the lock.
func (rs Rows) points() (list []Rows) {
	index := map[string]int{}
	for _, r := range rs {
		key := slices.DeleteFunc(slices.Clone(r.Params), func(p Param) bool { return p.Name == "lock" }).key()
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
