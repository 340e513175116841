package bench

import (
	"fmt"
	"slices"
)

var expFig15 = &Experiment{
	Name: "fig15", Title: "Refetched entries; release latency by queue capacity",
	Paper: "Section 6.4, Fig. 15: at most 0.018 READs more for each release, fewer with longer critical sections. Releases take less than 8.8 us with queues of up to 128 entries, " +
		"also on uniform locks; latency grows sooner with less skew.",
	Columns: []string{"part", "lock", "cs_len", "read_pct", "theta", "capacity", "mops", "refetch_per_release", "release_mean_us", "release_p50_us"},
	Points:  pointsQueue,
	Judge:   judgeQueue,
	Plots: func(rows Rows) []Plot {
		left, right := rows.Where("part", "refetch"), rows.Where("part", "capacity")
		capacity := Plot{Name: "fig15-capacity", Title: "Release latency by queue capacity", X: Axis{Label: "queue capacity (entries)", Log: true, Ticks: []float64{8, 16, 32, 64, 128, 256}},
			Y: Axis{Label: "mean release latency (us)"}}
		for _, theta := range right.Distinct("theta") {
			capacity.Series = append(capacity.Series, right.Where("theta", theta).Line("Zipf "+theta, "capacity", "release_mean_us"))
		}
		refetch := Plot{Name: "fig15-refetch", Title: "READs more for each release", X: lengthAxis, Y: Axis{Label: "refetches per release"}}
		for _, reads := range left.Distinct("read_pct") {
			refetch.Series = append(refetch.Series, left.Where("lock", "declock-tf", "read_pct", reads).Line("TF, "+reads+" % reads", "cs_len", "refetch_per_release"),
				left.Where("lock", "declock-pf", "read_pct", reads).Line("PF, "+reads+" % reads", "cs_len", "refetch_per_release"))
		}
		return []Plot{refetch, capacity}
	},
}

// pointsQueue: refetches by length and reads; latency of releases by capacity and skew.
func pointsQueue(o Options) []Point {
	var points []Point
	for _, reads := range pick(o, []int{0, 50, 90}, 50) {
		for _, n := range pick(o, []int{0, 1, 2, 4, 8, 16, 32}, 0, 4, 16) {
			for _, name := range []string{"declock-tf", "declock-pf"} {
				points = append(points, o.point(name, Params{{"part", "refetch"}}, func(m *Micro) { m.ReadPct, m.CSLen = reads, n }, Param{"capacity", 8}))
			}
		}
	}
	for _, theta := range pick(o, []float64{0, 0.5, 0.9, 0.99}, 0, 0.99) {
		for _, capacity := range pick(o, []int{8, 16, 32, 64, 128, 256}, 8, 256) {
			p := o.point("declock-tf", Params{{"part", "capacity"}}, func(m *Micro) { m.Theta, m.Capacity = theta, capacity }, Param{"capacity", capacity})
			p.Near = theta == 0 // the slowest releases
			points = append(points, p)
		}
	}
	return points
}

func judgeQueue(rows Rows) []Claim {
	left, right := rows.Where("part", "refetch"), rows.Where("part", "capacity")
	small := slices.DeleteFunc(slices.Clone(right), func(r Row) bool { return r.Value("capacity") > 128 })
	most := valueOf(left.Max("refetch_per_release"), "refetch_per_release")
	short, long := left.Where("lock", "declock-tf", "read_pct", 50), left.Where("lock", "declock-tf", "read_pct", 50, "cs_len", 16)
	top := left.Max("refetch_per_release")
	return []Claim{
		Claim{Text: "refetches for each release, at most", Paper: 0.018, Prototype: "0.001 to 0.023", Note: fmt.Sprintf("the most is at %s data operations and %s %% reads. The sooner a release follows, the less likely the next entry is written already: %s",
			top.Text("cs_len"), top.Text("read_pct"), inWords(left.Where("read_pct", 50), "declock-tf", "cs_len", "refetch_per_release"))}.AtMost(most, 0.018),
		Claim{Text: "refetches with 16 data operations over the most", Note: "the paper: fewer with longer critical sections"}.
			AtMost(Ratio(long.Max("refetch_per_release"), short.Max("refetch_per_release"), "refetch_per_release"), 0.5),
		Claim{Text: "mean release latency with up to 128 entries, at most", Unit: "us", Paper: 8.8, Prototype: "12.9",
			Note: "the slowest is the uniform one: 256 clients without contention do more releases than the link can carry queues"}.AtMost(Most(small.Values("release_mean_us")), 8.8),
	}
}
