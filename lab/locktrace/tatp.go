package locktrace

import (
	"github.com/declock/declock/lock"
	"github.com/declock/declock/traces"
)

// A TATP is a database of TATP. Its rows of call forwarding come and go as transactions say, so its sources are used by one goroutine at a time.
type TATP struct {
	Artifact bool

	subscribers int
	locks       int
	forwarding  int // the first lock of the rows of call forwarding, which share some
	rows        []subscriber
}

// A subscriber is a row, and those of other tables that belong to it.
type subscriber struct {
	access     [4]int32 // lock of an access info, by type; 0: there is none
	facility   [4]int32
	active     [4]bool
	forwarding [4][3]uint8 // until when, by type of the facility and by begin; 0: there is none
}

// populationSeed is the first with which 100,000 subscribers have as many locks as ShiftLock's evaluation counts in its traces, by the highest number plus 1: rows of access info and facilities are
// drawn, 2.5 of each for a subscriber.
const populationSeed = 80

// NewTATP populates a database.
func NewTATP(subscribers int, artifact bool) *TATP {
	return populate(subscribers, artifact, populationSeed)
}

func populate(subscribers int, artifact bool, seed uint64) *TATP {
	t := &TATP{Artifact: artifact, subscribers: subscribers, locks: subscribers, rows: make([]subscriber, subscribers)}
	d := draw{traces.NewRand(seed, 0)}
	for i := range t.rows {
		for n, at := d.between(1, 4), d.between(0, 3); n > 0; n, at = n-1, (at+1)%4 {
			t.rows[i].access[at] = t.lock()
		}
	}
	for i := range t.rows {
		r := &t.rows[i]
		for n, at := d.between(1, 4), d.between(0, 3); n > 0; n, at = n-1, (at+1)%4 {
			r.facility[at], r.active[at] = t.lock(), d.percent(85)
			for m, begin := d.between(0, 3), d.between(0, 2); m > 0; m, begin = m-1, (begin+1)%3 {
				r.forwarding[at][begin] = uint8(8*begin + d.between(1, 8))
			}
		}
	}
	t.forwarding = t.locks
	t.locks += t.shared()
	return t
}

func (t *TATP) lock() int32 { t.locks++; return int32(t.locks - 1) }

// shared returns how many locks the rows of call forwarding share.
func (t *TATP) shared() int { return t.subscribers * 4 / 5 }

// Locks returns how many locks there are.
func (t *TATP) Locks() int { return t.locks }

// forward returns the lock of a row of call forwarding.
func (t *TATP) forward(s, sf, begin int) int {
	h := uint64(s*12+sf*3+begin) * 0x9e3779b97f4a7c15
	return t.forwarding + int(h>>32)%t.shared()
}

// Source returns the transactions of a client.
func (t *TATP) Source(r *traces.Rand) Source { return &tatpSource{draw: draw{r}, t: t} }

type tatpSource struct {
	draw
	t    *TATP
	kind Kind
}

// Kind returns what the last transaction is.
func (s *tatpSource) Kind() Kind { return s.kind }

// Next implements Source, by the mix of the specification.
func (s *tatpSource) Next(list []Access) []Access {
	const a = 65535
	id := s.nurand(a, 1, s.t.subscribers) - 1
	r := &s.t.rows[id]
	typ, begin, end := s.between(0, 3), s.between(0, 2), s.between(1, 24)
	if s.t.Artifact {
		typ, begin, end = s.nurand(a, 1, 4)-1, s.nurand(a, 0, 2), s.nurand(a, 1, 24)
	}
	s.kind = kindOf(tatpMix, s.between(0, 99))
	switch s.kind {
	case GetSubscriberData:
		return take(list, id, lock.Shared)
	case GetNewDestination:
		return s.newDestination(list, id, typ, begin, uint8(end))
	case GetAccessData:
		if r.access[typ] != 0 {
			list = take(list, int(r.access[typ]), lock.Shared)
		}
		return list
	case UpdateSubscriberData:
		list = take(list, id, lock.Exclusive)
		if r.facility[typ] != 0 {
			list = take(list, int(r.facility[typ]), lock.Exclusive)
		}
		return list
	case UpdateLocation:
		return take(list, id, lock.Exclusive)
	case InsertCallForwarding:
		return s.insert(list, id, typ, begin, uint8(end))
	}
	// Delete-Call-Forwarding
	list = take(list, id, lock.Shared)
	if row := &r.forwarding[typ][begin]; *row != 0 {
		*row = 0
		list = take(list, s.t.forward(id, typ, begin), lock.Exclusive)
	}
	return list
}

func (s *tatpSource) newDestination(list []Access, id, typ, begin int, end uint8) []Access {
	r := &s.t.rows[id]
	if r.facility[typ] == 0 {
		return list
	}
	list = take(list, int(r.facility[typ]), lock.Shared)
	if !r.active[typ] && !s.t.Artifact {
		return list
	}
	for b := range begin + 1 {
		if until := r.forwarding[typ][b]; until != 0 && (until > end) != s.t.Artifact {
			list = take(list, s.t.forward(id, typ, b), lock.Shared)
		}
	}
	return list
}

// insert is Insert-Call-Forwarding.
func (s *tatpSource) insert(list []Access, id, typ, begin int, end uint8) []Access {
	r := &s.t.rows[id]
	list = take(list, id, lock.Shared)
	for _, l := range r.facility {
		if l != 0 {
			list = take(list, int(l), lock.Shared)
		}
	}
	row := &r.forwarding[typ][begin]
	if r.facility[typ] == 0 || (*row != 0) != s.t.Artifact {
		return list
	}
	if *row == 0 {
		*row = end
	}
	return take(list, s.t.forward(id, typ, begin), lock.Exclusive)
}
