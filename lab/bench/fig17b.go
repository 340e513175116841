package bench

import "fmt"

// Workloads of Sherman's paper that Fig. 17 (right) uses.
var shermanMixes = []Mix{
	{Name: "update-only", Update: 100},
	{Name: "update-heavy", Read: 50, Update: 50},
	{Name: "search-mostly", Read: 95, Update: 5},
}

// The locks of Fig. 17 (right): Sherman-NH, Sherman, Sherman with DecLock as published; our best; and for
// comparison on equal terms, Sherman whose holders leave leaves to the next of their node, as those of our best do.
var shermanLocks = []string{"cas", "sherman", "declock-tf", "sherman+notes", "declock"}

func init() {
	Register(&Experiment{
		Name: "fig17b", Title: "Sherman (B+tree) by lock and number of clients",
		Paper: "Section 6.6, Fig. 17 (right): DecLock improves throughput by up to 27.71x over Sherman without hierarchical locks and 2.31x over Sherman, and cuts p99 by up to 97.6 % and 82.1 %. " +
			"Under search-mostly all perform alike. Up to 512 clients on 32 compute nodes.",
		Columns: []string{"workload", "lock", "clients", "cns", "mops", "p50_us", "p99_us", "retries_per_acquire", "reads_per_op"},
		Points:  pointsSherman,
		Judge:   judgeSherman,
		Plots: func(rows Rows) []Plot {
			var plots []Plot
			for _, m := range shermanMixes {
				of := rows.Where("workload", m.Name)
				x := Axis{Label: "clients (16 on each compute node)", Log: true, Ticks: []float64{8, 16, 32, 64, 128, 256, 512}}
				plots = append(plots,
					Plot{Name: "fig17b-" + m.Name, Title: "Sherman, " + m.Name, X: x, Y: Axis{Label: "throughput (M operations/s)"}, Series: of.LinesByLock("clients", "mops")},
					Plot{Name: "fig17b-" + m.Name + "-p99", Title: "Sherman, " + m.Name, X: x, Y: Axis{Label: "p99 (us)", Log: true}, Series: of.LinesByLock("clients", "p99_us")})
			}
			return plots
		},
	})
}

// shermanPerCN is how many clients a compute node has: 512 on 32.
const shermanPerCN = 16

func pointsSherman(o Options) []Point {
	var points []Point
	for _, mix := range shermanMixes {
		for _, clients := range pick(o, []int{8, 16, 32, 64, 128, 256, 512}, 16, 64, 256, 512) {
			for _, name := range registered(shermanLocks) {
				x := Index{Lock: name, Clients: clients, CNs: max(1, clients/shermanPerCN), Mix: mix, Theta: DefaultTheta, NIC: o.NIC}
				if o.Tiny {
					x = x.tiny()
				}
				points = append(points, x.Point())
			}
		}
	}
	return points
}

func judgeSherman(rows Rows) []Claim {
	var claims []Claim
	updates := append(append(Rows{}, rows.Where("workload", "update-only")...), rows.Where("workload", "update-heavy")...)
	best := func(lock, other, metric string, of func(a, b Row, metric string) float64) float64 {
		var list []float64
		for _, mix := range updates.Distinct("workload") {
			rs := updates.Where("workload", mix)
			for _, n := range rs.Distinct("clients") {
				if v := of(rs.Find("lock", lock, "clients", n), rs.Find("lock", other, "clients", n), metric); v == v {
					list = append(list, v)
				}
			}
		}
		return Most(list)
	}
	claims = append(claims,
		Claim{Text: "Sherman with DecLock (task-fair) over Sherman-NH, at best", Unit: "x", Paper: 27.71}.Near(best("declock-tf", "cas", "mops", Ratio), 2),
		Claim{Text: "Sherman with DecLock (task-fair) over Sherman, at best", Unit: "x", Paper: 2.31}.Near(best("declock-tf", "sherman", "mops", Ratio), 1.5),
		Claim{Text: "p99 cut against Sherman-NH, at best", Unit: "%", Paper: 97.6}.AtLeast(best("declock-tf", "cas", "p99_us", Cut), 90),
		Claim{Text: "p99 cut against Sherman, at best", Unit: "%", Paper: 82.1}.AtLeast(best("declock-tf", "sherman", "p99_us", Cut), 70),
		Claim{Text: "Sherman with our best DecLock over Sherman-NH, at best", Unit: "x", Paper: 27.71}.AtLeast(best("declock", "cas", "mops", Ratio), 27.71),
		Claim{Text: "Sherman with our best DecLock over Sherman, at best", Unit: "x", Paper: 2.31}.AtLeast(best("declock", "sherman", "mops", Ratio), 2.31),
		Claim{Text: "p99 cut of our best against Sherman-NH, at best", Unit: "%", Paper: 97.6}.AtLeast(best("declock", "cas", "p99_us", Cut), 97.6),
		Claim{Text: "p99 cut of our best against Sherman, at best", Unit: "%", Paper: 82.1}.AtLeast(best("declock", "sherman", "p99_us", Cut), 82.1))
	full := func(lock string) Row {
		return rows.Find("workload", "update-only", "lock", lock, "clients", 512)
	}
	claims = append(claims,
		Claim{Text: "Sherman with our best DecLock over Sherman, 512 clients, update-only", Unit: "x", Note: "the bar is the project's"}.
			AtLeast(Ratio(full("declock"), full("sherman"), "mops"), 2),
		Claim{Text: "the same, over Sherman whose holders leave leaves to the next of their node", Unit: "x", Note: "equal terms"}.
			AtLeast(Ratio(full("declock"), full("sherman+notes"), "mops"), 2),
		Claim{Text: "Sherman with DecLock (task-fair) over Sherman, 512 clients, update-only", Unit: "x"}.
			AtLeast(Ratio(full("declock-tf"), full("sherman"), "mops"), 1))
	search := rows.Where("workload", "search-mostly")
	for _, n := range []int{64} {
		claims = append(claims, Claim{Text: fmt.Sprintf("search-mostly: DecLock over Sherman at %d clients", n), Unit: "x", Paper: 1, Note: "\"all perform similarly\""}.
			Within(Ratio(search.Find("lock", "declock-tf", "clients", n), search.Find("lock", "sherman", "clients", n), "mops"), 0.8, 1.25))
	}
	return claims
}
