package bench

import (
	"context"
	"math"
	"testing"

	"github.com/declock/declock/fabric"
)

// DrTM's clients take a lease of before by a second CAS: of locks that have been used, as many as had a reader last, of new ones none. Other locks do not notice.
func TestUsedLocks(t *testing.T) {
	ops := func(lock string, used bool, reads int) float64 {
		m := Default(lock)
		m.Used, m.ReadPct, m.Locks, m.Theta, m.CSLen, m.WarmupNs, m.WindowNs = used, reads, 10_000_000, 0, 0, 200*fabric.Microsecond, 500*fabric.Microsecond
		r, err := Sim(context.Background(), m)
		if err != nil {
			t.Fatal(err)
		}
		return r.Metrics()["mn_ops_per_op"]
	}
	// A reader needs one CAS, a writer two; the second of a lease comes on top. Few locks are drawn twice.
	for reads, want := range map[int]float64{0: 2, 50: 1.5, 100: 1} {
		fresh, used := ops("drtm", false, reads), ops("drtm", true, reads)
		if more := used - fresh - float64(reads)/100; fresh < want-0.05 || fresh > want+0.15 || more < -0.1 || more > 0.1 {
			t.Errorf("%d %% reads: %v operations on new locks, %v on used ones", reads, fresh, used)
		}
	}
	if a, b := ops("dslr", false, 50), ops("dslr", true, 50); a != b {
		t.Errorf("dslr: %v operations on new locks, %v on used ones", a, b)
	}
}

// DSLR's rows of dslr17 are measured when clients that have failed have had their effect: its throughput is a fifth of what it is before, at most.
func TestCollapse(t *testing.T) {
	mops := func(warmup fabric.Time) float64 {
		r, m := dslrTxn("dslr", 16, 1)
		m.LeaseNs, m.WarmupNs, m.WindowNs = 500*fabric.Microsecond, warmup, 20*fabric.Millisecond
		r.fails = failures{rate: 1e-2}
		r.m = m.WithDefaults()
		got, err := r.run(context.Background(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return got["mops"]
	}
	if early, late := mops(1), mops(collapse(500*fabric.Microsecond)); late > early/5 {
		t.Errorf("M transactions/s: %v at first, %v after %d ms", early, late, collapse(500*fabric.Microsecond)/fabric.Millisecond)
	}
}

// Both locks of dslr17 are measured after as long, and for as long.
func TestEqualTermsOfLeases(t *testing.T) {
	for _, lease := range []int{10, 10_000} {
		a, x := leaseRun(Options{}, "dslr", 1e-3, lease)
		b, y := leaseRun(Options{}, "declock", 1e-3, lease)
		if x.WarmupNs != y.WarmupNs || x.WindowNs != y.WindowNs || x.LeaseNs != y.LeaseNs || a.commits != b.commits || a.ends != b.ends {
			t.Errorf("lease of %d us: dslr after %v for %v, declock after %v for %v ns", lease, x.WarmupNs, x.WindowNs, y.WarmupNs, y.WindowNs)
		}
	}
}

// In virtual time a waiter of DSLR pauses for 2 us, the model's round trip, for each ticket before its own; by its name for any other time.
func TestDSLRPollsByNetwork(t *testing.T) {
	reads := map[string]float64{}
	for _, lock := range []string{"dslr", "dslr:wait:2", paperDSLR} {
		m := Micro{Lock: lock, CNs: 4, Clients: 16, Locks: 1, Seed: 1, WarmupNs: 100 * fabric.Microsecond, WindowNs: 2 * fabric.Millisecond}.WithDefaults()
		got, err := m.measure(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		reads[lock] = got["mn_ops_per_op"]
	}
	if reads["dslr"] != reads["dslr:wait:2"] || reads["dslr"] <= reads[paperDSLR] {
		t.Errorf("operations on the memory node: %v", reads)
	}
}

// A window is steady by the acquisitions that end, granted or passed over, if that is asked for: few transactions commit, and not evenly.
func TestSteadyByWhatEnds(t *testing.T) {
	for _, ends := range []bool{false, true} {
		p := Pace{WindowNs: fabric.Millisecond, Tolerance: 0.04, Ends: ends}
		got, err := fixedWindow(&p, func(at fabric.Time) (m mark, err error) {
			m.at, m.done = at, int(at*at/fabric.Millisecond/1000) // ever more
			m.Locks.Acquires, m.Locks.Aborts = uint64(at)/1000, uint64(at)/500
			return m, nil
		})
		if err != nil || got.steady != ends {
			t.Errorf("by what ends %v: steady %v, drift %.3g: %v", ends, got.steady, got.drift, err)
		}
	}
	if r, _ := leaseRun(Options{}, letterDSLR, 1e-3, 10); !r.ends {
		t.Error("DSLR's transactions by lease are steady by what commits")
	}
}

// A window for so many commits goes on until it has them, or to its limit.
func TestCommits(t *testing.T) {
	for commits, limit := range map[int]bool{100: false, 1 << 30: true} {
		m := Micro{Lock: "cas", CNs: 1, Clients: 1, Locks: 10, Seed: 1, WarmupNs: 1, WindowNs: 6400 * fabric.Microsecond}.WithDefaults()
		r := txnRun{trace: "zipf", sorted: true, m: m, think: 95 * fabric.Microsecond, commits: commits}
		if limit {
			r.think = fabric.Second
		}
		got, err := r.run(context.Background(), Options{})
		if n := len(r.journal.list); err != nil || limit && (n > 5 || math.Abs(got["window_us"]-float64(commitsNs)/1e3) > 7000) || !limit && (n < 100 || n > 101) {
			t.Errorf("%d of %d commits in %v us: %v", n, commits, got["window_us"], err)
		}
	}
}
