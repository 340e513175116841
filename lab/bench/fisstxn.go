package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locktrace"
)

// A fissTxn is a benchmark of FissLock's Figs. 14 and 15: its clients, and how long a transaction takes once it has its locks.
type fissTxn struct {
	trace      string
	clients    int
	think      fabric.Time
	warehouses int
	hot        int  // locks that NetLock has queues for on the switch: 0.09 % of TATP's, 0.3 % of TPC-C's
	fixed      bool // a fixed window: it would take long until all quarters are alike
}

var fissTxns = []fissTxn{
	{trace: "tatp", clients: 160, think: 2 * fabric.Microsecond, hot: 612},
	{trace: "tpcc", clients: 1200, think: 10 * fabric.Microsecond, warehouses: 9600, hot: 3485, fixed: true},
}

// The window of TPC-C, the same with all locks. Until transactions that wait for each other have been given up ([txnPatience]) there are fewer and fewer clients, and none is counted as given up.
const (
	tpccWarmupNs  = txnPatience + 5*fabric.Millisecond
	tpccWindowNs  = txnPatience + 5*fabric.Millisecond
	quickWarmupNs = txnPatience + 2*fabric.Millisecond
	quickWindowNs = 3 * fabric.Millisecond
)

// micro returns the clients of a benchmark, and its window.
func (t fissTxn) micro(o Options, lock string) Micro {
	m := Default(lock)
	fissTestbed(&m)
	m.Clients = t.clients
	switch {
	case t.fixed && o.Quick:
		m.Turns, m.WarmupNs, m.WindowNs = 3, quickWarmupNs, quickWindowNs
	case t.fixed:
		m.Turns, m.WarmupNs, m.WindowNs = 3, tpccWarmupNs, tpccWindowNs
	case o.Quick:
		m.WarmupNs, m.WindowNs = fabric.Millisecond, 2*fabric.Millisecond
	}
	return m.sized(o).WithDefaults()
}

// point returns the measurement of a benchmark, of which samples makes rows. Several experiments have the same.
func (t fissTxn) point(o Options, row fissRow, samples func(part Params, m Metrics) []Sample) Point {
	m := t.micro(o, row.lock)
	r := txnRun{local: row.local, trace: t.trace, artifact: true, think: t.think, warehouses: t.warehouses, hot: t.hot}
	if o.Tiny {
		r.warehouses, r.hot = 4*m.CNs, 10
	}
	nic, _ := m.model() // Validate reports the error
	type what struct {
		fissTxn
		m     Micro
		local bool
	}
	same := func(m Micro) measurand { return newMeasurand(what{t, m, row.local}, row.lock, nic) }
	p := r.point(m, nil, o)
	measure := p.Measure
	p.Same = same(m)
	p.Measure = func(ctx context.Context, seed uint64) ([]Sample, error) {
		m := m
		m.Seed = seed
		metrics, err := same(m).take(func() (Metrics, error) {
			list, err := measure(ctx, seed)
			if err != nil {
				return nil, err
			}
			return list[0].Metrics, nil
		})
		if err != nil {
			return nil, err
		}
		return samples(Params{{"part", t.trace}, {"lock", row.name}}, metrics), nil
	}
	return p
}

// fissTxnPoints are those of all benchmarks, with all locks.
func fissTxnPoints(samples func(part Params, m Metrics) []Sample) func(Options) []Point {
	return func(o Options) (points []Point) {
		for _, t := range fissTxns {
			for _, row := range t.rows() {
				points = append(points, t.point(o, row, samples))
			}
		}
		return points
	}
}

// fissAgents says what bounds each lock.
const fissAgents = "a worker of a server takes 1 us for a request, assumed, and an agent of FissLock 100 ns for a message, as the model's poll. "

var expFiss14 = &Experiment{
	Name: "fiss14", Other: true, Title: "FissLock's Fig. 14: transactions of TATP (160 clients) and TPC-C (1,200) by two-phase locking, given up after 10 ms",
	Paper: "FissLock's paper, section 7.4: on TATP FissLock has 2.37 times the throughput with SrvLock, 1.76 with NetLock, 2.93 with ParLock; on TPC-C 2.36 with SrvLock, 2.28 with NetLock. There ParLock's locks are " +
		"at the machines of the clients that ask for them, and FissLock-Local's, which has 1.08 times ParLock's: parlock:local and fiss:local here, and local:declock, which has a memory node on each machine.",
	Columns: []string{"part", "lock", "mops", "p50_us", "p99_us", "aborts_pct"},
	Points:  fissTxnPoints(func(part Params, m Metrics) []Sample { return []Sample{{part, m}} }),
	Judge: func(rows Rows) (claims []Claim) {
		for _, c := range []struct {
			part, name, lock, of string
			paper                float64
		}{{"tatp", "TATP", "srvlock", "SrvLock", 2.37}, {"tatp", "TATP", "netlock", "NetLock", 1.76}, {"tatp", "TATP", "parlock:1", "ParLock", 2.93}, {"tpcc", "TPC-C", "srvlock", "SrvLock", 2.36}, {"tpcc", "TPC-C", "netlock", "NetLock", 2.28}} {
			at := rows.Where("part", c.part)
			note := fissAgents + fissTxn{trace: c.part}.atMost(at) + byLock(at.local(false), "mops", "p50_us", "aborts_pct")
			claims = append(claims, Claim{Text: c.name + ": FissLock's throughput over " + c.of + "'s", Unit: "x", Paper: c.paper, Note: note}.Near(Ratio(at.Find("lock", "fiss"), at.Find("lock", c.lock), "mops"), 1.25))
		}
		for _, of := range fissTxns {
			at := rows.Where("part", of.trace)
			claims = append(claims, Claim{Own: true, Text: of.trace + ": declock's throughput over FissLock's", Unit: "x", Note: fmt.Sprintf("a grant of FissLock takes half a message to the switch and half a one back, and is no operation on the memory node. Those of declock are %s %% of what its NIC executes. ",
				Figure(pipeShare(at.Find("lock", "declock"), sim.CX5()))) + byLock(at, "mops", "p50_us", "mn_ops_per_op")}.AtLeast(Ratio(at.Find("lock", "declock"), at.Find("lock", "fiss"), "mops"), 1))
		}
		return append(claims, fissLocalSpeed(rows.Where("part", "tpcc"))...)
	},
}

// atMost says what bounds the throughput of locks of servers: on TPC-C, transactions that wait for each other.
func (t fissTxn) atMost(at Rows) string {
	if t.trace != "tpcc" {
		return "So srvlock, netlock and parlock stay at what 8 workers can do. "
	}
	busy := func(lock string) string {
		r := at.Find("lock", lock)
		return Figure(r.Value("mops") * r.Value("p50_us"))
	}
	return fmt.Sprintf("Transactions that wait for each other are given up after 10 ms, and others wait for their locks: medians times throughput account for %s of the 1,200 clients with fiss, %s with netlock, %s with srvlock. "+
		"So neither agents nor servers are at their most, and more transactions of servers' locks, which take longer, meet each other (by argument). ", busy("fiss"), busy("netlock"), busy("srvlock"))
}

// declockTxn says what the median of a transaction of declock has in it.
const declockTxn = "each lock of declock is two operations on the memory node, all of whose NIC they use, one after the other: half of the transactions wait for that, where a lock of a server that is free is a round trip. "

// kindRows has a row for each kind of transaction.
func kindRows(part Params, m Metrics) (list []Sample) {
	for _, k := range locktrace.KindsOf(fmt.Sprint(part.Get("part"))) {
		of := Metrics{"share_pct": m[k.String()+"_pct"]}
		for _, q := range kindQuantiles {
			of[fmt.Sprintf("p%d_us", q)] = m[fmt.Sprintf("%v_p%d_us", k, q)]
		}
		list = append(list, Sample{append(slices.Clone(part), Param{"kind", k.String()}), of})
	}
	return list
}

var expFiss15 = &Experiment{
	Name: "fiss15", Other: true, Title: "FissLock's Fig. 15: latency by kind of transaction of TATP and TPC-C",
	Paper: "FissLock's paper, section 7.4: with FissLock 99 % of GS, GA and UL of TATP, which take one lock, are done within 17.5, 15.4 and 27.7 us; 81 % of NEW and 85 % of PAY of TPC-C within 125.5 and 44.5 us. " +
		"With SrvLock and NetLock NEW and PAY take over ten times as long, with ParLock and FissLock-Local 40 to 60 % less; DLY, OS and SL take as long with these two.",
	Columns: []string{"part", "lock", "kind", "share_pct", "p10_us", "p25_us", "p50_us", "p75_us", "p81_us", "p85_us", "p90_us", "p99_us"},
	Points:  fissTxnPoints(kindRows),
	Judge: func(rows Rows) (claims []Claim) {
		of := func(lock string, k locktrace.Kind) Row { return rows.Find("lock", lock, "kind", k) }
		note := func(k locktrace.Kind) string {
			slow := ""
			if k == locktrace.NewOrder || k == locktrace.Payment {
				slow = "with locks of servers the transactions that meet none that waits take the median, too, and queues of servers are short while most clients wait for each other; those that meet one take milliseconds (by argument). "
			}
			return slow + byLock(rows.Where("kind", k), "p50_us", "p81_us", "p85_us", "p99_us")
		}
		for _, c := range []struct {
			kind  locktrace.Kind
			q     int
			paper float64
		}{{locktrace.GetSubscriberData, 99, 17.5}, {locktrace.GetAccessData, 99, 15.4}, {locktrace.UpdateLocation, 99, 27.7}, {locktrace.NewOrder, 81, 125.5}, {locktrace.Payment, 85, 44.5}} {
			claims = append(claims, Claim{Text: fmt.Sprintf("FissLock: %d %% of %v within", c.q, c.kind), Unit: "us", Paper: c.paper, Note: note(c.kind)}.AtMost(valueOf(of("fiss", c.kind), fmt.Sprintf("p%d_us", c.q)), c.paper))
		}
		for _, k := range []locktrace.Kind{locktrace.NewOrder, locktrace.Payment} {
			for _, lock := range []string{"srvlock", "netlock"} {
				claims = append(claims, Claim{Text: fmt.Sprintf("%v: median with %s over FissLock's", k, lock), Unit: "x", Paper: 10, Note: note(k)}.AtLeast(Ratio(of(lock, k), of("fiss", k), "p50_us"), 10))
			}
		}
		for _, of := range fissTxns {
			at := rows.Where("part", of.trace)
			for _, q := range []string{"p50", "p99"} {
				ours := at.OverBest("declock", []string{"netlock", "srvlock", "parlock:1"}, "kind", q+"_us", Least)
				claims = append(claims, Claim{Own: true, Text: of.trace + ": declock's " + q + " over the least with locks of servers, of any kind at most", Unit: "x", Sweep: ours,
					Note: declockTxn + both(at, "declock", "netlock", "kind", q+"_us")}.AtMost(ours.Most(), 1))
			}
		}
		return append(claims, fissLocalLatency(rows.Where("part", "tpcc"))...)
	},
}
