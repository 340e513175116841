package locktrace

import (
	"github.com/declock/declock/lock"
	"github.com/declock/declock/traces"
)

// Locks of a warehouse by the specification: one for each row, table after table, and one for the table of the customers as a whole. Tables that grow have locks for the
// last orders of each district; older rows share these, by their numbers.
const (
	districtRow   = 1
	customerTable = districtRow + districts
	// exactRows are those that each have a lock of their own, whatever the number of warehouses.
	exactRows   = customerTable + 1
	customerRow = exactRows
	stockRow    = customerRow + districts*customers
	orderRow    = stockRow + items
	newOrderRow = orderRow + districts*recent
	historyRow  = newOrderRow + districts*recent
	lineRow     = historyRow + districts*recent

	warehouseRows = lineRow + districts*recent*maxLines

	recent             = 1000 // orders of a district, and payments
	leastLines         = 5
	maxLines           = 15
	firstOrders        = 3000 // of a district, when the run begins
	firstDelivered     = 2100 // of these
	lastOrders         = 20   // whose lines Stock-Level looks at
	firstStep, ordered = 7, 2143
)

// mostRows is how many locks there are at most: of more warehouses rows share locks by a hash, those of customers, stock and orders.
const mostRows = 1 << 26

// A store is what the districts of a warehouse have ordered, delivered and been paid.
type store [districts]struct {
	ordered, delivered, paid int         // the number of the last
	last                     map[int]int // the last order of each customer who has ordered since the run began
}

// store returns the store of a warehouse.
func (t *TPCC) store(w int) *store {
	if t.stores == nil {
		t.stores = make([]*store, t.Warehouses)
	}
	if t.stores[w] == nil {
		s := new(store)
		for d := range s {
			s[d].ordered, s[d].delivered, s[d].last = firstOrders, firstDelivered, map[int]int{}
		}
		t.stores[w] = s
	}
	return t.stores[w]
}

// An order is what its number stands for: it is drawn from the number, so that all transactions agree about it.
type order struct {
	customer int
	lines    []orderLine
}

type orderLine struct{ warehouse, item int }

// orderOf returns an order of a district, in memory of a list that is reused.
func (t *TPCC) orderOf(w, d, number int, reuse []orderLine) order {
	r := draw{traces.NewRand(t.Seed, 1<<63|uint64(w*districts+d)<<32|uint64(number))}
	o := order{customer: number * firstStep % customers, lines: reuse[:0]} // the first orders are of each customer once
	first := number <= firstOrders
	if !first {
		o.customer = r.nurand(1023, 1, customers) - 1
	}
	for range r.between(leastLines, maxLines) {
		l := orderLine{w, r.between(0, items-1)}
		if !first {
			l.item = r.nurand(8191, 1, items) - 1
			if r.percent(1) {
				l.warehouse = t.other(r, w)
			}
		}
		o.lines = append(o.lines, l)
	}
	return o
}

// card draws the kind of a transaction from a deck of 100, as the specification allows: of each 100 of a client's there are as many of each kind as in the mix. Those that take most
// locks, 400, are few, and what a run measures depends on how many of them it has.
func (s *tpccSource) card() Kind {
	if len(s.deck) == 0 {
		for _, of := range tpccMix {
			for range of.percent {
				s.deck = append(s.deck, of.kind)
			}
		}
	}
	last := len(s.deck) - 1
	i := s.between(0, last)
	k := s.deck[i]
	s.deck[i], s.deck = s.deck[last], s.deck[:last]
	return k
}

// rows are the locks of a transaction by the specification.
func (s *tpccSource) rows(w int) {
	d := s.between(0, districts-1)
	switch s.kind {
	case NewOrder:
		s.orderRows(w, d)
	case Payment:
		s.payRows(w, d)
	case OrderStatus:
		c := s.anyone()
		number, ok := s.t.store(w)[d].last[c]
		if !ok {
			number = c * ordered % customers
			if number == 0 {
				number = firstOrders
			}
		}
		s.customerRow(w, d, c, lock.Shared)
		s.row(w, orderRow+slot(d, number), lock.Shared)
		s.lineRows(w, d, number, lock.Shared)
	case Delivery:
		for d := range districts {
			s.deliverRows(w, d)
		}
	default:
		s.stockRows(w, d)
	}
}

// row takes the lock of a row.
func (s *tpccSource) row(w, row int, m lock.Mode) {
	if s.each < warehouseRows && row >= exactRows {
		row = exactRows + int(uint64(row)*0x9e3779b97f4a7c15>>32)%(s.each-exactRows)
	}
	l := uint32(w*s.each + row)
	if i, ok := s.seen[l]; ok {
		s.list[i].Mode = max(s.list[i].Mode, m)
		return
	}
	s.seen[l] = len(s.list)
	s.list = append(s.list, Access{l, m})
}

// slot is where a row of an order, or of a payment, is in its table.
func slot(d, number int) int { return d*recent + number%recent }

// anyone returns a customer of a district: of 100, 60 are found by name, which three have. The one in the middle is always the same.
func (s *tpccSource) anyone() int {
	if s.percent(60) {
		return names + s.nurand(255, 0, names-1)
	}
	return s.nurand(1023, 1, customers) - 1
}

func (s *tpccSource) customerRow(w, d, customer int, m lock.Mode) {
	if s.tables {
		s.row(w, customerTable, m)
	}
	s.row(w, customerRow+d*customers+customer, m)
}

// lineRows takes the lines of an order, which it returns.
func (s *tpccSource) lineRows(w, d, number int, m lock.Mode) order {
	o := s.t.orderOf(w, d, number, s.lines)
	s.lines = o.lines
	for i := range o.lines {
		s.row(w, lineRow+slot(d, number)*maxLines+i, m)
	}
	return o
}

func (s *tpccSource) orderRows(w, d int) {
	at := &s.t.store(w)[d]
	number := at.ordered + 1
	o := s.t.orderOf(w, d, number, s.lines)
	s.lines = o.lines
	s.row(w, 0, lock.Shared)
	s.row(w, districtRow+d, lock.Exclusive)
	s.customerRow(w, d, o.customer, lock.Shared)
	s.row(w, orderRow+slot(d, number), lock.Exclusive)
	s.row(w, newOrderRow+slot(d, number), lock.Exclusive)
	if s.percent(1) { // the last item is none: the order is taken back when it has all other locks
		o.lines = o.lines[:len(o.lines)-1]
	} else {
		at.ordered, at.last[o.customer] = number, number
	}
	for i, l := range o.lines {
		s.row(l.warehouse, stockRow+l.item, lock.Exclusive)
		s.row(w, lineRow+slot(d, number)*maxLines+i, lock.Exclusive)
	}
}

func (s *tpccSource) payRows(w, d int) {
	at := &s.t.store(w)[d]
	at.paid++
	s.row(w, 0, lock.Exclusive)
	s.row(w, districtRow+d, lock.Exclusive)
	from, of := w, d
	if !s.percent(85) {
		from, of = s.t.other(s.draw, w), s.between(0, districts-1)
	}
	s.customerRow(from, of, s.anyone(), lock.Exclusive)
	s.row(w, historyRow+slot(d, at.paid), lock.Exclusive)
}

// deliverRows delivers the oldest order of a district, if there is one.
func (s *tpccSource) deliverRows(w, d int) {
	at := &s.t.store(w)[d]
	if at.delivered == at.ordered {
		return
	}
	at.delivered++
	s.row(w, newOrderRow+slot(d, at.delivered), lock.Exclusive)
	s.row(w, orderRow+slot(d, at.delivered), lock.Exclusive)
	o := s.lineRows(w, d, at.delivered, lock.Exclusive)
	s.customerRow(w, d, o.customer, lock.Exclusive)
}

// stockRows reads the lines of the last orders of a district, and the stock of their items.
func (s *tpccSource) stockRows(w, d int) {
	s.row(w, districtRow+d, lock.Shared)
	last := s.t.store(w)[d].ordered
	for number := last - lastOrders + 1; number <= last; number++ {
		for _, l := range s.lineRows(w, d, number, lock.Shared).lines {
			s.row(w, stockRow+l.item, lock.Shared)
		}
	}
}
