package oracle

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Times are what clocks showed around an operation on a store whose objects expire, in seconds, and all zero
// of a store whose objects do not.
//
// An object that is given TTL seconds expires at its client's clock, in full seconds rounded up, + TTL, which may have been read at any time of the operation. It is
// there for a client whose clock is before that, and not there for the others; and a client that finds it expired may take it away, so that it
// is not there for any client.
type Times struct {
	TTL     uint32 // of what is stored or touched; 0: for ever
	Began   uint32 // the client's clock when the operation began; 0: the store's objects do not expire
	Ended   uint32 // the client's clock when it had ended
	Fastest uint32 // the fastest clock of all when it had ended
	// First and Last are Began and Ended rounded up, to the seconds from which a TTL counts. 0: clocks show full seconds.
	First, Last uint32
}

// open notes that the operation may go on for ever.
func (t *Times) open() {
	if t.Began != 0 {
		t.Ended, t.Last, t.Fastest = math.MaxUint32, math.MaxUint32, math.MaxUint32
	}
}

func (t *Times) String() string {
	if t.Began == 0 {
		return ""
	}
	return fmt.Sprintf(" ttl %d, at %d to %d s, fastest %d", t.TTL, t.Began, t.Ended, t.Fastest)
}

// expiry returns between which seconds what the operation stores expires; 0: never.
func (t *Times) expiry() (first, last uint32) {
	if t.TTL == 0 {
		return 0, 0
	}
	later := func(s uint32) uint32 { return s + min(t.TTL, math.MaxUint32-s) }
	return later(max(t.First, t.Began)), later(max(t.Last, t.Ended))
}

// An object is the state of one key. unique is 0 while no get has shown it.
type object struct {
	there       bool
	value       string
	unique      uint64
	first, last uint32   // it expires in one of the seconds from first to last; 0: never
	over        int      // evictions that had ended when a client last saw it
	by          *StoreOp // the operation that stored it: what that evicted, it did before
}

// A model says what operations on a key may come to. A key that is there may be gone when a client looks again: if any clock
// has passed its expiry meanwhile, or if an operation evicted meanwhile. That is not a
// state of its own: it is found out by whom it makes a difference to.
type model struct {
	porcupine porcupine.Model
	evictions []*StoreOp // in the order in which they were done
}

func newModel(ops []*StoreOp) *model {
	m := new(model)
	for _, o := range slices.SortedFunc(slices.Values(ops), func(a, b *StoreOp) int { return cmp.Compare(a.done, b.done) }) {
		if o.Evicted {
			m.evictions = append(m.evictions, o)
		}
	}
	m.porcupine = porcupine.Model{
		Init: func() any { return object{} },
		Step: func(state, input, _ any) (bool, any) { return m.step(state.(object), input.(*StoreOp)) },
	}
	return m
}

// over returns how many evictions had ended at a time.
func (m *model) over(t int64) int {
	n, _ := slices.BinarySearchFunc(m.evictions, t, func(e *StoreOp, t int64) int { return cmp.Compare(e.done, t) })
	return n
}

// gone reports whether an object may have been taken away when o ended.
func (m *model) gone(s *object, o *StoreOp) bool {
	return s.last != 0 && o.Fastest >= s.first ||
		slices.ContainsFunc(m.evictions[s.over:], func(e *StoreOp) bool { return e != s.by && e.call < o.end })
}

// step reports whether an operation may have had its result in state s, and the next state.
func (m *model) step(s object, o *StoreOp) (bool, object) {
	switch o.Result {
	case NoSpace, Failed:
		return true, s
	case Unknown:
		if o.Method == "add" && s.there && m.gone(&s, o) {
			s = object{} // that it found an object is as if it had never happened
		}
		next, _, _ := m.apply(s, o)
		return true, next
	}
	switch {
	case !s.there || o.Method == "set":
	case o.Result != NotFound && (o.Method != "add" || o.Result != Done):
		// It was there: the client's clock was not past its expiry, at one time of the operation.
		if s.last != 0 && o.Began >= s.last {
			return false, s
		}
		if s.last != 0 {
			s.first = max(s.first, o.Began+1)
		}
		s.over = m.over(o.call)
	default:
		expired := s.last != 0 && o.Ended >= s.first
		if !expired && !m.gone(&s, o) {
			return false, s
		}
		if expired && (o.Method == "get" || o.Method == "replace" || o.Method == "cas") {
			s.last = min(s.last, o.Ended) // these leave it where it is, for whose clock is behind
			return true, s
		}
		s = object{}
	}
	return m.answer(s, o)
}

// answer is step where it is known whether the object is there.
func (m *model) answer(s object, o *StoreOp) (bool, object) {
	next, want, value := m.apply(s, o)
	if o.Method == "cas" && o.Result == Exists && s.there && s.unique == 0 {
		return true, s // a version that was never seen is none that was asked for
	}
	if o.Result != want {
		return false, s
	}
	if o.Result == Done && (o.Method == "get" || o.Method == "incr" || o.Method == "decr") {
		if o.Value != value {
			return false, s
		}
		if o.Method == "get" {
			if s.unique != 0 && s.unique != o.CAS {
				return false, s
			}
			next.unique = o.CAS
		}
	}
	return true, next
}

// apply returns what an operation makes of an object, its result and what comes out.
func (m *model) apply(s object, o *StoreOp) (next object, r StoreResult, value string) {
	first, last := o.expiry()
	stored := func(v string) (object, StoreResult, string) {
		return object{there: true, value: v, first: first, last: last, over: m.over(o.call), by: o}, Done, ""
	}
	switch o.Method {
	case "set":
		return stored(o.Arg)
	case "lose":
		return object{}, Done, ""
	case "add":
		if s.there {
			return s, Exists, ""
		}
		return stored(o.Arg)
	}
	if !s.there {
		return s, NotFound, ""
	}
	switch o.Method {
	case "get":
		return s, Done, s.value
	case "touch":
		s.first, s.last = first, last
		return s, Done, ""
	case "replace":
		return stored(o.Arg)
	case "delete":
		return object{}, Done, ""
	case "cas":
		if s.unique != o.Unique {
			return s, Exists, ""
		}
		return stored(o.Arg)
	}
	first, last = s.first, s.last // of what is there
	switch o.Method {
	case "append":
		return stored(s.value + o.Arg)
	case "prepend":
		return stored(o.Arg + s.value)
	case "incr", "decr":
		sum, ok := s.add(o)
		if !ok {
			return s, NotNumber, ""
		}
		next, r, _ = stored(fmt.Sprintf("%-*s", len(s.value), sum)) // padded to the length that was there
		return next, r, sum
	}
	panic("oracle: no method " + o.Method)
}

// add is incr and decr; ok is false if what is there is not a number.
func (s *object) add(o *StoreOp) (sum string, ok bool) {
	v, err := strconv.ParseUint(strings.TrimRight(s.value, " "), 10, 64)
	d, _ := strconv.ParseUint(o.Arg, 10, 64)
	if o.Method == "incr" {
		v += d
	} else {
		v -= min(v, d)
	}
	return strconv.FormatUint(v, 10), err == nil
}
