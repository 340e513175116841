package oracle

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A StoreOp is what a client did to a key of the object store: memcached's
// operations. Method is get, set, add, replace, cas, append,
// prepend, delete, incr, decr or touch; or lose: see StoreHistory.Lose.
type StoreOp struct {
	Client int
	Method string
	Key    string
	Arg    string // the value, or what is added to it
	Unique uint64 // cas

	Result StoreResult
	Value  string // get, incr, decr: what came out, if Done
	CAS    uint64 // get: the unique that came out

	Times
	Evicted bool // it took the memory of other objects, or may have

	call, end int64
	done      int64 // when it does nothing more to the store: its client was told an outcome, or that there is none, or was shut out
}

// StoreResult is how a StoreOp ended.
type StoreResult uint8

// Results of a StoreOp.
const (
	Unknown StoreResult = iota // no answer, or an error that says so: it may have happened, or will
	Done
	NotFound
	Exists
	NotNumber
	NoSpace // it did nothing: memory is short
	Failed  // it did nothing, and never will: so it has said, by an error that leaves no doubt
)

func (r StoreResult) String() string {
	return [...]string{"unknown", "done", "not found", "exists", "not a number", "no space", "failed"}[r]
}

func (o *StoreOp) String() string {
	s := fmt.Sprintf("client %d %s %s", o.Client, o.Method, o.Key)
	if o.Arg != "" {
		s += " " + quote(o.Arg)
	}
	if o.Unique != 0 {
		s += fmt.Sprintf(" cas=%#x", o.Unique)
	}
	s += ": " + o.Result.String()
	if o.Result == Done && o.Value != "" {
		s += " " + quote(o.Value)
	}
	if o.CAS != 0 {
		s += fmt.Sprintf(" cas=%#x", o.CAS)
	}
	return s + o.Times.String()
}

// A value that is longer than maxQuoted is shown by its head, its length and a hash.
const (
	maxQuoted  = 40
	quotedHead = 16
)

// quote quotes a value for people.
func quote(v string) string {
	if len(v) <= maxQuoted {
		return strconv.Quote(v)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(v))
	return fmt.Sprintf("%q.. (%d bytes, hash %08x)", v[:quotedHead], len(v), h.Sum32())
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
	o.call, o.end, o.done = h.tick, math.MaxInt64, math.MaxInt64
	o.Times.open()
	h.ops = append(h.ops, &o)
	return &o
}

// End notes that an operation of Begin has ended, with the result that is in
// it. One that ends Unknown may be taken for one that takes effect at any later time; but it evicts nothing any more.
func (h *StoreHistory) End(o *StoreOp) {
	h.tick++
	o.done = min(o.done, h.tick)
	if o.Result != Unknown {
		o.end = h.tick
	}
}

// Fence notes that all memory nodes refuse some clients from now on: what they had begun and not ended evicts nothing any more.
func (h *StoreHistory) Fence(gone func(client int) bool) {
	h.tick++
	for _, o := range h.ops {
		if o.done > h.tick && gone(o.Client) {
			o.done = h.tick
		}
	}
}

// Lose notes that the memory in which a key's object was has been lost, with the object, now.
func (h *StoreHistory) Lose(key string) {
	o := h.Begin(StoreOp{Client: -1, Method: "lose", Key: key, Result: Done})
	h.End(o)
}

// Len returns the number of operations.
func (h *StoreHistory) Len() int { return len(h.ops) }

// Check judges the history. It returns what is wrong, a line for each key;
// undecided are the keys for which the search took longer than timeout.
func (h *StoreHistory) Check(timeout time.Duration) (wrong []string, undecided int) {
	keys := map[string][]*StoreOp{}
	for _, o := range h.ops {
		keys[o.Key] = append(keys[o.Key], o)
	}
	m := newModel(h.ops)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		switch m.linearizable(keys[k], timeout) {
		case porcupine.Illegal:
			wrong = append(wrong, fmt.Sprintf("the %d operations on key %s are not linearizable:%s", len(keys[k]), k, h.tell(m, k)))
		case porcupine.Unknown:
			undecided++
		}
	}
	return wrong, undecided
}

// linearizable judges the operations on one key. What is hard about many clients on one key is how many orders there
// are. So it first looks among few: as if an operation had begun no sooner than the few that ended before it had ended,
// and as if of those that ended Unknown, which may have happened at any time or never, none had happened, or only
// those that left a trace. An order that it finds there is one of the whole history. Only if there is none all are tried.
func (m *model) linearizable(ops []*StoreOp, timeout time.Duration) porcupine.CheckResult {
	unknown := []func(*StoreOp) bool{
		func(*StoreOp) bool { return false },
		func(o *StoreOp) bool { return o.changes() && seen(o, ops) },
		(*StoreOp).changes,
	}
	for _, bound := range []time.Duration{timeout / 100, timeout / 10} {
		for _, overlap := range []int{2, 6, len(ops)} {
			for _, kept := range unknown {
				if porcupine.CheckOperationsTimeout(m.porcupine, history(ops, kept, overlap), bound) == porcupine.Ok {
					return porcupine.Ok
				}
			}
		}
	}
	return porcupine.CheckOperationsTimeout(m.porcupine, history(ops, (*StoreOp).changes, len(ops)), timeout)
}

// history lists the operations on a key, of those that ended Unknown only what is kept, and each as if it had begun after
// the end of all but the last overlap that ended before it.
func history(ops []*StoreOp, kept func(*StoreOp) bool, overlap int) []porcupine.Operation {
	var list []porcupine.Operation
	var ends []int64 // in order
	for _, o := range slices.SortedFunc(slices.Values(ops), func(a, b *StoreOp) int { return cmp.Compare(a.end, b.end) }) {
		p := o.operation()
		if o.Result == Unknown {
			if kept(o) {
				list = append(list, p)
			}
			continue
		}
		if n := len(ends) - overlap; n > 0 {
			p.Call = max(p.Call, ends[n-1])
		}
		ends = append(ends, o.end)
		list = append(list, p)
	}
	return list
}

// changes reports whether the operation is of those that change an object. A touch changes when it expires.
func (o *StoreOp) changes() bool { return o.Method != "get" && (o.Method != "touch" || o.Began != 0) }

// seen reports whether o may be needed to explain what others saw: its value was in theirs, or it has none.
func seen(o *StoreOp, ops []*StoreOp) bool {
	switch o.Method {
	case "delete", "touch", "incr", "decr":
		return true
	}
	return slices.ContainsFunc(ops, func(x *StoreOp) bool { return x.Result == Done && strings.Contains(x.Value, o.Arg) })
}

func (o *StoreOp) operation() porcupine.Operation {
	return porcupine.Operation{ClientId: o.Client, Input: o, Call: o.call, Output: o, Return: o.end}
}

// maxTold bounds the operations that a verdict lists.
const maxTold = 40

// tell lists the first operations on a key, up to where they cease to be linearizable.
func (h *StoreHistory) tell(m *model, key string) string {
	var list []porcupine.Operation
	var b strings.Builder
	for _, o := range h.ops {
		if o.Key != key {
			continue
		}
		list = append(list, o.operation())
		if len(list) > maxTold {
			b.WriteString("\n\t..")
			break
		}
		fmt.Fprintf(&b, "\n\t[%d, %s] %v", o.call, endName(o.end), o)
		if porcupine.CheckOperationsTimeout(m.porcupine, list, time.Second) == porcupine.Illegal {
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
