package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// How the data of a critical section travels: the last parameter of the rows of beyond.
const (
	dataPlain = "plain" // each operation by itself, as in the paper
	dataChain = "chain" // the first with the acquisition, the last with the release: Micro.Chain
	dataKeep  = "keep"  // it stays with the lock: Micro.Keep
)

// A variant is a lock with one or more of our ideas.
type variant struct {
	lock, data, idea string
}

// ideas are DecLock-PF with each idea alone, and all together.
var ideas = []variant{
	{"declock-tf", dataPlain, "DecLock-TF as in the paper"},
	{"declock-pf", dataPlain, "DecLock-PF as in the paper"},
	{"declock-tf", dataChain, "TF, data in the doorbells of acquire and release"},
	{"declock-pf", dataChain, "PF, data in the doorbells of acquire and release"},
	{"declock-pf+downgrade", dataChain, "+ downgrade in place"},
	{"declock-pf+downgrade+yield", dataChain, "+ downgrade of what no other node wants"},
	{"declock-pf+slack", dataChain, "+ slack of timestamps"},
	{"declock-pf+batch", dataChain, "+ batches of local waiters"},
	{"declock-pf+lean", dataChain, "+ queue READ only when contended"},
	{"declock-pf+train", dataChain, "+ trains: one FAA for a run of holders"},
	{"declock-pf+train+phased", dataChain, "+ trains, their readers first"},
	{"declock-pf", dataKeep, "+ local holders hand the data on"},
	{"declock-pf+carry", dataKeep, "+ data in the notification"},
	{"declock-pf+carry+defer", dataKeep, "+ one write-back for a streak"},
	{"declock-pf+downgrade+yield+batch+lean", dataChain, "all that concerns the lock alone"},
	{untrained, dataPlain, "all but trains, data by itself"},
	{untrained, dataKeep, "all but trains, data stays with the lock"},
	{"declock", dataPlain, "all, data by itself"},
	{"declock", dataChain, "all, data in the doorbells"},
	{"declock", dataKeep, "all, data stays with the lock"},
}

// fewIdeas are those that matter where a compute node has one client, which no idea can serve within its node; and the locks that are best there without them.
var fewIdeas = []variant{
	{"mcs", dataPlain, "MCS"},
	{"shift-artifact", dataPlain, "ShiftLock as published, no pauses"},
	{"declock-tf", dataPlain, "DecLock-TF as in the paper"},
	{"declock-pf", dataPlain, "DecLock-PF as in the paper"},
	{"declock-pf+lean", dataPlain, "+ queue READ only when contended"},
	{"declock-pf+train", dataPlain, "+ trains: one FAA for a run of holders"},
	{"declock-pf+train+phased", dataPlain, "+ trains, their readers first"},
	{untrained, dataPlain, "all but trains"},
	{untrained + "+train", dataPlain, "all but readers first"},
	{"declock", dataPlain, "all"},
}

// partIdeas and partFew are the parts of the rows of ideas and fewIdeas.
const (
	partIdeas = "ideas"
	partFew   = "ideas, 64 nodes x 1 client"
)

// courses are the sweeps of Fig. 12, with fewer values.
var courses = []struct {
	course
	short    string // of the axis, for titles
	all, few []float64
}{
	{byClients, "clients", []float64{8, 16, 32, 64, 128, 192, 256}, []float64{8, 64, 256}},
	{byLength, "critical section", []float64{0, 1, 2, 4, 8, 16, 32}, []float64{1, 4}},
	{byReads, "reads", []float64{0, 25, 50, 75, 90, 100}, []float64{0, 90, 100}},
	{byLocks, "locks", []float64{1000, 10_000, 100_000, 1_000_000, 10_000_000}, []float64{1000, 10_000_000}},
	{bySkew, "skew", []float64{0, 0.5, 0.8, 0.9, 0.99}, []float64{0, 0.99}},
}

func beyondPoints(o Options) (points []Point) {
	add := func(part, idea, lock, data string, change func(*Micro)) {
		p := o.point(lock, Params{{"part", part}, {"idea", idea}, {"data", data}}, func(m *Micro) {
			m.Chain, m.Keep = data == dataChain, data == dataKeep
			change(m)
		})
		p.Near = part == partIdeas && slices.Contains([]string{"declock-tf", "declock-pf", untrained, "declock"}, lock)
		points = append(points, p)
	}
	for _, v := range ideas {
		if alone := strings.Contains(v.lock, "-pf+") || v.lock == "declock-pf" && v.data == dataKeep; alone && o.Quick {
			continue // of each idea alone nothing is claimed
		}
		add(partIdeas, v.idea, v.lock, v.data, func(*Micro) {})
	}
	for _, v := range fewIdeas {
		for _, reads := range pick(o, []int{0, 50, 95}, 50) {
			add(partFew, v.idea, v.lock, v.data, func(m *Micro) { m.CNs, m.Clients, m.ReadPct = 64, 64, reads })
		}
	}
	for _, c := range courses {
		for _, value := range pick(o, c.all, c.few...) {
			for _, v := range []variant{{"declock-tf", dataPlain, ""}, {"declock-pf", dataPlain, ""}, {"declock", dataKeep, ""}} {
				add("sweep "+c.param, "", v.lock, v.data, func(m *Micro) { c.set(m, value) })
			}
		}
	}
	for _, lock := range []string{"cas", "declock"} {
		for _, data := range []string{dataPlain, dataKeep} { // for CASLock, keep is chain
			add("100 % reads", "", lock, data, func(m *Micro) { m.ReadPct = 100 })
			add("uniform keys", "", lock, data, func(m *Micro) { m.Theta = 0 })
		}
	}
	return points
}

// worstOverBetter returns the least ratio, over all points of the sweeps, of declock's throughput
// to that of the better of declock-tf and declock-pf.
func worstOverBetter(rows Rows) float64 {
	var list []float64
	for _, c := range courses {
		list = append(list, leastOverBetter(rows.Where("part", "sweep "+c.param), c.param))
	}
	return Least(present(list))
}

// leastOverBetter is worstOverBetter for the sweep of one parameter.
func leastOverBetter(rows Rows, param string) float64 {
	var list []float64
	for _, v := range rows.Distinct(param) {
		at := rows.Where(param, v)
		better := math.Max(valueOf(at.Find("lock", "declock-tf"), "mops"), valueOf(at.Find("lock", "declock-pf"), "mops"))
		list = append(list, valueOf(at.Find("lock", "declock"), "mops")/better)
	}
	return Least(present(list))
}

// neverWorse is the claim that our best lock is as fast as the better of the paper's policies, on the
// same terms: each data operation by itself.
func neverWorse(rows Rows, param string) Claim {
	return Claim{Own: true, Text: "declock over the better of DecLock-TF and DecLock-PF, at the worst point", Unit: "x"}.
		AtLeast(leastOverBetter(rows, param), 0.97)
}

func judgeBeyond(rows Rows) (claims []Claim) {
	of := func(lock, data string) Row { return rows.Find("part", partIdeas, "lock", lock, "data", data) }
	ours := of("declock", dataKeep)
	for _, base := range []struct{ lock, name string }{{"declock-tf", "DecLock-TF"}, {"declock-pf", "DecLock-PF"}} {
		paper, chained := of(base.lock, dataPlain), of(base.lock, dataChain)
		claims = append(claims,
			Claim{Own: true, Text: "throughput: declock (plain data) over " + base.name + " (plain data)", Unit: "x"}.AtLeast(Ratio(of("declock", dataPlain), paper, "mops"), 1.9),
			Claim{Own: true, Text: "throughput: declock (chained data) over " + base.name + " (chained data)", Unit: "x", Note: fmt.Sprintf("chaining takes declock from %s to %s Mops and %s from %s to %s: it saves a round trip between nodes, and nothing within one. Handovers an acquisition, local and remote: declock %s and %s, %s %s and %s",
				Figure(of("declock", dataPlain).Value("mops")), Figure(of("declock", dataChain).Value("mops")), base.name, Figure(paper.Value("mops")), Figure(chained.Value("mops")),
				Figure(of("declock", dataPlain).Value("local_handovers")), Figure(of("declock", dataPlain).Value("remote_handovers")), base.name, Figure(paper.Value("local_handovers")), Figure(paper.Value("remote_handovers")))}.AtLeast(Ratio(of("declock", dataChain), chained, "mops"), 1.9),
			Claim{Own: true, Text: "throughput: declock (kept data) over " + base.name + " (chained data)", Unit: "x", Note: "a lock without local copies can chain at most"}.AtLeast(Ratio(ours, chained, "mops"), 1.9),
			Claim{Own: true, Text: "throughput: declock (kept data) over " + base.name + " (plain data)", Unit: "x", Prototype: "1.9 (TF), 2.1 (PF)", Note: "not equal terms"}.AtLeast(Ratio(ours, paper, "mops"), 1.9),
			Claim{Own: true, Text: "p99: declock (plain data) over " + base.name + " (plain data)"}.AtMost(Ratio(of("declock", dataPlain), paper, "p99_us"), 0.5),
			Claim{Own: true, Text: "p99: declock (chained data) over " + base.name + " (chained data)"}.AtMost(Ratio(of("declock", dataChain), chained, "p99_us"), 0.5),
			Claim{Own: true, Text: "p99: declock (kept data) over " + base.name + " (chained data)"}.AtMost(Ratio(ours, chained, "p99_us"), 0.5),
			Claim{Own: true, Text: "p99: declock (kept data) over " + base.name + " (plain data)", Prototype: "0.58 (TF), 0.31 (PF)", Note: "not equal terms"}.AtMost(Ratio(ours, paper, "p99_us"), 0.5),
		)
	}
	claims = append(claims, judgeTrains(rows)...)
	same := func(part, data string) float64 {
		return Ratio(rows.Find("part", part, "lock", "declock", "data", data), rows.Find("part", part, "lock", "cas", "data", data), "mops")
	}
	claims = append(claims, Claim{Own: true, Text: "throughput: declock (kept data) over the better of TF and PF (plain data), at the worst point of all sweeps", Unit: "x",
		Note: "not equal terms; fig12a to fig12e have it with plain data on both sides"}.AtLeast(worstOverBetter(rows), 0.97))
	for _, part := range []string{"100 % reads", "uniform keys"} {
		claims = append(claims,
			Claim{Own: true, Text: part + ": throughput: declock (plain data) over CASLock (plain data)", Unit: "x"}.AtLeast(same(part, dataPlain), 0.97),
			Claim{Own: true, Text: part + ": throughput: declock (kept data) over CASLock (chained data)", Unit: "x"}.AtLeast(same(part, dataKeep), 0.97))
	}
	return claims
}

// judgeTrains judges whether trains gain where a compute node has one client, each of the two ideas, and cost nothing at the default point.
func judgeTrains(rows Rows) []Claim {
	few := func(lock string) Row { return rows.Find("part", partFew, "lock", lock, "read_pct", DefaultReadPct) }
	at := func(lock string) Row { return rows.Find("part", partIdeas, "lock", lock, "data", dataPlain) }
	const where = "64 nodes x 1 client: "
	return []Claim{
		Claim{Own: true, Text: where + "throughput: declock over declock without trains", Unit: "x"}.AtLeast(Ratio(few("declock"), few(untrained), "mops"), 1.25),
		Claim{Own: true, Text: where + "p99: declock over declock without trains"}.AtMost(Ratio(few("declock"), few(untrained), "p99_us"), 0.8),
		Claim{Own: true, Text: where + "throughput: readers first over trains without that", Unit: "x"}.AtLeast(Ratio(few("declock"), few(untrained+"+train"), "mops"), 1.03),
		Claim{Own: true, Text: "default point: throughput: declock over declock without trains", Unit: "x"}.AtLeast(Ratio(at("declock"), at(untrained), "mops"), 0.97),
	}
}

// beyondPlots are throughput over each sweep.
func beyondPlots(rows Rows) (plots []Plot) {
	for _, c := range courses {
		part := throughputPlot("beyond-"+c.param, "Beyond the paper, by "+c.short, c.param, rows.Where("part", "sweep "+c.param), c.axis)
		for i := range part[0].Series {
			x := &part[0].Series[i]
			data := " (plain)"
			if x.Label == "declock" {
				data = " (kept data)"
			}
			x.Style, x.Label = x.Label, x.Label+data
		}
		plots = append(plots, part...)
	}
	return plots
}

var expBeyond = &Experiment{
	Name: "beyond", Title: "Beyond the paper: each idea alone, and all together",
	Paper: fmt.Sprintf("Not in the paper. %d clients, one data operation, %d %% reads; then the sweeps of Fig. 12 against DecLock-TF and DecLock-PF.",
		DefaultClients, DefaultReadPct),
	Columns: []string{"part", "idea", "lock", "data", "clients", "cs_len", "read_pct", "locks", "theta", "mops", "p50_us", "p99_us", "mn_ops_per_acquire"},
	Points:  beyondPoints,
	Judge:   judgeBeyond,
	Plots:   beyondPlots,
}
