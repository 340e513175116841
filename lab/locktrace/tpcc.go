package locktrace

import (
	"github.com/declock/declock/lock"
	"github.com/declock/declock/traces"
)

// A TPCC is a database of TPC-C.
type TPCC struct {
	Warehouses int
	// Nodes is how many compute nodes share the warehouses: a client's transactions are for those of its node. At least 1. Of fewer warehouses than nodes several nodes
	// have one.
	Nodes    int
	Artifact bool
}

// Locks of a warehouse, table after table. There is one for each row of warehouse and district, and one for each partition of the others. Items are never
// changed, so nothing takes theirs.
const (
	districtAt     = 1
	customerAt     = districtAt + districts
	orderAt        = customerAt + customerParts
	historyAt      = orderAt + districts
	newOrderAt     = historyAt + districts
	lineAt         = newOrderAt + districts
	stockAt        = lineAt + districts
	itemAt         = stockAt + stockParts
	WarehouseLocks = itemAt + itemParts // of one warehouse

	districts     = 10
	customerParts = 30
	stockParts    = 30
	itemParts     = 10

	customers = 3000 // of a district
	names     = 1000 // last names of customers
	items     = 100_000
)

// Locks returns how many locks there are.
func (t *TPCC) Locks() int { return t.Warehouses * WarehouseLocks }

// Source returns the transactions of a client of a node, from 0.
func (t *TPCC) Source(node int, r *traces.Rand) Source { return t.source(node, r) }

func (t *TPCC) source(node int, r *traces.Rand) *tpccSource {
	share := max(t.Warehouses/t.Nodes, 1)
	return &tpccSource{draw: draw{r}, t: t, first: node * share % t.Warehouses, share: share}
}

type tpccSource struct {
	draw
	t            *TPCC
	first, share int // warehouses of the node
	list         []Access
	order        int // how many orders and payments the artifact has made
	payment      int
	kind         Kind
}

// Kind returns what the last transaction is.
func (s *tpccSource) Kind() Kind { return s.kind }

// Next implements Source, by the mix of transactions that the specification asks for at least.
func (s *tpccSource) Next(list []Access) []Access {
	s.list = list
	w := s.first + s.between(0, s.share-1)
	s.kind = kindOf(tpccMix, s.between(0, 99))
	switch s.kind {
	case NewOrder:
		s.newOrder(w)
	case Payment:
		s.pay(w)
	case OrderStatus:
		s.orderStatus(w)
	case Delivery:
		s.deliver(w)
	default:
		s.stockLevel(w)
	}
	return s.list
}

func (s *tpccSource) take(w, l int, m lock.Mode) {
	s.list = take(s.list, w*WarehouseLocks+l, m)
}

// customer returns the partition of a customer of a district, by number.
func (s *tpccSource) customer(d int) int {
	row := s.nurand(1023, 1, customers) - 1
	if s.t.Artifact {
		return row % customerParts
	}
	return (d*customers + row) * customerParts / (districts * customers)
}

// named returns the partition of a customer that is found by name in 60 of 100 cases: the middle one of the three of a name.
func (s *tpccSource) named(d int) int {
	if !s.percent(60) {
		return s.customer(d)
	}
	name := s.nurand(255, 0, names-1)
	if s.t.Artifact {
		return name % customerParts
	}
	return (d*customers + names + name) * customerParts / (districts * customers)
}

// other returns another warehouse; for the artifact, of another node.
func (s *tpccSource) other(w int) int {
	if s.t.Warehouses == 1 {
		return w
	}
	if s.t.Artifact && s.t.Nodes > 1 {
		return (s.first + s.share + s.between(0, s.t.Warehouses-s.share-1)) % s.t.Warehouses
	}
	return (w + s.between(1, s.t.Warehouses-1)) % s.t.Warehouses
}

func (s *tpccSource) newOrder(w int) {
	d := s.between(0, districts-1)
	s.take(w, 0, lock.Shared)
	s.take(w, districtAt+d, lock.Exclusive)
	lines, part := s.between(5, 15), d
	if s.t.Artifact {
		lines, part = 10, s.order%districts
		s.order++
		s.take(w, customerAt+(s.nurand(1024, 0, customers-1)+d*customers)/(districts*customers/customerParts), lock.Shared)
	} else {
		s.take(w, customerAt+s.customer(d), lock.Shared)
	}
	s.take(w, orderAt+part, lock.Exclusive)
	s.take(w, newOrderAt+part, lock.Exclusive)
	for range lines {
		if s.t.Artifact {
			s.take(w, stockAt+s.between(0, items-1)%stockParts, lock.Exclusive)
			continue
		}
		from := w
		if s.percent(1) {
			from = s.other(w)
		}
		s.take(from, stockAt+(s.nurand(8191, 1, items)-1)*stockParts/items, lock.Exclusive)
	}
	s.take(w, lineAt+part, lock.Exclusive)
}

func (s *tpccSource) pay(w int) {
	d := s.between(0, districts-1)
	s.take(w, 0, lock.Exclusive)
	s.take(w, districtAt+d, lock.Exclusive)
	from, part := w, d
	if !s.percent(85) {
		from = s.other(w)
	}
	if s.t.Artifact {
		part = s.payment % districts
		s.payment++
	}
	s.take(from, customerAt+s.named(s.between(0, districts-1)), lock.Exclusive)
	s.take(w, historyAt+part, lock.Exclusive)
}

func (s *tpccSource) orderStatus(w int) {
	d := s.between(0, districts-1)
	s.take(w, customerAt+s.named(d), lock.Shared)
	s.take(w, orderAt+d, lock.Shared)
	if s.t.Artifact {
		d = s.between(0, districts-1)
	}
	s.take(w, lineAt+d, lock.Shared)
}

func (s *tpccSource) deliver(w int) {
	if s.t.Artifact {
		s.take(w, newOrderAt+s.between(0, districts-1), lock.Exclusive)
		s.take(w, orderAt+s.between(0, districts-1), lock.Exclusive)
		s.take(w, lineAt+s.between(0, districts-1), lock.Shared)
		s.take(w, customerAt+s.customer(0), lock.Exclusive)
		return
	}
	for d := range districts {
		s.take(w, newOrderAt+d, lock.Exclusive)
		s.take(w, orderAt+d, lock.Exclusive)
		s.take(w, lineAt+d, lock.Exclusive)
		s.take(w, customerAt+s.customer(d), lock.Exclusive)
	}
}

func (s *tpccSource) stockLevel(w int) {
	d := s.between(0, districts-1)
	s.take(w, districtAt+d, lock.Shared)
	if s.t.Artifact {
		s.take(w, lineAt+s.between(0, districts-1), lock.Shared)
		s.take(w, stockAt+s.between(0, stockParts-1), lock.Shared)
		return
	}
	s.take(w, lineAt+d, lock.Shared)
	for range 20 * 10 { // lines of the last 20 orders
		s.take(w, stockAt+(s.nurand(8191, 1, items)-1)*stockParts/items, lock.Shared)
	}
}
