package bench

import "fmt"

// ideal stands for the ideal of Fig. 1: all clients on one compute node, which keeps the locks among them.
const ideal = "ideal"

var expFig1 = &Experiment{
	Name: "fig1", Title: "What spinning costs a B+tree: updates beside the ideal",
	Paper: "Section 1, Fig. 1, updates of a B+tree: with spinlocks throughput falls below 5 % of the ideal at 256 clients and p99 is 69 times the ideal's, with 28 retries an acquisition that take over 95 % of " +
		"the NIC's operations. The ideal is all clients on one machine with local locks. DecLock is near it.",
	Columns: []string{"lock", "clients", "cns", "mops", "p50_us", "p99_us", "retries_per_acquire", "mn_ops_per_op"},
	Points:  pointsIdeal,
	Judge:   judgeIdeal,
	Plots: func(rows Rows) []Plot {
		return []Plot{
			{Name: "fig1-throughput", Title: "Updates of a B+tree", X: clientAxis, Y: Axis{Label: "throughput (M operations/s)"}, Series: rows.LinesByLock("clients", "mops")},
			{Name: "fig1-p99", Title: "Updates of a B+tree: tail", X: clientAxis, Y: Axis{Label: "p99 latency (us)", Log: true}, Series: rows.LinesByLock("clients", "p99_us")},
		}
	},
}

func pointsIdeal(o Options) []Point {
	var points []Point
	for _, clients := range pick(o, []int{8, 16, 32, 64, 128, 256}, 32, 256) {
		for _, name := range []string{ideal, "cas", "declock-pf", "declock"} {
			x := Index{Lock: name, Clients: clients, CNs: max(1, clients/clientsPerCN), Mix: shermanMixes[0]}
			if name == ideal {
				x.Lock, x.CNs = "local-prefer", 1
			}
			x = o.index(x)
			points = append(points, x.point(Params{{"lock", name}, {"clients", x.Clients}, {"cns", x.CNs}}))
		}
	}
	return points
}

func judgeIdeal(rows Rows) []Claim {
	at := func(lock string) Row { return rows.Find("lock", lock, "clients", 256) }
	cas, best := at("cas"), at(ideal)
	note := fmt.Sprintf("the ideal: local-prefer on one compute node, %s Mops, p50 %s and p99 %s us, %s operations on the memory node for each update", Figure(best.Value("mops")), Figure(best.Value("p50_us")),
		Figure(best.Value("p99_us")), Figure(best.Value("mn_ops_per_op")))
	spun := missing
	if cas.Metrics != nil {
		spun = 100 * cas.Value("retries_per_acquire") / cas.Value("mn_ops_per_op")
	}
	return []Claim{
		Claim{Text: "CASLock's throughput at 256 clients, of the ideal", Unit: "%", Paper: 5, Note: note}.AtMost(100*Ratio(cas, best, "mops"), 5),
		Claim{Text: "CASLock's p99 at 256 clients over the ideal's", Unit: "x", Paper: 69, Note: note}.Near(Ratio(cas, best, "p99_us"), 3),
		Claim{Text: "CASLock's retries an acquisition at 256 clients", Paper: 28}.Near(valueOf(cas, "retries_per_acquire"), 1.5),
		Claim{Text: "CASLock's retries, of all operations on the memory node", Unit: "%", Paper: 95, Note: "an update has one acquisition, three other operations and its release"}.Near(spun, 1.1),
		Claim{Text: "DecLock-PF's throughput at 256 clients, of the ideal", Unit: "%", Paper: 100, Note: note + ". The paper: \"near-ideal\". The ideal hands the lock of the hottest leaf, with 8 % of the keys drawn, on within a node; DecLock-PF by message, READ and WRITE on another node"}.Near(100*Ratio(at("declock-pf"), best, "mops"), 1.5),
		Claim{Own: true, Text: "our best DecLock's (leaves stay with the lock, which those of the ideal do not) throughput at 256 clients, of the ideal", Unit: "%", Note: note}.AtLeast(100*Ratio(at("declock"), best, "mops"), 67),
	}
}
