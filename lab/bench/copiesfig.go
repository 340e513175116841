package bench

import (
	"context"
	"fmt"

	"github.com/declock/declock/fabric"
)

const copiesSetup = "Not in the paper. An object store on three memory nodes, each of which serves its own number and has backups of others; values of 100 bytes, keys drawn uniformly"

var expCopies = &Experiment{
	Name: "copies", Title: "Memory nodes with copies: what a set costs",
	Paper:   copiesSetup + ".",
	Columns: []string{"copies", "clients", "cns", "mops", "p50_us", "p99_us", "chains_per_op", "ops_per_op"},
	Points: func(o Options) (points []Point) {
		for _, clients := range pick(o, []int{1, 32, 256}, 1, 32) {
			for _, copies := range []int{1, 2, 3} {
				r := copiesRun{copies: copies, numbers: copiesMNs, cns: min(clients, 8), clients: clients, keys: 20_000}
				if o.Tiny {
					r.warmupNs, r.windowNs = 50*fabric.Microsecond, 200*fabric.Microsecond
				}
				points = append(points, r.point(o, Params{{"copies", copies}, {"clients", clients}, {"cns", r.cns}}, (*copiesRun).cost))
			}
		}
		return points
	},
	Judge: func(rows Rows) (claims []Claim) {
		for _, x := range []struct {
			copies int
			bar    float64
		}{{2, 0.6}, {3, 0.4}} {
			a := Along{Param: "clients", Neutral: 1}
			for _, clients := range rows.Distinct("clients") {
				at := rows.Where("clients", clients)
				a.add(clients, Ratio(at.Find("copies", x.copies), at.Find("copies", 1), "mops"))
			}
			claims = append(claims, Claim{Own: true, Text: fmt.Sprintf("sets with %d copies over sets with one, at least", x.copies), Unit: "x", Sweep: a}.AtLeast(a.Least(), x.bar))
		}
		return claims
	},
}

var expFailover = &Experiment{
	Name: "failover", Title: "Memory nodes with copies: how long a failover takes",
	Paper: copiesSetup + ", all of one number; one client on each compute node. From the end of the primary to the first set that is done at the other copy, on each compute node. " +
		"Assumed: that the end is noticed after 10 ms, that news take up to 1 ms, and how long the coordinator works on an acknowledgement.",
	Columns: []string{"cns", "acks", "ack_us", "served_ms", "median_ms", "max_ms", "failed"},
	Points: func(o Options) (points []Point) {
		for _, cns := range pick(o, failoverCNs, 8, 64) {
			if o.Tiny {
				cns = min(cns, 9)
			}
			for _, acks := range []acksModel{acksFew, acksAll, acksFree} {
				r := copiesRun{copies: 2, numbers: 1, cns: cns, clients: cns, keys: 20_000, acks: acks}
				points = append(points, r.point(o, Params{{"cns", cns}, {"acks", acks.name}}, (*copiesRun).failover))
			}
		}
		return points
	},
	Judge: func(rows Rows) (claims []Claim) {
		last := func(acks acksModel, cns int) float64 {
			return valueOf(rows.Find("acks", acks.name, "cns", cns), "max_ms")
		}
		for _, cns := range failoverCNs {
			r := rows.Find("acks", acksFew.name, "cns", cns)
			claims = append(claims, Claim{Own: true, Text: fmt.Sprintf("%d compute nodes: from the end of a primary to the first set on the last of them", cns), Unit: "ms",
				Note: fmt.Sprintf("the other copy serves after %s ms, when all have acknowledged the promotion. The coordinator is assumed to work for %s us on each of these, which memory nodes see. If all members saw them it would be %s ms; without that work, %s",
					Figure(r.Value("served_ms")), Figure(r.Value("ack_us")), Figure(last(acksAll, cns)), Figure(last(acksFree, cns)))}.AtMost(last(acksFew, cns), 300))
		}
		return claims
	},
	Plots: func(rows Rows) []Plot {
		p := Plot{Name: "failover", Title: "Failover by compute nodes", X: Axis{Label: "compute nodes"}, Y: Axis{Label: "from the end of a primary to the first set on the last compute node (ms)", Log: true}}
		for _, acks := range rows.Distinct("acks") {
			p.Series = append(p.Series, rows.Where("acks", acks).Line("acknowledgements: "+acks, "cns", "max_ms"))
		}
		return []Plot{p}
	},
}

// failoverCNs are the compute nodes of a failover: as many as there may be, at most.
var failoverCNs = []int{8, 64, 255}

// point returns a measurement of r.
func (r copiesRun) point(o Options, params Params, measure func(*copiesRun, context.Context) (Metrics, error)) Point {
	return Point{Cost: float64(r.clients) * 1e7, Measure: one(params, func(ctx context.Context, seed uint64) (Metrics, error) {
		r := r
		r.nic, r.seed = o.NIC, seed
		return measure(&r, ctx)
	})}
}
