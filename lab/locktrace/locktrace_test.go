package locktrace_test

import (
	"math"
	"slices"
	"testing"

	"github.com/declock/declock/lab/locktrace"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/traces"
)

// The numbers of locks are those of the traces that FissLock's and ShiftLock's evaluations used. (ShiftLock's 60,490 of 500 warehouses are those with a
// number below the last that a transaction takes: nothing takes the ten of the last one's items.)
func TestLocks(t *testing.T) {
	for warehouses, want := range map[int]int{1: 121, 500: 60_490 + 10, 9600: 1_161_600} {
		if n := (&locktrace.TPCC{Warehouses: warehouses}).Locks(); n != want {
			t.Errorf("%d locks of %d warehouses, want %d", n, warehouses, want)
		}
	}
	if n := locktrace.NewTATP(100_000, true).Locks(); n != 680_236 {
		t.Errorf("%d locks of 100,000 subscribers, want 680,236", n)
	}
}

// count draws transactions, and returns how many locks they take, the share of shared ones in percent, and the highest lock.
func count(t *testing.T, src locktrace.Source, locks int) (perTxn, shared float64, highest uint32) {
	t.Helper()
	const txns = 200_000
	var list []locktrace.Access
	all, readers := 0, 0
	for range txns {
		list = src.Next(list[:0])
		for i, a := range list {
			if a.Lock >= uint32(locks) {
				t.Fatalf("lock %d of %d", a.Lock, locks)
			}
			if slices.ContainsFunc(list[:i], func(b locktrace.Access) bool { return b.Lock == a.Lock }) {
				t.Fatalf("a transaction takes lock %d twice: %v", a.Lock, list)
			}
			if highest = max(highest, a.Lock); a.Mode == lock.Shared {
				readers++
			}
		}
		all += len(list)
	}
	return float64(all) / txns, 100 * float64(readers) / float64(all), highest
}

// The shares of readers are those that ShiftLock's paper gives of its traces (section 4.4): 80.6 % with TATP, 13.5 % with TPC-C.
func TestArtifact(t *testing.T) {
	db := &locktrace.TPCC{Warehouses: 500, Nodes: 5, Artifact: true}
	per, shared, highest := count(t, db.Source(4, traces.NewRand(1, 1)), db.Locks())
	if math.Abs(shared-13.5) > 1 || highest >= 60_490 {
		t.Errorf("TPC-C: %.1f %% of locks shared, want 13.5; %.1f for each transaction; the highest is %d", shared, per, highest)
	}
	tatp := locktrace.NewTATP(100_000, true)
	if per, shared, _ := count(t, tatp.Source(traces.NewRand(1, 1)), tatp.Locks()); math.Abs(shared-80.6) > 1 {
		t.Errorf("TATP: %.1f %% of locks shared, want 80.6; %.2f for each transaction", shared, per)
	}
}

// By the specification transactions of TPC-C reach other warehouses in New-Order too, and take more locks; TATP inserts rows that are not there.
func TestSpecification(t *testing.T) {
	locks := map[bool]float64{}
	for _, artifact := range []bool{false, true} {
		db := &locktrace.TPCC{Warehouses: 10, Nodes: 1, Artifact: artifact}
		locks[artifact], _, _ = count(t, db.Source(0, traces.NewRand(1, 1)), db.Locks())
	}
	if locks[false] < locks[true]+1 {
		t.Errorf("%.1f locks for each transaction by the specification, %.1f of the artifact", locks[false], locks[true])
	}
	remote := false
	db := &locktrace.TPCC{Warehouses: 10, Nodes: 1}
	for src, n := db.Source(0, traces.NewRand(2, 1)), 0; n < 2000; n++ {
		list := src.Next(nil)
		if of := func(a locktrace.Access) uint32 { return a.Lock / locktrace.WarehouseLocks }; len(list) > 6 && list[0].Mode == lock.Shared {
			remote = remote || slices.ContainsFunc(list, func(a locktrace.Access) bool { return of(a) != of(list[0]) })
		}
	}
	if !remote {
		t.Error("no New-Order takes a lock of another warehouse")
	}
	// Of 1000 subscribers most rows of call forwarding have been deleted by then, if none is inserted.
	changes := map[bool]int{}
	for _, artifact := range []bool{false, true} {
		db := locktrace.NewTATP(1000, artifact)
		src := db.Source(traces.NewRand(1, 1))
		count(t, src, db.Locks())
		count(t, src, db.Locks())
		for range 100_000 {
			for _, a := range src.Next(nil) {
				if int(a.Lock) >= db.Locks()-800 && a.Mode == lock.Exclusive {
					changes[artifact]++
				}
			}
		}
	}
	if changes[false] < 1000 || changes[true] > 500 {
		t.Errorf("rows of call forwarding are changed %d times by the specification, %d times of the artifact", changes[false], changes[true])
	}
}

// With fewer warehouses than nodes each node has one of them.
func TestFewWarehouses(t *testing.T) {
	for _, warehouses := range []int{1, 3} {
		for _, artifact := range []bool{false, true} {
			db := &locktrace.TPCC{Warehouses: warehouses, Nodes: 5, Artifact: artifact}
			used := map[uint32]bool{}
			for node := range 5 {
				src := db.Source(node, traces.NewRand(1, uint64(node)))
				for range 1000 {
					for _, a := range src.Next(nil) {
						used[a.Lock/locktrace.WarehouseLocks] = true
					}
				}
			}
			for w := range used {
				if len(used) != warehouses || w >= uint32(warehouses) {
					t.Fatalf("%d warehouses, artifact %v: those of %v are used", warehouses, artifact, used)
				}
			}
		}
	}
}

// Sources say of which kind a transaction is: by the mix 35 and 14 % are Get-Subscriber-Data and Update-Location, of one lock each, and New-Orders have 15 locks.
func TestKinds(t *testing.T) {
	src := locktrace.NewTATP(1000, true).Source(traces.NewRand(1, 1))
	modes := map[locktrace.Kind]lock.Mode{locktrace.GetSubscriberData: lock.Shared, locktrace.UpdateLocation: lock.Exclusive}
	n := map[locktrace.Kind]int{}
	for range 10_000 {
		list, kind := src.Next(nil), src.(interface{ Kind() locktrace.Kind }).Kind()
		n[kind]++
		if mode, ok := modes[kind]; ok && (len(list) != 1 || list[0].Mode != mode || list[0].Lock >= 1000) {
			t.Fatalf("kind %d takes %v", kind, list)
		}
	}
	if g, u := n[locktrace.GetSubscriberData], n[locktrace.UpdateLocation]; g < 3300 || g > 3700 || u < 1250 || u > 1550 {
		t.Errorf("%d and %d of 10,000", g, u)
	}
	db := &locktrace.TPCC{Warehouses: 8, Nodes: 4, Artifact: true}
	src, n = db.Source(0, traces.NewRand(1, 1)), map[locktrace.Kind]int{}
	for range 10_000 {
		list, kind := src.Next(nil), src.(interface{ Kind() locktrace.Kind }).Kind()
		n[kind]++
		if (kind == locktrace.NewOrder) != (len(list) > 6) || (kind == locktrace.Payment) != (len(list) == 4 && list[0].Mode == lock.Exclusive && list[0].Lock%locktrace.WarehouseLocks == 0) {
			t.Fatalf("kind %v takes %v", kind, list)
		}
	}
	if n[locktrace.NewOrder] < 4300 || n[locktrace.Payment] < 4100 || n[locktrace.StockLevel] < 300 {
		t.Errorf("%v of 10,000", n)
	}
}

// Long readers take all customers of a warehouse of their node, shared, and are as many as asked for.
func TestScans(t *testing.T) {
	db := &locktrace.TPCC{Warehouses: 8, Nodes: 4}
	src, long := db.Scans(3, traces.NewRand(1, 1), 0.1), 0
	const txns = 20_000
	for range txns {
		list := src.Next(nil)
		if !src.Long {
			continue
		}
		long++
		for _, a := range list {
			if a.Mode != lock.Shared || a.Lock/locktrace.WarehouseLocks != list[0].Lock/locktrace.WarehouseLocks || a.Lock < 6*locktrace.WarehouseLocks {
				t.Fatalf("a long reader takes %v", list)
			}
		}
		if len(list) != 30 {
			t.Fatalf("a long reader takes %d locks of 30", len(list))
		}
	}
	if long < txns/11 || long > txns/9 {
		t.Errorf("%d long readers of %d", long, txns)
	}
}
