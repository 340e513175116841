package bench

import "fmt"

var expFig13 = &Experiment{
	Name: "fig13", Title: "Latency and retries by length of the critical section",
	Paper: "Section 6.2, Fig. 13: DecLock cuts the median latency of operations by up to 95.8 % (CASLock), 64.3 % (DSLR+) and 28.5 % (ShiftLock), and p99 by up to 98.2, 67.8 and 43.7 %. " +
		"It needs 1.10 operations on the memory node for an acquisition.",
	Columns: []string{"lock", "cs_len", "p50_us", "p99_us", "p999_us", "retries_per_acquire", "mn_ops_per_acquire", "oldest_us"},
	Points:  func(o Options) []Point { return byLength.points(o, figureLocks, lengths(o), nearLength) },
	Judge:   judgeLatency,
	Plots: func(rows Rows) []Plot {
		return []Plot{
			{Name: "fig13-median", Title: "Median latency of operations", X: lengthAxis, Y: Axis{Label: "median latency (us)", Log: true}, Series: rows.LinesByLock("cs_len", "p50_us")},
			{Name: "fig13-p99", Title: "99-percentile latency of operations", X: lengthAxis, Y: Axis{Label: "p99 latency (us)", Log: true}, Series: rows.LinesByLock("cs_len", "p99_us")},
			{Name: "fig13-retries", Title: "Retries of an acquisition", X: lengthAxis, Y: Axis{Label: "retries per acquisition", Log: true}, Series: rows.LinesByLock("cs_len", "retries_per_acquire")},
			{Name: "fig13-mn-ops", Title: "Operations on the memory node for an acquisition", X: lengthAxis, Y: Axis{Label: "operations per acquisition", Log: true}, Series: rows.LinesByLock("cs_len", "mn_ops_per_acquire")},
		}
	},
}

// judgeLatency compares the better of the two policies of the paper, at the length at which that is best.
func judgeLatency(rows Rows) []Claim {
	// cut returns the cut at each length, in percent, by the better of the paper's policies.
	cut := func(other, metric string) Along {
		return better(rows.Cuts("declock-tf", other, "cs_len", metric), rows.Cuts("declock-pf", other, "cs_len", metric))
	}
	tail := func(lock string, n int) Row { return rows.Find("lock", lock, "cs_len", n) }
	// waits explains medians, and tails p99s.
	waits := func(lock string) string {
		return fmt.Sprintf("the median operation does not wait, and is slower only where the retries of others saturate the NIC: with 32 data operations %s has %s retries an acquisition, its median is %s us, an acquisition's %s; DecLock-TF's %s and %s",
			lock, Figure(tail(lock, 32).Value("retries_per_acquire")), Figure(tail(lock, 32).Value("p50_us")), Figure(tail(lock, 32).Value("acquire_p50_us")),
			Figure(tail("declock-tf", 32).Value("p50_us")), Figure(tail("declock-tf", 32).Value("acquire_p50_us")))
	}
	tails := func(lock string) string {
		return fmt.Sprintf("with one data operation the p99 of %s is %s us at %s Mops, of DecLock-TF %s at %s, of DecLock-PF %s at %s: with as many clients waiting, more throughput means shorter waits",
			lock, Figure(tail(lock, 1).Value("p99_us")), Figure(tail(lock, 1).Value("mops")), Figure(tail("declock-tf", 1).Value("p99_us")), Figure(tail("declock-tf", 1).Value("mops")),
			Figure(tail("declock-pf", 1).Value("p99_us")), Figure(tail("declock-pf", 1).Value("mops")))
	}
	return []Claim{
		Claim{Text: "median cut against CASLock, up to", Unit: "%", Paper: 95.8, Prototype: "95.7"}.UpTo(cut("cas", "p50_us"), Claim.Near, 1.25),
		Claim{Text: "median cut against DSLR+, up to", Unit: "%", Paper: 64.3, Note: waits("dslr+")}.UpTo(cut("dslr+", "p50_us"), Claim.Near, 1.25),
		Claim{Text: "median cut against DSLR+ with the overflowing backoff, up to", Unit: "%", Paper: 64.3, Prototype: "50", Note: waits("dslr+-overflow")}.UpTo(cut("dslr+-overflow", "p50_us"), Claim.Near, 1.25),
		Claim{Text: "median cut against ShiftLock (letter), up to", Unit: "%", Paper: 28.5, Prototype: "0", Note: waits("shift")}.UpTo(cut("shift", "p50_us"), Claim.Near, 1.5),
		Claim{Text: "median cut against ShiftLock (as published, no pauses), up to", Unit: "%", Paper: 28.5, Note: waits("shift-artifact")}.UpTo(cut("shift-artifact", "p50_us"), Claim.Near, 1.5),
		Claim{Text: "p99 cut against CASLock, up to", Unit: "%", Paper: 98.2, Prototype: "98.0"}.UpTo(cut("cas", "p99_us"), Claim.Near, 1.25),
		Claim{Text: "p99 cut against DSLR+, up to", Unit: "%", Paper: 67.8}.UpTo(cut("dslr+", "p99_us"), Claim.Near, 1.5),
		Claim{Text: "p99 cut against DSLR+ with the overflowing backoff, up to", Unit: "%", Paper: 67.8, Prototype: "52"}.UpTo(cut("dslr+-overflow", "p99_us"), Claim.Near, 1.5),
		Claim{Text: "p99 cut against ShiftLock (letter), up to", Unit: "%", Paper: 43.7, Prototype: "35", Note: tails("shift")}.UpTo(cut("shift", "p99_us"), Claim.Near, 1.5),
		Claim{Text: "p99 cut against ShiftLock (as published, no pauses), up to", Unit: "%", Paper: 43.7, Note: tails("shift-artifact")}.UpTo(cut("shift-artifact", "p99_us"), Claim.Near, 1.5),
		Claim{Text: "DecLock-PF's p99 over DecLock-TF's without data operations", Unit: "x",
			Note: fmt.Sprintf("the paper: lower at first. p99 of DecLock-PF is %s us, of DecLock-TF %s, at %s and %s Mops",
				Figure(tail("declock-pf", 0).Value("p99_us")), Figure(tail("declock-tf", 0).Value("p99_us")), Figure(tail("declock-pf", 0).Value("mops")), Figure(tail("declock-tf", 0).Value("mops")))}.
			AtMost(Ratio(tail("declock-pf", 0), tail("declock-tf", 0), "p99_us"), 1),
		Claim{Text: "DecLock-PF's p99 over DecLock-TF's with 32 data operations", Unit: "x", Note: "the paper: surpasses it as sections get longer"}.
			AtLeast(Ratio(tail("declock-pf", 32), tail("declock-tf", 32), "p99_us"), 1),
	}
}
