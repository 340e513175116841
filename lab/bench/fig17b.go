package bench

import (
	"fmt"
	"slices"
)

// Workloads of Sherman's paper that Fig. 17 (right) uses.
var shermanMixes = []Mix{
	{Name: "update-only", Update: 100},
	{Name: "update-heavy", Read: 50, Update: 50},
	{Name: "search-mostly", Read: 95, Update: 5},
}

// The locks of Fig. 17 (right): Sherman-NH, Sherman, Sherman with DecLock as published; our best; and for
// comparison on equal terms, Sherman whose holders leave leaves to the next of their node, as those of our best do.
var shermanLocks = []string{"cas", "sherman", "declock-tf", "sherman+notes", "declock"}

var expFig17b = &Experiment{
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
}

// shermanPerCN is how many clients a compute node has: 512 on 32.
const shermanPerCN = 16

func pointsSherman(o Options) []Point {
	var points []Point
	for _, mix := range shermanMixes {
		for _, clients := range pick(o, []int{8, 16, 32, 64, 128, 256, 512}, 16, 128) {
			for _, name := range shermanLocks {
				x := o.index(Index{Lock: name, Clients: clients, CNs: max(1, clients/shermanPerCN), Mix: mix})
				points = append(points, x.point(x.params()))
			}
		}
	}
	return points
}

func judgeSherman(rows Rows) []Claim {
	var claims []Claim
	updates := slices.Concat(rows.Where("workload", "update-only"), rows.Where("workload", "update-heavy"))
	faster := func(lock, other string) Along {
		return updates.Each("workload", func(rs Rows) Along { return rs.Along(lock, other, "clients", "mops") })
	}
	sooner := func(lock, other string) Along {
		return updates.Each("workload", func(rs Rows) Along { return rs.Cuts(lock, other, "clients", "p99_us") })
	}
	full := func(lock string) Row {
		return rows.Find("workload", "update-only", "lock", lock, "clients", 512)
	}
	hottest := fmt.Sprintf("update-only, 512 clients: sherman %s Mops and p99 %s us with %s READs an operation, declock-tf %s, %s and %s. One leaf has 8 %% of the keys drawn; at each turn task-fair DecLock sends a message to another node, which READs and WRITEs the leaf; Sherman hands it on within a node up to four times",
		Figure(full("sherman").Value("mops")), Figure(full("sherman").Value("p99_us")), Figure(full("sherman").Value("reads_per_op")),
		Figure(full("declock-tf").Value("mops")), Figure(full("declock-tf").Value("p99_us")), Figure(full("declock-tf").Value("reads_per_op")))
	claims = append(claims,
		Claim{Text: "Sherman with DecLock (task-fair) over Sherman-NH, up to", Unit: "x", Paper: 27.71}.UpTo(faster("declock-tf", "cas"), Claim.Near, 1.5),
		Claim{Text: "Sherman with DecLock (task-fair) over Sherman, up to", Unit: "x", Paper: 2.31, Note: hottest}.UpTo(faster("declock-tf", "sherman"), Claim.Near, 1.5),
		Claim{Text: "p99 cut against Sherman-NH (task-fair), up to", Unit: "%", Paper: 97.6}.UpTo(sooner("declock-tf", "cas"), Claim.Near, 1.25),
		Claim{Text: "p99 cut against Sherman (task-fair), up to", Unit: "%", Paper: 82.1, Note: hottest}.UpTo(sooner("declock-tf", "sherman"), Claim.Near, 1.25),
		Claim{Own: true, Text: "our best DecLock (leaves stay with the lock, writes are deferred) over Sherman-NH (plain), up to", Unit: "x", Paper: 27.71}.UpTo(faster("declock", "cas"), Claim.AtLeast, 27.71),
		Claim{Own: true, Text: "our best DecLock (leaves stay with the lock, writes are deferred) over Sherman (plain), up to", Unit: "x", Paper: 2.31}.UpTo(faster("declock", "sherman"), Claim.AtLeast, 2.31),
		Claim{Own: true, Text: "p99 cut of our best (as above) against Sherman-NH (plain), up to", Unit: "%", Paper: 97.6}.UpTo(sooner("declock", "cas"), Claim.AtLeast, 97.6),
		Claim{Own: true, Text: "p99 cut of our best (as above) against Sherman (plain), up to", Unit: "%", Paper: 82.1}.UpTo(sooner("declock", "sherman"), Claim.AtLeast, 82.1))
	claims = append(claims,
		Claim{Own: true, Text: "our best DecLock (leaves stay, writes are deferred) over Sherman (plain), 512 clients, update-only", Unit: "x"}.
			AtLeast(Ratio(full("declock"), full("sherman"), "mops"), 2),
		Claim{Own: true, Text: "the same, over Sherman whose holders leave leaves to the next of their node", Unit: "x", Note: "equal terms, but for writes that are deferred: only DecLock can"}.
			AtLeast(Ratio(full("declock"), full("sherman+notes"), "mops"), 2),
		Claim{Own: true, Text: "Sherman with DecLock (task-fair) over Sherman, 512 clients, update-only", Unit: "x", Note: hottest}.
			AtLeast(Ratio(full("declock-tf"), full("sherman"), "mops"), 1))
	search := rows.Where("workload", "search-mostly")
	for _, n := range []int{64, 512} {
		claims = append(claims, Claim{Text: fmt.Sprintf("search-mostly: DecLock over Sherman at %d clients", n), Unit: "x", Paper: 1, Note: "\"all perform similarly\""}.
			Near(Ratio(search.Find("lock", "declock-tf", "clients", n), search.Find("lock", "sherman", "clients", n), "mops"), 1.25))
	}
	nh := search.Along("declock-tf", "cas", "clients", "mops")
	claims = append(claims, Claim{Text: "search-mostly: DecLock over Sherman-NH, at the point where they differ most", Unit: "x", Paper: 1, Sweep: nh,
		Note: fmt.Sprintf("\"all perform similarly\". With 512 clients Sherman-NH has %s retries an acquisition; the 5 %% updates of the hottest leaf saturate the NIC, and searches wait behind them",
			Figure(search.Find("lock", "cas", "clients", 512).Value("retries_per_acquire")))}.Near(nh.Most(), 1.25))
	return claims
}
