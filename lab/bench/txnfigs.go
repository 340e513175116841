package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locktrace"
)

// txnLocks are those of ShiftLock's Fig. 10, and declock.
var txnLocks = []string{"cas-backoff", theirDSLR, halfDrTM, "mcs", "rmarw", theirRPC, delayed, "declock-pf", "declock"}

// A txnPart is a way in which transactions are made and run.
type txnPart struct {
	name             string
	artifact, sorted bool
	mutex            bool // no lock has shared holders
	data             bool // transactions READ and WRITE 64 bytes for each lock, as ShiftLock's published client does
	locks            []string
	// Of a contended database: its warehouses, or subscribers; 0: as many as published.
	warehouses, subscribers int
}

// fewTxnLocks are those that leases or handovers make fast.
var fewTxnLocks = []string{theirDSLR, delayed, "declock-pf", "declock"}

// txnParts are those of both benchmarks, and one more that each has. ShiftLock's evaluation has the first.
var txnParts = []txnPart{
	{name: asPublished, artifact: true, sorted: true, locks: txnLocks},
	{name: "as published, aborts", artifact: true, locks: append([]string{"mcs"}, fewTxnLocks...)},
	{name: "as published, aborts, exclusive only", artifact: true, mutex: true, locks: fewTxnLocks},
	{name: "by the specification, sorted", sorted: true, locks: fewTxnLocks},
	{name: withData, artifact: true, sorted: true, data: true, locks: dataLocks},
}

// asPublished is what ShiftLock's evaluation has, withData the same with data, and dataLocks are those of its locks that are near each other.
const (
	asPublished = "as published, sorted"
	withData    = asPublished + ", with data"
)

var dataLocks = []string{"cas-backoff", theirDSLR, "mcs", delayed, "declock-pf", "declock"}

// Contended parts have the same clients on so few rows that they wait for each other. Locks whose evaluation delays messages within a node are there with that and without.
var (
	contendedLocks = append([]string{"cas-backoff", "mcs", "mcs" + atOnce, "rmarw", "rmarw" + atOnce, pauses + atOnce, slow}, fewTxnLocks...)
	contendedTATP  = []txnPart{contendedBy(30), contendedBy(10), contendedBy(100),
		{name: "30 subscribers, sorted, with data", artifact: true, sorted: true, data: true, locks: append([]string{"mcs" + atOnce, pauses + atOnce, slow}, dataLocks...), subscribers: 30}}
	contendedTPCC = []txnPart{{name: "a warehouse for each node, sorted", artifact: true, sorted: true, locks: append([]string{instant}, contendedLocks...), warehouses: 5}}
)

func contendedBy(subscribers int) txnPart {
	return txnPart{name: fmt.Sprintf("%d subscribers, sorted", subscribers), artifact: true, sorted: true, locks: contendedLocks, subscribers: subscribers}
}

// instant is declock where messages take no time: what better handovers could gain.
const instant = "declock, messages at once"

// shiftTxn is the testbed of ShiftLock's transactions.
func shiftTxn(name string) Micro {
	m := named(name)
	(&shift4).testbed(&m)
	if m.terms(name); name == instant {
		m.Tune = "MessageMin=1,MessageMax=1,LocalWake=1"
	}
	return m
}

func txnPoints(trace string, contended []txnPart) func(Options) []Point {
	return func(o Options) (points []Point) {
		parts := slices.Concat(txnParts, contended)
		for i, part := range parts {
			if o.Tiny && i != 0 && i != len(txnParts) || o.Quick && i != 0 {
				continue
			}
			points = append(points, across([]string{part.name}, part.locks, func(name, lock string) Point {
				m := shiftTxn(lock)
				r := txnRun{trace: trace, artifact: part.artifact, sorted: part.sorted, data: part.data, mutex: part.mutex || slices.ContainsFunc(shift4.mutexes, func(name string) bool { return lock == name || lock == name+atOnce }), warehouses: part.warehouses, subscribers: part.subscribers}
				return r.point(m.sized(o), Params{{"part", name}, {"lock", lock}, {"clients", m.Clients}}, o)
			})...)
		}
		return points
	}
}

// txnPlots are goodputs of ShiftLock's parts and of those of few rows.
func txnPlots(name string, contended []txnPart) func(Rows) []Plot {
	return func(rows Rows) (plots []Plot) {
		y := Axis{Label: "throughput (M transactions/s)"}
		var hot, cold Rows
		for _, r := range rows {
			if slices.ContainsFunc(contended, func(p txnPart) bool { return p.name == r.Text("part") }) {
				hot = append(hot, r)
			} else {
				cold = append(cold, r)
			}
		}
		return []Plot{cold.bars(name, "Goodput, 240 clients", "part", "mops", y), hot.bars(name+"-contended", "Goodput on few rows, 240 clients", "part", "mops", y)}
	}
}

// judgeTxn returns the claims on transactions, and the project's own beside them: that declock is 1.5 times as fast as the best other lock.
func judgeTxn(contended []txnPart, claims func(rows Rows) []Claim) func(Rows) []Claim {
	return func(rows Rows) []Claim {
		of := rows.Where("part", asPublished)
		ours, mcs := of.Find("lock", "declock"), of.Find("lock", "mcs")
		note := fmt.Sprintf("the operations of declock on the memory node are %s %% of what the NIC executes, those of mcs %s %%: handovers between clients spare operations where locks are hot, and of declock's a client gets %s %% from another. ",
			Figure(pipeShare(ours, sim.CX5())), Figure(pipeShare(mcs, sim.CX5())), Figure(100*(ours.Value("remote_handovers")+ours.Value("local_handovers")))) + byLock(of, "mops", "mn_ops_per_op", "retries_per_acquire")
		list := append(claims(rows), Claim{Own: true, Text: "declock's goodput over the best other's", Unit: "x", Note: note}.AtLeast(overBaselines(of), 1.5))
		data := rows.Where("part", withData)
		list = append(list, Claim{Own: true, Text: withData + ": declock's goodput over the best other's", Unit: "x", Note: fmt.Sprintf("the operations of declock on the memory node are %s %% of what the NIC executes, those of mcs %s %%. ",
			Figure(pipeShare(data.Find("lock", "declock"), sim.CX5())), Figure(pipeShare(data.Find("lock", "mcs"), sim.CX5()))) + byLock(data, "mops", "mn_ops_per_op", "retries_per_acquire")}.AtLeast(overBaselines(data), 1.5))
		for _, part := range contended {
			few := rows.Where("part", part.name)
			speeds := byLock(few, "mops", "p99_us")
			note = fmt.Sprintf("declock's operations are %s %% of what the NIC executes, and below 100 %% transactions wait for those that hold their rows. ", Figure(pipeShare(few.Find("lock", "declock"), sim.CX5()))) + speeds
			if at := few.Find("lock", instant); at.Metrics != nil {
				note = fmt.Sprintf("a holder of a warehouse's lock takes the other locks of its transaction, one round trip each, before it releases. With messages that take no time declock would do %s Mops in place of %s: handovers are not what takes the time. ",
					Figure(at.Value("mops")), Figure(few.Find("lock", "declock").Value("mops"))) + speeds
			}
			rivals := []string{"cas-backoff", theirDSLR, "mcs", "rmarw", delayed}
			if part.data {
				rivals = dataLocks[:4]
			}
			others := few.OverBest(slow, rivals, "part", "mops", Most)
			list = append(list, Claim{Own: true, Text: part.name + ", no messages delayed: declock's goodput over the best other's", Unit: "x", Note: note}.AtLeast(overBaselines(few), 1.5),
				Claim{Own: true, Text: part.name + ", messages within a node delayed for all: the same", Unit: "x", Note: slowWithin(few) + note}.AtLeast(Least(others.Values), 1.5))
		}
		return list
	}
}

// slowWithin says how waiting clients learn that a lock is theirs, where messages within a node are as slow as those between nodes.
func slowWithin(rows Rows) string {
	note := "handovers within a node take as long as those between nodes. "
	if rows.Find("lock", instant).Metrics != nil { // what is said of that row explains more
		return note
	}
	return note + fmt.Sprintf("ShiftLock's waiting readers READ the lock (%s READs a transaction); declock's wait for a message, %s %% of all acquisitions for one of the node. ",
		Figure(rows.Find("lock", delayed).Value("mn_reads_per_op")), Figure(100*rows.Find("lock", slow).Value("local_handovers")))
}

// overBaselines is declock's goodput over that of the best other lock that is not DecLock's; one that delays messages is no better than without.
func overBaselines(rows Rows) float64 {
	others := slices.DeleteFunc(rows.Distinct("lock"), func(name string) bool { return strings.HasPrefix(name, "declock") })
	return Least(rows.OverBest("declock", others, "part", "mops", Most).Values)
}

var txnColumns = []string{"part", "lock", "clients", "mops", "p50_us", "p99_us", "mn_ops_per_op", "aborts_pct", "lost"}

// kindColumns are quantiles of the latencies of transactions: the curves of ShiftLock's Fig. 10.
func kindColumns(kinds ...locktrace.Kind) (names []string) {
	for _, k := range kinds {
		for _, q := range []int{10, 50, 90, 99} {
			names = append(names, fmt.Sprintf("%v_p%d_us", k, q))
		}
	}
	return names
}

// overOthers is ShiftLock's goodput over that of another lock, in transactions as in its evaluation, and what decides it.
func overOthers(of Rows, lock string) (note string, over, by float64) {
	ours, other := of.Find("lock", delayed), of.Find("lock", lock)
	note = "where nearly all locks are free, an acquisition and a release of " + lock + " are two operations, as of ShiftLock, and those of both fill the NIC: what is left are retries and READs. "
	switch lock {
	case halfDrTM:
		note = "half of the words of drtm:half are an expired lease, which costs a reader or a writer a second CAS, and a writer waits until a lease of 1 ms has expired: a matter of that lease, and of rows that are read and written. "
	case "rmarw":
		note = "a writer of rmarw goes through 7 chains where others need 2, and its operations fill the NIC: the more locks of a transaction are exclusive, the more. "
	}
	for _, r := range (Rows{other, ours}) {
		note += fmt.Sprintf("%s has %s Mops with %s operations on the memory node for each transaction, %s %% of what the NIC executes, %s retries an acquisition, a median of %s us and a p99 of %s. ", r.Text("lock"),
			Figure(r.Value("mops")), Figure(r.Value("mn_ops_per_op")), Figure(pipeShare(r, sim.CX5())), Figure(r.Value("retries_per_acquire")), Figure(r.Value("p50_us")), Figure(r.Value("p99_us")))
	}
	return strings.TrimSuffix(note, ". "), Ratio(ours, other, "mops"), spread("mops", ours, other)
}

// overLock and overLockWithin are claims on ShiftLock's goodput over that of another lock in a part: beside the paper's figure, or a range.
func overLock(rows Rows, part, lock, name string, paper, factor float64) Claim {
	note, over, by := overOthers(rows.Where("part", part), lock)
	return Claim{Text: inPart(part) + "ShiftLock's goodput over " + name + "'s", Unit: "x", Paper: paper, Note: note, Spread: by}.Near(over, factor)
}

func overLockWithin(rows Rows, part, lock, name string, low, high float64) Claim {
	note, over, _ := overOthers(rows.Where("part", part), lock)
	return Claim{Text: inPart(part) + "ShiftLock's goodput over " + name + "'s", Unit: "x", Note: note}.Within(over, low, high)
}

// overDSLR is the claim on TATP that ShiftLock is mildly better than DSLR, of which the paper has no figure.
func overDSLR(rows Rows) Claim {
	note, over, by := overOthers(rows.Where("part", asPublished), theirDSLR)
	return Claim{Text: "ShiftLock's goodput over DSLR's", Unit: "x", Note: note, Spread: by}.AtLeast(over, 1)
}

// inPart begins a claim on a part that is not the paper's.
func inPart(part string) string {
	if part == asPublished {
		return ""
	}
	return part + ": "
}

var expTATP = &Experiment{
	Name: "tatp", Other: true, Title: "ShiftLock's Fig. 10: TATP by two-phase locking, 100,000 subscribers",
	Paper:   "ShiftLock's paper, section 4.4: ShiftLock is mildly better than CAS, DSLR and MCS, by 6.9 % in goodput over CAS and MCS, and has 1.25 to 2.85x the goodput of others; medians of GET_SUBSCRIBER_DATA and UPDATE_LOCATION are 19.6 and 16.8 % below DSLR's.",
	Columns: append(slices.Clone(txnColumns), kindColumns(locktrace.GetSubscriberData, locktrace.UpdateLocation)...), Points: txnPoints("tatp", contendedTATP), Plots: txnPlots("tatp", contendedTATP),
	Judge: judgeTxn(contendedTATP, func(rows Rows) []Claim {
		of := rows.Where("part", asPublished)
		median := func(text, metric string, paper float64) Claim {
			return Claim{Text: "median of " + text + ", ShiftLock's below DSLR's by", Unit: "%", Paper: paper,
				Note: "one lock, free when it is asked for: one operation to acquire it and one to release it, whatever the lock. " + byLock(of, metric)}.Near(Cut(of.Find("lock", delayed), of.Find("lock", theirDSLR), metric), 1.25)
		}
		return []Claim{
			overLock(rows, asPublished, "cas-backoff", "CAS", 1.069, 1.1),
			overLock(rows, asPublished, "mcs", "MCS", 1.069, 1.1),
			overDSLR(rows),
			overLockWithin(rows, asPublished, "rmarw", "RMA-RW", 1.25, 2.85),
			overLockWithin(rows, asPublished, halfDrTM, "DrTM", 1.25, 2.85),
			overLock(rows, withData, "cas-backoff", "CAS", 1.069, 1.1),
			overLock(rows, withData, "mcs", "MCS", 1.069, 1.1),
			median("GET_SUBSCRIBER_DATA", "gsd_p50_us", 19.6), median("UPDATE_LOCATION", "ul_p50_us", 16.8),
		}
	}),
}

var expTPCC = &Experiment{
	Name: "tpcc", Other: true, Title: "ShiftLock's Fig. 10: TPC-C by two-phase locking, 100 warehouses for each compute node",
	Paper:   "ShiftLock's paper, section 4.4: ShiftLock has 1.09 to 2.14x the goodput of other RDMA locks; MCS is only slightly worse, and RMA-RW is the worst of them; latencies, shown of NEWORDER and DELIVERY, are comparable.",
	Columns: append(slices.Clone(txnColumns), kindColumns(locktrace.NewOrder, locktrace.Delivery)...), Points: txnPoints("tpcc", contendedTPCC), Plots: txnPlots("tpcc", contendedTPCC),
	Judge: judgeTxn(contendedTPCC, func(rows Rows) []Claim {
		of := rows.Where("part", asPublished)
		comparable := func(text, metric string) Claim {
			return Claim{Text: "median of " + text + ", ShiftLock's over the least of other RDMA locks': comparable", Unit: "x", Note: byLock(of, metric)}.
				AtMost(Least(of.OverBest(delayed, txnBaselines, "part", metric, Least).Values), 1.25)
		}
		return []Claim{
			comparable("NEWORDER", "new_p50_us"), comparable("DELIVERY", "dly_p50_us"),
			overLock(rows, asPublished, "mcs", "MCS", 1.09, 1.1),
			overLockWithin(rows, asPublished, "cas-backoff", "CAS", 1.09, 2.14),
			overLockWithin(rows, asPublished, theirDSLR, "DSLR", 1.09, 2.14),
			overLock(rows, asPublished, "rmarw", "RMA-RW", 2.14, 1.25),
			overLockWithin(rows, asPublished, halfDrTM, "DrTM", 1.09, 2.14),
			overLock(rows, withData, "mcs", "MCS", 1.09, 1.1),
			overLockWithin(rows, withData, "cas-backoff", "CAS", 1.09, 2.14),
			overLockWithin(rows, withData, theirDSLR, "DSLR", 1.09, 2.14),
		}
	}),
}
