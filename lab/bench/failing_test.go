package bench

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locktrace"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/traces"
)

// Clients that fail as holders, or while they wait, do not end a run: leases free the locks, or the node does in the name of its clients. Each is replaced,
// and nothing else is lost.
func TestClientsThatFail(t *testing.T) {
	for _, c := range []struct {
		lock    string
		noticed fabric.Time
	}{{"dslr", 0}, {"shift", 0}, {"shift-artifact", 0}, {"declock", fabric.Millisecond}, {"mcs", fabric.Millisecond}} {
		for _, waiting := range []bool{false, true} {
			m := Micro{Lock: c.lock, CNs: 2, Clients: 8, Locks: 4, Seed: 1, ReadPct: 50, LeaseNs: fabric.Millisecond, WarmupNs: 10 * fabric.Millisecond, WindowNs: 90 * fabric.Millisecond}.WithDefaults()
			r := txnRun{trace: "zipf", sorted: true, m: m, fails: failures{rate: 0.001, waiting: waiting, noticed: c.noticed}}
			got, err := r.run(context.Background(), Options{})
			if err != nil {
				t.Errorf("%s, waiting %v: %v", c.lock, waiting, err)
				continue
			}
			// The last of the failures is some leases ago at most.
			n := len(r.journal.list)
			if got["failures"] < 10 || n < 1000 || got["lost"] > 0 || (got["resets"] > 0) != (c.noticed == 0) {
				t.Errorf("%s, waiting %v: %d operations, %v failures, %v resets, %v lost", c.lock, waiting, n, got["failures"], got["resets"], got["lost"])
			}
		}
	}
}

// Nothing that a failed client asks for is done, and its waits end.
func TestFailingPort(t *testing.T) {
	c := sim.New(sim.Config{})
	defer c.Close()
	a, n := fabric.At(c.AddMN(1<<20), 4096), c.AddCN()
	c.Go(n, "client", func(port fabric.Port) {
		const at = 20 * fabric.Microsecond
		p := &failingPort{Port: port, until: at}
		if err := p.Do([]fabric.Op{fabric.FAA(a, 1)}); err != nil || p.Send(port.ID(), &fabric.Message{Kind: fabric.MsgUser}) != nil {
			t.Errorf("before it has failed: %v", err)
		}
		if m, err := p.Recv(fabric.Forever); err != nil || m.Kind != fabric.MsgUser {
			t.Errorf("before it has failed: %v, %v", m, err)
		}
		_, err := p.Recv(fabric.Forever)
		for i, err := range []error{err, p.Do([]fabric.Op{fabric.FAA(a, 1)}), p.Pause(fabric.Forever), p.Send(port.ID(), &fabric.Message{}), p.Abandon()} {
			if !errors.Is(err, errFailed) {
				t.Errorf("call %d after it has failed: %v", i, err)
			}
		}
		if now := p.Now(); now < at || now > at+fabric.Microsecond {
			t.Errorf("the waits have ended at %d", now)
		}
	})
	if err := c.Run(); err != nil || c.PeekWord(a) != 1 {
		t.Errorf("%v; the word is %d", err, c.PeekWord(a))
	}
}

// A transaction that has lost a lock is none that has committed. With leases of several slots it chooses one that is long enough.
func TestBrokenTransactionsDoNotCount(t *testing.T) {
	for name, commits := range map[string]bool{"dslr": false, "dslr:slots": true} {
		m := Micro{Lock: name, CNs: 1, Clients: 2, Locks: 4, Seed: 1, LeaseNs: 20 * fabric.Microsecond, WarmupNs: 1, WindowNs: fabric.Millisecond}.WithDefaults()
		r := txnRun{trace: "zipf", sorted: true, m: m, think: 50 * fabric.Microsecond, leaseNs: 200 * fabric.Microsecond}
		got, err := r.run(context.Background(), Options{})
		if err != nil || (len(r.journal.list) > 0) != commits || (got["expired_pct"] == 0) != commits {
			t.Errorf("%s: %d transactions have committed, %v %% not: %v", name, len(r.journal.list), got["expired_pct"], err)
		}
	}
}

// oneLock is a source of transactions of one lock, which counts them.
type oneLock struct {
	lock uint32
	n    int
}

func (s *oneLock) Next(list []locktrace.Access) []locktrace.Access {
	s.n++
	return append(list, locktrace.Access{Lock: s.lock, Mode: lock.Exclusive})
}

// A transaction commits though another client loses a lock while it releases its own.
func TestOthersLossesDoNotCount(t *testing.T) {
	m := Micro{Lock: "dslr", CNs: 2, Clients: 2, Seed: 1, LeaseNs: 200 * fabric.Microsecond, WarmupNs: 1, WindowNs: 20 * fabric.Millisecond}.WithDefaults()
	r := txnRun{trace: "tpcc", sorted: true, m: m, think: 1, scanNs: 400 * fabric.Microsecond}
	db := &locktrace.TPCC{Warehouses: 2, Nodes: 2}
	short := &oneLock{lock: uint32(db.Each())}
	_, err := r.runWith(context.Background(), db.Locks(), func(node, _ int) locktrace.Source {
		if node == 0 {
			return db.Scans(node, traces.NewRand(1, 1), 1)
		}
		return short
	})
	// The last transaction is under way when the run ends.
	n, asked := len(r.journal.list), r.lockers[1].Stats().Acquires
	if err != nil || r.broken < 8 || n < 1000 || asked > uint64(n)+1 {
		t.Errorf("%d of %d transactions have committed, with %d acquisitions, and %d lost a lock: %v", n, short.n, asked, r.broken, err)
	}
}

// Transactions that take their locks in order never deadlock. In the order of the transaction they do: one that has waited for 10 ms gives up, releases all, and
// begins again, so that all clients go on. Each pauses for its think time with all of its locks.
func TestTransactionsAbort(t *testing.T) {
	const think = 30 * fabric.Microsecond
	for _, sorted := range []bool{true, false} {
		m := Micro{Lock: "declock", CNs: 2, Clients: 32, Seed: 1, WarmupNs: fabric.Millisecond, WindowNs: 60 * fabric.Millisecond}.WithDefaults()
		r := txnRun{trace: "tpcc", artifact: true, warehouses: 2, sorted: sorted, m: m, think: think}
		got, err := r.run(context.Background(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(r.journal.list); n < 100 || (r.aborts == 0) != sorted || (got["aborts_pct"] == 0) != sorted {
			t.Errorf("sorted %v: %d transactions, %d aborts", sorted, n, r.aborts)
		}
		least, long := uint32(1<<31), 0
		for _, e := range r.journal.list {
			if least = min(least, e.op-e.acquire-e.release); fabric.Time(e.acquire) > txnPatience+fabric.Millisecond {
				long++ // with an attempt that was given up
			}
		}
		if (long > 0) == sorted || uint64(long) > r.aborts {
			t.Errorf("sorted %v: %d transactions took longer than one that gives up, after %d aborts", sorted, long, r.aborts)
		}
		if fabric.Time(least) < think {
			t.Errorf("sorted %v: a transaction had its locks for %d ns, want %d", sorted, least, think)
		}
	}
}

// holder is a source of transactions with the same locks, which are held for some time.
type holder struct {
	locks []uint32
	hold  fabric.Time
	n     int
}

func (s *holder) Next(list []locktrace.Access) []locktrace.Access {
	s.n++
	for _, l := range s.locks {
		list = append(list, locktrace.Access{Lock: l, Mode: lock.Exclusive})
	}
	return list
}

func (s *holder) think() fabric.Time { return s.hold }

// A transaction with patience gives up when it has waited for so long for one lock, however long all of them take: here for 120 us for one, then for 110 us for another, each time.
func TestPatience(t *testing.T) {
	const us = fabric.Microsecond
	m := Micro{Lock: "dslr", CNs: 1, Clients: 3, Locks: 4, Seed: 1, WarmupNs: 1, WindowNs: 10 * fabric.Millisecond}.WithDefaults()
	if sorted := (Txn{Trace: "tpcc", Sorted: true, PatienceNs: us}); sorted.Validate(&m) == nil {
		t.Error("transactions that take their locks in order have patience")
	}
	for patience, most := range map[fabric.Time]uint64{200 * us: 4, 60 * us: 1000} {
		r := Txn{PatienceNs: patience}.run("dslr")
		r.trace, r.m = "zipf", m
		of := []*holder{{locks: []uint32{0}, hold: 120 * us}, {locks: []uint32{1}, hold: 230 * us}, {locks: []uint32{0, 1}, hold: 10 * us}}
		if _, err := r.runWith(context.Background(), 4, func(_, client int) locktrace.Source { return of[client] }); err != nil {
			t.Fatal(err)
		}
		if gaveUp := r.aborts > 4; r.aborts > most || gaveUp != (patience < 110*us) || !gaveUp && of[2].n < 20 {
			t.Errorf("with a patience of %d ns %d of %d transactions gave up", patience, r.aborts, of[2].n)
		}
	}
}

// Claims of dslr8 on high contention are judged where transactions take locks in their own order, each lock at the patience with which it does most.
func TestJudgedInOwnOrder(t *testing.T) {
	row := func(part, lock string, patience, mops float64) Row {
		return Row{Params: Params{{"part", part}, {"lock", lock}, {"patience_us", patience}}, Metrics: map[string]Estimate{"mops": {Mean: mops, N: 1}, "steady": {Mean: 1, N: 1}}}
	}
	rows := Rows{row("high", "dslr", 0, 1), row("high", "cas", 0, 1), row(ownOrder, "dslr", 300, 4), row(ownOrder, "cas", 300, 1), row(ownOrder, "dslr", 1000, 3), row(ownOrder, "cas", 1000, 2)}
	for _, c := range expDSLR8.Judge(rows) {
		if c.Text == "high contention: DSLR's throughput over that of cas" && (c.Ours != 2 || c.Verdict != ComesOut) {
			t.Errorf("DSLR does 4, CAS 2 at its best: %v times, %v", c.Ours, c.Verdict)
		}
	}
	if plot := expDSLR8.Plots(rows)[0]; len(plot.Groups) != 2 || plot.Series[1].XY[1].Y != 2 {
		t.Errorf("%+v", plot)
	}
}

// Claims on the transactions' own order are judged by the rows of that order alone, and claims on locks in order by the others.
func TestClaimsByOrder(t *testing.T) {
	row := func(lock, param string, at, rate, patience, mops float64) Row {
		return Row{Params: Params{{"lock", lock}, {param, at}, {"rate", rate}, {"patience_us", patience}}, Metrics: map[string]Estimate{"mops": {Mean: mops, N: 1}, "steady": {Mean: 1, N: 1}}}
	}
	for _, c := range []struct {
		exp        *Experiment
		param      string
		over, than string
		at, from   float64
		claim      string
	}{
		{expDSLR9, "nodes", "dslr", "dslr", 16, 1, "DSLR's throughput with 16 times the nodes"},
		{expDSLR10, "long", bypass, oneSlot, 1e-2, 1e-2, "1 % long readers: Traditional with bypass over DSLR"},
		{expDSLR11, "long", "dslr:slots", "dslr", 0.05, 0.05, "throughput with several slots over that with a fixed lease, at least"},
		{expDSLR17, "lease_us", letterDSLR, letterDSLR, 10_000, 100, "0.1 % fail: throughput with a lease of 10 ms over that with 100 us"},
	} {
		var rows Rows
		for patience, mops := range map[float64]float64{0: 4, 300: 2} {
			rows = append(rows, row(c.over, c.param, c.at, leaseRates[0], patience, mops), row(c.than, c.param, c.from, leaseRates[0], patience, 1))
		}
		got := map[string]float64{}
		for _, claim := range c.exp.Judge(rows) {
			got[claim.Text] = claim.Ours
		}
		if got[c.claim] != 4 || got[ownToo+c.claim] != 2 {
			t.Errorf("%s, %s: %v in order, %v in the transactions' own, want 4 and 2", c.exp.Name, c.claim, got[c.claim], got[ownToo+c.claim])
		}
	}
}

// Clients fail with as many of their transactions as asked for, by chance.
func TestFailureRates(t *testing.T) {
	for _, rate := range []float64{0.01, 0.1} {
		for _, waiting := range []bool{false, true} {
			m := Micro{Lock: "declock", CNs: 2, Clients: 8, Locks: 10_000, Seed: 1, WarmupNs: fabric.Millisecond, WindowNs: 10 * fabric.Millisecond}.WithDefaults()
			if waiting { // so that most wait
				m.Locks, m.WindowNs = 2, 10*fabric.Millisecond
			}
			r := txnRun{trace: "zipf", sorted: true, m: m, fails: failures{rate: rate, waiting: waiting, noticed: 20 * fabric.Microsecond}}
			if _, err := r.run(context.Background(), Options{}); err != nil {
				t.Fatal(err)
			}
			n := float64(len(r.journal.list)) + float64(r.failed)
			few := 0.0
			if waiting { // one may be drawn to fail again before it has to wait
				few = rate * n / 8
			}
			if off := float64(r.failed) - rate*n; n < 2000 || off > 4*math.Sqrt(rate*(1-rate)*n) || -off > few+4*math.Sqrt(rate*(1-rate)*n) {
				t.Errorf("rate %v, waiting %v: %d of %v transactions, want %.0f", rate, waiting, r.failed, n, rate*n)
			}
		}
	}
}

// What a client that has failed holds is released as long after that as asked for: where all fail, a lock changes hands as often. In ShiftLock's figure of failures that is as long as the leases of
// the others, or two or three.
func TestFailuresAreNoticedLater(t *testing.T) {
	for _, noticed := range []fabric.Time{100 * fabric.Microsecond, fabric.Millisecond} {
		m := Micro{Lock: "declock", CNs: 1, Clients: 1, Locks: 1, Seed: 1, WarmupNs: 1, WindowNs: 20 * fabric.Millisecond}.WithDefaults()
		r := txnRun{trace: "zipf", sorted: true, m: m, fails: failures{rate: 1, noticed: noticed}}
		if _, err := r.run(context.Background(), Options{}); err != nil {
			t.Fatal(err)
		}
		if want := uint64(m.WindowNs / noticed); r.failed > want+1 || r.failed < want*9/10 || len(r.journal.list) > 0 {
			t.Errorf("noticed after %d us: %d clients fail, want %d; %d commit", noticed/fabric.Microsecond, r.failed, want, len(r.journal.list))
		}
	}
	const ms = fabric.Millisecond
	for lock, want := range map[string]fabric.Time{"declock": 10 * ms, "declock-pf": 10 * ms, noticed20: 20 * ms, noticed30: 30 * ms, "dslr": 0, "shift-artifact": 0} {
		if f := failuresOf(lock, 0.1, true); f.noticed != want || f.rate != 0.1 || !f.waiting {
			t.Errorf("%s: %+v", lock, f)
		}
	}
}

// Of clients that are to fail while they wait only those do that wait: none where locks are free. What one waits for that has failed stays taken until that is noticed.
func TestOnlyWaitersFail(t *testing.T) {
	const think, noticed, window = 20 * fabric.Microsecond, 400 * fabric.Microsecond, 20 * fabric.Millisecond
	for _, lock := range []string{"declock", "dslr"} {
		for _, clients := range []int{1, 2} {
			m := Micro{Lock: lock, CNs: 1, Clients: clients, Locks: 1, Seed: 1, LeaseNs: noticed / 2, WarmupNs: 1, WindowNs: window}.WithDefaults()
			r := txnRun{trace: "zipf", sorted: true, m: m, think: think, fails: failures{rate: 0.02, waiting: true}}
			if lock == "declock" {
				r.fails.noticed = noticed
			}
			got, err := r.run(context.Background(), Options{})
			if err != nil {
				t.Fatal(err)
			}
			n := fabric.Time(len(r.journal.list))
			idle := window - n*(think+3*fabric.Microsecond) // each takes some 20 to 26 us
			if failed := fabric.Time(got["failures"]); (failed > 0) != (clients > 1) || clients > 1 && (failed < 5 || idle < failed*noticed/2 || idle > failed*noticed*3/2+window/5) {
				t.Errorf("%s, %d clients: %d have failed, %d have committed, %d us are left", lock, clients, failed, n, idle/fabric.Microsecond)
			}
		}
	}
}

// byTurns is a source of two kinds of transactions in turn, which counts them: one that waits for a lock with two others, and one that takes that alone.
type byTurns struct{ drawn [2]int }

func (s *byTurns) Next(list []locktrace.Access) []locktrace.Access {
	kind := s.Kind()
	if s.drawn[1-kind]++; kind == 0 {
		list = append(list, locktrace.Access{Lock: 0, Mode: lock.Exclusive}, locktrace.Access{Lock: 1, Mode: lock.Exclusive})
	}
	return append(list, locktrace.Access{Lock: 2, Mode: lock.Exclusive})
}

// Kind returns that of the last: they take turns.
func (s *byTurns) Kind() locktrace.Kind { return locktrace.Kind((s.drawn[0] + s.drawn[1]) % 2) }

// A transaction that loses a lock, or is passed over, begins again until it has committed: each that is drawn commits, also of the kind that loses locks most. Its latency counts from its first beginning.
func TestLostTransactionsBeginAgain(t *testing.T) {
	for _, unchecked := range []bool{false, true} {
		const lease = 100 * fabric.Microsecond
		m := Micro{Lock: "dslr", CNs: 2, Clients: 4, Seed: 1, LeaseNs: lease, WarmupNs: 1, WindowNs: 60 * fabric.Millisecond}.WithDefaults()
		r := txnRun{trace: "tpcc", sorted: true, m: m, think: 60 * fabric.Microsecond, unchecked: unchecked}
		db := &locktrace.TPCC{Warehouses: 1, Nodes: 1}
		var sources []*byTurns
		got, err := r.runWith(context.Background(), db.Locks(), func(int, int) locktrace.Source {
			s := new(byTurns)
			sources = append(sources, s)
			return s
		})
		if err != nil {
			t.Fatal(err)
		}
		var drawn, done [2]int
		passed, most := uint64(0), fabric.Time(0)
		for _, s := range sources {
			drawn[0], drawn[1] = drawn[0]+s.drawn[0], drawn[1]+s.drawn[1]
		}
		for _, e := range r.journal.list {
			done[e.kind-txnOp]++
			most = max(most, fabric.Time(e.op))
		}
		for _, l := range r.lockers {
			passed += l.Stats().Aborts
		}
		if left := drawn[0] + drawn[1] - done[0] - done[1]; left < 0 || left > m.Clients || done[0] < 20 || drawn[0]-done[0] > m.Clients || r.journal.lost < 10 || (r.broken == 0) != unchecked || most < 4*lease || passed == 0 || got["expired_pct"] < 100*float64(passed)/float64(len(r.journal.list)+int(passed+r.broken)) {
			t.Errorf("unchecked %v: drawn %v, committed %v; %d locks lost, %d transactions begun again for that, %d passed over, the longest %d us", unchecked, drawn, done, r.journal.lost, r.broken, passed, most/1000)
		}
	}
}

// Where there are to be no shared holders, readers hold a lock one at a time.
func TestNoSharedHolders(t *testing.T) {
	for _, mutex := range []bool{false, true} {
		const think, window = 10 * fabric.Microsecond, 2 * fabric.Millisecond
		m := Micro{Lock: "cas", CNs: 2, Clients: 8, Locks: 1, ReadPct: 100, Seed: 1, WarmupNs: 1, WindowNs: window}.WithDefaults()
		r := txnRun{trace: "zipf", sorted: true, mutex: mutex, m: m, think: think}
		if _, err := r.run(context.Background(), Options{}); err != nil {
			t.Fatal(err)
		}
		if n, serial := len(r.journal.list), int(window/think); n < 50 || (n <= serial) != mutex {
			t.Errorf("mutex %v: %d transactions, one at a time are %d at most", mutex, n, serial)
		}
	}
}
