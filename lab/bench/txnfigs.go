package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/fabric/sim"
)

// txnLocks are those of ShiftLock's Fig. 10, and declock.
var txnLocks = []string{"cas-backoff", "dslr", "drtm", "mcs", "rmarw", "rpc", delayed, "declock-pf", "declock"}

// A txnPart is a way in which transactions are made and run.
type txnPart struct {
	name             string
	artifact, sorted bool
	locks            []string
	// Of a contended database: its warehouses, or subscribers; 0: as many as published.
	warehouses, subscribers int
}

// fewTxnLocks are those that leases or handovers make fast.
var fewTxnLocks = []string{"dslr", delayed, "declock-pf", "declock"}

// txnParts are those of both benchmarks, and one more that each has. ShiftLock's evaluation has the first.
var txnParts = []txnPart{
	{name: "as published, sorted", artifact: true, sorted: true, locks: txnLocks},
	{name: "as published, aborts", artifact: true, locks: append([]string{"mcs"}, fewTxnLocks...)},
	{name: "by the specification, sorted", sorted: true, locks: fewTxnLocks},
}

// contended are parts with the same clients on so few rows that they wait for each other.
var (
	contendedLocks = append([]string{"cas-backoff", "mcs", "rmarw"}, fewTxnLocks...)
	contendedTATP  = txnPart{name: "30 subscribers, sorted", artifact: true, sorted: true, locks: append([]string{"shift-artifact", slow}, contendedLocks...), subscribers: 30}
	contendedTPCC  = txnPart{name: "a warehouse for each node, sorted", artifact: true, sorted: true, locks: append([]string{instant}, contendedLocks...), warehouses: 5}
)

// instant is declock where messages take no time: what better handovers could gain.
const instant = "declock, messages at once"

// slow is declock whose messages within a node take as long as those of MCS, ShiftLock and RMA-RW do in ShiftLock's evaluation.
const slow = "declock, messages within a node delayed"

// shiftTxn is the testbed of ShiftLock's transactions.
func shiftTxn(name string) Micro {
	m := Default(name)
	switch name {
	case delayed:
		m.Lock, m.Tune = "shift-artifact", delay
	case instant:
		m.Lock = "declock"
	case slow:
		m.Lock, m.Tune = "declock", delay
	}
	(&shift4).testbed(&m)
	if name == instant {
		m.Tune = "MessageMin=1,MessageMax=1,LocalWake=1"
	}
	return m
}

func txnPoints(trace string, contended txnPart) func(Options) []Point {
	return func(o Options) (points []Point) {
		parts := append(slices.Clone(txnParts), contended)
		for i, part := range parts {
			if (o.Tiny || o.Quick) && i > 0 && i < len(txnParts) {
				continue
			}
			points = append(points, across([]string{part.name}, part.locks, func(name, lock string) Point {
				m := shiftTxn(lock)
				r := txnRun{trace: trace, artifact: part.artifact, sorted: part.sorted, mutex: slices.Contains(shift4.mutexes, lock), warehouses: part.warehouses, subscribers: part.subscribers}
				return r.point(m.sized(o), Params{{"part", name}, {"lock", lock}, {"clients", m.Clients}}, o)
			})...)
		}
		return points
	}
}

// judgeTxn returns the claims on transactions, and the project's own beside them: that declock is 1.5 times as fast as the best other lock.
func judgeTxn(contended txnPart, claims func(rows Rows) []Claim) func(Rows) []Claim {
	return func(rows Rows) []Claim {
		of := rows.Where("part", txnParts[0].name)
		ours, mcs := of.Find("lock", "declock"), of.Find("lock", "mcs")
		note := fmt.Sprintf("the operations of declock on the memory node are %s %% of what the NIC executes, those of mcs %s %%: handovers between clients spare operations where locks are hot, and of declock's a client gets %s %% from another. ",
			Figure(pipeShare(ours, sim.CX5())), Figure(pipeShare(mcs, sim.CX5())), Figure(100*(ours.Value("remote_handovers")+ours.Value("local_handovers")))) + byLock(of, "mops", "mn_ops_per_op", "retries_per_acquire")
		list := append(claims(rows), Claim{Own: true, Text: "declock's goodput over the best other's", Unit: "x"}.AtLeast(overBaselines(of), 1.5))
		for i := range list {
			list[i].Note = note
		}
		few := rows.Where("part", contended.name)
		note = byLock(few, "mops", "p50_us", "p99_us", "mn_ops_per_op")
		if at := few.Find("lock", instant); at.Metrics != nil {
			note = fmt.Sprintf("a holder of a warehouse's lock takes the other locks of its transaction, one round trip each, before it releases. With messages that take no time declock would do %s Mops in place of %s: handovers are not what takes the time. ",
				Figure(at.Value("mops")), Figure(few.Find("lock", "declock").Value("mops"))) + note
		}
		list = append(list, Claim{Own: true, Text: contended.name + ": declock's goodput over the best other's", Unit: "x", Note: note}.AtLeast(overBaselines(few), 1.5))
		if slices.Contains(contended.locks, slow) {
			others := few.OverBest(slow, []string{delayed, "mcs", "rmarw"}, "part", "mops", Most)
			list = append(list, Claim{Own: true, Text: contended.name + ", messages within a node delayed for all: the same", Unit: "x",
				Note: "handovers within a node take as long as those between nodes. " + note}.AtLeast(Least(others.Values), 1.5))
		}
		return list
	}
}

// overBaselines is declock's goodput over that of the best other lock that is not DecLock's.
func overBaselines(rows Rows) float64 {
	others := slices.DeleteFunc(rows.Distinct("lock"), func(name string) bool { return strings.HasPrefix(name, "declock") })
	return Least(rows.OverBest("declock", others, "part", "mops", Most).Values)
}

var txnColumns = []string{"part", "lock", "clients", "mops", "p50_us", "p99_us", "mn_ops_per_op", "aborts_pct", "lost"}

// overOthers is ShiftLock's goodput over that of another lock, in transactions as in its evaluation.
func overOthers(rows Rows, lock string) float64 {
	of := rows.Where("part", txnParts[0].name)
	return Ratio(of.Find("lock", delayed), of.Find("lock", lock), "mops")
}

var expTATP = &Experiment{
	Name: "tatp", Other: true, Title: "ShiftLock's Fig. 10: TATP by two-phase locking, 100,000 subscribers",
	Paper:   "ShiftLock's paper, section 4.4: ShiftLock is mildly better than CAS, DSLR and MCS, by 6.9 % in goodput over CAS and MCS, and has 1.25 to 2.85x the goodput of others.",
	Columns: txnColumns, Points: txnPoints("tatp", contendedTATP),
	Judge: judgeTxn(contendedTATP, func(rows Rows) []Claim {
		return []Claim{
			Claim{Text: "ShiftLock's goodput over CAS's", Unit: "x", Paper: 1.069}.Near(overOthers(rows, "cas-backoff"), 1.1),
			Claim{Text: "ShiftLock's goodput over MCS's", Unit: "x", Paper: 1.069}.Near(overOthers(rows, "mcs"), 1.1),
			Claim{Text: "ShiftLock's goodput over RMA-RW's", Unit: "x"}.Within(overOthers(rows, "rmarw"), 1.25, 2.85),
			Claim{Text: "ShiftLock's goodput over DrTM's", Unit: "x"}.Within(overOthers(rows, "drtm"), 1.25, 2.85),
		}
	}),
}

var expTPCC = &Experiment{
	Name: "tpcc", Other: true, Title: "ShiftLock's Fig. 10: TPC-C by two-phase locking, 100 warehouses for each compute node",
	Paper:   "ShiftLock's paper, section 4.4: ShiftLock has 1.09 to 2.14x the goodput of other RDMA locks; MCS is only slightly worse, and RMA-RW is the worst of them.",
	Columns: txnColumns, Points: txnPoints("tpcc", contendedTPCC),
	Judge: judgeTxn(contendedTPCC, func(rows Rows) []Claim {
		return []Claim{
			Claim{Text: "ShiftLock's goodput over MCS's", Unit: "x", Paper: 1.09}.Near(overOthers(rows, "mcs"), 1.1),
			Claim{Text: "ShiftLock's goodput over CAS's", Unit: "x"}.Within(overOthers(rows, "cas-backoff"), 1.09, 2.14),
			Claim{Text: "ShiftLock's goodput over DSLR's", Unit: "x"}.Within(overOthers(rows, "dslr"), 1.09, 2.14),
			Claim{Text: "ShiftLock's goodput over RMA-RW's", Unit: "x", Paper: 2.14}.Near(overOthers(rows, "rmarw"), 1.25),
		}
	}),
}
