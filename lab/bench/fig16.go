package bench

import (
	"context"

	"github.com/declock/declock/fabric"
)

var expFig16a = &Experiment{
	Name: "fig16a", Title: "Reset of the lock of a crashed compute node, by clients",
	Paper:   "Section 6.7, Fig. 16a: from 83 us with 32 clients to 521 us with 256, for a reset signals each client. Detection of the failure is not counted.",
	Columns: []string{"lock", "clients", "reset_us", "grant_us", "detect_us"},
	Points:  pointsReset,
	Judge:   judgeReset,
	Plots: func(rows Rows) []Plot {
		return []Plot{{Name: "fig16a", Title: "Lock reset by clients", X: clientAxis, Y: Axis{Label: "reset (us)"}, Series: rows.LinesByLock("clients", "reset_us")}}
	},
}

var expFig16b = &Experiment{
	Name: "fig16b", Title: "Throughput over time: a compute node crashes, then the memory node",
	Paper:   "Section 6.7, Fig. 16b: with one of 8 compute nodes crashed, 88 % of the throughput is kept at low contention (one core of each compute node has clients), and all of it at high contention (16 cores).",
	Columns: []string{"contention", "t_ms", "mops"},
	Points:  pointsCourse,
	Judge:   judgeCourse,
	Plots: func(rows Rows) []Plot {
		p := Plot{Name: "fig16b", Title: "Throughput while nodes crash", X: Axis{Label: "time (ms)"}, Y: Axis{Label: "throughput (Mops)"}}
		for _, c := range rows.Distinct("contention") {
			p.Series = append(p.Series, rows.Where("contention", c, "part", "course").Line(c+" contention", "t_ms", "mops"))
		}
		return []Plot{p}
	},
}

func pointsReset(o Options) []Point {
	var points []Point
	for _, n := range pick(o, []int{32, 64, 96, 128, 160, 192, 224, 256}, 32, 128, 256) {
		for _, policy := range []string{"declock", "declock-tf"} {
			points = append(points, Point{Cost: float64(n), Seeds: 10, Measure: one(Params{{"lock", policy}, {"clients", n}}, func(_ context.Context, seed uint64) (Metrics, error) {
				r, err := measureReset(seed, o.NIC, policy, n)
				return Metrics{"reset_us": float64(r.reset) / 1e3, "grant_us": float64(r.grant) / 1e3, "detect_us": float64(detectNs) / 1e3}, err
			})})
		}
	}
	return points
}

func judgeReset(rows Rows) []Claim {
	var worst, growth []float64
	for _, name := range rows.Distinct("lock") {
		of := rows.Where("lock", name)
		worst = append(worst, valueOf(of.Max("reset_us"), "reset_us"))
		growth = append(growth, Ratio(of.Find("clients", 256), of.Find("clients", 32), "reset_us"))
	}
	return []Claim{
		Claim{Own: true, Text: "reset, at most, of all numbers of clients and policies", Unit: "us", Paper: 521, Note: "one message for each compute node; detection is not counted"}.AtMost(Most(worst), 60),
		Claim{Own: true, Text: "reset at 256 clients over that at 32", Paper: 6.28, Note: "flat: the paper's reset signals each client"}.AtMost(Most(growth), 1.5),
	}
}

// Workloads of Fig. 16b, as in the paper: with one core of each compute node, and with 16. The locks are the default point's.
var contentions = []struct {
	name    string
	clients int // on each of 8 compute nodes
}{{"low", lowClients}, {"high", clientsPerCN}}

// lowClients are the clients of one core: the paper's compute nodes have 32 on 16 cores.
const lowClients = clientsPerCN / 16

func pointsCourse(o Options) []Point {
	gap := 40 * fabric.Millisecond // half of it is measured
	if o.Tiny {
		gap = 3 * fabric.Millisecond
	}
	var points []Point
	for _, w := range contentions {
		points = append(points, Point{Cost: 1000, Measure: func(ctx context.Context, seed uint64) ([]Sample, error) {
			clients := w.clients * courseCNs
			if o.Tiny {
				clients = 16
			}
			t, err := measureCourse(ctx, seed, o.NIC, "declock", clients, gap)
			if err != nil {
				return nil, err
			}
			return t.samples(w.name, gap), nil
		}})
	}
	return points
}

// samples are the course itself, and what is claimed about it.
func (t *timeline) samples(contention string, gap fabric.Time) []Sample {
	all := t.mean(gap/2, t.cnDies)
	fewer := t.mean(t.mnDies-gap/2, t.mnDies)
	drift := max(t.drift(gap/2, t.cnDies), t.drift(t.mnDies-gap/2, t.mnDies))
	steady := 0.0
	if drift <= tolerance {
		steady = 1
	}
	list := []Sample{{
		Params: Params{{"contention", contention}, {"part", "claims"}, {"t_ms", 0}},
		Metrics: Metrics{
			"mops": all, "kept": fewer / all,
			// The crashed node's share is gone for good: it is the others' throughput that comes back.
			"back_cn_ms": t.back(t.cnDies+t.slot, 0.95*fewer), "back_mn_ms": t.back(t.mnBack, 0.95*fewer),
			"detect_ms": float64(detectNs) / 1e6,
			"settle_us": float64(gap) / 2e3, "window_us": float64(gap) / 2e3, "drift_pct": 100 * drift, "steady": steady,
		},
	}}
	for i, m := range t.mops {
		list = append(list, Sample{Params: Params{{"contention", contention}, {"part", "course"}, {"t_ms", i}}, Metrics: Metrics{"mops": m}})
	}
	return list
}

func judgeCourse(rows Rows) []Claim {
	low, high := rows.Find("contention", "low", "part", "claims"), rows.Find("contention", "high", "part", "claims")
	var cn, mn []float64
	for _, r := range rows.Where("part", "claims") {
		cn = append(cn, valueOf(r, "back_cn_ms"))
		mn = append(mn, valueOf(r, "back_mn_ms"))
	}
	detect := float64(detectNs) / 1e6
	return []Claim{
		Claim{Text: "throughput kept with 7 of 8 compute nodes, low contention", Paper: 0.88,
			Note: "one core of each: two clients; an eighth of them is gone"}.Near(valueOf(low, "kept"), 1.05),
		Claim{Text: "throughput kept with 7 of 8 compute nodes, high contention", Paper: 1}.Near(valueOf(high, "kept"), 1.05),
		Claim{Own: true, Text: "after the crash of a compute node, throughput is back (95 %) after, at most", Unit: "ms",
			Note: "detection takes 10 ms of it"}.AtMost(Most(cn), detect+10),
		Claim{Own: true, Text: "after the memory node is back, so is throughput, after", Unit: "ms"}.AtMost(Most(mn), 10),
	}
}
