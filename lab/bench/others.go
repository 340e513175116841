package bench

import "slices"

// The other baselines of ShiftLock's and DSLR's evaluations, on the testbeds of their Figs. 4 and 14. Beside each there is the lock of the paper.
var (
	others4 = shiftSweep(sweep{locks: append(slices.Clone(shiftOthers), "rmarw"+atOnce, delayed, "shift-artifact", "declock-pf", "declock", slow), near: anyOf(delayed, "shift-artifact", "declock", slow), course: byCores, all: []float64{240}, few: []float64{240}, loads: shift4.loads})

	others14 = dslrSweep(sweep{locks: append(slices.Clone(dslrOthers), "dslr", "dslr:busy", "declock-tf", "declock"), near: anyOf("dslr", "ncosed", "drtm"), course: dslr14.course, all: dslr14.all, few: dslr14.few})
)

var expOthers4 = &Experiment{
	Name: "others4", Other: true, Title: "ShiftLock's Figs. 4 to 6: DrTM's lease lock, RMA-RW and RPC",
	Paper: "ShiftLock's paper, section 4.2: uniform, DrTM and RMA-RW have 1.99 and 2.26x the lowest p99, and RPC has high latencies and low goodput; with 50 % reads (WI) and 95 % (RI), Zipf 0.99, " +
		"ShiftLock has 1.27 and 1.26x the goodput of RMA-RW, with \"6.25% and 76.6% lower p99 latencies\" (see shift4), up to 26.91x that of others, with comparable or significantly lower latencies; reads only, it is close to RMA-RW; and with WI RMA-RW takes 0.94 atomics and 1.25 READs more than its 2.01 and 0.36. Readers of drtm:half join a lease of which half is left, as in ShiftLock's code.",
	Columns: shiftColumns, Points: others4.points,
	Judge: func(rows Rows) []Claim {
		at := func(part, lock string) Row { return rows.Find("part", part, "lock", lock) }
		over := func(part, lock, metric string) float64 { return Ratio(at(part, delayed), at(part, lock), metric) }
		least := missing
		if rpc := rows.Along(delayed, theirRPC, "part", "mops"); len(rpc.Values) > 0 {
			least = rpc.Least()
		}
		// of says how many operations a lock needs, and what it has of throughput and latency, beside ShiftLock.
		of := func(part, lock string) string {
			return byLock(Rows{at(part, lock), at(part, delayed)}, "mops", grantTail, "mn_ops_per_op")
		}
		leases := "every lock has been used before, so that half of the words are an expired lease, which costs a second CAS. " + of("WI, uniform", halfDrTM)
		chains := "a writer of rmarw goes through 7 chains, one after the other, where others need 2, and half of the clients write. " + of("WI, uniform", "rmarw")
		expiry := "a writer of drtm:half waits until the readers' lease has expired, and each reader leases anew: how long a lease lasts decides. " + of("WI", halfDrTM)
		ahead := rows.OverBest("declock", []string{halfDrTM, "rmarw" + atOnce, theirRPC, "shift-artifact"}, "part", "mops", Most)
		slowed := rows.OverBest(slow, []string{halfDrTM, "rmarw", theirRPC, delayed}, "part", "mops", Most)
		free := "DrTM's readers release nothing: one operation where the others need two. " + byLock(rows.Where("part", "RI, uniform"), "mops", "mn_ops_per_op")
		skewed := append(rows.Where("part", "WI"), rows.Where("part", "RI")...)
		tails := "half of the operations write, and the writers of ShiftLock and RMA-RW alike queue behind the hottest lock: 99 % latencies are that queue. " + both(skewed, delayed, "rmarw", "part", grantTail) + "; " + both(skewed, delayed, "rmarw", "part", "mops")
		claims := []Claim{
			Claim{Text: "uniform, WI: DrTM's p99 over ShiftLock's", Unit: "x", Paper: 1.99, Note: leases}.Near(1/over("WI, uniform", halfDrTM, grantTail), 1.5),
			Claim{Text: "uniform, WI: RMA-RW's p99 over ShiftLock's", Unit: "x", Paper: 2.26, Note: chains}.Near(1/over("WI, uniform", "rmarw", grantTail), 1.5),
			Claim{Text: "WI: ShiftLock over RMA-RW", Unit: "x", Paper: 1.27}.Near(over("WI", "rmarw", "mops"), 1.25),
			Claim{Text: "RI: ShiftLock over RMA-RW", Unit: "x", Paper: 1.26}.Near(over("RI", "rmarw", "mops"), 1.25),
			Claim{Text: "WI: p99 cut against RMA-RW", Unit: "%", Paper: 6.25, Note: tails, Spread: spread(grantTail, at("WI", delayed), at("WI", "rmarw"))}.AtLeast(Cut(at("WI", delayed), at("WI", "rmarw"), grantTail), 0),
			Claim{Text: "RI: p99 cut against RMA-RW", Unit: "%", Paper: 76.6, Note: tails}.Near(Cut(at("RI", delayed), at("RI", "rmarw"), grantTail), 1.25),
			Claim{Text: "RO: ShiftLock over RMA-RW", Unit: "x", Paper: 1}.Near(over("RO", "rmarw", "mops"), 1.1),
			Claim{Text: "WI: RMA-RW's operations on the memory node for each acquisition and release", Paper: 4.56}.Near(valueOf(at("WI", "rmarw"), "mn_ops_per_op"), 1.25),
			Claim{Text: "WI: ShiftLock over DrTM", Unit: "x", Note: expiry}.Within(over("WI", halfDrTM, "mops"), 1.56, 26.91),
			Claim{Text: "ShiftLock over RPC, at least", Unit: "x"}.AtLeast(least, 1.56),
			Claim{Own: true, Text: "no messages delayed: declock's goodput over the best of these, at least", Unit: "x", Sweep: ahead, Note: free}.AtLeast(ahead.Least(), 0.97),
			Claim{Own: true, Text: "messages within a node delayed for all: the same", Unit: "x", Sweep: slowed, Note: free}.AtLeast(slowed.Least(), 0.97),
		}
		for _, m := range [][2]string{{"median", grantMedian}, {"99 %", grantTail}} {
			for _, x := range [][2]string{{halfDrTM, "DrTM"}, {theirRPC, "RPC"}} {
				a := skewed.Along(delayed, x[0], "part", m[1])
				claims = append(claims, Claim{Text: "WI, RI: ShiftLock's " + m[0] + " latency over that of " + x[1] + ", at most", Unit: "x", Sweep: a, Note: both(skewed, delayed, x[0], "part", m[1])}.AtMost(a.Most(), alikeBar))
			}
		}
		return claims
	},
}

var expOthers14 = &Experiment{
	Name: "others14", Other: true, Title: "DSLR's Fig. 14: N-CoSED, DrTM's lease lock and Traditional",
	Paper:   "DSLR's paper, appendix A.4, power law of exponent 1.5 to 3, 50 % reads: DSLR has the lowest average and 99.9 % latencies across all contention levels; N-CoSED and DrTM are affected most by skew.",
	Columns: dslrColumns, Points: others14.points, Plots: others14.plots("others14", "Throughput by skew"),
	Judge: func(rows Rows) (claims []Claim) {
		kept := func(lock string) float64 {
			of := rows.Where("lock", lock)
			return Ratio(of.Find("theta", 3), of.Find("theta", 1.5), "mops")
		}
		for _, x := range dslrOthersNamed {
			speed, note := rows.Along("dslr", x[0], "theta", "mops"), managed(x[0])+both(rows, "dslr", x[0], "theta", "mops")
			claims = append(append(claims, Claim{Text: "DSLR's throughput over that of " + x[1] + ", at least", Unit: "x", Sweep: speed, Note: note}.AtLeast(speed.Least(), 1)),
				latenciesOver(rows, x, "theta", note)...)
		}
		ours := rows.OverBest("declock", append(slices.Clone(dslrOthers), "dslr", "dslr:busy"), "theta", "mops", Most)
		slow := "one lock bounds each of these, with any exponent: the most popular has 38 % of the draws with 1.5, and 83 % with 3. What is lost is about the same, and DrTM has least to lose. " + both(rows, "dslr", "ncosed", "theta", "mops") + "; " + inWords(rows, "drtm", "theta", "mops")
		return append(claims, Claim{Text: "what DSLR keeps with exponent 3 of 1.5, over what N-CoSED keeps", Unit: "x", Note: slow}.AtLeast(kept("dslr")/kept("ncosed"), 1),
			Claim{Text: "the same, over what DrTM keeps", Unit: "x", Note: slow}.AtLeast(kept("dslr")/kept("drtm"), 1),
			Claim{Own: true, Text: "declock's throughput over the best of these, at least", Unit: "x", Sweep: ours}.AtLeast(ours.Least(), 1))
	},
}
