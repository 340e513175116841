package locktrace_test

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/declock/declock/lab/locktrace"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/traces"
)

// A sample is what transactions of TPC-C have taken of what is drawn by chance.
type sample struct {
	orders, takenBack          int      // New-Orders
	far, farSame               int      // payments by customers of other warehouses, and of these of the district with the same number
	farStock                   int      // stock of other warehouses that Stock-Level has looked at
	buyers, payers, itemsTaken []uint32 // from 0
}

// draw draws transactions of a client.
func (s *sample) draw(src locktrace.Source, txns int) {
	last := map[uint32]uint32{} // order of each district
	var list []locktrace.Access
	for range txns {
		list = src.Next(list[:0])
		w, district := list[0].Lock/rowsEnd, uint32(0)
		if len(list) > 1 {
			district = list[1].Lock
		}
		switch src.(interface{ Kind() locktrace.Kind }).Kind() {
		case locktrace.NewOrder:
			s.orders++
			for _, a := range list {
				switch row := a.Lock % rowsEnd; {
				case row >= customersAt && row < stockAt:
					s.buyers = append(s.buyers, (row-customersAt)%3000)
				case row >= stockAt && row < ordersAt:
					s.itemsTaken = append(s.itemsTaken, row-stockAt)
				case row >= ordersAt && row < newOrdersAt:
					if last[district] == a.Lock { // the one before had its number
						s.takenBack++
					}
					last[district] = a.Lock
				}
			}
		case locktrace.Payment:
			customer := list[2].Lock
			s.payers = append(s.payers, (customer%rowsEnd-customersAt)%3000)
			if customer/rowsEnd != w {
				s.far++
				if (customer%rowsEnd-customersAt)/3000 == district%rowsEnd-districtsAt {
					s.farSame++
				}
			}
		case locktrace.StockLevel:
			_, other := rowsOf(list, w, stockAt, ordersAt)
			s.farStock += other
		}
	}
}

// ones returns how many of the lowest bits of numbers are set, in the mean.
func ones(numbers []uint32, mask uint32) float64 {
	n := 0
	for _, x := range numbers {
		n += bits.OnesCount32(x & mask)
	}
	return float64(n) / float64(len(numbers))
}

// nurand is NURand of TPC-C (clause 2.1.6), less low.
func nurand(r *rand.Rand, a, low, high int) uint32 {
	return uint32((r.IntN(a+1) | (low + r.IntN(high-low+1))) % (high - low + 1))
}

// Shares and distributions of the specification of TPC-C, which figures depend on.
func TestDrawnByTheSpecification(t *testing.T) {
	var s sample
	db := &locktrace.TPCC{Warehouses: 10, Nodes: 1, Seed: 1}
	s.draw(db.Source(0, traces.NewRand(1, 1)), 60_000)
	near := func(clause, what string, got, want, by float64) {
		if t.Helper(); math.Abs(got-want) > by {
			t.Errorf("clause %s: %s: %.3f, want %.3f", clause, what, got, want)
		}
	}
	near("2.4.1.4", "% of New-Orders are taken back", 100*float64(s.takenBack)/float64(s.orders), 1, 0.2)
	near("2.5.1.2", "% of the payments by customers of other warehouses are of the district with the same number: any of ten", 100*float64(s.farSame)/float64(s.far), 10, 1.6)
	near("2.8.2.2", "rows of stock of other warehouses that Stock-Level looks at", float64(s.farStock), 0, 0)
	r := rand.New(rand.NewPCG(1, 1))
	var buyers, payers, named, items []uint32
	for range 200_000 {
		buyers, items = append(buyers, nurand(r, 1023, 1, 3000)), append(items, nurand(r, 8191, 1, 100_000))
		payer := nurand(r, 1023, 1, 3000)
		if r.IntN(100) < 60 { // by name, clause 2.5.1.2
			payer = 1000 + nurand(r, 255, 0, 999)
		}
		payers = append(payers, payer)
	}
	names := func(list []uint32) (of []uint32) {
		for _, c := range list {
			if c >= 1000 && c < 2000 {
				of = append(of, c-1000)
			}
		}
		return of
	}
	named = names(payers)
	near("2.4.1.5", "bits of the customers who order: NURand(1023, 1, 3000)", ones(s.buyers, 1023), ones(buyers, 1023), 0.03)
	near("2.5.1.2", "bits of the names of those who pay: NURand(255, 0, 999)", ones(names(s.payers), 255), ones(named, 255), 0.04)
	near("2.4.1.5", "bits of the items ordered: NURand(8191, 1, 100000)", ones(s.itemsTaken, 8191), ones(items, 8191), 0.03)
}

// First locks of the tables of a warehouse of the artifact: each district has one of orders, of payments, of new orders and of lines.
const (
	artCustomers = 11
	artOrders    = 41
	artHistory   = 51
	artNewOrders = 61
	artLines     = 71
	artStock     = 81
)

// The artifact's partitions are those of the published generator: of orders and payments by their number and not by the district; a Delivery reads lines; payments of 15 in 100 are by
// customers of another node's warehouses.
func TestArtifactPartitions(t *testing.T) {
	db := &locktrace.TPCC{Warehouses: 8, Nodes: 4, Artifact: true}
	src := db.Source(1, traces.NewRand(1, 1))
	orders, payments, far := uint32(0), uint32(0), 0
	for range 40_000 {
		list := src.Next(nil)
		w := list[0].Lock / locktrace.WarehouseLocks
		at := func(i int) uint32 { return list[i].Lock % locktrace.WarehouseLocks }
		switch src.(interface{ Kind() locktrace.Kind }).Kind() {
		case locktrace.NewOrder:
			part := orders % 10
			if orders++; at(3) != artOrders+part || at(4) != artNewOrders+part || at(len(list)-1) != artLines+part {
				t.Fatalf("order %d takes %v", orders, list)
			}
		case locktrace.Payment:
			part := payments % 10
			if payments++; at(3) != artHistory+part || at(2) < artCustomers || at(2) >= artOrders {
				t.Fatalf("payment %d takes %v", payments, list)
			}
			if from := list[2].Lock / locktrace.WarehouseLocks; from != w {
				if far++; from/2 == 1 { // a warehouse of the own node
					t.Fatalf("a payment at %d by a customer of %d", w, from)
				}
			}
		case locktrace.Delivery:
			if len(list) != 4 || at(2) < artLines || at(2) >= artStock || list[2].Mode != lock.Shared ||
				list[0].Mode != lock.Exclusive || list[1].Mode != lock.Exclusive || list[3].Mode != lock.Exclusive {
				t.Fatalf("Delivery takes %v", list)
			}
		}
	}
	if share := 100 * float64(far) / float64(payments); share < 14 || share > 16 {
		t.Errorf("%.1f %% of the payments are by customers of other nodes, want 15", share)
	}
}
