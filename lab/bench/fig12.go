package bench

import (
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
)

const paperFig12 = "Section 6.2, Fig. 12"

// Axes of the sweeps.
var (
	clientAxis = Axis{Label: "clients (32 on each compute node)", Ticks: []float64{8, 32, 64, 96, 128, 160, 192, 224, 256}}
	lengthAxis = Axis{Label: "data operations in a critical section", Ticks: []float64{0, 4, 8, 16, 24, 32}}
	readAxis   = Axis{Label: "reads (%)", Ticks: []float64{0, 25, 50, 75, 90, 100}}
	lockAxis   = Axis{Label: "locks", Log: true}
	skewAxis   = Axis{Label: "Zipf exponent (0: uniform)", Ticks: []float64{0, 0.2, 0.4, 0.6, 0.8, 0.99}}
)

// throughputFigure is a sweep by all locks of the figures, and more, with a plot of throughput.
func throughputFigure(e *Experiment, c course, values func(o Options) []float64, near nearBar, more ...string) *Experiment {
	e.Points = func(o Options) []Point {
		return c.points(o, append(slices.Clone(figureLocks), more...), values(o), near)
	}
	e.Plots = func(rows Rows) []Plot { return throughputPlot(e.Name, e.Title, c.param, rows, c.axis) }
	return e
}

// throughputPlot is the plot of throughput over a parameter.
func throughputPlot(name, title, param string, rows Rows, x Axis) []Plot {
	return []Plot{{Name: name, Title: title, X: x, Y: Axis{Label: goodputLabel}, Series: rows.LinesByLock(param, "mops")}}
}

const goodputLabel = "throughput (M operations/s)"

var expFig12a = throughputFigure(&Experiment{
	Name: "fig12a", Title: "Throughput by number of clients",
	Paper: paperFig12 + ": CASLock is best up to 24 clients (1.25x DecLock) and collapses beyond. DSLR+ loses 38.9 % and ShiftLock 9.5 % as compute nodes are added; " +
		"DecLock stays at its peak. DecLock-TF is up to 1.74x DSLR+, DecLock-PF up to 1.40x ShiftLock.",
	Columns: []string{"lock", "clients", "mops", "p50_us", "p99_us", "retries_per_acquire", "mn_ops_per_acquire", "local_handovers", "remote_handovers"},
	Judge:   judgeClients,
}, byClients, clientCounts, nearClients, delayed)

var expFig12b = &Experiment{
	Name: "fig12b", Title: "Throughput by length of the critical section",
	Paper: paperFig12 + ": DecLock is up to 43.47x CASLock, 4.35x DSLR+ and 1.81x ShiftLock. It needs at most 1.10 operations on the memory node for an acquisition, whatever the length; " +
		"the others retry 387.9, 349.2 and 15.6 times with 32 data operations.",
	Columns: []string{"lock", "cs_len", "message_extra_ns", "mops", "p50_us", "p99_us", "retries_per_acquire", "mn_ops_per_acquire"},
	Points:  pointsLength,
	Judge:   judgeLength,
	Plots: func(rows Rows) []Plot {
		rows = rows.Where("message_extra_ns", 0)
		plots := throughputPlot("fig12b", "Throughput by length of the critical section", "cs_len", rows, lengthAxis)
		plots[0].Y.Log = true
		return plots
	},
}

var expFig12c = throughputFigure(&Experiment{
	Name: "fig12c", Title: "Throughput by ratio of reads",
	Paper: paperFig12 + ": but for reads only, DecLock-TF is 15.31 to 20.80x CASLock and 1.18 to 2.50x DSLR+; ShiftLock is up to 1.55x DecLock-TF; DecLock-PF is 1.12 to 1.55x ShiftLock. " +
		"With reads only all are alike.",
	Columns: []string{"lock", "read_pct", "mops", "p50_us", "p99_us", "retries_per_acquire"},
	Judge:   judgeReads,
}, byReads, func(o Options) []float64 { return pick(o, []float64{0, 10, 25, 50, 75, 90, 95, 100}, 0, 50, 100) }, nil)

var expFig12d = throughputFigure(&Experiment{
	Name: "fig12d", Title: "Throughput by number of locks",
	Paper:   paperFig12 + ": from 1,000 to 10 million locks throughput grows 2.49x (CASLock), 2.86x (DSLR+), 1.83x (ShiftLock), 2.11x (DecLock-TF), 1.54x (DecLock-PF, which stops growing at 100,000).",
	Columns: []string{"lock", "locks", "mops", "p50_us", "p99_us", "retries_per_acquire"},
	Judge:   judgeLocks,
}, byLocks, func(o Options) []float64 {
	return pick(o, []float64{1000, 10_000, 100_000, 1_000_000, 10_000_000}, 1000, 100_000, 10_000_000)
}, func(lock string, n float64) bool {
	return (n == 1000 || n == 10_000_000) && slices.Contains([]string{"dslr+", "shift", "shift-artifact", "declock-pf"}, lock)
})

var expFig12e = throughputFigure(&Experiment{
	Name: "fig12e", Title: "Throughput by skew",
	Paper:   paperFig12 + ": with less skew CASLock, DSLR+ and ShiftLock converge to DecLock.",
	Columns: []string{"lock", "theta", "mops", "p50_us", "p99_us", "retries_per_acquire"},
	Judge:   judgeSkew,
}, bySkew, func(o Options) []float64 {
	return pick(o, []float64{0, 0.4, 0.6, 0.7, 0.8, 0.9, 0.99}, 0, 0.99)
}, nil)

// nearClients: with 24 clients CASLock is as fast as DecLock, and with as many as there are the locks that queue differ by about the paper's bound.
func nearClients(lock string, clients float64) bool {
	return clients == 24 || nearLength(lock, 1) && clients == DefaultClients
}

// nearLength: at the default point locks that queue differ by little.
func nearLength(lock string, n float64) bool {
	return n == 1 && slices.Contains([]string{"shift", "shift-artifact", delayed, "declock-tf", "declock-pf", "declock"}, lock)
}

func judgeClients(rows Rows) []Claim {
	last := fmt.Sprint(DefaultClients)
	drop := func(lock string) float64 {
		rs := rows.Where("lock", lock)
		return Cut(rs.Find("clients", last), rs.Max("mops"), "mops")
	}
	tf := rows.Where("lock", "declock-tf")
	at24 := func(other string) float64 {
		return Ratio(rows.Find("lock", "cas", "clients", 24), rows.Find("lock", other, "clients", 24), "mops")
	}
	cas24 := rows.Find("lock", "cas", "clients", 24)
	at := func(lock string) Row { return rows.Find("lock", lock, "clients", last) }
	published := rows.Along("declock-pf", "shift-artifact", "clients", "mops")
	shortOfPaper := fmt.Sprintf("24 clients are on one compute node, and none of these locks is near a limit of the model's NIC: CASLock has %s Mops, %s retries an acquisition, p50 %s us; DecLock-TF %s us",
		Figure(cas24.Value("mops")), Figure(cas24.Value("retries_per_acquire")), Figure(cas24.Value("p50_us")), Figure(tf.Find("clients", 24).Value("p50_us")))
	return []Claim{
		Claim{Text: "CASLock at 256 clients over its peak", Paper: 0.12, Prototype: "0.04 to 0.05"}.
			AtMost(Ratio(rows.Find("lock", "cas", "clients", last), rows.Where("lock", "cas").Max("mops"), "mops"), 0.25),
		Claim{Text: "24 clients: CASLock over DecLock-TF", Unit: "x", Paper: 1.25, Note: shortOfPaper}.Near(at24("declock-tf"), 1.25),
		Claim{Text: "24 clients: CASLock over DSLR+ with the overflowing backoff", Unit: "x", Paper: 1.26, Note: shortOfPaper}.Near(at24("dslr+-overflow"), 1.25),
		Claim{Text: "24 clients: CASLock over ShiftLock (letter)", Unit: "x", Paper: 1.46, Note: shortOfPaper}.Near(at24("shift"), 1.25),
		Claim{Text: "24 clients: CASLock over ShiftLock (as published, no pauses)", Unit: "x", Paper: 1.46, Note: shortOfPaper}.Near(at24("shift-artifact"), 1.25),
		Claim{Text: "24 clients: CASLock over ShiftLock (as its authors run it, messages within a node delayed)", Unit: "x", Paper: 1.46, Note: shortOfPaper}.Near(at24(delayed), 1.25),
		Claim{Text: "DSLR+ with the overflowing backoff loses from its peak to 256 clients", Unit: "%", Paper: 38.9, Prototype: "43"}.Near(drop("dslr+-overflow"), 1.5),
		Claim{Text: "ShiftLock (letter) loses from its peak to 256 clients", Unit: "%", Paper: 9.5}.Near(drop("shift"), 2),
		Claim{Text: "ShiftLock (as published, no pauses) loses from its peak to 256 clients", Unit: "%", Paper: 9.5, Note: inWords(rows, "shift-artifact", "clients", "mops")}.Near(drop("shift-artifact"), 2),
		Claim{Own: true, Text: "DecLock-TF loses from its peak to 256 clients", Unit: "%",
			Note: fmt.Sprintf("the hottest lock bounds throughput. With one compute node more of its handovers stay within the node: %s local and %s remote ones an acquisition at 64 clients, %s and %s at 256",
				Figure(tf.Find("clients", 64).Value("local_handovers")), Figure(tf.Find("clients", 64).Value("remote_handovers")),
				Figure(tf.Find("clients", last).Value("local_handovers")), Figure(tf.Find("clients", last).Value("remote_handovers")))}.AtMost(drop("declock-tf"), 5),
		Claim{Text: "DecLock-TF over DSLR+, up to", Unit: "x", Paper: 1.74}.UpTo(rows.Along("declock-tf", "dslr+", "clients", "mops"), Claim.Near, 1.25),
		Claim{Text: "DecLock-TF over DSLR+ with the overflowing backoff, up to", Unit: "x", Paper: 1.74, Prototype: "1.73"}.
			UpTo(rows.Along("declock-tf", "dslr+-overflow", "clients", "mops"), Claim.Near, 1.25),
		Claim{Text: "DecLock-PF over ShiftLock (letter), up to", Unit: "x", Paper: 1.40, Prototype: "1.31 to 1.82, by the variant of ShiftLock",
			Note: fmt.Sprintf("the letter counts each handover between writers in memory, with an atomic before the message. The published code does not, and over that it is at most %.3g. %s",
				published.Most(), both(rows, "declock-pf", "shift", "clients", "mops"))}.
			UpTo(rows.Along("declock-pf", "shift", "clients", "mops"), Claim.Near, 1.25),
		Claim{Text: "DecLock-PF over ShiftLock (as published, no pauses), up to", Unit: "x", Paper: 1.40, Note: handsChanged(at("declock-pf"), at("shift-artifact"), "DecLock-PF")}.
			UpTo(published, Claim.Near, 1.25),
		Claim{Text: "DecLock-PF over ShiftLock (as its authors run it, messages within a node delayed), up to", Unit: "x", Paper: 1.40, Note: handsChanged(at("declock-pf"), at(delayed), "DecLock-PF")}.
			UpTo(rows.Along("declock-pf", delayed, "clients", "mops"), Claim.Near, 1.25),
		neverWorse(rows, "clients"),
	}
}

// inWords returns a metric of a lock along a sweep, in words.
func inWords(rows Rows, lock, param, metric string) string {
	a := Along{Param: param}
	for _, r := range rows.Where("lock", lock) {
		a.add(r.Text(param), r.Value(metric))
	}
	return fmt.Sprintf("%s of %s %v", metric, lock, a)
}

// both returns a metric of two locks along a sweep, in words.
func both(rows Rows, a, b, param, metric string) string {
	return inWords(rows, a, param, metric) + "; " + inWords(rows, b, param, metric)
}

// lengths are the critical sections of Fig. 12b and 13. Those with 16 operations and more take longest, so quick runs leave out what is claimed of them.
func lengths(o Options) []float64 { return pick(o, []float64{0, 1, 2, 4, 8, 16, 24, 32}, 1, 2) }

// slowMessageNs is by how much the messages of the variant of ShiftLock are slower that the claims name.
const slowMessageNs = 1000

// slowLengths are those with slower messages.
func slowLengths(o Options) []float64 { return pick(o, []float64{0, 1, 4, 16, 32}, 1, 2) }

// pointsLength: all locks as they are, and those that send messages with slower ones.
func pointsLength(o Options) []Point {
	var points []Point
	for _, extra := range []int{0, slowMessageNs} {
		names, sections := append([]string{"cas-cas", delayed}, figureLocks...), lengths(o)
		if extra > 0 {
			names, sections = []string{"shift", "shift-artifact", "declock-tf", "declock-pf"}, slowLengths(o)
		}
		for _, n := range sections {
			for _, name := range names {
				p := o.point(name, nil, func(m *Micro) { m.CSLen, m.MessageExtraNs = int(n), fabric.Time(extra) }, Param{"message_extra_ns", extra})
				p.Near = extra == 0 && nearLength(name, n)
				points = append(points, p)
			}
		}
	}
	return points
}

// judgeLength compares the better of the two policies of the paper.
func judgeLength(all Rows) []Claim {
	rows, slow := all.Where("message_extra_ns", 0), all.Where("message_extra_ns", slowMessageNs)
	// best compares the better of the paper's policies with another lock, at each length.
	best := func(rows Rows, other string, otherRows Rows) Along {
		joined := slices.Concat(rows.Where("lock", "declock-tf"), rows.Where("lock", "declock-pf"), otherRows.Where("lock", other))
		return better(joined.Along("declock-tf", other, "cs_len", "mops"), joined.Along("declock-pf", other, "cs_len", "mops"))
	}
	mnOps := Most(slices.Concat(rows.Where("lock", "declock-tf"), rows.Where("lock", "declock-pf")).Values("mn_ops_per_acquire"))
	at := func(lock string, n int) Row { return rows.Find("lock", lock, "cs_len", n) }
	endsOnly := fmt.Sprintf("a handover between nodes is one message for both, and with long sections both wait for the holder's data: acquisitions of DecLock-PF have a p99 of %s us with 32 data operations, of ShiftLock %s",
		Figure(at("declock-pf", 32).Value("acquire_p99_us")), Figure(at("shift", 32).Value("acquire_p99_us")))
	retries := func(lock string) float64 { return valueOf(at(lock, 32), "retries_per_acquire") }
	return []Claim{
		Claim{Text: "DecLock over CASLock, up to", Unit: "x", Paper: 43.47, Prototype: "39"}.UpTo(best(rows, "cas", rows), Claim.Near, 1.5),
		Claim{Text: "DecLock over CASLock whose writers release by CAS, up to", Unit: "x", Paper: 43.47}.UpTo(best(rows, "cas-cas", rows), Claim.Near, 1.5),
		Claim{Text: "DecLock over DSLR+, up to", Unit: "x", Paper: 4.35, Note: "with a backoff that keeps its bound"}.UpTo(best(rows, "dslr+", rows), Claim.Near, 1.5),
		Claim{Text: "DecLock over DSLR+ with the overflowing backoff, up to", Unit: "x", Paper: 4.35, Prototype: "3.1"}.UpTo(best(rows, "dslr+-overflow", rows), Claim.Near, 1.5),
		Claim{Text: "DecLock over ShiftLock (letter), up to", Unit: "x", Paper: 1.81, Note: endsOnly}.UpTo(best(rows, "shift", rows), Claim.Near, 1.25),
		Claim{Text: "DecLock over ShiftLock (as published, no pauses), up to", Unit: "x", Paper: 1.81, Prototype: "below 1", Note: endsOnly}.UpTo(best(rows, "shift-artifact", rows), Claim.Near, 1.25),
		Claim{Text: "DecLock over ShiftLock (as its authors run it, messages within a node delayed), up to", Unit: "x", Paper: 1.81, Note: endsOnly}.UpTo(best(rows, delayed, rows), Claim.Near, 1.25),
		Claim{Text: "DecLock over ShiftLock (letter), both with messages 1 us slower, up to", Unit: "x", Paper: 1.81, Note: endsOnly}.UpTo(best(slow, "shift", slow), Claim.Near, 1.25),
		Claim{Text: "DecLock over ShiftLock (letter) whose messages alone are 1 us slower, up to", Unit: "x", Paper: 1.81, Prototype: "1.75", Note: endsOnly}.UpTo(best(rows, "shift", slow), Claim.Near, 1.25),
		Claim{Text: "operations on the memory node for an acquisition, at most", Paper: 1.10, Prototype: "1.10 to 1.13", Note: "without prefetches"}.AtMost(mnOps, 1.13),
		Claim{Text: "CASLock's retries with 32 data operations", Paper: 387.9, Prototype: "483"}.Near(retries("cas"), 1.5),
		Claim{Text: "the same, if writers release by CAS", Paper: 387.9}.Near(retries("cas-cas"), 1.5),
		Claim{Text: "retries of DSLR+ with the overflowing backoff, 32 data operations", Paper: 349.2, Prototype: "356"}.Near(retries("dslr+-overflow"), 1.5),
		Claim{Text: "ShiftLock's (letter) retries with 32 data operations", Paper: 15.6, Prototype: "12.8"}.Near(retries("shift"), 1.5),
		Claim{Text: "ShiftLock's (as published, no pauses) retries with 32 data operations", Paper: 15.6}.Near(retries("shift-artifact"), 1.5),
		neverWorse(rows, "cs_len"),
	}
}

func judgeReads(rows Rows) []Claim {
	mixed := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Value("read_pct") == 100 })
	along := func(a, b string) Along { return mixed.Along(a, b, "read_pct", "mops") }
	// bothEnds are the claims of the least and the most of a row.
	bothEnds := func(text, lockA, lockB, why string, least, most, factor float64) []Claim {
		a, note := along(lockA, lockB), why+both(mixed, lockA, lockB, "read_pct", "mops")
		return []Claim{
			Claim{Text: text + ", at least", Unit: "x", Paper: least, Sweep: a, Note: note}.Near(a.Least(), factor),
			Claim{Text: text + ", at most", Unit: "x", Paper: most, Sweep: a, Note: note}.Near(a.Most(), factor),
		}
	}
	at := func(lock string, reads int) Row { return rows.Find("lock", lock, "read_pct", reads) }
	// overShift says what DecLock and ShiftLock differ in.
	overShift := func(lock, name string) string {
		return handsChanged(at(lock, 50), at("shift-artifact", 50), name) + handovers(at(lock, 0), at("shift-artifact", 0), name) + ". "
	}
	only := rows.Where("read_pct", 100)
	speeds := only.Values("mops")
	var claims []Claim
	claims = append(claims, bothEnds("DecLock-TF over CASLock", "declock-tf", "cas", shares(rows.Where("lock", "declock-tf"), rows.Where("lock", "cas"))+". ", 15.31, 20.80, 1.5)...)
	claims = append(claims, bothEnds("DecLock-TF over DSLR+", "declock-tf", "dslr+", "", 1.18, 2.50, 1.5)...)
	claims = append(claims, bothEnds("DecLock-TF over DSLR+ with the overflowing backoff", "declock-tf", "dslr+-overflow", "", 1.18, 2.50, 1.5)...)
	claims = append(claims, bothEnds("DecLock-PF over ShiftLock (letter)", "declock-pf", "shift", "where most write, DecLock-PF's release is an FAA and then a message, and ShiftLock's the message alone; where half read, its readers wait for a run of writers. ", 1.12, 1.55, 1.25)...)
	claims = append(claims, bothEnds("DecLock-PF over ShiftLock (as published, no pauses)", "declock-pf", "shift-artifact", overShift("declock-pf", "DecLock-PF"), 1.12, 1.55, 1.25)...)
	return append(claims,
		Claim{Text: "ShiftLock (letter) over DecLock-TF, up to", Unit: "x", Paper: 1.55, Note: handsChanged(at("declock-tf", 50), at("shift", 50), "DecLock-TF")}.UpTo(along("shift", "declock-tf"), Claim.Near, 1.25),
		Claim{Text: "ShiftLock (as published, no pauses) over DecLock-TF, up to", Unit: "x", Paper: 1.55, Note: overShift("declock-tf", "DecLock-TF") + both(mixed, "shift-artifact", "declock-tf", "read_pct", "mops")}.UpTo(along("shift-artifact", "declock-tf"), Claim.Near, 1.25),
		Claim{Text: "reads only: the slowest over the fastest", Note: queueRead(only.Find("lock", "declock-tf"), only.Find("lock", "cas"))}.
			AtLeast(Least(speeds)/Most(speeds), 0.85),
		neverWorse(rows, "read_pct"))
}

// queueRead explains what DecLock loses without contention.
func queueRead(tf, cas Row) string {
	return fmt.Sprintf("a release of DecLock reads the queue: %s operations on the memory node for each of DecLock-TF, %s of CASLock, and the model's NIC does 50 M/s. "+
		"Without contention they are what counts; declock reads the queue only when a client waits", Figure(tf.Value("mn_ops_per_op")), Figure(cas.Value("mn_ops_per_op")))
}

func judgeLocks(rows Rows) []Claim {
	var claims []Claim
	for _, c := range []struct {
		lock, name, prototype string
		paper                 float64
	}{{"cas", "CASLock", "2.65", 2.49}, {"dslr+", "DSLR+", "2.25", 2.86}, {"shift", "ShiftLock (letter)", "2.32", 1.83},
		{"shift-artifact", "ShiftLock (as published, no pauses)", "", 1.83}, {"declock-tf", "DecLock-TF", "2.42", 2.11}, {"declock-pf", "DecLock-PF", "1.88", 1.54}} {
		grown := Ratio(rows.Find("lock", c.lock, "locks", 10_000_000), rows.Find("lock", c.lock, "locks", 1000), "mops")
		claims = append(claims, Claim{Text: c.name + ": 10 million locks over 1,000", Unit: "x", Paper: c.paper, Prototype: c.prototype, Note: inWords(rows, c.lock, "locks", "mops")}.Near(grown, 1.35))
	}
	pf := rows.Where("lock", "declock-pf")
	few, many := pf.Find("locks", 100_000), pf.Find("locks", 10_000_000)
	claims = append(claims, Claim{Text: "DecLock-PF stops growing: 10 million locks over 100,000", Unit: "x", Paper: 1,
		Note: fmt.Sprintf("the paper: more locks also reduce the chance of a handover within a node. There are %s such handovers an acquisition with 100,000 locks and %s with 10 million, %s and %s between nodes",
			Figure(few.Value("local_handovers")), Figure(many.Value("local_handovers")), Figure(few.Value("remote_handovers")), Figure(many.Value("remote_handovers")))}.
		Near(Ratio(many, few, "mops"), 1.1))
	return append(claims, neverWorse(rows, "locks"))
}

func judgeSkew(rows Rows) []Claim {
	uniform := rows.Where("theta", 0)
	tf := uniform.Find("lock", "declock-tf")
	var claims []Claim
	for _, c := range [][2]string{{"cas", "CASLock"}, {"dslr+", "DSLR+"}, {"shift", "ShiftLock (letter)"}, {"shift-artifact", "ShiftLock (as published, no pauses)"}} {
		claims = append(claims, Claim{Text: "uniform: DecLock-TF over " + c[1], Unit: "x", Paper: 1, Prototype: "0.75 at worst: the queue READ of releases",
			Note: queueRead(tf, uniform.Find("lock", "cas"))}.Near(Ratio(tf, uniform.Find("lock", c[0]), "mops"), 1.1))
	}
	return append(claims, neverWorse(rows, "theta"))
}
