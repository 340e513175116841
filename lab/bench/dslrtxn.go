package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
)

// DSLR's figures with TPC-C (its section 6): 16 nodes with the locks of a warehouse (high contention) or ten each, and 16 of four clients, which commit at once.
// Transactions are those of the specification, with a lock for each row, as in the paper. They take their locks in order, so that none deadlocks, but for ownOrder.

// dslrTxn returns the testbed with so many nodes of each kind and warehouses for each. A lock may be named with its lease: oneSlot.
func dslrTxn(lock string, nodes, warehouses int) (txnRun, Micro) {
	name, _, _ := strings.Cut(lock, ", ")
	m := Default(name)
	m.LeaseNs = namedLeases[lock]
	m.NIC, m.Clients, m.CNs, m.CoreClients = DefaultNIC, 4*nodes, nodes, 1
	m.farMessages(dslrFar...)
	m.Used = isDrTM(name)
	return txnRun{trace: "tpcc", sorted: true, warehouses: warehouses * nodes, mns: nodes, think: 1, unchecked: isDrTM(name) && lock != longDrTM || lock == letterDSLR}, m
}

// The window of quick runs of DSLR's transactions on 16 nodes; with fewer nodes it is as much longer, for there are as many transactions less.
const quickDSLRWarmupNs, quickDSLRWindowNs = 10 * fabric.Millisecond, 16 * fabric.Millisecond

// at returns the point of a run, small for tests.
func (r txnRun) at(m Micro, params Params, o Options) Point {
	if o.Quick && m.WindowNs == 0 {
		m.WarmupNs, m.WindowNs = quickDSLRWarmupNs, quickDSLRWindowNs*16/fabric.Time(m.CNs)
	}
	if o.Tiny {
		r.warehouses, r.mns, r.commits = 4, 2, 0
	}
	return r.point(m.sized(o), params, o)
}

// across returns a point for each lock at each value.
func across[V any](values []V, locks []string, point func(v V, lock string) Point) (points []Point) {
	for _, v := range values {
		for _, lock := range locks {
			points = append(points, point(v, lock))
		}
	}
	return points
}

// byLock returns figures of all locks, in words.
func byLock(rows Rows, metrics ...string) string {
	var list []string
	for _, r := range rows {
		figures := make([]string, len(metrics))
		for i, m := range metrics {
			figures[i] = Figure(r.Value(m))
		}
		list = append(list, r.Text("lock")+" "+strings.Join(figures, ", "))
	}
	return strings.Join(metrics, ", ") + " by lock: " + strings.Join(list, "; ")
}

// Axes of transactions.
var longAxis = Axis{Label: "share of long readers", Log: true}

const txnLabel = "throughput (M transactions/s)"

// waits says how few acquisitions of transactions wait for a lock.
func waits(rows Rows) string {
	d := rows.Find("lock", "declock")
	return fmt.Sprintf("most locks are free: of declock's acquisitions %s %% get theirs from another client. What is left is a round trip each, of dslr as of cas (parlock: two messages, 1 us of a worker): a Stock-Level has 400, %s us in the median with declock, and "+
		"Stock-Levels, 4 %% of the transactions, are the 99 and 99.9 %% latencies. Readers of ncosed release by a message. ",
		Figure(100*(d.Value("remote_handovers")+d.Value("local_handovers"))), Figure(d.Value("sl_p50_us"))) + byLock(rows, "mops", "p999_us")
}

// manager is DSLR's Traditional: a lock manager of four workers on each node, for a part of the locks. With bypass readers pass writers.
const manager, bypass = "parlock", "parlock:ro"

const dslrTxnNote = " Here: a transaction that has lost a lock, or that dslr passes over, releases all and begins again, with dslr after the paper's backoff; each row has a lock (lab/locktrace); transactions take their locks in order; Traditional is a server of four workers on each node (parlock); its messages, and N-CoSED's, within a node take as long as those between nodes; readers of drtm join any lease that is valid, and a transaction commits also if one has ended meanwhile."

// ownOrder is dslr8's high contention whose transactions take their locks in their own order, as the paper's do, and end deadlocks by giving up: its baselines by a timeout of waits, each by that with which
// it does most (section 6.1). Here all have one, DSLR too, whose own is two leases, 20 ms.
const ownOrder = "high, own order"

// ownToo begins the text of a claim on the transactions' own order, where one on locks in order has the same words; ownOrderToo says what that is.
const (
	ownToo      = "own order: "
	ownOrderToo = " Where patience_us is given, transactions take their locks in their own order, as the paper's do, and one that waits for a lock for longer releases all and begins again."
)

// ownPatiences are those timeouts: with 1, 3 and 10 ms all locks do less. With less than 0.1 ms CAS alone does more; Traditional, whose servers take that long, does not end.
func ownPatiences(o Options, lock string) []fabric.Time {
	list := []fabric.Time{100 * fabric.Microsecond, 300 * fabric.Microsecond}
	switch {
	case o.Quick:
		return list[:1]
	case lock == "cas":
		list = append(list, 50*fabric.Microsecond)
	}
	return list
}

// The locks of dslr8 where they are taken in order, and of ownOrder.
var (
	dslr8Locks = []string{"dslr", "dslr:busy", "cas", "drtm", shortDrTM, longDrTM, "ncosed", manager, "declock-tf", "declock"}
	ownLocks   = []string{"dslr", "cas", "drtm", shortDrTM, "ncosed", manager, "declock-tf", "declock"}
)

// ordered returns the run whose transactions take their locks in order or, with patience, in their own.
func (r txnRun) ordered(patience fabric.Time) txnRun {
	r.sorted, r.patience = patience == 0, patience
	return r
}

// patienceParam says so in a row.
func patienceParam(patience fabric.Time) Param { return Param{"patience_us", float64(patience) / 1e3} }

// byOrder returns the rows whose transactions take their locks in order, and the others.
func byOrder(rows Rows) (sorted, own Rows) {
	for _, r := range rows {
		if r.Value("patience_us") > 0 {
			own = append(own, r)
		} else {
			sorted = append(sorted, r)
		}
	}
	return sorted, own
}

// dslr8Point returns a point of dslr8. Without patience locks are taken in order.
func dslr8Point(o Options, part, lock string, patience fabric.Time) Point {
	r, m := dslrTxn(lock, 16, map[string]int{"high": 1, "low": 10, ownOrder: 1}[part])
	return r.ordered(patience).at(m, Params{{"part", part}, {"lock", lock}, patienceParam(patience)}, o)
}

// atBestPatience returns of each part and lock the row that does most.
func atBestPatience(rows Rows) (list Rows) {
	for _, part := range rows.Distinct("part") {
		for _, lock := range rows.Distinct("lock") {
			if of := rows.Where("part", part, "lock", lock); len(of) > 0 {
				list = append(list, of.Max("mops"))
			}
		}
	}
	return list
}

var expDSLR8 = &Experiment{
	Name: "dslr8", Other: true, Title: "DSLR's Fig. 8: TPC-C with a warehouse, and with ten, for each of 16 lock managers",
	Paper: "DSLR's paper, section 6.2: under high contention DSLR has 1.8 to 2.5x the throughput of all others, and up to 46.7x lower 99.9 % latencies; under low contention 1.1 to 1.3x that of the other " +
		"RDMA locks, with 2.4 to 4.9x lower 99.9 % latencies, and 2.8x that of Traditional. Mean latencies are 1.9 to 2.5x lower under high contention, 1.2 to 1.5x under low, and 2.8x than Traditional's there; the 99.9 % latency is about 2x below Traditional's." + dslrTxnNote +
		" But for \"" + ownOrder + "\", by which claims on high contention are judged: there a transaction that waits for a lock for longer than patience_us releases all and begins again, as the paper's do, each lock at the better of two.",
	Columns: []string{"part", "lock", "patience_us", "mops", "mean_us", "p50_us", "p99_us", "p999_us", "aborts_pct", "retries_per_acquire", "mn_ops_per_op"},
	Plots: func(rows Rows) []Plot {
		rows = atBestPatience(rows)
		return []Plot{rows.bars("dslr8", "TPC-C by contention", "part", "mops", Axis{Label: txnLabel}), rows.bars("dslr8-p999", "99.9 % latency by contention", "part", "p999_us", Axis{Label: "p99.9 (us)"})}
	},
	Points: func(o Options) []Point {
		points := across([]string{"high", "low"}, dslr8Locks, func(part, lock string) Point { return dslr8Point(o, part, lock, 0) })
		for _, lock := range ownLocks {
			points = append(points, across(ownPatiences(o, lock), []string{lock}, func(patience fabric.Time, lock string) Point { return dslr8Point(o, ownOrder, lock, patience) })...)
		}
		return points
	},
	Judge: func(rows Rows) []Claim {
		sorted, own := rows.Where("part", "high"), atBestPatience(rows.Where("part", ownOrder))
		low := rows.Where("part", "low")
		claims := append(judgeDSLR8("high", own, ownLocks, ownOrderNote(own, sorted)), judgeDSLR8("low", low, dslr8Locks, waits(low))...)
		return append(claims, declockOver("high contention, locks in order", sorted, dslr8Locks, waits(sorted)))
	},
}

// ownOrderNote says what transactions do that can deadlock.
func ownOrderNote(own, sorted Rows) string {
	d, of := own.Find("lock", "declock"), func(lock string) string { return Figure(sorted.Find("lock", lock).Value("mops")) }
	return fmt.Sprintf("in their own order transactions give up after a timeout, with dslr too, and as in order (dslr %s, cas %s, ncosed %s, parlock %s, declock %s M/s) most locks are free: of declock's acquisitions %s %% get theirs from another client. What is left is a round trip each (parlock: two messages, 1 us of a worker). ",
		of("dslr"), of("cas"), of("ncosed"), of(manager), of("declock"), Figure(100*(d.Value("remote_handovers")+d.Value("local_handovers")))) + byLock(own, "mops", "p999_us", "aborts_pct")
}

// declockOver is the project's claim of dslr8, on declock over the best other lock.
func declockOver(part string, at Rows, locks []string, note string) Claim {
	others := slices.DeleteFunc(slices.Clone(locks), func(l string) bool { return strings.HasPrefix(l, "declock") })
	return Claim{Own: true, Text: part + ": declock's throughput over the best other's", Unit: "x", Note: note}.AtLeast(Least(at.OverBest("declock", others, "part", "mops", Most).Values), 1.5)
}

// judgeDSLR8 are the claims on high or low contention, whose rows are given.
func judgeDSLR8(part string, at Rows, locks []string, note string) (claims []Claim) {
	lease, drtm := betterDrTM(at)
	over := func(lock, metric string) float64 {
		if lock == "drtm" {
			return Ratio(at.Find("lock", "dslr"), drtm, metric)
		}
		return Ratio(at.Find("lock", "dslr"), at.Find("lock", lock), metric)
	}
	low, high := 1.8, 2.5
	if part == "low" {
		low, high = 1.1, 1.3
	}
	worst := 0.0
	for _, lock := range []string{"cas", "drtm", "ncosed"} {
		why, name := note, lock
		if lock == "drtm" {
			why, name = lease, "drtm, at the best of its leases,"
		}
		claims = append(claims, Claim{Text: part + " contention: DSLR's throughput over that of " + strings.TrimSuffix(name, ","), Unit: "x", Note: why}.Within(over(lock, "mops"), low, high))
		tail := 1 / over(lock, "p999_us")
		if worst = max(worst, tail); part == "low" {
			claims = append(claims, Claim{Text: part + " contention: the 99.9 % latency of " + name + " over DSLR's", Unit: "x", Note: why}.Within(tail, 2.4, 4.9))
		}
	}
	of := Claim{Text: part + " contention: DSLR's throughput over Traditional's", Unit: "x", Note: note}
	if part == "high" {
		worst = max(worst, 1/over(manager, "p999_us"))
		claims = append(claims, of.Within(over(manager, "mops"), low, high),
			Claim{Text: "high contention: the highest 99.9 % latency of others over DSLR's", Unit: "x", Paper: 46.7, Note: note}.Near(worst, 1.5))
	} else {
		of.Paper = 2.8
		claims = append(claims, of.Near(over(manager, "mops"), 1.25))
	}
	claims = append(append(claims, meansOver(part, over, note, lease)...),
		Claim{Text: part + " contention: the 99.9 % latency of Traditional over DSLR's", Unit: "x", Paper: 2, Note: note}.Near(1/over(manager, "p999_us"), 1.25))
	return append(claims, declockOver(part+" contention", at, locks, note))
}

// betterDrTM returns DrTM's row at the lease with which it does most, and what decides it.
func betterDrTM(at Rows) (note string, better Row) {
	var list Rows
	for _, lock := range []string{"drtm", shortDrTM, longDrTM} {
		row := at.Find("lock", lock)
		if len(row.Params) == 0 && len(at) > 0 {
			continue
		}
		if list = append(list, row); len(list) == 1 || valueOf(row, "mops") > valueOf(better, "mops") {
			better = row
		}
	}
	return "a writer of drtm waits until the readers' lease has expired. ShiftLock's code has a lease of 1 ms, DSLR's paper gives none. A Stock-Level takes longer: with leases of 0.4 and 1 ms a transaction that has lost a lock commits all the same, with 3 ms it begins again. " + byLock(append(list, at.Find("lock", "dslr")), "mops", "mean_us", "p999_us", "expired_pct"), better
}

// meansOver are the claims of DSLR's Fig. 8b: mean latencies of others over DSLR's.
func meansOver(part string, over func(lock, metric string) float64, note, lease string) (claims []Claim) {
	note = "clients do nothing in between, so a mean latency is clients over throughput, unless one starves. " + note
	for _, lock := range []string{"cas", "drtm", "ncosed", manager} {
		c, mean := Claim{Text: part + " contention: the mean latency of " + lock + " over DSLR's", Unit: "x", Note: note}, 1/over(lock, "mean_us")
		if lock == "drtm" {
			c.Text, c.Note = part+" contention: the mean latency of drtm, at the best of its leases, over DSLR's", lease
		}
		switch {
		case part == "high":
			c = c.Within(mean, 1.9, 2.5)
		case lock == manager:
			c.Paper = 2.8
			c = c.Near(mean, 1.25)
		default:
			c = c.Within(mean, 1.2, 1.5)
		}
		claims = append(claims, c)
	}
	return claims
}

var expDSLR9 = &Experiment{
	Name: "dslr9", Other: true, Title: "DSLR's Fig. 9: TPC-C by number of nodes, ten warehouses for each",
	Paper:   "DSLR's paper, section 6.3: with 16 times the nodes DSLR has 14.5x the throughput; N-CoSED and Traditional scale worse than the others; mean and 99.9 % latencies of DSLR stay what they are, and DrTM has the worst 99.9 % latency." + dslrTxnNote + ownOrderToo,
	Columns: []string{"lock", "nodes", "patience_us", "mops", "mean_us", "p50_us", "p99_us", "p999_us", "aborts_pct", "mn_ops_per_op"},
	Plots: func(rows Rows) []Plot {
		rows, _ = byOrder(rows)
		x := Axis{Label: "nodes of each kind", Log: true, Ticks: []float64{1, 2, 4, 8, 16}}
		return []Plot{{Name: "dslr9", Title: "TPC-C by nodes", X: x, Y: Axis{Label: txnLabel, Log: true}, Series: rows.LinesByLock("nodes", "mops")},
			{Name: "dslr9-p999", Title: "99.9 % latency by nodes", X: x, Y: Axis{Label: "p99.9 (us)", Log: true}, Series: rows.LinesByLock("nodes", "p999_us")}}
	},
	Points: func(o Options) []Point {
		point := func(patience fabric.Time, lock string, nodes int) Point {
			r, m := dslrTxn(lock, nodes, 10)
			r.nearBar = lock == "dslr" && (nodes == 1 || nodes == 16)
			return r.ordered(patience).at(m, Params{{"lock", lock}, {"nodes", nodes}, patienceParam(patience)}, o)
		}
		points := across(pick(o, []int{1, 2, 4, 8, 16}, 1, 16), scaledLocks, func(nodes int, lock string) Point { return point(0, lock, nodes) })
		if o.Quick {
			return points
		}
		return append(points, across([]int{1, 16}, scaledLocks, func(nodes int, lock string) Point { return point(scaledPatience, lock, nodes) })...)
	},
	Judge: func(rows Rows) []Claim {
		sorted, own := byOrder(rows)
		return append(judgeDSLR9("", sorted), judgeDSLR9(ownToo, own)...)
	},
}

// scaledPatience is for how long a transaction of dslr9 waits for a lock in its own order: with 0.1 ms that of a single manager, Traditional's, does less, and no other more than 1 %.
const scaledPatience = 300 * fabric.Microsecond

// scaledLocks are those of dslr9.
var scaledLocks = []string{"dslr", "cas", "drtm", "ncosed", manager, "declock-tf", "declock"}

// judgeDSLR9 are the claims of dslr9 by rows in one order.
func judgeDSLR9(order string, rows Rows) []Claim {
	scaled := func(lock string) float64 {
		of := rows.Where("lock", lock)
		return Ratio(of.Find("nodes", 16), of.Find("nodes", 1), "mops")
	}
	var gains Along
	for _, lock := range rows.Distinct("lock") {
		gains.add(lock, scaled(lock))
	}
	gains.Param = "lock"
	claims := []Claim{Claim{Text: order + "DSLR's throughput with 16 times the nodes", Unit: "x", Paper: 14.5}.Near(scaled("dslr"), 1.15),
		Claim{Text: order + "throughput with 16 times the nodes, of any lock at least: almost linear", Unit: "x", Sweep: gains}.AtLeast(gains.Least(), 12)}
	for _, lock := range []string{"ncosed", manager} {
		claims = append(claims, Claim{Text: order + "what " + lock + " gains with 16 times the nodes, over what DSLR gains", Unit: "x",
			Note: "the model's network between nodes has no congestion, which the paper names as the reason: a message waits for its sender's core and the two NICs' wires alone. " + gains.String()}.AtMost(scaled(lock)/scaled("dslr"), 1))
	}
	dslr, most := rows.Where("lock", "dslr"), rows.Where("nodes", 16)
	for _, of := range [][2]string{{"mean_us", "mean"}, {"p999_us", "99.9 %"}} {
		metric := of[0]
		claims = append(claims, Claim{Text: order + "DSLR's " + of[1] + " latency with 16 times the nodes", Unit: "x", Paper: 1, Note: inWords(dslr, "dslr", "nodes", metric)}.Near(Ratio(dslr.Find("nodes", 16), dslr.Find("nodes", 1), metric), 1.25))
	}
	worst := most.OverBest("drtm", []string{"dslr", "cas", "ncosed", manager}, "nodes", "p999_us", Most)
	claims = append(claims, Claim{Text: order + "16 nodes: DrTM's 99.9 % latency over the worst other's", Unit: "x", Note: "99.9 % latencies are those of Stock-Levels, which take some 400 locks, one after the other, and only read: with drtm each is a round trip or two, with parlock two messages and 1 us of a worker, by assumption. Writers wait for leases of drtm. " +
		byLock(most, "p999_us", "sl_p50_us", "mean_us")}.AtLeast(worst.Least(), 1))
	best := most.OverBest("dslr", []string{"cas", "drtm", "ncosed", manager}, "nodes", "mops", Most)
	claims = append(claims, Claim{Text: order + "16 nodes: DSLR's throughput over the best other's", Unit: "x",
		Note: "most locks are free, and dslr waits for each release, where readers of ncosed release by a message, which they do not wait for. " + byLock(most, "mops", "mn_ops_per_op")}.AtLeast(best.Least(), 1))
	return append(claims, Claim{Own: true, Text: order + "declock's throughput with 16 times the nodes", Unit: "x"}.AtLeast(scaled("declock"), 14.5))
}

// scanNs is how long a long reader holds its locks: twice DSLR's lease. Assumed: its paper does not say.
const scanNs = 20 * fabric.Millisecond

// scanLease is the lease that all transactions ask for beside long readers: those that wait for some of these hold other locks meanwhile.
const scanLease = 20 * scanNs

// Locks with leases that are not those of their papers: DSLR with a fixed lease as long as that, DrTM with a shorter one, and with one that is longer than most transactions:
// with that alone one that has lost a lock begins again.
const (
	oneSlot   = "dslr, lease 400 ms"
	shortDrTM = "drtm, lease 0.4 ms"
	longDrTM  = "drtm, lease 3 ms"
)

var namedLeases = map[string]fabric.Time{oneSlot: scanLease, shortDrTM: 400 * fabric.Microsecond, longDrTM: 3 * fabric.Millisecond}

// letterDSLR is DSLR whose transactions commit also if the lease of a lock has ended, for a release is a success then by Algorithm 3 of its paper; those that others pass over while they wait begin
// again, as with dslr all do that have lost a lock.
const letterDSLR = "dslr, expired leases commit"

// longReads returns a run of DSLR's high contention with long readers.
func longReads(o Options, lock string, share float64) (txnRun, Micro) {
	r, m := dslrTxn(lock, 16, 1)
	if r.tables = true; share > 0 {
		r.scans, r.scanNs, r.leaseNs = share, scanNs, scanLease
		m.WarmupNs, m.WindowNs = 2*scanNs, 15*scanNs
		switch {
		case o.Quick && share < 5e-2:
			m.WindowNs = 5 * scanNs
		case o.Quick: // there are few transactions
			m.WindowNs = 10 * scanNs
		case share < 1e-4: // few long readers, and costly
			m.WindowNs = 25 * scanNs
		case share >= 1e-2: // few transactions
			m.WindowNs = 50 * scanNs
		}
	}
	return r, m
}

var expDSLR10 = &Experiment{
	Name: "dslr10", Other: true, Title: "DSLR's Fig. 10: long readers among the transactions",
	Paper: "DSLR's paper, section 6.4, high contention, long readers of 0.001 to 1 % of the transactions: throughput drops for all, from 110,000 transactions/s to 1,400, of Traditional with bypass and 1 %. DSLR and Traditional with bypass are alike at 0.01 %; " +
		"from 0.1 % on the bypass has 1.2 to 1.4x the throughput." + dslrTxnNote + " A long reader holds the lock of a warehouse's table of customers for 20 ms, an assumption; others take it before they take a customer, in the same mode: DSLR has no other modes; DSLR has leases of several slots, or a fixed one of 400 ms for all." + ownOrderToo,
	Columns: []string{"lock", "long", "patience_us", "mops", "p50_us", "p99_us", "p999_us", "aborts_pct", "expired_pct", "lost"},
	Plots: func(rows Rows) []Plot {
		rows, _ = byOrder(rows)
		some := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Value("long") == 0 })
		return []Plot{{Name: "dslr10", Title: "TPC-C by share of long readers", X: longAxis, Y: Axis{Label: txnLabel, Log: true}, Series: some.LinesByLock("long", "mops")}}
	},
	Points: func(o Options) (points []Point) {
		run := func(share float64, lock string) Point { return longPoint(o, lock, share, 0) }
		for _, share := range pick(o, []float64{0, 1e-5, 1e-4, 1e-3, 1e-2}, 0, 1e-2) {
			if share == 1e-5 { // costly, and what is judged is what DSLR loses
				points = append(points, run(share, oneSlot))
				continue
			}
			points = append(points, across([]float64{share}, []string{oneSlot, manager, bypass, "declock-tf", "declock", "dslr:slots"}, run)...)
		}
		if o.Quick {
			return points
		}
		return append(points, across([]float64{1e-4, 1e-3, 1e-2}, []string{oneSlot, bypass, "declock-tf", "declock"}, func(share float64, lock string) Point { return longPoint(o, lock, share, longPatience(lock)) })...)
	},
	Judge: func(rows Rows) []Claim {
		rows, own := byOrder(rows)
		at := func(lock string, share float64) Row { return rows.Find("lock", lock, "long", share) }
		few := "a long reader holds its locks for 20 ms, an assumption, and with 0.001 % there is none most of the time: how much is lost is a matter of how long they hold. " + inWords(rows, oneSlot, "long", "mops")
		return slices.Concat(
			judgeBypass("", rows, "DSLR has a fixed lease of 400 ms. With leases of several slots a client that asks for 400 ms has 40, and those behind it pause for 2 us for each: "+both(rows, oneSlot, "dslr:slots", "long", "p50_us")+"; "+
				both(rows, bypass, oneSlot, "long", "mops")+"; "+inWords(rows, "dslr:slots", "long", "mops"), "dslr:slots", oneSlot, manager, bypass),
			[]Claim{Claim{Text: "0.001 % long readers: DSLR's throughput over that without: a significant drop", Unit: "x", Note: few}.AtMost(Ratio(at(oneSlot, 1e-5), at(oneSlot, 0), "mops"), 0.9),
				Claim{Text: "Traditional with bypass, its throughput with 1 % long readers over DSLR's without", Unit: "x", Paper: 1.4 / 110,
					Note: "how much is left is a matter of how long a reader holds its locks, 20 ms by assumption: all locks keep about as much: " + both(rows, "declock", oneSlot, "long", "mops")}.AtMost(Ratio(at(bypass, 1e-2), at(oneSlot, 0), "mops"), 0.05)},
			judgeBypass(ownToo, own, "DSLR has a fixed lease of 400 ms, and its transactions give up after 0.3 ms, those of Traditional after 0.1 ms, with which each does most with 1 % long readers: "+both(own, bypass, oneSlot, "long", "mops")+"; "+both(own, bypass, oneSlot, "long", "aborts_pct"), oneSlot, bypass))
	},
}

// longPatience is for how long each waits for a lock in the transactions' own order: with 1 % long readers DSLR does less with 0.1, 3 and 30 ms, Traditional with bypass with 0.3 ms and more.
func longPatience(lock string) fabric.Time {
	if lock == bypass {
		return 100 * fabric.Microsecond
	}
	return 300 * fabric.Microsecond
}

// longPoint returns a point of dslr10. Without patience locks are taken in order.
func longPoint(o Options, lock string, share float64, patience fabric.Time) Point {
	r, m := longReads(o, lock, share)
	if patience > 0 && !o.Quick { // costly
		if m.WindowNs = 10 * scanNs; share < 1e-3 {
			m.WindowNs = 5 * scanNs
		}
	}
	return r.ordered(patience).at(m, Params{{"lock", lock}, {"long", share}, patienceParam(patience)}, o)
}

// judgeBypass are the claims of dslr10 on readers that pass writers, and declock's beside other locks, by rows in one order.
func judgeBypass(order string, rows Rows, note string, others ...string) (claims []Claim) {
	over, ours := rows.Along(bypass, oneSlot, "long", "mops"), rows.OverBest("declock", others, "long", "mops", Most)
	at := func(lock string, share float64) Row { return rows.Find("lock", lock, "long", share) }
	for _, share := range []float64{1e-3, 1e-2} {
		claims = append(claims, Claim{Text: fmt.Sprintf("%s%g %% long readers: Traditional with bypass over DSLR", order, 100*share), Unit: "x", Sweep: over, Note: note}.
			Within(Ratio(at(bypass, share), at(oneSlot, share), "mops"), 1.2, 1.4))
	}
	return append(claims, Claim{Text: order + "0.01 % long readers: Traditional with bypass over DSLR", Unit: "x", Paper: 1, Note: note}.Near(Ratio(at(bypass, 1e-4), at(oneSlot, 1e-4), "mops"), 1.25),
		Claim{Own: true, Text: order + "declock's throughput over the best other's, at least", Unit: "x", Sweep: ours, Note: both(rows, "declock", oneSlot, "long", "mops")}.AtLeast(ours.Least(), 0.97))
}

var expDSLR11 = &Experiment{
	Name: "dslr11", Other: true, Title: "DSLR's Fig. 11: a fixed lease and leases of several slots, by share of long readers",
	Paper:   "DSLR's paper, section 6.5, long readers of 5 to 50 % of the transactions: leases of several slots have a better throughput, and no transaction aborts; with the fixed lease of 10 ms more than half do." + dslrTxnNote + " Long readers are those of dslr10." + ownOrderToo + " A deadlock of DSLR ends by leases there, DecLock's by patience.",
	Columns: []string{"lock", "long", "patience_us", "mops", "p50_us", "p99_us", "aborts_pct", "expired_pct", "resets", "lost"},
	Plots: func(rows Rows) []Plot {
		rows, _ = byOrder(rows)
		return []Plot{{Name: "dslr11", Title: "TPC-C by share of long readers", X: longAxis, Y: Axis{Label: txnLabel, Log: true}, Series: rows.LinesByLock("long", "mops")},
			{Name: "dslr11-aborts", Title: "Transactions that abort, by share of long readers", X: longAxis, Y: Axis{Label: "lost or passed over (%)"}, Series: rows.LinesByLock("long", "expired_pct")}}
	},
	Points: func(o Options) []Point {
		point := func(patience fabric.Time, lock string, share float64) Point {
			r, m := longReads(o, lock, share)
			if lock == "dslr" || lock == letterDSLR || patience > 0 { // costly, and what is claimed of it is plain
				m.WindowNs = min(m.WindowNs, 25*scanNs)
			}
			return r.ordered(patience).at(m, Params{{"lock", lock}, {"long", share}, patienceParam(patience)}, o)
		}
		points := across(pick(o, []float64{0.05, 0.2, 0.5}, 0.05, 0.5), []string{"dslr", letterDSLR, oneSlot, "dslr:slots", "declock-tf", "declock"}, func(share float64, lock string) Point { return point(0, lock, share) })
		if o.Quick {
			return points
		}
		own := across([]float64{0.05, 0.5}, []string{"dslr", "dslr:slots"}, func(share float64, lock string) Point { return point(byLeases, lock, share) })
		return slices.Concat(points, own, across([]float64{0.05, 0.5}, decLocks, func(share float64, lock string) Point { return point(longPatience(lock), lock, share) }))
	},
	Judge: func(rows Rows) []Claim {
		rows, own := byOrder(rows)
		fixedLong, letters := rows.Along("dslr:slots", oneSlot, "long", "mops"), rows.Along("dslr:slots", letterDSLR, "long", "mops")
		ours := rows.OverBest("declock", []string{"dslr", letterDSLR, "dslr:slots", oneSlot}, "long", "mops", Most)
		ownOurs := own.OverBest("declock", []string{"dslr", "dslr:slots"}, "long", "mops", Most)
		return slices.Concat(judgeSlots("", rows), judgeSlots(ownToo, own), []Claim{
			Claim{Own: true, Text: "the same, where transactions commit whose leases have ended", Unit: "x", Sweep: letters, Note: both(rows, letterDSLR, "dslr:slots", "long", "mops")}.AtLeast(letters.Least(), 1),
			Claim{Own: true, Text: "throughput with several slots over that with a fixed lease of 400 ms, at least", Unit: "x", Sweep: fixedLong,
				Note: "a client that asks for 400 ms has 40 slots, and those behind it pause for 2 us for each. " + both(rows, "dslr:slots", oneSlot, "long", "p50_us")}.AtLeast(fixedLong.Least(), 1),
			Claim{Own: true, Text: "declock's throughput over DSLR's with any lease, at least", Unit: "x", Sweep: ours, Note: both(rows, "declock", oneSlot, "long", "mops")}.AtLeast(ours.Least(), 0.97),
			Claim{Own: true, Text: ownToo + "the same", Unit: "x", Sweep: ownOurs, Note: "declock's transactions give up after 0.3 ms there. " + both(own, "declock", "dslr:slots", "long", "mops")}.AtLeast(ownOurs.Least(), 0.97),
		})
	},
}

// decLocks are DecLock as published and as it is.
var decLocks = []string{"declock-tf", "declock"}

// byLeases is a patience that leases end before: deadlocks of DSLR end by its leases, as in its paper.
const byLeases = 10 * fabric.Second

// judgeSlots are the paper's claims of dslr11 by rows in one order. A transaction aborts that begins again, whatever for.
func judgeSlots(order string, rows Rows) []Claim {
	over := rows.Along("dslr:slots", "dslr", "long", "mops")
	aborts := func(lock string) (list []float64) {
		for _, r := range rows.Where("lock", lock) {
			list = append(list, r.Value("expired_pct")+r.Value("aborts_pct"))
		}
		return list
	}
	return []Claim{
		Claim{Text: order + "leases of several slots: transactions that abort", Unit: "%", Note: inWords(rows, "dslr:slots", "long", "resets")}.AtMost(Most(aborts("dslr:slots")), 0),
		Claim{Text: order + "a fixed lease: transactions that abort, at least", Unit: "%", Paper: 50, Note: "of dslr, a transaction aborts that waits for a long reader, or for one that does, until others take it for crashed, or whose own locks end meanwhile, and each long reader, which holds for 20 ms by assumption and so begins again for ever. " +
			inWords(rows, "dslr", "long", "expired_pct") + "; " + inWords(rows, "dslr", "long", "resets")}.AtLeast(Least(aborts("dslr")), 50),
		Claim{Text: order + "throughput with several slots over that with a fixed lease, at least", Unit: "x", Sweep: over,
			Note: both(rows, "dslr", "dslr:slots", "long", "mops")}.AtLeast(over.Least(), 1),
	}
}

// collapse is how long a lock with a lease runs before dslr17 measures it: DSLR begins with free locks, and within 50 ms, and some 50 leases, most transactions wait for locks of
// clients that have failed.
func collapse(leaseNs fabric.Time) fabric.Time { return collapseNs + 50*leaseNs }

// collapseNs is twice what it takes with short leases, of which quick runs wait for half.
const collapseNs = 100 * fabric.Millisecond

// leaseRun returns a run with failures and a lease of so many microseconds, on the same terms whatever the lock. All locks are free at first; then few of DSLR's transactions
// commit, by chance, and what is steady is how many of its acquisitions end.
func leaseRun(o Options, lock string, rate float64, lease int) (txnRun, Micro) {
	r, m := dslrTxn(lock, 16, 1)
	m.LeaseNs = fabric.Time(lease) * fabric.Microsecond
	m.WarmupNs, m.WindowNs = collapse(m.LeaseNs), 40*fabric.Millisecond+8*m.LeaseNs
	r.ends, r.commits, r.fails = true, 300, failures{rate: rate}
	switch {
	case o.Quick:
		r.commits, m.WarmupNs = 100, m.WarmupNs-collapseNs/2
	case lock == letterDSLR && lease <= 500 && !(rate == 1e-2 && lease == 10): // with others throughput is lower by far
		r.nearBar = true
	}
	if strings.HasPrefix(lock, "declock") {
		r.fails.noticed = m.LeaseNs
	}
	return r, m
}

// leaseRates are the shares of transactions that fail in dslr17.
var leaseRates = []float64{1e-3, 1e-2, 1e-1}

// leaseLocks are the locks of dslr17 with a rate and a lease. Quick runs have those alone by which something is judged.
func leaseLocks(o Options, rate float64, lease int) []string {
	switch {
	case o.Quick:
		return []string{letterDSLR}
	case rate == 1e-3 && lease == 100: // with dslr hardly anything commits
		return []string{letterDSLR, "declock-tf", "declock", "dslr"}
	case rate == 1e-3 && lease == 10_000:
		return []string{letterDSLR, "dslr"}
	case lease == 100:
		return []string{letterDSLR, "declock-tf", "declock"}
	case rate != 1e-2 && lease == 500: // declock's are costly, and differ little
		return []string{letterDSLR, "declock"}
	}
	return []string{letterDSLR}
}

// bestLease judges which lease has the most throughput. One within a factor of 2 of the paper's comes out if it is ahead of all that are not by more than chance.
func bestLease(c Claim, of Rows) Claim {
	const factor = 2
	if len(of) == 0 {
		return c.Near(missing, factor)
	}
	best := of.Max("mops")
	lease := best.Value("lease_us")
	if c = c.Near(lease, factor); c.Verdict != ComesOut {
		return c
	}
	for _, r := range of {
		if far := r.Value("lease_us") / c.Paper; far > factor || far < 1.0/factor {
			rival := c
			rival.Spread = spread("mops", best, r)
			if rival.directed(lease, Ratio(best, r, "mops")-1).Verdict != ComesOut {
				c.Verdict = InPart
			}
		}
	}
	return c
}

var expDSLR17 = &Experiment{
	Name: "dslr17", Other: true, Title: "DSLR's Figs. 17 and 18: throughput and aborts by lease, where transactions fail",
	Paper: "DSLR's paper, appendix A.6, high contention, 0.1, 1 and 10 % of the transactions fail with their locks: with leases of 10 and 50 us many abort, and throughput is low; from 500 us on it is low, too. The best lease is around 100 us." +
		dslrTxnNote + " Those of \"dslr, expired leases commit\" begin again only if they are passed over. declock's node releases in the name of a client a lease after it has failed; it is measured after as long, and for as long, as dslr." + ownOrderToo + " A deadlock of DSLR ends by leases there, DecLock's by patience.",
	Columns: []string{"lock", "rate", "lease_us", "patience_us", "mops", "p50_us", "p99_us", "expired_pct", "commits", "failures", "resets", "lost"},
	Plots: func(rows Rows) []Plot {
		rows, _ = byOrder(rows)
		x := Axis{Label: "lease (us)", Log: true}
		speed, aborts := Plot{Name: "dslr17", Title: "TPC-C by lease and share that fails", X: x, Y: Axis{Label: txnLabel, Log: true}}, Plot{Name: "dslr18", Title: "Transactions that abort, by lease and share that fails", X: x, Y: Axis{Label: "lost or passed over (%)"}}
		for _, lock := range []string{letterDSLR, "declock"} {
			for _, rate := range rows.Distinct("rate") {
				of, label := rows.Where("lock", lock, "rate", rate), lock+", "+rate
				speed.Series, aborts.Series = append(speed.Series, of.Line(label, "lease_us", "mops")), append(aborts.Series, of.Line(label, "lease_us", "expired_pct"))
			}
		}
		return []Plot{speed, aborts}
	},
	Points: func(o Options) (points []Point) {
		for _, rate := range leaseRates {
			for _, lease := range pick(o, []int{10, 50, 100, 500, 10_000}, 10, 100) {
				points = append(points, across([]int{lease}, leaseLocks(o, rate, lease), func(lease int, lock string) Point { return leasePoint(o, lock, rate, lease, 0) })...)
			}
		}
		if o.Quick {
			return points
		}
		own := across([]int{10, 100, 500, 10_000}, []string{letterDSLR}, func(lease int, lock string) Point { return leasePoint(o, lock, leaseRates[0], lease, byLeases) })
		return slices.Concat(points, own, across([]int{100}, decLocks, func(lease int, lock string) Point {
			return leasePoint(o, lock, leaseRates[0], lease, longPatience(lock))
		}))
	},
	Judge: func(rows Rows) (claims []Claim) {
		sorted, own := byOrder(rows)
		return append(judgeLeases("", sorted, leaseRates), judgeLeases(ownToo, own, leaseRates[:1])...)
	},
}

// leasePoint returns a point of dslr17. Without patience locks are taken in order.
func leasePoint(o Options, lock string, rate float64, lease int, patience fabric.Time) Point {
	r, m := leaseRun(o, lock, rate, lease)
	if patience > 0 {
		r.nearBar = false
	}
	return r.ordered(patience).at(m, Params{{"lock", lock}, {"rate", rate}, {"lease_us", lease}, patienceParam(patience)}, o)
}

// judgeLeases are the claims of dslr17 by rows in one order.
func judgeLeases(order string, rows Rows, rates []float64) (claims []Claim) {
	for _, rate := range rates {
		of, strict := rows.Where("lock", letterDSLR, "rate", rate), rows.Where("lock", "dslr")
		at, among := func(lease int) Row { return of.Find("lease_us", lease) }, of
		if len(of) < 3 && !slices.ContainsFunc(of, func(r Row) bool { return r.Metrics["mops"].N > 1 }) { // a quick run: one of its two leases must be best
			among = nil
		}
		resets := ""
		if failures := at(500).Value("failures"); failures > 0 { // not in a quick run
			resets = fmt.Sprintf(": with a lease of 500 us there are %s resets for each failure", Figure(at(500).Value("resets")/failures))
		}
		note, part := fmt.Sprintf("a warehouse recovers by chance, and is lost again with its next failure. Clients that wait for a lock of one that has failed hold others, whose leases end meanwhile, and so on%s. Transactions commit also if a lease has ended, for most take longer. ", resets)+
			inWords(of, letterDSLR, "lease_us", "mops")+"; "+inWords(of, letterDSLR, "lease_us", "expired_pct"), order+fmt.Sprintf("%g %% fail: ", 100*rate)
		if len(strict) > 0 {
			note += "; with 0.1 % " + inWords(strict, "dslr", "lease_us", "mops")
		}
		over := func(lease int, text, metric string) Claim {
			return Claim{Text: part + text, Unit: "x", Note: note, Spread: spread(metric, at(lease), at(100))}
		}
		claims = append(claims,
			bestLease(Claim{Text: part + "the lease with the most throughput, us", Paper: 100, Note: note}, among),
			over(10_000, "throughput with a lease of 10 ms over that with 100 us", "mops").AtMost(Ratio(at(10_000), at(100), "mops"), 1),
			over(10, "throughput with a lease of 10 us over that with 100 us", "mops").AtMost(Ratio(at(10), at(100), "mops"), 1),
			over(10, "transactions that abort with a lease of 10 us over those with 100 us", "expired_pct").AtLeast(Ratio(at(10), at(100), "expired_pct"), 1.5),
			over(500, "throughput with a lease of 500 us over that with 100 us", "mops").AtMost(Ratio(at(500), at(100), "mops"), 1))
		if order == "" {
			claims = append(claims,
				over(50, "throughput with a lease of 50 us over that with 100 us", "mops").AtMost(Ratio(at(50), at(100), "mops"), 1),
				over(50, "transactions that abort with a lease of 50 us over those with 100 us", "expired_pct").AtLeast(Ratio(at(50), at(100), "expired_pct"), 1))
		}
		ours := rows.Where("rate", rate).OverBest("declock", []string{letterDSLR}, "lease_us", "mops", Most)
		claims = append(claims, Claim{Own: true, Text: part + "declock's throughput over DSLR's with the same lease, at least", Unit: "x", Sweep: ours,
			Note: "a client that has failed keeps its locks for a lease with either, and with DSLR those that waited for them reset them, one after the other. " + both(rows.Where("rate", rate), "declock", letterDSLR, "lease_us", "mops")}.AtLeast(ours.Least(), 1))
	}
	return claims
}
