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
		if n := (&locktrace.TPCC{Warehouses: warehouses, Artifact: true}).Locks(); n != want {
			t.Errorf("%d locks of %d warehouses, want %d", n, warehouses, want)
		}
	}
	// By the specification each row has one, up to 67 million.
	for warehouses, want := range map[int]int{1: rowsEnd, 160: 160 * rowsEnd, 9600: 67_104_000} {
		if n := (&locktrace.TPCC{Warehouses: warehouses}).Locks(); n != want {
			t.Errorf("%d locks of the rows of %d warehouses, want %d", n, warehouses, want)
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

// By the specification transactions of TPC-C take more locks, and TATP inserts rows that are not there.
func TestSpecification(t *testing.T) {
	locks := map[bool]float64{}
	for _, artifact := range []bool{false, true} {
		db := &locktrace.TPCC{Warehouses: 10, Nodes: 1, Artifact: artifact}
		locks[artifact], _, _ = count(t, db.Source(0, traces.NewRand(1, 1)), db.Locks())
	}
	if locks[false] < locks[true]+1 {
		t.Errorf("%.1f locks for each transaction by the specification, %.1f of the artifact", locks[false], locks[true])
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
						used[a.Lock/uint32(db.Each())] = true
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

// The first lock of each table of a warehouse, and the number of all, where each row has its own. The tables are in this order: warehouse, districts, the lock of the table of
// customers, customers, stock, orders, new orders, history, lines.
const (
	districtsAt = 1
	tableAt     = 11
	customersAt = 12
	stockAt     = 30_012
	ordersAt    = 130_012
	newOrdersAt = 140_012
	historyAt   = 150_012
	linesAt     = 160_012
	rowsEnd     = 310_012
)

// rowsOf returns how many locks of a table a transaction takes, in a warehouse or in others.
func rowsOf(list []locktrace.Access, w uint32, from, to uint32) (own, other int) {
	for _, a := range list {
		if row := a.Lock % rowsEnd; row < from || row >= to {
			continue
		}
		if a.Lock/rowsEnd == w {
			own++
		} else {
			other++
		}
	}
	return own, other
}

// By the specification transactions take the rows of what they are about: so many of each kind, in these modes, and of other warehouses as often as it says. Of each 100 there are as many
// of each kind as in the mix.
func TestRows(t *testing.T) {
	db := &locktrace.TPCC{Warehouses: 10, Nodes: 1, Seed: 1}
	src := db.Source(0, traces.NewRand(1, 1)).(interface {
		locktrace.Source
		Kind() locktrace.Kind
	})
	n, locks, shared := map[locktrace.Kind]float64{}, map[locktrace.Kind]float64{}, map[locktrace.Kind]float64{}
	var stock, farStock, paid, farPaid float64
	customers := map[uint32]int{}
	var list []locktrace.Access
	for range 100_000 {
		list = src.Next(list[:0])
		k, w := src.Kind(), list[0].Lock/rowsEnd
		n[k]++
		for _, a := range list {
			if locks[k]++; a.Mode == lock.Shared {
				shared[k]++
			}
		}
		switch k {
		case locktrace.NewOrder:
			own, other := rowsOf(list, w, stockAt, ordersAt)
			stock, farStock = stock+float64(own+other), farStock+float64(other)
			lines, _ := rowsOf(list, w, linesAt, rowsEnd)
			if orders, _ := rowsOf(list, w, ordersAt, historyAt); list[0].Lock%rowsEnd != 0 || list[1].Mode != lock.Exclusive || orders != 2 || lines < 4 || lines > 15 || own+other > lines {
				t.Fatalf("New-Order takes %v", list)
			}
		case locktrace.Payment:
			own, other := rowsOf(list, w, customersAt, stockAt)
			paid, farPaid = paid+float64(own+other), farPaid+float64(other)
			customers[list[2].Lock%rowsEnd]++
		}
	}
	for k, want := range map[locktrace.Kind][3]float64{ // percent of transactions; locks, shared ones in percent of these
		locktrace.NewOrder: {45, 25, 8}, locktrace.Payment: {43, 4, 0}, locktrace.OrderStatus: {4, 12, 100}, locktrace.Delivery: {4, 130, 0}, locktrace.StockLevel: {4, 401, 100}} {
		got := [3]float64{n[k] / 1000, locks[k] / n[k], 100 * shared[k] / locks[k]}
		for i := range got {
			if math.Abs(got[i]-want[i]) > 0.05*want[i] || i == 0 && got[i] != want[i] {
				t.Errorf("%v: %.1f %% of transactions, %.1f locks, %.1f %% of them shared, want %v", k, got[0], got[1], got[2], want)
				break
			}
		}
	}
	if far := 100 * farStock / stock; far < 0.9 || far > 1.1 {
		t.Errorf("%.2f %% of the stock is of other warehouses, want 1", far)
	}
	if far := 100 * farPaid / paid; far < 14.4 || far > 15.6 {
		t.Errorf("%.1f %% of the payments are by customers of other warehouses, want 15", far)
	}
	// Three of five are found by one of 1,000 names of a district; all others are each of 3,000 customers.
	named := 0
	for row, of := range customers {
		if c := (row - customersAt) % 3000; c >= 1000 && c < 2000 {
			named += of
		}
	}
	if share := 100 * float64(named) / paid; len(customers) < 10_000 || share < 68 || share > 78 {
		t.Errorf("%d customers, %.1f %% of payments by those that names lead to", len(customers), share)
	}
}

// What a New-Order orders, a Delivery delivers in the same order (TPC-C, clause 2.7.4.2) and Stock-Level looks at (2.8.2.2); Order-Status looks at the last order of its customer, of those
// who have ordered in the run (2.6.2.2).
func TestOrders(t *testing.T) {
	db := &locktrace.TPCC{Warehouses: 1, Nodes: 1, Seed: 1}
	// Two clients share the districts.
	var srcs []locktrace.Source
	for client := range 2 {
		srcs = append(srcs, db.Source(0, traces.NewRand(1, uint64(client))))
	}
	type placed struct{ customer, stock []uint32 }
	orders := map[uint32][]placed{} // by the lock of the order, the last one at the end: others have had its number before
	last := map[uint32]uint32{}     // of each district
	in := func(list []locktrace.Access, from, to uint32) (rows []uint32) {
		for _, a := range list {
			if a.Lock >= from && a.Lock < to {
				rows = append(rows, a.Lock)
			}
		}
		return rows
	}
	lastOf := map[uint32][2]uint32{} // of each customer, and the one before: the last may have been taken back
	deliveries, delivered, looked, asked := 0, 0, 0, 0
	for i := range 40_000 {
		src := srcs[i%2]
		list := src.Next(nil)
		switch src.(interface{ Kind() locktrace.Kind }).Kind() {
		case locktrace.NewOrder:
			row, o := in(list, ordersAt, newOrdersAt)[0], placed{in(list, customersAt, stockAt), in(list, stockAt, ordersAt)}
			if at := lastOf[o.customer[0]]; at[1] != row {
				lastOf[o.customer[0]] = [2]uint32{at[1], row}
			}
			if district := list[1].Lock; last[district] == row { // it has been taken back, and its number is the next one's
				orders[row][len(orders[row])-1] = o
			} else {
				last[district], orders[row] = row, append(orders[row], o)
			}
		case locktrace.Delivery:
			rows, customers := in(list, ordersAt, newOrdersAt), in(list, customersAt, stockAt)
			if deliveries++; len(rows) != 10 || len(in(list, newOrdersAt, historyAt)) != 10 {
				t.Fatalf("Delivery takes orders %v", rows)
			}
			if deliveries <= 900 { // orders from before the run
				continue
			}
			for d, row := range rows {
				if delivered++; !slices.Contains(customers, orders[row][0].customer[0]) {
					t.Fatalf("order %d of district %d is delivered to %v, not to %v", row, d, customers, orders[row][0].customer)
				}
				orders[row] = orders[row][1:]
			}
		case locktrace.OrderStatus:
			customer, row := in(list, customersAt, stockAt)[0], in(list, ordersAt, newOrdersAt)
			if at, ok := lastOf[customer]; ok && at[0] != 0 {
				if asked++; len(row) != 1 || row[0] != at[0] && row[0] != at[1] {
					t.Fatalf("Order-Status of customer %d looks at %v, not at %v", customer, row, at)
				}
			}
		case locktrace.StockLevel:
			stock := in(list, stockAt, ordersAt)
			for _, line := range in(list, linesAt, rowsEnd) {
				if of := orders[ordersAt+(line-linesAt)/15]; i > 10_000 {
					if looked++; slices.ContainsFunc(of[len(of)-1].stock, func(row uint32) bool { return !slices.Contains(stock, row) }) {
						t.Fatalf("Stock-Level looks at %v, not at %v", stock, of[len(of)-1].stock)
					}
				}
			}
		}
	}
	if delivered < 1000 || looked < 10_000 || asked < 100 {
		t.Errorf("%d orders delivered, %d lines looked at, %d customers with several orders asked about", delivered, looked, asked)
	}
}

// Of many warehouses rows share locks: a transaction has each once all the same, in the stronger of the modes of its rows.
func TestSharedRows(t *testing.T) {
	db := &locktrace.TPCC{Warehouses: 9600, Nodes: 5}
	count(t, db.Source(4, traces.NewRand(1, 1)), db.Locks())
	if db = (&locktrace.TPCC{Warehouses: 1 << 22, Nodes: 1}); db.Each() != 16 { // four locks for all rows but the first
		t.Fatalf("%d locks of a warehouse", db.Each())
	}
	src := db.Source(0, traces.NewRand(1, 1))
	orders, shared := 0, 0
	for range 1000 {
		if list := src.Next(nil); src.(interface{ Kind() locktrace.Kind }).Kind() == locktrace.NewOrder {
			orders++
			if slices.ContainsFunc(list, func(a locktrace.Access) bool { return a.Lock%16 >= customersAt && a.Mode == lock.Shared }) {
				shared++ // of the customer alone
			}
		}
	}
	if orders < 400 || shared > orders/10 {
		t.Errorf("%d of %d orders take the lock of a customer and of what they write as a reader", shared, orders)
	}
}

// Long readers take the table of the customers of a warehouse of their node, or all their partitions, shared, and are as many as asked for. Those that take a customer take the
// table before, in the same mode.
func TestScans(t *testing.T) {
	for _, artifact := range []bool{false, true} {
		db := &locktrace.TPCC{Warehouses: 8, Nodes: 4, Artifact: artifact}
		src, long := db.Scans(3, traces.NewRand(1, 1), 0.1), 0
		each, want := uint32(db.Each()), 1
		if artifact {
			want = 30
		}
		const txns = 20_000
		for range txns {
			list := src.Next(nil)
			if !src.Long {
				for i, a := range list {
					if row := a.Lock % each; artifact || row < customersAt || row >= stockAt {
						continue
					}
					if !slices.ContainsFunc(list[:i], func(b locktrace.Access) bool { return b.Lock == a.Lock/each*each+tableAt && b.Mode == a.Mode }) {
						t.Fatalf("%v without the table of customer %d", list, a.Lock)
					}
				}
				continue
			}
			long++
			for _, a := range list {
				if a.Mode != lock.Shared || a.Lock/each != list[0].Lock/each || a.Lock < 6*each || !artifact && a.Lock%each != tableAt {
					t.Fatalf("a long reader takes %v", list)
				}
			}
			if len(list) != want {
				t.Fatalf("a long reader takes %d locks of %d", len(list), want)
			}
		}
		if long < txns/11 || long > txns/9 {
			t.Errorf("%d long readers of %d", long, txns)
		}
	}
}
