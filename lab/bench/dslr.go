package bench

import "slices"

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
		s.locks = []string{"cas", "dslr", paperDSLR, "dslr:busy", "dslr+", "declock-tf", "declock"}
	}
	return s
}

// paperDSLR pauses for 5 us for each ticket, which DSLR's paper took for its cluster; dslr is tuned to the model's round trip, as the paper says.
const paperDSLR = "dslr:wait:5"

// formsOfDSLR are its forms that polling distinguishes: what is set against "the best" is set against these.
var formsOfDSLR = []string{"dslr", paperDSLR, "dslr:busy", "dslr+"}

// dslrOthers are its baselines but Retry-on-Fail, which is cas; dslrFar those of them that send messages, which take as long within a node as between nodes.
var (
	dslrOthers = []string{"ncosed", "drtm", manager}
	dslrFar    = []string{"ncosed", manager}
)

// dslrOthersNamed are dslrOthers with their names.
var dslrOthersNamed = [][2]string{{"ncosed", "N-CoSED"}, {"drtm", "DrTM"}, {manager, "Traditional"}}

// managed says what decides figures of a lock manager's lock beside DSLR's.
func managed(lock string) string {
	if lock != manager {
		return ""
	}
	return "waiters of a lock manager do not poll, and its workers keep up: a request takes 1 us, an assumption. DSLR's waiters pause for 2 us for each ticket before theirs. "
}

// latenciesOver are the claims that DSLR's latencies are below those of another lock, which is given with its name.
func latenciesOver(rows Rows, other [2]string, param, note string) []Claim {
	tail, mean := rows.Along("dslr", other[0], param, "p999_us"), rows.Along("dslr", other[0], param, "mean_us")
	return []Claim{
		Claim{Text: "DSLR's 99.9 % latency over that of " + other[1] + ", at most", Unit: "x", Sweep: tail, Note: note}.AtMost(tail.Most(), 1),
		Claim{Text: "DSLR's mean latency over that of " + other[1] + ", at most", Unit: "x", Sweep: mean, Note: note}.AtMost(mean.Most(), 1),
	}
}

var (
	powerAxis = Axis{Label: "exponent of the power law", Ticks: []float64{1.5, 2, 2.5, 3}}

	dslr14 = dslrSweep(sweep{course: course{"theta", powerAxis, bySkew.set}, near: anyOf("dslr", "cas"), all: []float64{1.5, 2, 2.5, 3}, few: []float64{1.5, 2, 3}})
	dslr15 = dslrSweep(sweep{course: byReads, more: dslrOthers, all: []float64{0, 20, 40, 60, 80, 100}, few: []float64{0, 50, 100}})
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
	speed, tail, ours := rows.Along("dslr", "cas", param, "mops"), rows.Along("dslr", "cas", param, "p999_us"), rows.OverBest("declock", formsOfDSLR, param, "mops", Most)
	mean := rows.Along("dslr", "cas", param, "mean_us")
	return []Claim{
		Claim{Text: "DSLR's throughput over Retry-on-Fail's, at least", Unit: "x", Sweep: speed, Note: both(rows, "dslr", "cas", param, "mops")}.AtLeast(speed.Least(), 1),
		Claim{Text: "DSLR's 99.9 % latency over Retry-on-Fail's, at most", Unit: "x", Sweep: tail, Note: both(rows, "dslr", "cas", param, "p999_us")}.AtMost(tail.Most(), 1),
		Claim{Text: "DSLR's mean latency over Retry-on-Fail's, at most", Unit: "x", Sweep: mean, Note: both(rows, "dslr", "cas", param, "mean_us")}.AtMost(mean.Most(), 1),
		Claim{Own: true, Text: "declock's throughput over that of the best DSLR, at least", Unit: "x", Sweep: ours}.AtLeast(ours.Least(), 0.97),
	}
}

var expDSLR15 = &Experiment{
	Name: "dslr15", Other: true, Title: "DSLR's Fig. 15: throughput and tail latency by ratio of reads",
	Paper:   "DSLR's paper, appendix A.4, power law of exponent 2: but for reads only, where DrTM needs no unlock, DSLR has a better overall performance than all others. DrTM's dropped significantly as soon as there were shared locks." + dslrNote,
	Columns: dslrColumns, Points: dslr15.points, Plots: dslr15.plots("dslr15", "Throughput by ratio of reads"),
	Judge: func(rows Rows) []Claim {
		mixed := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Value("read_pct") == 100 })
		over := mixed.OverBest("dslr", dslrOthers, "read_pct", "mops", Most)
		only := rows.Where("read_pct", 100).OverBest("drtm", []string{"cas", "dslr", "ncosed", manager}, "read_pct", "mops", Most)
		var shared Along // what DrTM has with shared locks of what it has without
		for _, r := range mixed.Where("lock", "drtm") {
			if r.Value("read_pct") > 0 {
				shared.addRatio(r.Text("read_pct"), r, mixed.Find("lock", "drtm", "read_pct", 0), "mops")
			}
		}
		fewest := missing
		if shared.Param = "read_pct"; len(shared.Values) > 0 {
			fewest = shared.Values[0]
		}
		claims := []Claim{
			Claim{Text: "DSLR's throughput over the best of N-CoSED, DrTM and Traditional, at least", Unit: "x", Sweep: over,
				Note: "waiters of a lock manager (parlock) do not poll, and those of dslr pause for 2 us for each ticket before theirs. " + both(mixed, "dslr", manager, "read_pct", "mops") + "; " + both(mixed, "ncosed", "drtm", "read_pct", "mops")}.AtLeast(over.Least(), 1),
			Claim{Text: "reads only: DrTM's throughput over the best other's", Unit: "x", Note: "of drtm, from an uncertainty of the clocks, 50 us, before the end of a lease to as long after it no reader can join it, and none can replace it: a tenth of the time all wait. " + byLock(rows.Where("read_pct", 100), "mops", "mn_ops_per_op", "p99_us")}.AtLeast(Least(only.Values), 1),
			Claim{Text: "DrTM's throughput with the fewest shared locks over that with none: it drops significantly", Unit: "x", Sweep: shared, Note: "a writer of drtm waits until the leases of readers have expired. " + inWords(mixed, "drtm", "read_pct", "mops")}.AtMost(fewest, 0.67),
		}
		for _, x := range dslrOthersNamed {
			claims = append(claims, latenciesOver(mixed, x, "read_pct", managed(x[0])+both(mixed, "dslr", x[0], "read_pct", "mean_us")+"; "+both(mixed, "dslr", x[0], "read_pct", "p999_us"))...)
		}
		return append(claims, dslrOverRetries(mixed, "read_pct")...)
	},
}
