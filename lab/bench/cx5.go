package bench

import "fmt"

// cx5Points are measurements in ShiftLock's paper: 240 clients on 5 compute nodes with a core each, empty critical sections, 10 million locks. Section 2.3 has those of one lock; the text has
// no other goodput of locks: they are clients over the mean times of Tables 3 and 4, whose ShiftLock is of a script without a bound of writers in a row, and MCS's is ShiftLock's over Fig. 4's 1.65.
var cx5Points = []struct {
	part, lock   string
	reads, locks int
	mops         float64 // theirs
	note         string
}{
	{"one lock", "cas", 0, 1, 0.0155, "fitted: 270 ns between atomics on one address"},
	{"one lock", "cas-backoff", 0, 1, 0.1414, "a turn takes 2.8 us here: the lock is held for a round trip, 2.1 us, and another client's CAS comes soon. Theirs takes 7.1 us, twice the 3.6 of what its authors take for the ideal (278 k/s)"},
	{"WI", "cas", 0, 10_000_000, 0.49, "their CAS lock has no readers' mode"},
	{"WI", "cas-backoff", 0, 10_000_000, 5.7, "their CAS lock has no readers' mode"},
	{"WI", "mcs", 0, 10_000_000, 5.2, "fitted: messages of 3.2 us. Theirs is no figure of the paper: Table 3's ShiftLock, 8.5, over Fig. 4's 1.65, two runs that may differ. By Table 4's CAS and Fig. 4 (5.7 x 1.56 / 1.65) it is 5.4"},
	{"WI", "shift-artifact:pause", 50, 10_000_000, 8.5, ""},
	{"RI", "shift-artifact:pause", 95, 10_000_000, 14.5, ""},
	{"RI", theirDSLR, 95, 10_000_000, 8.8, "theirs READs once for each (7.9 times with 50 % reads)"},
	{"RI", "dslr+", 95, 10_000_000, 8.8, "the same with a backoff of 0.1 to 3.2 us"},
}

var expCx5 = &Experiment{
	Name: "cx5", Title: "The model cx5 beside ShiftLock's measurements",
	Paper: "ShiftLock's paper (FAST 2025), on ConnectX-5. Section 2.3: one lock by CAS 15.5 k/s, 99.4 % of the CASes are retries. 240 clients over the sums of Tables 3 and 4 (section 4.6), Zipf 0.99: write-intensive (WI, 50 % reads) CAS without backoff 0.49 M/s, " +
		"with backoff 5.7, ShiftLock 8.5, and MCS 5.2 by Fig. 4's ratio of 1.65; read-intensive (RI, 95 %) ShiftLock 14.5, DSLR 8.8.",
	Columns: []string{"part", "lock", "read_pct", "locks", "mops", "p50_us", "p99_us", "retries_per_acquire", "mn_ops_per_op"},
	Points: func(o Options) []Point {
		var points []Point
		for _, c := range cx5Points {
			points = append(points, o.point(c.lock, Params{{"part", c.part}}, func(m *Micro) {
				m.NIC, m.Clients, m.CNs, m.CoreClients, m.CSLen, m.ReadPct, m.Locks, m.Steps = "cx5", 240, 5, 1, 0, c.reads, c.locks, true
				if c.lock == "mcs" || c.lock == "shift-artifact:pause" {
					m.Tune = "LocalWake=3200" // they delay messages within a node, to be as slow as others
				}
			}))
		}
		return points
	},
	Judge: func(rows Rows) []Claim {
		var claims []Claim
		for _, c := range cx5Points {
			r := rows.Find("part", c.part, "lock", c.lock)
			note := c.note
			if c.lock == "cas" && c.part == "WI" {
				note += fmt.Sprintf(". Theirs takes 8.8 operations for each, 0.49 x 8.8 = 4.3 M a second. Here it is %.2g M a second, too, but more of them are retries", r.Value("mops")*r.Value("mn_ops_per_op"))
			}
			claims = append(claims, Claim{Own: true, Text: fmt.Sprintf("cx5, %s: %s, beside ShiftLock's paper", c.part, c.lock), Unit: "Mops", Paper: c.mops,
				Note: fmt.Sprintf("%s operations on the memory node for each, p50 %s and p99 %s us. %s", Figure(r.Value("mn_ops_per_op")), Figure(r.Value("p50_us")), Figure(r.Value("p99_us")), note)}.Near(valueOf(r, "mops"), 1.5))
		}
		return claims
	},
}
