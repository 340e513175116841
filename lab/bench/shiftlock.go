package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/fabric/sim"
)

// shiftSweep is a figure of ShiftLock's paper (section 4.1): 240 clients on the cores of 5 nodes, ConnectX-5, locks acquired and released at
// once, 10 million of them. MCS, ShiftLock and RMA-RW delay messages within a node to be as slow as others, and RPC's server is a machine of its own. CAS and MCS have no
// shared holders.
func shiftSweep(s sweep) sweep {
	s.testbed = func(m *Micro) {
		m.NIC, m.Clients, m.CNs, m.CoreClients, m.CSLen, m.Locks, m.Steps = "cx5", 240, 5, 1, 0, 10_000_000, true
		if m.farMessages("mcs", "shift", "rmarw", "rpc"); m.Tune != "" || strings.HasPrefix(m.Lock, "shift-artifact:") { // or ShiftLock as published, delayed
			name, _, _ := strings.Cut(m.Lock, ":")
			m.farMessages(name)
		}
		m.Used = isDrTM(m.Lock)
	}
	s.mutexes = []string{"cas", "cas-backoff", "mcs"}
	if s.locks == nil {
		s.locks = []string{"cas-backoff", "mcs", theirDSLR, "dslr+", "dslr:busy", "shift", "shift-artifact", delayed, "declock-pf", "declock"}
	}
	return s
}

// shiftBaselines are those of its baselines that are in shift4, DSLR in each of its forms; shiftOthers, DrTM's lease lock, RMA-RW and RPC, are in others4.
var (
	shiftBaselines = []string{"cas-backoff", "mcs", theirDSLR, "dslr+", "dslr:busy"}
	shiftOthers    = []string{halfDrTM, "rmarw", theirRPC}
	allShift       = slices.Concat(shiftBaselines, shiftOthers, shortPauses)
	// txnBaselines are those in the figures of transactions, which have no other form of DSLR.
	txnBaselines = []string{"cas-backoff", "mcs", theirDSLR, halfDrTM, "rmarw"}
)

// shortDSLR and shorterDSLR pause for less than the model's round trip for each ticket: on ShiftLock's loads one of them does most of all forms of DSLR.
const shortDSLR, shorterDSLR = "dslr:wait:0.5", "dslr:wait:1"

var shortPauses = []string{shorterDSLR, shortDSLR}

// theirDSLR and theirRPC are DSLR and RPC as they are in ShiftLock's figures, by its authors' code: waiters pause for 1862 ns for each ticket, and readers for those of writers alone; 47
// threads serve, and a release waits for its answer. (So is cas-backoff.)
const theirDSLR, theirRPC = "dslr:shiftlock", "rpc:shiftlock"

// halfDrTM is DrTM's lock as it is in ShiftLock's figures, by its authors' code: a reader joins a lease of which half is left. In DSLR's figures it is that of DrTM's
// paper, which joins any that is valid.
const halfDrTM = "drtm:half"

// isDrTM reports whether a lock is one of the two: whether a lock that has been used differs from a new one.
func isDrTM(lock string) bool { return lock == "drtm" || strings.HasPrefix(lock, "drtm:") }

// reading returns a load with a percentage of reads, and the Zipf exponent of its locks.
func reading(name string, reads int, theta float64) load {
	return load{name, func(m *Micro) { m.ReadPct, m.Theta = reads, theta }}
}

var (
	writeIntensive, readIntensive = reading("WI", 50, 0.99), reading("RI", 95, 0.99)

	byCores = course{"clients", Axis{Label: "clients (on 5 compute nodes)", Ticks: []float64{5, 40, 80, 120, 160, 200, 240}}, byClients.set}

	shift4 = shiftSweep(sweep{course: byCores, near: anyOf("mcs", delayed), all: []float64{240}, few: []float64{240}, loads: []load{
		reading("WI, uniform", 50, 0), reading("RI, uniform", 95, 0), reading("RO, uniform", 100, 0),
		writeIntensive, readIntensive, reading("RO", 100, 0.99)}})
	// shift4Short are forms of DSLR that differ from the others where clients wait.
	shift4Short = shiftSweep(sweep{course: byCores, all: []float64{240}, few: []float64{240}, locks: shortPauses, loads: []load{writeIntensive, readIntensive}})
	shift7      = shiftSweep(sweep{course: byLocks, more: slices.Concat(shiftOthers, shortPauses), all: []float64{1000, 10_000, 100_000, 1_000_000, 10_000_000}, few: []float64{1000, 10_000_000},
		loads: []load{writeIntensive}})
	shift8 = shiftSweep(sweep{course: byCores, near: func(_ string, v float64) bool { return v == 20 || v == 40 }, more: slices.Concat(shiftOthers, shortPauses), all: []float64{5, 20, 40, 80, 120, 160, 240}, few: []float64{20, 40, 240},
		loads: []load{writeIntensive, readIntensive}})
	shift9 = shiftSweep(sweep{course: byCores, all: []float64{5, 20, 40, 80, 120, 160, 240}, few: []float64{40, 240},
		locks: []string{delayed}, ends: []string{"declock-pf", "declock"}, loads: []load{
			reading("WI, uniform", 50, 0), reading("WI, Zipf 0.5", 50, 0.5), reading("WI, Zipf 0.9", 50, 0.9), reading("WI, Zipf 0.99", 50, 0.99),
			reading("RI, uniform", 95, 0), reading("RI, Zipf 0.5", 95, 0.5), reading("RI, Zipf 0.9", 95, 0.9), reading("RI, Zipf 0.99", 95, 0.99)}})

	// shift9Few has DecLock where runs are short.
	shift9Few = shiftSweep(sweep{course: byCores, all: []float64{5, 40}, few: []float64{5, 40}, locks: shift9.ends, loads: shift9.loads})
)

// Latencies of that paper's figures end with the grant: acquire_p50_us and acquire_p99_us. The others end with the release.
var shiftColumns = []string{"part", "lock", "clients", "locks", "mops", "p50_us", "p99_us", "acquire_p50_us", "acquire_p99_us", "retries_per_acquire", "mn_ops_per_op"}

var expShift4 = &Experiment{
	Name: "shift4", Other: true, Title: "ShiftLock's Figs. 4 to 6: goodput, latency and operations on the memory node, 240 clients",
	Paper: "ShiftLock's paper (FAST 2025), section 4.2: uniform, ShiftLock has the lowest latencies and the highest goodputs together with CAS, DSLR and MCS; reads only, it is close to DSLR, and CAS and MCS are significantly worse. " +
		"Zipf 0.99 with 50 % (WI) and 95 % reads (RI): 1.65 and 3.62x MCS, 1.27 and 1.26x RMA-RW, \"also, it has 6.25% and 76.6% lower p99 latencies\"; 1.56 to 26.91x CAS, DrTM, DSLR and RPC, with comparable or significantly lower latencies. " +
		"The two numbers are judged as those with WI and with RI, as the sentence begins, over both locks; they can be read as those over MCS and over RMA-RW, too. RPC, RMA-RW and DrTM's lease lock are in others4. Latencies are judged to the grant, as its Fig. 5 has them.",
	Columns: shiftColumns, Points: func(o Options) []Point { return append(shift4.points(o), shift4Short.points(o)...) }, Judge: judgeShift4,
	Plots: func(rows Rows) []Plot {
		return []Plot{rows.bars("shift4", "Goodput, 240 clients", "part", "mops", Axis{Label: goodputLabel}), rows.bars("shift4-median", "Median latency to the grant, 240 clients", "part", "acquire_p50_us", Axis{Label: "median (us)"})}
	},
}

func judgeShift4(rows Rows) []Claim {
	at := func(part, lock string) Row { return rows.Find("part", part, "lock", lock) }
	uniform := append(append(rows.Where("part", "WI, uniform"), rows.Where("part", "RI, uniform")...), rows.Where("part", "RO, uniform")...)
	skewed := append(rows.Where("part", "WI"), rows.Where("part", "RI")...)
	goodput := uniform.OverBest(delayed, shiftBaselines, "part", "mops", Most)
	tail := uniform.OverBest(delayed, shiftBaselines, "part", grantTail, Least)
	others := skewed.OverBest(delayed, slices.Concat([]string{"cas-backoff"}, shiftBaselines[2:], shortPauses), "part", "mops", Most)
	ops := func(part, lock string, paper, factor float64) Claim {
		return Claim{Text: fmt.Sprintf("%s: operations on the memory node for each acquisition and release, %s", part, lock), Paper: paper,
			Note: fmt.Sprintf("DSLR+, which pauses for 0.1 to 3.2 us and not for 1.862 us for each ticket before its own, has %s: theirs waits less between looks. Its Table 4 has 75 us of waiting for 7.9 READs",
				Figure(at(part, "dslr+").Value("mn_ops_per_op")))}.Near(valueOf(at(part, lock), "mn_ops_per_op"), factor)
	}
	speeds := fmt.Sprintf("uniform, where nothing waits for a lock, ShiftLock has %s Mops, %.3g times MCS's: more the NIC does not execute. %s",
		Figure(at("RI, uniform", delayed).Value("mops")), Ratio(at("RI, uniform", delayed), at("RI", "mcs"), "mops"), both(skewed, delayed, "mcs", "part", "mops"))
	tails := both(skewed, delayed, "mcs", "part", grantTail)
	return append([]Claim{
		Claim{Text: "uniform: ShiftLock's goodput over the best of CAS, MCS, DSLR, at least", Unit: "x", Paper: 1, Sweep: goodput}.AtLeast(goodput.Least(), 0.95),
		Claim{Text: "uniform: ShiftLock's p99 over the lowest of them, at most", Unit: "x", Paper: 1, Sweep: tail}.AtMost(tail.Most(), 1.05),
		Claim{Text: "RO: ShiftLock over DSLR", Unit: "x", Paper: 1}.Near(Ratio(at("RO", delayed), at("RO", theirDSLR), "mops"), 1.1),
		Claim{Text: "RO: ShiftLock over the better of CAS and MCS", Unit: "x"}.AtLeast(Least(rows.Where("part", "RO").OverBest(delayed, shiftBaselines[:2], "part", "mops", Most).Values), 1.5),
		Claim{Text: "WI: ShiftLock over MCS", Unit: "x", Paper: 1.65, Note: speeds}.Near(Ratio(at("WI", delayed), at("WI", "mcs"), "mops"), 1.25),
		Claim{Text: "RI: ShiftLock over MCS", Unit: "x", Paper: 3.62, Note: speeds}.Near(Ratio(at("RI", delayed), at("RI", "mcs"), "mops"), 1.25),
		Claim{Text: "WI: p99 cut against MCS", Unit: "%", Paper: 6.25, Note: "half of the operations write, and the writers of both queue behind the hottest lock: 99 % latencies are that queue. " + tails, Spread: spread(grantTail, at("WI", delayed), at("WI", "mcs"))}.AtLeast(Cut(at("WI", delayed), at("WI", "mcs"), grantTail), 0),
		Claim{Text: "RI: p99 cut against MCS", Unit: "%", Paper: 76.6, Note: tails}.Near(Cut(at("RI", delayed), at("RI", "mcs"), grantTail), 1.25),
		Claim{Text: "WI, RI: ShiftLock over the better of CAS and DSLR in any form, at least", Unit: "x", Paper: 1.56, Sweep: others,
			Note: "theirs is one form of DSLR, and its pause 1.862 us a ticket. With half of that and less it is faster: a word that mostly readers hold is free soon, and the NIC has room for these READs: " + byLock(skewed.Where("part", "RI"), "mops", "mn_ops_per_op")}.Near(others.Least(), 1.25),
		ops("WI", delayed, 2.37, 1.25), ops("RI", delayed, 2.21, 1.25), ops("WI", "cas-backoff", 2.36, 1.25), ops("WI", theirDSLR, 9.92, 1.5), ops("RI", theirDSLR, 3, 1.5),
		declockOverShift(rows, "part"),
	}, judgeComparable(skewed)...)
}

// grantMedian and grantTail are latencies that end with the grant.
const grantMedian, grantTail = "acquire_p50_us", "acquire_p99_us"

// alikeBar is up to how many times another latency one is comparable or lower.
const alikeBar = 1.25

// judgeComparable judges that ShiftLock's latencies are comparable to those of CAS and DSLR, or lower.
func judgeComparable(skewed Rows) (claims []Claim) {
	forms := slices.Concat(shiftBaselines[2:], shortPauses)
	full := ". With RI ShiftLock fills the NIC, and all of its clients wait for that; of the others few wait, for long: mean_us by lock: "
	for _, r := range skewed.Where("part", "RI") {
		if l := r.Text("lock"); l == delayed || l == "cas-backoff" || l == shorterDSLR {
			full += fmt.Sprintf("%s %s; ", l, Figure(r.Value("mean_us")))
		}
	}
	full = strings.TrimSuffix(full, "; ")
	cas := skewed.Find("lock", "cas-backoff")
	few := fmt.Sprintf("the paper itself says that CAS can have lower latencies (section 4.3). Nine of ten acquisitions of cas-backoff take %s us at most, and what the others wait for is in its 99.9 %% latency, %s us with the release, where ShiftLock's is %s: ",
		Figure(cas.Value("acquire_p90_us")), Figure(cas.Value("p999_us")), Figure(skewed.Find("part", "WI", "lock", delayed).Value("p999_us")))
	for _, m := range [][2]string{{"median", grantMedian}, {"99 %", grantTail}} {
		over, dslr := skewed.Along(delayed, "cas-backoff", "part", m[1]), skewed.OverBest(delayed, forms, "part", m[1], Least)
		claims = append(claims,
			Claim{Text: "WI, RI: ShiftLock's " + m[0] + " latency over CAS's, at most", Unit: "x", Sweep: over, Note: few + both(skewed, delayed, "cas-backoff", "part", m[1]) + full}.AtMost(over.Most(), alikeBar),
			Claim{Text: "WI, RI: ShiftLock's " + m[0] + " latency over the lowest of DSLR's in any form, at most", Unit: "x", Sweep: dslr,
				Note: "over that of dslr:shiftlock, their form of DSLR, it is " + skewed.Along(delayed, theirDSLR, "part", m[1]).String() + ". 99 % latencies with WI are the queue of the hottest lock, where a turn of ShiftLock is a message, and one of DSLR a READ after a pause: " +
					both(skewed, delayed, shorterDSLR, "part", m[1]) + "; " + inWords(skewed, shortDSLR, "part", m[1]) + full}.AtMost(dslr.Most(), alikeBar))
	}
	return claims
}

// declockOverShift is the project's claim beside a figure of ShiftLock.
func declockOverShift(rows Rows, param string) Claim {
	a := rows.OverBest("declock", []string{"shift", "shift-artifact", delayed}, param, "mops", Most)
	return Claim{Own: true, Text: "declock over the best ShiftLock, at the worst point", Unit: "x", Sweep: a, Note: both(rows, "declock", "shift-artifact", param, "mops")}.AtLeast(a.Least(), 0.97)
}

var expShift7 = &Experiment{
	Name: "shift7", Other: true, Title: "ShiftLock's Fig. 7: goodput and latency by number of locks",
	Paper:   "ShiftLock's paper, section 4.3, Zipf 0.99, 50 % reads: ShiftLock constantly has the highest goodput, 1.52x of baselines with 1,000 locks and 1.38x with 10 million; CAS can have lower latencies.",
	Columns: shiftColumns, Points: shift7.points, Plots: shift7.plots("shift7", "Goodput by number of locks"),
	Judge: func(rows Rows) []Claim {
		a := rows.OverBest(delayed, allShift, "locks", "mops", Most)
		few, many := a.at(1000), a.at(10_000_000)
		median := rows.Along("cas-backoff", delayed, "locks", grantMedian)
		var busy Along
		for _, r := range rows.Where("lock", delayed) {
			busy.add(r.Text("locks"), pipeShare(r, sim.CX5()))
		}
		busy.Param = "locks"
		note := fmt.Sprintf("the hottest locks bound all of these, with few locks as with many: ShiftLock needs, of what the NIC executes, in percent %v. %s; %s",
			busy, both(rows, delayed, "rmarw", "locks", "mops"), both(rows, "cas-backoff", "mcs", "locks", "mops"))
		return []Claim{
			Claim{Text: "ShiftLock over the best baseline, at least", Unit: "x", Sweep: a, Note: note}.AtLeast(a.Least(), 1),
			Claim{Text: "the same with 1,000 locks", Unit: "x", Paper: 1.52, Note: note}.Near(few, 1.25),
			Claim{Text: "the same with 10 million locks", Unit: "x", Paper: 1.38, Note: note}.Near(many, 1.25),
			Claim{Text: "with 1,000 locks over that with 10 million", Unit: "x", Paper: 1.1, Note: note}.AtLeast(few/many, 1),
			Claim{Text: "CAS's median latency over ShiftLock's, at least", Unit: "x", Sweep: median, Note: "the median acquisition meets no other, and is one round trip, of CAS as of ShiftLock. " + both(rows, "cas-backoff", delayed, "locks", grantMedian)}.AtMost(median.Least(), 1),
			declockOverShift(rows, "locks"),
		}
	},
}

// pipeShare returns how much of what the pipeline of a NIC executes the operations of a row are, in percent.
func pipeShare(r Row, n sim.NIC) float64 {
	return valueOf(r, "mops") * r.Value("mn_ops_per_op") * float64(n.Pipe) / 10
}

var expShift8 = &Experiment{
	Name: "shift8", Other: true, Title: "ShiftLock's Fig. 8: goodput and latency by number of clients",
	Paper: "ShiftLock's paper, section 4.3, Zipf 0.99: ShiftLock scales to 80 clients (WI, 50 % reads) or 120 (RI, 95 %), and keeps a stable goodput with more. " +
		"The plateaus prove that the server's NIC is the bottleneck. It outperforms the baselines.",
	Columns: shiftColumns, Points: shift8.points, Plots: shift8.plots("shift8", "Goodput by number of clients"),
	Judge: func(rows Rows) (claims []Claim) {
		for _, c := range []struct {
			part    string
			reached float64
		}{{"WI", 80}, {"RI", 120}} {
			part := rows.Where("part", c.part)
			ours := part.Where("lock", delayed)
			last := ours.Find("clients", 240)
			scales := missing
			for _, r := range ours {
				if r.Value("mops") >= 0.9*ours.Max("mops").Value("mops") {
					scales = r.Value("clients")
					break
				}
			}
			over := part.OverBest(delayed, allShift, "clients", "mops", Most)
			speeds := inWords(part, delayed, "clients", "mops")
			claims = append(claims,
				Claim{Text: c.part + ": clients with which ShiftLock has 90 % of its greatest goodput", Paper: c.reached, Note: speeds}.Near(scales, 1.5),
				Claim{Text: fmt.Sprintf("%s: goodput with 240 clients over that with %g", c.part, c.reached), Unit: "x", Paper: 1, Note: speeds}.
					Near(Ratio(last, ours.Find("clients", c.reached), "mops"), 1.15),
				Claim{Text: c.part + ": with 240 clients, ShiftLock's operations over what the NIC executes", Unit: "%", Paper: 100,
					Note: fmt.Sprintf("half of the operations take no longer than with few clients, so they do not wait for the NIC; the others wait for hot locks: %s; %s", inWords(part, delayed, "clients", "p50_us"), inWords(part, delayed, "clients", "p99_us"))}.
					AtLeast(pipeShare(last, sim.CX5()), 90),
				Claim{Text: c.part + ": ShiftLock over the best baseline, up to", Unit: "x", Note: "with few clients few of them meet, and DSLR, which waits by READs, has no messages that are delayed; where most read, DSLR with a short pause is close behind with many, too. " +
					both(part, shorterDSLR, delayed, "clients", "mops") + "; " + inWords(part, "rmarw", "clients", "mops")}.UpTo(over, Claim.AtLeast, 1.25),
				declockOverShift(part, "clients"))
			claims[len(claims)-1].Text = c.part + ": " + claims[len(claims)-1].Text
		}
		return claims
	},
}

var expShift9 = &Experiment{
	Name: "shift9", Other: true, Title: "ShiftLock's Fig. 9: goodput by skew and clients; DecLock with 5, 40 and 240",
	Paper:   "ShiftLock's paper, section 4.3: skew and the ratio of writers are both dominating factors of ShiftLock's scalability.",
	Columns: []string{"part", "lock", "clients", "theta", "mops", "p50_us", "p99_us", "mn_ops_per_op"},
	Points: func(o Options) []Point {
		if o.Quick {
			return shift9.points(o)
		}
		return append(shift9.points(o), shift9Few.points(o)...)
	},
	Plots: func(rows Rows) []Plot {
		p := Plot{Name: "shift9", Title: "Goodput of ShiftLock by number of clients", X: shift9.axis, Y: Axis{Label: "throughput (M operations/s)"}}
		for _, l := range shift9.loads {
			p.Series = append(p.Series, rows.Where("part", l.name, "lock", delayed).Line(l.name, "clients", "mops"))
		}
		return []Plot{p}
	},
	Judge: func(rows Rows) []Claim {
		at := func(part string) Row { return rows.Find("part", part, "clients", 240) }
		note := inWords(rows.Where("clients", 240), delayed, "part", "mops")
		return []Claim{
			Claim{Text: "240 clients, 50 % reads: goodput uniform over Zipf 0.99", Unit: "x", Note: note}.AtLeast(Ratio(at("WI, uniform"), at("WI, Zipf 0.99"), "mops"), 1.25),
			Claim{Text: "240 clients, 95 % reads: the same", Unit: "x", Note: note}.AtLeast(Ratio(at("RI, uniform"), at("RI, Zipf 0.99"), "mops"), 1.05),
			Claim{Text: "240 clients, Zipf 0.99: 95 % reads over 50 %", Unit: "x", Note: note}.AtLeast(Ratio(at("RI, Zipf 0.99"), at("WI, Zipf 0.99"), "mops"), 1.25),
			Claim{Text: "240 clients, uniform: the same", Unit: "x", Paper: 1, Note: note}.Near(Ratio(at("RI, uniform"), at("WI, uniform"), "mops"), 1.1),
		}
	},
}
