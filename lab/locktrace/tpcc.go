package locktrace

import (
	"github.com/declock/declock/lock"
	"github.com/declock/declock/traces"
)

// A TPCC is a database of TPC-C. By the specification its districts take orders and deliver them, so its sources are used by one goroutine at a time.
type TPCC struct {
	Warehouses int
	// Nodes is how many compute nodes share the warehouses: a client's transactions are for those of its node. At least 1. Of fewer warehouses than nodes several nodes
	// have one.
	Nodes    int
	Artifact bool
	Seed     uint64 // of what customers order, by the specification

	stores []*store // by warehouse; nil: nothing has been ordered yet
}

// Locks of a warehouse of the artifact, table after table. There is one for each row of warehouse and district, and one for each partition of the others. Items are
// never changed, so nothing takes theirs.
const (
	districtAt     = 1
	customerAt     = districtAt + districts
	orderAt        = customerAt + customerParts
	historyAt      = orderAt + districts
	newOrderAt     = historyAt + districts
	lineAt         = newOrderAt + districts
	stockAt        = lineAt + districts
	itemAt         = stockAt + stockParts
	WarehouseLocks = itemAt + itemParts

	districts     = 10
	customerParts = 30
	stockParts    = 30
	itemParts     = 10

	customers = 3000 // of a district
	names     = 1000 // last names of customers
	items     = 100_000
)

// Locks returns how many locks there are.
func (t *TPCC) Locks() int { return t.Warehouses * t.Each() }

// Each returns how many locks a warehouse has. Those of a warehouse are numbered one after the other.
func (t *TPCC) Each() int {
	if t.Artifact {
		return WarehouseLocks
	}
	return min(warehouseRows, mostRows/t.Warehouses)
}

// Source returns the transactions of a client of a node, from 0.
func (t *TPCC) Source(node int, r *traces.Rand) Source { return t.source(node, r) }

func (t *TPCC) source(node int, r *traces.Rand) *tpccSource {
	share := max(t.Warehouses/t.Nodes, 1)
	return &tpccSource{draw: draw{r}, t: t, first: node * share % t.Warehouses, share: share, each: t.Each(), seen: map[uint32]int{}}
}

type tpccSource struct {
	draw
	t            *TPCC
	first, share int // warehouses of the node
	list         []Access
	kind         Kind

	order, payment int // how many the artifact has made

	each   int            // locks of a warehouse
	seen   map[uint32]int // where in the list a lock is, by the specification
	lines  []orderLine
	deck   []Kind
	tables bool // whoever takes a customer takes the table of the customers first
}

// Kind returns what the last transaction is.
func (s *tpccSource) Kind() Kind { return s.kind }

// Next implements Source, by the mix of transactions that the specification asks for at least.
func (s *tpccSource) Next(list []Access) []Access {
	s.begin(list)
	w := s.first + s.between(0, s.share-1)
	if s.t.Artifact {
		s.kind = kindOf(tpccMix, s.between(0, 99))
		s.partitions(w)
	} else {
		s.kind = s.card()
		s.rows(w)
	}
	return s.list
}

// begin begins a transaction.
func (s *tpccSource) begin(list []Access) {
	s.list = list
	clear(s.seen)
}

// other returns a warehouse other than w, if there is one.
func (t *TPCC) other(d draw, w int) int {
	if t.Warehouses == 1 {
		return w
	}
	return (w + d.between(1, t.Warehouses-1)) % t.Warehouses
}

// partitions are the locks of a transaction of the artifact.
func (s *tpccSource) partitions(w int) {
	switch s.kind {
	case NewOrder:
		s.newOrder(w)
	case Payment:
		s.pay(w)
	case OrderStatus:
		d := s.between(0, districts-1)
		s.take(w, customerAt+s.named(), lock.Shared)
		s.take(w, orderAt+d, lock.Shared)
		s.take(w, lineAt+s.between(0, districts-1), lock.Shared)
	case Delivery:
		s.take(w, newOrderAt+s.between(0, districts-1), lock.Exclusive)
		s.take(w, orderAt+s.between(0, districts-1), lock.Exclusive)
		s.take(w, lineAt+s.between(0, districts-1), lock.Shared)
		s.take(w, customerAt+s.customer(), lock.Exclusive)
	default:
		s.take(w, districtAt+s.between(0, districts-1), lock.Shared)
		s.take(w, lineAt+s.between(0, districts-1), lock.Shared)
		s.take(w, stockAt+s.between(0, stockParts-1), lock.Shared)
	}
}

func (s *tpccSource) take(w, l int, m lock.Mode) {
	s.list = take(s.list, w*WarehouseLocks+l, m)
}

// customer returns the partition of a customer, by number.
func (s *tpccSource) customer() int { return (s.nurand(1023, 1, customers) - 1) % customerParts }

// named returns the partition of a customer that is found by name in 60 of 100 cases.
func (s *tpccSource) named() int {
	if !s.percent(60) {
		return s.customer()
	}
	return s.nurand(255, 0, names-1) % customerParts
}

// remote returns another warehouse, of another node.
func (s *tpccSource) remote(w int) int {
	if s.t.Warehouses > 1 && s.t.Nodes > 1 {
		return (s.first + s.share + s.between(0, s.t.Warehouses-s.share-1)) % s.t.Warehouses
	}
	return s.t.other(s.draw, w)
}

func (s *tpccSource) newOrder(w int) {
	d := s.between(0, districts-1)
	s.take(w, 0, lock.Shared)
	s.take(w, districtAt+d, lock.Exclusive)
	s.between(5, 15) // the lines by the specification: drawn, so that traces stay what they were
	part := s.order % districts
	s.order++
	s.take(w, customerAt+(s.nurand(1024, 0, customers-1)+d*customers)/(districts*customers/customerParts), lock.Shared)
	s.take(w, orderAt+part, lock.Exclusive)
	s.take(w, newOrderAt+part, lock.Exclusive)
	for range 10 {
		s.take(w, stockAt+s.between(0, items-1)%stockParts, lock.Exclusive)
	}
	s.take(w, lineAt+part, lock.Exclusive)
}

func (s *tpccSource) pay(w int) {
	d := s.between(0, districts-1)
	s.take(w, 0, lock.Exclusive)
	s.take(w, districtAt+d, lock.Exclusive)
	from := w
	if !s.percent(85) {
		from = s.remote(w)
	}
	part := s.payment % districts
	s.payment++
	s.between(0, districts-1) // the customer's district: the same
	s.take(from, customerAt+s.named(), lock.Exclusive)
	s.take(w, historyAt+part, lock.Exclusive)
}
