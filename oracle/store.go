package oracle

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A StoreOp is what a client did to a key of the object store: memcached's
// operations without expiry. Method is get, set, add, replace, cas, append,
// prepend, delete, incr, decr or touch.
type StoreOp struct {
	Client int
	Method string
	Key    string
	Arg    string // the value, or what is added to it
	Unique uint64 // cas

	Result StoreResult
	Value  string // get, incr, decr: what came out, if Done
	CAS    uint64 // get: the unique that came out

	call, end int64
}

// StoreResult is how a StoreOp ended.
type StoreResult uint8

// Results of a StoreOp.
const (
	Unknown StoreResult = iota // no answer, or an error of the fabric: it may have happened, or will
	Done
	NotFound
	Exists
	NotNumber
)

func (r StoreResult) String() string {
	return [...]string{"unknown", "done", "not found", "exists", "not a number"}[r]
}

func (o *StoreOp) String() string {
	s := fmt.Sprintf("client %d %s %s", o.Client, o.Method, o.Key)
	if o.Arg != "" {
		s += " " + strconv.Quote(o.Arg)
	}
	if o.Unique != 0 {
		s += fmt.Sprintf(" cas=%#x", o.Unique)
	}
	s += ": " + o.Result.String()
	if o.Result == Done && o.Value != "" {
		s += " " + strconv.Quote(o.Value)
	}
	if o.CAS != 0 {
		s += fmt.Sprintf(" cas=%#x", o.CAS)
	}
	return s
}

// A StoreHistory collects what clients did to the object store, in the order
// in which they did it, and judges whether it is linearizable.
type StoreHistory struct {
	ops  []*StoreOp
	tick int64
}

// Begin notes that an operation begins.
func (h *StoreHistory) Begin(o StoreOp) *StoreOp {
	h.tick++
	o.call, o.end = h.tick, math.MaxInt64
	h.ops = append(h.ops, &o)
	return &o
}

// End notes that an operation of Begin has ended, with the result that is in
// it. One that ends Unknown may take effect at any later time.
func (h *StoreHistory) End(o *StoreOp) {
	h.tick++
	if o.Result != Unknown {
		o.end = h.tick
	}
}

// Len returns the number of operations.
func (h *StoreHistory) Len() int { return len(h.ops) }

// Check judges the history. It returns what is wrong, a line for each key;
// undecided are the keys for which the search took longer than timeout each.
func (h *StoreHistory) Check(timeout time.Duration) (wrong []string, undecided int) {
	keys := map[string][]porcupine.Operation{}
	var names []string
	for _, o := range h.ops {
		if keys[o.Key] == nil {
			names = append(names, o.Key)
		}
		keys[o.Key] = append(keys[o.Key], porcupine.Operation{ClientId: o.Client, Input: o, Call: o.call, Output: o, Return: o.end})
	}
	slices.Sort(names)
	for _, k := range names {
		switch porcupine.CheckOperationsTimeout(storeModel, keys[k], timeout) {
		case porcupine.Illegal:
			wrong = append(wrong, fmt.Sprintf("the %d operations on key %s are not linearizable:%s", len(keys[k]), k, h.tell(k)))
		case porcupine.Unknown:
			undecided++
		}
	}
	return wrong, undecided
}

// maxTold bounds the operations that a verdict lists.
const maxTold = 40

// tell lists the first operations on a key, up to where they cease to be linearizable.
func (h *StoreHistory) tell(key string) string {
	var list []porcupine.Operation
	var b strings.Builder
	for _, o := range h.ops {
		if o.Key != key {
			continue
		}
		list = append(list, porcupine.Operation{ClientId: o.Client, Input: o, Call: o.call, Output: o, Return: o.end})
		if len(list) > maxTold {
			b.WriteString("\n\t..")
			break
		}
		fmt.Fprintf(&b, "\n\t[%d, %s] %v", o.call, endName(o.end), o)
		if porcupine.CheckOperationsTimeout(storeModel, list, time.Second) == porcupine.Illegal {
			b.WriteString("   <-- here")
			break
		}
	}
	return b.String()
}

func endName(t int64) string {
	if t == math.MaxInt64 {
		return "never"
	}
	return strconv.FormatInt(t, 10)
}

// An object is the state of one key. unique is 0 while no get has shown it.
type object struct {
	there  bool
	value  string
	unique uint64
}

var storeModel = porcupine.Model{
	Init: func() any { return object{} },
	Step: func(state, input, output any) (bool, any) { return step(state.(object), input.(*StoreOp)) },
}

// step tells whether an operation may have had its result in state s, and the next state.
func step(s object, o *StoreOp) (bool, object) {
	next, want, value := s.apply(o)
	if o.Result == Unknown {
		return true, next
	}
	if o.Method == "cas" && o.Result == Exists && s.there && s.unique == 0 {
		return true, s // a version that nobody has seen is none that was asked for
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
func (s object) apply(o *StoreOp) (next object, r StoreResult, value string) {
	stored := func(v string) (object, StoreResult, string) { return object{there: true, value: v}, Done, "" }
	switch o.Method {
	case "set":
		return stored(o.Arg)
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
		return s, Done, ""
	case "replace":
		return stored(o.Arg)
	case "append":
		return stored(s.value + o.Arg)
	case "prepend":
		return stored(o.Arg + s.value)
	case "delete":
		return object{}, Done, ""
	case "cas":
		if s.unique != o.Unique {
			return s, Exists, ""
		}
		return stored(o.Arg)
	case "incr", "decr":
		return s.add(o)
	}
	panic("oracle: no method " + o.Method)
}

// add is incr and decr: results that are shorter than what was there are padded.
func (s object) add(o *StoreOp) (object, StoreResult, string) {
	v, err := strconv.ParseUint(strings.TrimRight(s.value, " "), 10, 64)
	d, _ := strconv.ParseUint(o.Arg, 10, 64)
	if err != nil {
		return s, NotNumber, ""
	}
	if o.Method == "incr" {
		v += d
	} else {
		v -= min(v, d)
	}
	text := strconv.FormatUint(v, 10)
	return object{there: true, value: fmt.Sprintf("%-*s", len(s.value), text)}, Done, text
}
