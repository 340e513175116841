// Package bench measures locks as the DecLock paper does, and says beside each
// figure what the paper has.
//
// [Micro] is the paper's microbenchmark (section 6.2): clients on compute nodes
// acquire locks drawn by Zipf, do some data operations on the memory node, and release.
// It runs in virtual time on a simulated cluster, where a seed determines every
// figure, and on fabrics that run in real time.
//
// An [Experiment] is a figure of the paper: points to be measured, rows that
// come out, claims that are judged by the rows, plots. Each has a file, and is in the list of
// [Experiments]: all of these are commands, in tables, JSON and the report. [Run] runs them, several
// measurements at a time; results do not depend on how many. A new one looks like this:
//
//	var expFig16a = &Experiment{
//		Name: "fig16a", Title: "Time of a reset by number of clients", Paper: "Section 6.5, Fig. 16 (left): ...",
//		Columns: []string{"clients", "reset_us"},
//		Points:  func(o Options) []Point { ... }, // each measured once per seed, from its seed alone
//		Judge:   func(rows Rows) []Claim { return []Claim{Claim{Text: "...", Paper: 520.72}.AtMost(valueOf(rows.Find("clients", 256), "reset_us"), 521)} },
//		Plots:   func(rows Rows) []Plot { ... },
//	}
//
// A run is measured when a test says that it is in a steady state ([Pace]), and is marked if it never is.
//
// Claims are judged by runs and never tuned to come out: their bars are the paper's
// words or the project's, not what a run happened to give.
//
// Figures of the simulator are figures of a model whose constants were fitted to the
// paper (see fabric/sim.NIC): ratios between locks say something about the
// protocols, absolute values and what the fit was made for say nothing.
//
// docs/experiments.md has the figures, docs/claims.md the claims of the paper one by one.
package bench
