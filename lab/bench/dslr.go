package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// dslrSweep is a figure of DSLR's appendix A: 16 machines of four workers each send requests for one lock (section 6.1). Its lock managers were 16
// machines, ours is one memory node, and Traditional's are on the clients' nodes; its NICs were ConnectX-3, the model's are fitted to ConnectX-4.
func dslrSweep(s sweep) sweep {
	s.testbed = func(m *Micro) {
		m.NIC, m.Clients, m.CNs, m.CoreClients, m.CSLen, m.Locks, m.Theta = DefaultNIC, 64, 16, 1, 0, 10_000_000, 2
		m.farMessages(dslrFar...)
		m.Used = isDrTM(m.Lock)
	}
	if s.loads == nil {
		s.loads = []load{{"power law", func(*Micro) {}}}
	}
	if s.locks == nil {
		s.locks = []string{"cas", "dslr", "dslr:busy", "dslr+", "declock-tf", "declock"}
	}
	return s
}

// dslrOthers are its baselines but Retry-on-Fail, which is cas; dslrFar those of them that send messages, which take as long within a node as between nodes.
var (
	dslrOthers = []string{"ncosed", "drtm", manager}
	dslrFar    = []string{"ncosed", manager}
)

var (
	powerAxis = Axis{Label: "exponent of the power law", Ticks: []float64{1.5, 2, 2.5, 3}}
	delayAxis = Axis{Label: "delay between requests of a client (ms)", Ticks: []float64{0, 25, 50, 75, 100}}

	dslr14 = dslrSweep(sweep{course: course{"theta", powerAxis, bySkew.set}, near: anyOf("dslr", "cas"), all: []float64{1.5, 2, 2.5, 3}, few: []float64{1.5, 2, 3}})
	dslr15 = dslrSweep(sweep{course: byReads, more: dslrOthers, all: []float64{0, 20, 40, 60, 80, 100}, few: []float64{0, 50, 100}})
	// One lock for the row of the one warehouse, which new orders read and payments change.
	dslr16 = dslrSweep(sweep{locks: []string{"dslr:10", "dslr:100", "dslr:1000", "dslr:10000", "declock-tf", "declock"}, course: byClients, all: []float64{124}, few: []float64{124},
		loads: []load{{"one lock", func(m *Micro) {
			if m.Locks, m.Theta, m.CNs = 1, 0, 31; strings.HasPrefix(m.Lock, "dslr") { // until counters have been reset
				m.WarmupNs, m.WindowNs = 10*fabric.Millisecond, 600*fabric.Millisecond
			}
		}}}})
	// A lock for the row of each of 16 warehouses.
	dslr19 = dslrSweep(sweep{locks: []string{"dslr", "dslr:busy", "declock-tf", "declock"}, near: anyOf("dslr", "dslr:busy"), all: []float64{0, 0.1, 1, 10, 100}, few: []float64{0, 1, 100},
		course: course{"delay_ms", delayAxis, func(m *Micro, ms float64) {
			if ms > 0 { // as many requests as with the delay: by an open loop
				m.Rate, m.WarmupNs, m.WindowNs = 1e3*float64(m.Clients)/ms, fabric.Millisecond, fabric.Time(400*ms*1e6)
			}
		}},
		loads: []load{{"16 locks", func(m *Micro) { m.Locks, m.Theta = 16, 0 }}}, log: true})
)

const dslrNote = " cas is its Retry-on-Fail, parlock its Traditional; readers of drtm join any lease that is valid, as in DrTM's paper."

var dslrColumns = []string{"lock", "theta", "read_pct", "mops", "mean_us", "p50_us", "p99_us", "p999_us", "retries_per_acquire", "mn_ops_per_op"}

var expDSLR14 = &Experiment{
	Name: "dslr14", Other: true, Title: "DSLR's Fig. 14: throughput and tail latency by skew",
	Paper: "DSLR's paper (SIGMOD 2018), appendix A.4, power law of exponent 1.5 to 3, 50 % reads: throughput drops for all, DSLR's moderately; " +
		"DSLR has the lowest average and 99.9 % latencies across all contention levels. N-CoSED, DrTM's lease lock and Traditional are in others14." + dslrNote,
	Columns: dslrColumns, Points: dslr14.points, Plots: dslr14.plots("dslr14", "Throughput by skew"),
	Judge: func(rows Rows) []Claim {
		kept := func(lock string) float64 {
			of := rows.Where("lock", lock)
			return Ratio(of.Find("theta", 3), of.Find("theta", 1.5), "mops")
		}
		speeds := both(rows, "dslr", "cas", "theta", "mops")
		return append([]Claim{
			Claim{Text: "DSLR with exponent 3 over 1.5", Unit: "x", Note: speeds}.AtMost(kept("dslr"), 1),
			Claim{Text: "Retry-on-Fail with exponent 3 over 1.5", Unit: "x", Note: speeds}.AtMost(kept("cas"), 1),
			Claim{Text: "what DSLR keeps over what Retry-on-Fail keeps", Unit: "x", Note: speeds}.AtLeast(kept("dslr")/kept("cas"), 1),
		}, dslrOverRetries(rows, "theta")...)
	},
}

// dslrOverRetries are the claims that DSLR is ahead of Retry-on-Fail along a sweep.
func dslrOverRetries(rows Rows, param string) []Claim {
	speed, tail, ours := rows.Along("dslr", "cas", param, "mops"), rows.Along("dslr", "cas", param, "p999_us"), rows.Along("declock", "dslr", param, "mops")
	mean := rows.Along("dslr", "cas", param, "mean_us")
	return []Claim{
		Claim{Text: "DSLR's throughput over Retry-on-Fail's, at least", Unit: "x", Row: speed.String(), Note: both(rows, "dslr", "cas", param, "mops")}.AtLeast(speed.Least(), 1),
		Claim{Text: "DSLR's 99.9 % latency over Retry-on-Fail's, at most", Unit: "x", Row: tail.String(), Note: both(rows, "dslr", "cas", param, "p999_us")}.AtMost(tail.Most(), 1),
		Claim{Text: "DSLR's mean latency over Retry-on-Fail's, at most", Unit: "x", Row: mean.String(), Note: both(rows, "dslr", "cas", param, "mean_us")}.AtMost(mean.Most(), 1),
		Claim{Own: true, Text: "declock's throughput over DSLR's, at least", Unit: "x", Row: ours.String()}.AtLeast(ours.Least(), 0.97),
	}
}

var expDSLR15 = &Experiment{
	Name: "dslr15", Other: true, Title: "DSLR's Fig. 15: throughput and tail latency by ratio of reads",
	Paper:   "DSLR's paper, appendix A.4, power law of exponent 2: but for reads only, where DrTM needs no unlock, DSLR has a better overall performance than all others." + dslrNote,
	Columns: dslrColumns, Points: dslr15.points, Plots: dslr15.plots("dslr15", "Throughput by ratio of reads"),
	Judge: func(rows Rows) []Claim {
		mixed := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Value("read_pct") == 100 })
		over := mixed.OverBest("dslr", dslrOthers, "read_pct", "mops", Most)
		only := rows.Where("read_pct", 100).OverBest("drtm", []string{"cas", "dslr", "ncosed", manager}, "read_pct", "mops", Most)
		return append([]Claim{
			Claim{Text: "DSLR's throughput over the best of N-CoSED, DrTM and Traditional, at least", Unit: "x", Row: over.String(),
				Note: "waiters of a lock manager do not poll, and those of DSLR pause for 5 us for each ticket before theirs. " + both(mixed, "dslr", manager, "read_pct", "mops") + "; " + both(mixed, "ncosed", "drtm", "read_pct", "mops")}.AtLeast(over.Least(), 1),
			Claim{Text: "reads only: DrTM's throughput over the best other's", Unit: "x", Note: "from an uncertainty of the clocks, 50 us, before the end of a lease to as long after it no reader can join it, and none can replace it: a tenth of the time all wait. " + byLock(rows.Where("read_pct", 100), "mops", "mn_ops_per_op", "p99_us")}.AtLeast(Least(only.Values), 1),
		}, dslrOverRetries(mixed, "read_pct")...)
	},
}

var expDSLR16 = &Experiment{
	Name: "dslr16", Other: true, Title: "DSLR's Fig. 16: throughput by the longest backoff of those who wait for a reset of the counters",
	Paper: "DSLR's paper, appendix A.5, TPC-C with one warehouse, 31 nodes: a clear difference between a maximum backoff of 100 us and of 1,000 us. With less than 1,000 us throughput plummets as soon as counters reach COUNT_MAX, " +
		"for resets keep failing. Here: one lock in place of TPC-C, 50 % reads.",
	Columns: []string{"lock", "mops", "p50_us", "p99_us", "p999_us", "oldest_us", "lost", "mn_ops_per_op"}, Points: dslr16.points,
	Judge: func(rows Rows) []Claim {
		ours := rows.Find("lock", "declock")
		rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return !strings.HasPrefix(r.Text("lock"), "dslr") })
		speed := Along{Param: "lock", Neutral: 1}
		slowest := Along{Param: "lock"}
		for _, r := range rows {
			speed.add(r.Text("lock"), Ratio(r, rows.Find("lock", "dslr:10"), "mops"))
			slowest.add(r.Text("lock"), r.Value("p999_us"))
		}
		one := rows.Find("lock", "dslr:100")
		waits := fmt.Sprintf("%s thousand tickets of each mode were drawn in %s ms, so counters reached COUNT_MAX of 32,768, and resets succeeded: 99.9 %% of the operations took no longer, in us, %v. Here a ticket that is drawn at COUNT_MAX stays, where the paper withdraws it, and so changes the word that the reset compares",
			Figure(one.Value("mops")*one.Value("window_us")/2e3), Figure(one.Value("window_us")/1e3), slowest)
		return []Claim{
			Claim{Text: "a longest backoff of 1 ms over one of 0.1 ms", Unit: "x", Row: speed.String(), Note: waits}.AtLeast(Ratio(rows.Find("lock", "dslr:1000"), rows.Find("lock", "dslr:100"), "mops"), 1.1),
			Claim{Text: "a longest backoff of 10 ms over one of 1 ms", Unit: "x", Paper: 1, Note: waits}.Near(Ratio(rows.Find("lock", "dslr:10000"), rows.Find("lock", "dslr:1000"), "mops"), 1.1),
			Claim{Own: true, Text: "throughput with 10 us over that with 10 ms: resets succeed at any backoff", Unit: "x", Note: waits}.AtLeast(Ratio(rows.Find("lock", "dslr:10"), rows.Find("lock", "dslr:10000"), "mops"), 0.9),
			Claim{Own: true, Text: "declock's throughput over DSLR's with any backoff, at least", Unit: "x"}.AtLeast(valueOf(ours, "mops")/Most(rows.Values("mops")), 1),
		}
	},
}

var expDSLR19 = &Experiment{
	Name: "dslr19", Other: true, Title: "DSLR's Fig. 19: polling at dynamic intervals and without a pause, by delay between requests",
	Paper: "DSLR's paper, appendix A.7, TPC-C with a warehouse for each of 16 lock managers, delays of 0 to 100 ms between transactions: busy polling uses less than 15 % of the operations that the network can do, " +
		"dynamic polling a little over 5 %, with a slightly better throughput. Here: 16 locks in place of TPC-C, 50 % reads; one NIC in place of 16.",
	Columns: []string{"lock", "delay_ms", "mops", "p50_us", "p99_us", "retries_per_acquire", "mn_ops_per_op"}, Points: dslr19.points,
	Plots: dslr19.plots("dslr19", "Throughput by delay"),
	Judge: func(rows Rows) []Claim {
		at := func(lock string, ms float64) Row { return rows.Find("lock", lock, "delay_ms", ms) }
		dynamic, busy := pipeShare(at("dslr", 0), sim.CX4()), pipeShare(at("dslr:busy", 0), sim.CX4())
		note := fmt.Sprintf("a waiting client pauses for 5 us for each ticket before its own, and in the model these take less. Without delay: dynamic %s Mops, %s operations on the memory node for each, p50 %s us; busy %s, %s, %s", Figure(at("dslr", 0).Value("mops")), Figure(at("dslr", 0).Value("mn_ops_per_op")),
			Figure(at("dslr", 0).Value("p50_us")), Figure(at("dslr:busy", 0).Value("mops")), Figure(at("dslr:busy", 0).Value("mn_ops_per_op")), Figure(at("dslr:busy", 0).Value("p50_us")))
		return []Claim{
			Claim{Text: "no delay: dynamic polling's operations on the memory node a second over busy polling's", Unit: "x", Paper: 0.33}.AtMost(dynamic/busy, 0.5),
			Claim{Text: "no delay: dynamic polling's throughput over busy polling's", Unit: "x", Paper: 1, Note: note}.AtLeast(Ratio(at("dslr", 0), at("dslr:busy", 0), "mops"), 1),
			Claim{Text: "delay of 100 ms: the same", Unit: "x", Paper: 1}.Near(Ratio(at("dslr", 100), at("dslr:busy", 100), "mops"), 1.03),
			Claim{Text: "no delay: busy polling's operations of what the NIC executes", Unit: "%", Paper: 15, Note: fmt.Sprintf("theirs is of 16 NICs, ours of one: of 16 such it is %.3g %%. %s", busy/16, note)}.AtMost(busy, 15),
		}
	},
}
