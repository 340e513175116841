package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
)

// DSLR's figures lock rows, in the order of their numbers, those of a warehouse on one memory node; beside long readers, and where there are none to compare with, by the table of the customers first.
func TestDSLRLocksRows(t *testing.T) {
	const rows = 310_012
	r, m := dslrTxn("dslr", 16, 1)
	r.m = m.WithDefaults()
	if n, _, err := r.sources(Options{}); err != nil || n != 16*rows || r.each != rows || !r.sorted {
		t.Errorf("%d locks of 16 warehouses, %d each, taken in order: %v: %v", n, r.each, r.sorted, err)
	}
	for _, share := range []float64{0, 1e-3} {
		if r, _ := longReads(Options{}, "dslr", share); !r.tables || r.scans != share {
			t.Errorf("a share of %v long readers: %v, tables %v", share, r.scans, r.tables)
		}
	}
}

// What a user says of transactions is what runs: pauses, failures, which other locks than those with leases notice, long readers, leases.
func TestTxnParameters(t *testing.T) {
	txn := Txn{Trace: "tpcc", Sorted: true, Warehouses: 4, ThinkNs: 50 * fabric.Microsecond, DelayNs: 30 * fabric.Microsecond, FailRate: 0.01, NoticedNs: fabric.Millisecond, Long: 0.1,
		LongNs: 300 * fabric.Microsecond, AskNs: 40 * fabric.Millisecond}
	for _, lock := range []string{"declock", "dslr:slots"} {
		m := Default(lock)
		m.CNs, m.Clients, m.LeaseNs, m.WarmupNs, m.WindowNs = 2, 8, 2*fabric.Millisecond, fabric.Millisecond, 60*fabric.Millisecond
		m = m.WithDefaults()
		if err := txn.Validate(&m); err != nil {
			t.Fatal(err)
		}
		r := txn.run(lock)
		r.m = m
		got, err := r.run(context.Background(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		least, long := uint32(math.MaxUint32), 0
		for _, e := range r.journal.list {
			least = min(least, e.op-e.acquire-e.release)
			if e.op-e.acquire-e.release >= 300_000 {
				long++
			}
		}
		n := len(r.journal.list)
		if least < 50_000 || long < n/20 || long > n/5 || got["failures"] < 1 || (r.fails.noticed == 0) != (lock == "dslr:slots") || r.leaseNs != 40*fabric.Millisecond {
			t.Errorf("%s: %d transactions, %d of them long, the shortest hold %d ns, %v failures, %+v", lock, n, long, least, got["failures"], r.fails)
		}
	}
}

// Memory nodes share the warehouses, and messages within a compute node take as long as those between nodes, if a user says so.
func TestTxnTerms(t *testing.T) {
	m := Default("parlock:ro")
	m.NIC = "cx4"
	for _, c := range []struct {
		txn  Txn
		want []string
	}{{Txn{Trace: "tpcc"}, []string{"mns 0 ", " 1600 1700 1 150 "}}, {Txn{Trace: "tpcc", MNs: 16, Far: true}, []string{"mns 16 ", " 1600 1700 1 1650 "}}} {
		got := fmt.Sprint(c.txn.Point(m).Same)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%+v: no %q in %s", c.txn, want, got)
			}
		}
	}
	if err := (Txn{Trace: "tpcc", MNs: 65}).Validate(&m); !errors.Is(err, ErrTxn) {
		t.Errorf("65 memory nodes: %v", err)
	}
}

// What no transaction can have is refused.
func TestTxnRefusesParameters(t *testing.T) {
	for i, txn := range []Txn{{FailRate: 1.5}, {FailRate: math.NaN()}, {Long: -1}, {Trace: "tatp", Long: 0.1}, {ThinkNs: -1}, {DelayNs: 11 * fabric.Second}} {
		m := Default("cas")
		m = m.WithDefaults()
		if err := txn.Validate(&m); !errors.Is(err, ErrTxn) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// With leases of several slots no transaction loses a lock if all ask for one that is long enough. If long readers alone do, they lose none either, but short transactions do: one that waits for a
// long reader holds other locks meanwhile.
func TestLongReadersAloneAsk(t *testing.T) {
	const slot, hold = 2 * fabric.Millisecond, 5 * fabric.Millisecond
	lost := map[string]float64{}
	long := map[string]int{}
	for name, txn := range map[string]Txn{"none": {}, "all": {AskNs: 100 * hold}, "long": {AskNs: 100 * hold, LongAsk: true}} {
		txn.Trace, txn.Sorted, txn.Warehouses, txn.Long, txn.LongNs = "tpcc", true, 2, 0.05, hold
		m := Default("dslr:slots")
		m.CNs, m.Clients, m.LeaseNs, m.WarmupNs, m.WindowNs = 2, 8, slot, fabric.Millisecond, 200*fabric.Millisecond
		m = m.WithDefaults()
		if err := txn.Validate(&m); err != nil {
			t.Fatal(err)
		}
		r := txn.run(m.Lock)
		r.m = m
		got, err := r.run(context.Background(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		lost[name] = got["expired_pct"]
		for _, e := range r.journal.list {
			if fabric.Time(e.op-e.acquire-e.release) >= hold {
				long[name]++
			}
		}
	}
	if lost["all"] != 0 || lost["long"] < 5 || long["none"] != 0 || long["all"] < 5 || long["long"] < 5 {
		t.Errorf("lost in %%: %v; long readers that have committed: %v", lost, long)
	}
	m := Default("dslr:slots")
	if m = m.WithDefaults(); !errors.Is(Txn{Trace: "tpcc", LongAsk: true}.Validate(&m), ErrTxn) {
		t.Error("nobody asks for a lease")
	}
	m.Clients = 2000
	if err := (Txn{Trace: "tpcc", AskNs: 400 * fabric.Millisecond}).Validate(&m); !errors.Is(err, ErrTxn) || !strings.Contains(err.Error(), "2000 clients") {
		t.Errorf("more clients than may have so long leases: %v", err)
	}
}

// With data a transaction READs that of each lock and WRITEs that of each exclusive one, while it has the locks: also where the lock itself has no shared holders.
func TestTransactionsAccessData(t *testing.T) {
	ops := func(data, mutex bool) (n float64, hold uint32) {
		m := Default("cas")
		m.CNs, m.Clients, m.ReadPct, m.Locks, m.Theta, m.WarmupNs, m.WindowNs = 2, 8, 75, 100_000, 0, 100_000, 2*fabric.Millisecond
		r := Txn{Trace: "zipf", Sorted: true, Exclusive: mutex, ThinkNs: 1000, WithData: data}.run("cas")
		r.m = m.WithDefaults()
		got, err := r.run(context.Background(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		hold = math.MaxUint32
		for _, e := range r.journal.list {
			hold = min(hold, e.op-e.acquire-e.release)
		}
		return got["mn_ops_per_op"], hold
	}
	for _, mutex := range []bool{false, true} {
		without, short := ops(false, mutex)
		with, long := ops(true, mutex)
		if more := with - without; more < 1.2 || more > 1.3 || short > 1100 || long < 2500 {
			t.Errorf("mutex %v: %.3f operations more for each transaction, want 1.25; the shortest hold is %d ns, %d without data", mutex, more, long, short)
		}
	}
	r, m := txnRun{data: true, mns: 2, warehouses: 4, trace: "tpcc", artifact: true}, Default("cas")
	r.m = m.WithDefaults()
	n, source, err := r.sources(Options{})
	if err != nil || r.build(n, source) != nil {
		t.Fatal(err)
	}
	defer r.c.Close()
	seen := map[fabric.Addr]bool{}
	for l := range uint32(n) {
		d := r.dataOf(r.addr(l))
		if seen[d] || d.Add(dataOfLock)-r.plans[d.MN()].at > fabric.Addr(r.plans[d.MN()].size()+r.plans[d.MN()].locks*dataOfLock) || uint64(d-r.plans[d.MN()].at) < r.plans[d.MN()].size() {
			t.Fatalf("the data of lock %d is at %v, that of another, or of none", l, d)
		}
		seen[d] = true
	}
}
