package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// DSLR's figures of its own parts, with TPC-C (its appendices A.5 and A.7).

// nearMax are counters of a DSLR lock that is free, 2,000 tickets of each mode before they are reset: the lock of the warehouse gets there soon, the others one after another.
const nearMax = 0x7830_7830_7830_7830

// letter and mended are DSLR whose clients pause for at most so long while counters are reset: by the letter of its paper, or as it is here.
func letter(us int) string { return fmt.Sprintf("dslr:withdraw:%d", us) }
func mended(us int) string { return fmt.Sprintf("dslr:%d", us) }

var expDSLR16 = &Experiment{
	Name: "dslr16", Other: true, Title: "DSLR's Fig. 16: throughput by the longest backoff of those who wait for a reset of the counters",
	Paper: "DSLR's paper, appendix A.5, TPC-C with one warehouse on one node, 31 nodes of clients: a clear difference between a maximum backoff of 100 us and of 1,000 us. With less than 1,000 us throughput plummets as soon as counters reach COUNT_MAX, " +
		"for resets keep failing; with that and more they succeed. Here: dslr:withdraw:N takes tickets that were drawn at COUNT_MAX back, as the paper does, dslr:N leaves them to the reset; counters begin 2,000 before COUNT_MAX, and the window, 0.9 s (quick: 0.4 s), has one reset of those of the warehouse. Each row has a lock, and transactions take theirs in order.",
	Columns: []string{"lock", "mops", "mean_us", "p50_us", "p99_us", "p999_us", "retries_per_acquire", "mn_ops_per_op", "drift_pct"},
	Points: func(o Options) (points []Point) {
		names := []string{letter(10), letter(100), letter(1000), letter(10_000), mended(10), mended(100), mended(10_000), "declock-tf", "declock"}
		for _, lock := range pick(o, names, letter(10), letter(1000), mended(10), "declock") {
			r, m := dslrTxn(lock, 31, 1)
			r.warehouses, r.mns = 1, 1
			m.WarmupNs, m.WindowNs = 20*fabric.Millisecond, 400*fabric.Millisecond
			if strings.HasPrefix(lock, "dslr") { // the others have no counters
				if r.word = nearMax; !o.Quick {
					m.WindowNs = 900 * fabric.Millisecond
				}
			}
			points = append(points, r.at(m, Params{{"lock", lock}}, o))
		}
		return points
	},
	Judge: func(rows Rows) []Claim {
		at := func(lock string) Row { return rows.Find("lock", lock) }
		note := "while counters are at their limit a client's ticket is in the word for a round trip of each pause, and the reset succeeds when none is there: of 124 clients with pauses of up to 100 us some 5 are on average, and the client that resets tries again every 2 us. " + byLock(slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return !strings.HasPrefix(r.Text("lock"), "dslr") }), "mops", "p999_us")
		return []Claim{
			Claim{Text: "a longest backoff of 1 ms over one of 0.1 ms", Unit: "x", Note: note}.AtLeast(Ratio(at(letter(1000)), at(letter(100)), "mops"), 1.1),
			Claim{Text: "a longest backoff of 10 us over one of 1 ms: it plummets", Unit: "x", Note: note}.AtMost(Ratio(at(letter(10)), at(letter(1000)), "mops"), 0.5),
			Claim{Text: "a longest backoff of 10 ms over one of 1 ms", Unit: "x", Paper: 1, Note: note}.Near(Ratio(at(letter(10_000)), at(letter(1000)), "mops"), 1.1),
			Claim{Own: true, Text: "tickets drawn at COUNT_MAX stay: throughput with 10 us over the most with tickets that are taken back", Unit: "x", Note: note}.AtLeast(valueOf(at(mended(10)), "mops")/Most([]float64{valueOf(at(letter(1000)), "mops"), valueOf(at(letter(100)), "mops")}), 0.97),
			Claim{Own: true, Text: "declock's throughput over DSLR's with any backoff, at least", Unit: "x"}.AtLeast(valueOf(at("declock"), "mops")/mostOf(rows, "dslr", "mops"), 1),
		}
	},
}

// mostOf is the most that a metric is of rows whose locks have a prefix.
func mostOf(rows Rows, prefix, metric string) float64 {
	most := missing
	for _, r := range rows {
		if v := r.Value(metric); strings.HasPrefix(r.Text("lock"), prefix) && !(v <= most) {
			most = v
		}
	}
	return most
}

var expDSLR19 = &Experiment{
	Name: "dslr19", Other: true, Title: "DSLR's Fig. 19: polling at dynamic intervals and without a pause, by delay between transactions",
	Paper: "DSLR's paper, appendix A.7, high contention, delays of 0 to 100 ms between transactions: busy polling uses less than 15 % of the operations that the network can do, " +
		"dynamic polling a little over 5 %, with a slightly better throughput." + dslrTxnNote,
	Columns: []string{"lock", "delay_ms", "mops", "mean_us", "p50_us", "p99_us", "p999_us", "retries_per_acquire", "mn_ops_per_op"},
	Points: func(o Options) []Point {
		return across(pick(o, []int{0, 1, 10, 100}, 0, 100), []string{"dslr", "dslr:busy", "declock-tf", "declock"}, func(ms int, lock string) Point {
			r, m := dslrTxn(lock, 16, 1)
			if r.delayNs = fabric.Time(ms) * fabric.Millisecond; ms > 0 { // each client does as many transactions
				m.WarmupNs, m.WindowNs, r.commits = 2*r.delayNs, 8*r.delayNs, 7*m.Clients
			}
			return r.at(m, Params{{"lock", lock}, {"delay_ms", ms}}, o)
		})
	},
	Plots: func(rows Rows) []Plot {
		return []Plot{{Name: "dslr19", Title: "Throughput by delay", X: Axis{Label: "delay between transactions of a client (ms)"},
			Y: Axis{Label: "throughput (M transactions/s)", Log: true}, Series: rows.LinesByLock("delay_ms", "mops")}}
	},
	Judge: func(rows Rows) []Claim {
		at := func(lock string, ms int) Row { return rows.Find("lock", lock, "delay_ms", ms) }
		dynamic, busy := pipeShare(at("dslr", 0), sim.CX4())/16, pipeShare(at("dslr:busy", 0), sim.CX4())/16
		few := "few transactions wait: of 16 warehouses each has four clients, which do nothing but take locks that are free most of the time. "
		note := few + "A waiting client of dslr pauses for 2 us for each ticket before its own, and in the model most of these take less. " + byLock(rows.Where("delay_ms", 0), "mops", "mn_ops_per_op", "p50_us")
		return []Claim{
			Claim{Text: "no delay: dynamic polling's operations on the memory nodes a second over busy polling's", Unit: "x", Paper: 0.33, Note: note}.AtMost(dynamic/busy, 0.5),
			Claim{Text: "no delay: busy polling's operations of what the NICs execute", Unit: "%", Paper: 15, Note: note}.AtMost(busy, 15),
			Claim{Text: "no delay: dynamic polling's operations of what the NICs execute", Unit: "%", Paper: 5, Note: note}.AtMost(dynamic, 7.5),
			Claim{Text: "no delay: dynamic polling's throughput over busy polling's", Unit: "x", Paper: 1, Note: note}.AtLeast(Ratio(at("dslr", 0), at("dslr:busy", 0), "mops"), 1),
			Claim{Text: "delay of 100 ms: the same", Unit: "x", Paper: 1}.Near(Ratio(at("dslr", 100), at("dslr:busy", 100), "mops"), 1.03),
			Claim{Own: true, Text: "no delay: declock's throughput over the better of DSLR's", Unit: "x", Note: note}.AtLeast(valueOf(at("declock", 0), "mops")/mostOf(rows.Where("delay_ms", 0), "dslr", "mops"), 1),
		}
	},
}
