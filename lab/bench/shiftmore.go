package bench

import (
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
)

// More of ShiftLock's figures, on the testbed of its Fig. 4.

var shift6 = shiftSweep(sweep{locks: []string{delayed, triesTwice, published, theirDSLR, "dslr", paperDSLR, "dslr+", "dslr:busy", "rmarw", halfDrTM, "cas-backoff", "cas", "declock-pf", "declock"}, course: byCores, all: []float64{240}, few: []float64{240},
	loads: []load{writeIntensive, readIntensive}})

// ShiftLock as its authors' client runs it: writers try twice to take a free lock before they queue, and clients pause for 1,862 ns between these tries and before each look. Messages within a node
// are delayed in all of these.
const (
	triesTwice = "shift-artifact:cas2"
	pauses     = "shift-artifact:pause"
	published  = "shift-artifact:cas2:pause"
)

var expShift6 = &Experiment{
	Name: "shift6", Other: true, Title: "ShiftLock's Fig. 6: atomics and READs for each acquisition and release, 240 clients",
	Paper: "ShiftLock's paper, section 4.2, Zipf 0.99: ShiftLock needs 2.01 atomics, and 0.36 READs with 50 % reads (WI) or 0.20 with 95 % (RI); with WI RMA-RW 2.95 and 1.61, DSLR 7.92 READs, CAS 2.36 atomics with backoff " +
		"and 8.77 without; with RI DSLR 1.00 READs. DrTM incurs excessive CAS retries; under RI the reasons for which ShiftLock outperforms DrTM and RMA-RW are similar.",
	Columns: []string{"part", "lock", "mops", "mn_atomics_per_op", "mn_reads_per_op", "mn_ops_per_op"}, Points: shift6.points,
	Plots: func(rows Rows) []Plot {
		y := Axis{Label: "for each acquisition and release"}
		return []Plot{rows.bars("shift6-atomics", "Atomics, 240 clients", "part", "mn_atomics_per_op", y), rows.bars("shift6-reads", "READs, 240 clients", "part", "mn_reads_per_op", y)}
	},
	Judge: func(rows Rows) (claims []Claim) {
		for _, c := range []struct {
			part, lock, metric string
			paper              float64
		}{
			{"WI", delayed, "atomics", 2.01}, {"WI", delayed, "reads", 0.36}, {"RI", delayed, "atomics", 2.01}, {"RI", delayed, "reads", 0.20},
			{"WI", published, "atomics", 2.01}, {"WI", published, "reads", 0.36}, {"RI", published, "atomics", 2.01}, {"RI", published, "reads", 0.20},
			{"WI", "rmarw", "atomics", 2.95}, {"WI", "rmarw", "reads", 1.61}, {"WI", theirDSLR, "reads", 7.92}, {"RI", theirDSLR, "reads", 1},
			{"WI", "cas-backoff", "atomics", 2.36}, {"WI", "cas", "atomics", 8.77},
		} {
			metric, part := "mn_"+c.metric+"_per_op", rows.Where("part", c.part)
			claims = append(claims, Claim{Text: fmt.Sprintf("%s: %s for each acquisition and release, %s", c.part, c.metric, c.lock), Paper: c.paper, Note: polling[c.lock] + byLock(part, metric, "mops")}.
				Near(valueOf(rows.Find("part", c.part, "lock", c.lock), metric), 1.1))
		}
		for _, c := range [][4]string{{"WI", halfDrTM, "DrTM", "atomics"}, {"RI", halfDrTM, "DrTM", "atomics"}, {"RI", "rmarw", "RMA-RW", "atomics"}, {"RI", "rmarw", "RMA-RW", "reads"}} {
			metric, part := "mn_"+c[3]+"_per_op", rows.Where("part", c[0])
			claims = append(claims, Claim{Text: fmt.Sprintf("%s: %s for each acquisition and release, %s's over ShiftLock's", c[0], c[3], c[2]), Unit: "x", Note: polling[delayed] + byLock(Rows{part.Find("lock", c[1]), part.Find("lock", delayed)}, metric, "mops")}.
				AtLeast(Ratio(part.Find("lock", c[1]), part.Find("lock", delayed), metric), 1))
		}
		return claims
	},
}

// polling says what decides how often clients of a lock look at it.
var polling = map[string]string{
	delayed:   "readers that wait for writers READ the lock, with a pause of 1.862 us between two READs: how often depends on how long the writers before them take, and so on the time of a message. ",
	published: "how often clients of ShiftLock that wait look depends on how long the writers before them take, and so on the time of a message. ",
	theirDSLR: "it depends on how waiters pause: 1.862 us for each ticket before their own, as ShiftLock's authors run it (dslr:shiftlock), 2 us (dslr), 5 us as in its paper's cluster (dslr:wait:5), 0.1 to 3.2 us (dslr+), or not at all (dslr:busy). ",
	"cas":     "a client of cas tries again at once, so retries are as many as fit in the time that a lock is held, and that is longer the more there are. ",
}

// never is a number of writers in a row that no run has.
const never = 1 << 31

var shift12 = shiftSweep(sweep{locks: []string{delayed, "shift-artifact"}, near: anyOf(delayed), all: []float64{1, 2, 4, 8, 16, 32, never}, few: []float64{1, 4, 16, 32, never}, loads: []load{writeIntensive},
	course: course{"writers", Axis{Label: "writers in a row", Log: true}, func(m *Micro, n float64) {
		m.Lock, m.LeastNs = fmt.Sprintf("%s:%.0f", m.Lock, n), 10*fabric.Millisecond
	}}})

// shift12Ours are DecLock beside it, which has no such bound.
var shift12Ours = shiftSweep(sweep{locks: []string{"declock-pf", "declock", slow}, all: []float64{0}, few: []float64{0}, loads: []load{writeIntensive},
	course: course{"writers", Axis{}, func(*Micro, float64) {}}})

var expShift12 = &Experiment{
	Name: "shift12", Other: true, Title: "ShiftLock's Fig. 12: after how many writers in a row readers come",
	Paper:   "ShiftLock's paper, section 4.7, Zipf 0.99, 50 % reads: goodput is stable from 16 writers in a row on; the median is stable up to 32, and the tail latency decreases; without a bound goodput is 3.3 % higher than with 32, and the median 36.5 %.",
	Columns: []string{"lock", "writers", "mops", "p50_us", "p99_us", grantMedian, grantTail, "mn_ops_per_op"},
	Points:  func(o Options) []Point { return append(shift12.points(o), shift12Ours.points(o)...) },
	Plots: func(rows Rows) []Plot {
		rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { n := r.Value("writers"); return n == 0 || n == never })
		return []Plot{{Name: "shift12", Title: "Goodput by writers in a row", X: shift12.axis, Y: Axis{Label: goodputLabel}, Series: rows.LinesByLock("writers", "mops")},
			{Name: "shift12-p99", Title: "99 % latency to the grant by writers in a row", X: shift12.axis, Y: Axis{Label: "p99 (us)", Log: true}, Series: rows.LinesByLock("writers", grantTail)}}
	},
	Judge: func(rows Rows) []Claim {
		declock, near := rows.Find("lock", "declock"), rows.Where("lock", "shift-artifact")
		slowed := rows.Find("lock", slow)
		rows = rows.Where("lock", delayed)
		over := func(a, b int, metric string) float64 {
			return Ratio(rows.Find("writers", float64(a)), rows.Find("writers", float64(b)), metric)
		}
		note := inWords(rows, delayed, "writers", "mops") + "; " + inWords(rows, delayed, "writers", grantMedian) + "; " + inWords(rows, delayed, "writers", grantTail) +
			"; readers that wait for writers READ the lock meanwhile, and the NIC executes these, too: " + inWords(rows, delayed, "writers", "mn_ops_per_op")
		return []Claim{
			Claim{Text: "goodput with 1 writer in a row over that with 16", Unit: "x", Note: note}.AtMost(over(1, 16, "mops"), 0.9),
			Claim{Text: "goodput with 32 over that with 16", Unit: "x", Paper: 1, Note: note}.Near(over(32, 16, "mops"), 1.1),
			Claim{Text: "goodput without a bound over that with 32", Unit: "x", Paper: 1.033, Note: note}.Near(over(never, 32, "mops"), 1.1),
			Claim{Text: "median without a bound over that with 32", Unit: "x", Paper: 1.365, Note: note}.Near(over(never, 32, grantMedian), 1.25),
			Claim{Text: "99 % latency with 32 over that with 4", Unit: "x", Note: note}.AtMost(over(32, 4, grantTail), 1),
			Claim{Own: true, Text: "no messages delayed: declock's goodput over ShiftLock's with any bound, at least", Unit: "x", Note: note}.AtLeast(valueOf(declock, "mops")/Most(near.Values("mops")), 1),
			Claim{Own: true, Text: "no messages delayed: declock's 99 % latency over ShiftLock's with any bound, at most", Unit: "x", Note: note}.AtMost(valueOf(declock, grantTail)/Least(near.Values(grantTail)), 1),
			Claim{Own: true, Text: "messages within a node delayed for both: declock's goodput over ShiftLock's, at least", Unit: "x", Note: note}.AtLeast(valueOf(slowed, "mops")/Most(rows.Values("mops")), 1),
			Claim{Own: true, Text: "messages within a node delayed for both: declock's 99 % latency over ShiftLock's, at most", Unit: "x", Note: byLock(Rows{slowed, declock}, "mops", grantMedian, grantTail) + ". Without a bound ShiftLock's median is the longest, and its 99 % latency the least. " + inWords(rows, delayed, "writers", grantMedian) + "; " + inWords(rows, delayed, "writers", grantTail)}.AtMost(valueOf(slowed, grantTail)/Least(rows.Values(grantTail)), 1),
		}
	},
}
