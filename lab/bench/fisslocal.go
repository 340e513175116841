package bench

import (
	"fmt"
	"strings"

	"github.com/declock/declock/lab/locktrace"
)

// A fissRow is a lock of a benchmark, as rows name it; local: locks are at the machine whose clients ask for most of them.
type fissRow struct {
	name, lock string
	local      bool
}

// rows returns the locks of a benchmark. Those of TPC-C's warehouses may be at the machine of their clients; TATP has no such locks.
func (t fissTxn) rows() (list []fissRow) {
	for _, l := range fissLocks {
		list = append(list, fissRow{l, l, false})
	}
	if t.trace != "tpcc" {
		return list
	}
	return append(list, fissRow{"fiss:local", "fiss:local", true}, fissRow{"parlock:local", "parlock:local", true}, fissRow{localDecLock, "declock", true})
}

// localDecLock is declock with a memory node on each machine, which has the locks of its clients' warehouses.
const localDecLock = "local:declock"

// fissLocalNote says what a local request is here.
const fissLocalNote = "a client of the machine that a lock is at takes it within 150 ns, the model's message within a machine, with both locks; another's request is a round trip with both, to an agent that takes 100 ns with FissLock-Local, and to a " +
	"worker that takes 1 us with ParLock. The paper says nothing of how FissLock-Local works. "

// local returns the rows of locks at their clients' machines, or those of others.
func (rs Rows) local(local bool) (list Rows) {
	for _, r := range rs {
		if strings.Contains(r.Text("lock"), "local") == local {
			list = append(list, r)
		}
	}
	return list
}

// fissLocalSpeed judges the throughput of locks at their clients' machines.
func fissLocalSpeed(at Rows) []Claim {
	of := func(lock string) Row { return at.Find("lock", lock) }
	chance := "most clients wait for transactions that wait for each other, until these are given up: how many is chance, and a quarter of the window differs from the mean by more than a half. "
	figures := fissLocalNote + byLock(at.local(true), "mops", "p50_us", "p99_us", "aborts_pct", "near_pct")
	note := chance + figures
	declock := "declock's clients have their locks on a memory node of their own machine, which they reach by the NIC's loopback: two operations a lock. "
	return []Claim{
		Claim{Text: "TPC-C: FissLock-Local's throughput over ParLock's with the same locality", Unit: "x", Paper: 1.08, Note: note}.Within(Ratio(of("fiss:local"), of("parlock:local"), "mops"), 1.02, 1.35),
		Claim{Text: "TPC-C: FissLock-Local's and ParLock's acquisitions on the own machine, at least", Unit: "%", Paper: 90, Note: note}.AtLeast(Least(present([]float64{valueOf(of("fiss:local"), "near_pct"), valueOf(of("parlock:local"), "near_pct")})), 90),
		Claim{Own: true, Text: "tpcc, locks at their clients' machines: declock's throughput over FissLock-Local's", Unit: "x", Note: declock + figures}.AtLeast(Ratio(of(localDecLock), of("fiss:local"), "mops"), 1),
		Claim{Own: true, Text: "tpcc: declock's throughput with a memory node on each machine over that with one", Unit: "x", Note: declock + byLock(at, "mops", "mn_ops_per_op")}.AtLeast(Ratio(of(localDecLock), of("declock"), "mops"), 2),
	}
}

// fissLocalLatency judges the latency of transactions by kind.
func fissLocalLatency(at Rows) (claims []Claim) {
	of := func(lock string, k locktrace.Kind) Row { return at.Find("lock", lock, "kind", k) }
	const think = "of FissLock's median a lock is a way to the switch and back, and 10 us of each are the transaction itself: a local lock cuts more of NEW, which takes 14, than of PAY. "
	for _, k := range []locktrace.Kind{locktrace.NewOrder, locktrace.Payment} {
		note := think + fissLocalNote + byLock(append(Rows{of("fiss", k)}, at.Where("kind", k).local(true)...), "p50_us", "p99_us")
		for _, lock := range []string{"parlock:local", "fiss:local"} {
			claims = append(claims, Claim{Text: fmt.Sprintf("%v: median with %s below FissLock's by", k, lock), Unit: "%", Paper: 50, Note: note}.Within(Cut(of(lock, k), of("fiss", k), "p50_us"), 40, 60))
		}
		claims = append(claims, Claim{Text: fmt.Sprintf("%v: p99 with FissLock-Local over ParLock's with the same locality: a shorter tail", k), Unit: "x", Note: note}.AtMost(Ratio(of("fiss:local", k), of("parlock:local", k), "p99_us"), 0.95))
	}
	same := Along{Param: "kind", Neutral: 1}
	for _, k := range []locktrace.Kind{locktrace.Delivery, locktrace.OrderStatus, locktrace.StockLevel} {
		same.add(k.String(), Ratio(of("fiss:local", k), of("parlock:local", k), "p50_us"))
	}
	return append(claims, Claim{Text: "DLY, OS, SL: median with FissLock-Local over ParLock's with the same locality, furthest from 1: identical", Unit: "x", Paper: 1, Sweep: same, Note: fissLocalNote}.Near(furthest(same.Values), 1.05))
}

// furthest returns what is furthest from 1, as a factor.
func furthest(list []float64) float64 {
	if least, most := Least(list), Most(list); least*most < 1 {
		return least
	} else {
		return most
	}
}
