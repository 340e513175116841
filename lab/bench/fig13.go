package bench

import "fmt"

func init() {
	Register(&Experiment{
		Name: "fig13", Title: "Latency and retries by length of the critical section",
		Paper: "Section 6.2, Fig. 13: DecLock cuts the median latency of operations by up to 95.8 % (CASLock), 64.3 % (DSLR+) and 28.5 % (ShiftLock), and p99 by up to 98.2, 67.8 and 43.7 %. " +
			"It needs 1.10 operations on the memory node for an acquisition.",
		Columns: []string{"lock", "cs_len", "p50_us", "p99_us", "p999_us", "retries_per_acquire", "mn_ops_per_acquire", "oldest_us"},
		Points: func(o Options) []Point {
			return sweep(o, figureLocks, changes(lengths(o), func(m *Micro, v int) { m.CSLen = v }))
		},
		Judge: judgeLatency,
		Plots: func(rows Rows) []Plot {
			return []Plot{
				{Name: "fig13-median", Title: "Median latency of operations", X: lengthAxis, Y: Axis{Label: "median latency (us)", Log: true}, Series: rows.LinesByLock("cs_len", "p50_us")},
				{Name: "fig13-p99", Title: "99-percentile latency of operations", X: lengthAxis, Y: Axis{Label: "p99 latency (us)", Log: true}, Series: rows.LinesByLock("cs_len", "p99_us")},
				{Name: "fig13-retries", Title: "Retries of an acquisition", X: lengthAxis, Y: Axis{Label: "retries per acquisition", Log: true}, Series: rows.LinesByLock("cs_len", "retries_per_acquire")},
				{Name: "fig13-mn-ops", Title: "Operations on the memory node for an acquisition", X: lengthAxis, Y: Axis{Label: "operations per acquisition", Log: true}, Series: rows.LinesByLock("cs_len", "mn_ops_per_acquire")},
			}
		},
	})
}

// judgeLatency compares the better of the two policies of the paper, at the length at which that is best.
func judgeLatency(rows Rows) []Claim {
	// cut returns the largest cut over the lengths, in percent, of the better of the paper's policies.
	cut := func(other, metric string) float64 {
		return 100 * (1 - Least(append(rows.Ratios("declock-tf", other, "cs_len", metric), rows.Ratios("declock-pf", other, "cs_len", metric)...)))
	}
	tail := func(lock string, n int) Row { return rows.Find("lock", lock, "cs_len", n) }
	return []Claim{
		Claim{Text: "median cut against CASLock, at best", Unit: "%", Paper: 95.8, Prototype: "95.7"}.AtLeast(cut("cas", "p50_us"), 94),
		Claim{Text: "median cut against DSLR+, at best", Unit: "%", Paper: 64.3, Note: "the median operation waits for nobody: it is slower only where the retries of others saturate the NIC. With a backoff that keeps its bound they do not"}.Near(cut("dslr+", "p50_us"), 1.25),
		Claim{Text: "median cut against DSLR+ with the overflowing backoff, at best", Unit: "%", Paper: 64.3, Prototype: "50"}.Near(cut("dslr+-overflow", "p50_us"), 1.25),
		Claim{Text: "median cut against ShiftLock, at best", Unit: "%", Paper: 28.5, Prototype: "0", Note: fmt.Sprintf("the median operation waits for nobody, and ShiftLock's %s retries an acquisition with 32 data operations do not saturate the model's NIC",
			Figure(tail("shift", 32).Value("retries_per_acquire")))}.Near(cut("shift", "p50_us"), 1.5),
		Claim{Text: "p99 cut against CASLock, at best", Unit: "%", Paper: 98.2, Prototype: "98.0"}.AtLeast(cut("cas", "p99_us"), 97),
		Claim{Text: "p99 cut against DSLR+, at best", Unit: "%", Paper: 67.8}.AtLeast(cut("dslr+", "p99_us"), 50),
		Claim{Text: "p99 cut against DSLR+ with the overflowing backoff, at best", Unit: "%", Paper: 67.8, Prototype: "52"}.AtLeast(cut("dslr+-overflow", "p99_us"), 50),
		Claim{Text: "p99 cut against ShiftLock, at best", Unit: "%", Paper: 43.7, Prototype: "35"}.Near(cut("shift", "p99_us"), 1.5),
		Claim{Text: "DecLock-PF's p99 over DecLock-TF's without data operations", Unit: "x",
			Note: fmt.Sprintf("the paper: lower at first. p99 of DecLock-PF is %s us, of DecLock-TF %s, at %s and %s Mops",
				Figure(tail("declock-pf", 0).Value("p99_us")), Figure(tail("declock-tf", 0).Value("p99_us")), Figure(tail("declock-pf", 0).Value("mops")), Figure(tail("declock-tf", 0).Value("mops")))}.
			AtMost(Ratio(tail("declock-pf", 0), tail("declock-tf", 0), "p99_us"), 1),
		Claim{Text: "DecLock-PF's p99 over DecLock-TF's with 32 data operations", Unit: "x", Note: "the paper: surpasses it as sections get longer"}.
			AtLeast(Ratio(tail("declock-pf", 32), tail("declock-tf", 32), "p99_us"), 1),
	}
}
