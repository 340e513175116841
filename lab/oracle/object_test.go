package oracle_test

import (
	"testing"
	"time"

	"github.com/declock/declock/lab/oracle"
)

// during gives an operation the seconds that clocks showed.
func (o storeOp) during(began, ended, fastest uint32) storeOp {
	o.Times = oracle.Times{TTL: o.TTL, Began: began, Ended: ended, Fastest: fastest}
	return o
}

func (o storeOp) ttl(s uint32) storeOp {
	o.TTL = s
	return o
}

func (o storeOp) evicting() storeOp {
	o.Evicted = true
	return o
}

// An object is there before its expiry by any clock, and is not there after it by all.
func TestObjectsExpire(t *testing.T) {
	const d, nf, ex, un = oracle.Done, oracle.NotFound, oracle.Exists, oracle.Unknown
	set := op(1, 2, "set", "a", d, "").ttl(5).during(10, 11, 11) // expires at 15 or 16
	get := func(begin, end int, value string, began, ended, fastest uint32) storeOp {
		r := d
		if value == "" {
			r = nf
		}
		return op(begin, end, "get", "", r, value).during(began, ended, fastest)
	}
	for _, x := range []struct {
		name string
		good bool
		ops  []storeOp
	}{
		{"there before", true, []storeOp{set, get(3, 4, "a", 14, 14, 14)}},
		{"gone before", false, []storeOp{set, get(3, 4, "", 14, 14, 14)}},
		{"gone before, but another's clock is ahead", true, []storeOp{set, get(3, 4, "", 12, 12, 15)}},
		{"gone when it may be", true, []storeOp{set, get(3, 4, "", 15, 15, 15)}},
		{"there when it may be", true, []storeOp{set, get(3, 4, "a", 15, 15, 15)}},
		{"there after", false, []storeOp{set, get(3, 4, "a", 16, 16, 16)}},
		{"there after, but it began before", true, []storeOp{set, get(3, 4, "a", 15, 20, 20)}},
		{"gone after", true, []storeOp{set, get(3, 4, "", 16, 16, 16)}},
		{"there at 15, gone at 15: of two clocks", true, []storeOp{set, get(3, 4, "a", 14, 14, 15), get(5, 6, "", 15, 15, 15)}},
		{"seen at 15, gone at 15", false, []storeOp{set, get(3, 4, "a", 15, 15, 15), get(5, 6, "", 15, 15, 15)}},
		{"expired at 15, there at 15", false, []storeOp{set, get(3, 4, "", 15, 15, 15), get(5, 6, "a", 15, 15, 15)}},
		{"expired for one, there for whose clock is behind", true, []storeOp{set, get(3, 4, "", 15, 15, 15), get(5, 6, "a", 14, 14, 15)}},
		{"taken away by one, and there", false, []storeOp{set, op(3, 4, "delete", "", nf, "").during(15, 15, 15), get(5, 6, "a", 14, 14, 15)}},
		{"touched, there", true, []storeOp{set, op(3, 4, "touch", "", d, "").ttl(9).during(14, 14, 14), get(5, 6, "a", 22, 22, 22)}},
		{"touched, gone", false, []storeOp{set, op(3, 4, "touch", "", d, "").ttl(9).during(14, 14, 14), get(5, 6, "", 16, 16, 16)}},
		{"touched when dead", false, []storeOp{set, op(3, 4, "touch", "", d, "").ttl(9).during(17, 17, 17)}},
		{"touched for ever", true, []storeOp{set, op(3, 4, "touch", "", d, "").during(14, 14, 14), get(5, 6, "a", 99, 99, 99)}},
		{"a touch of unknown outcome", true, []storeOp{set, op(3, 0, "touch", "", un, "").ttl(9).during(14, 14, 14), get(5, 6, "a", 20, 20, 20)}},
		{"append keeps the expiry", false, []storeOp{set, op(3, 4, "append", "b", d, "").during(12, 12, 12), get(5, 6, "ab", 17, 17, 17)}},
		{"add finds what has not expired", true, []storeOp{set, op(3, 4, "add", "b", ex, "").during(14, 14, 14)}},
		{"add after the end", true, []storeOp{set, op(3, 4, "add", "b", d, "").during(16, 16, 16), get(5, 6, "b", 99, 99, 99)}},
		{"add finds the dead", false, []storeOp{set, op(3, 4, "add", "b", ex, "").during(16, 16, 16)}},
		{"replace of the dead", false, []storeOp{set, op(3, 4, "replace", "b", d, "").during(16, 16, 16)}},
	} {
		t.Run(x.name, func(t *testing.T) { judgeStore(t, x.good, x.ops) })
	}
}

// A key may be gone only if a client evicted since it was last seen.
func TestObjectsAreEvicted(t *testing.T) {
	const d, nf = oracle.Done, oracle.NotFound
	set := op(2, 3, "set", "a", d, "")
	other := func(begin, end int) storeOp {
		o := op(begin, end, "set", "x", d, "").evicting()
		o.Key = "other"
		return o
	}
	for _, x := range []struct {
		name string
		good bool
		ops  []storeOp
	}{
		{"nobody evicts", false, []storeOp{set, op(5, 6, "get", "", nf, "")}},
		{"gone", true, []storeOp{set, other(4, 5), op(6, 7, "get", "", nf, "")}},
		{"gone while it is evicted", true, []storeOp{set, other(4, 0), op(6, 7, "get", "", nf, "")}},
		{"evicted before it was set", false, []storeOp{other(1, 1), set, op(6, 7, "get", "", nf, "")}},
		{"evicted by who stored it", false, []storeOp{op(2, 3, "set", "a", d, "").evicting(), op(5, 6, "get", "", nf, "")}},
		{"evicted afterwards", false, []storeOp{set, op(4, 5, "get", "", nf, ""), other(6, 7)}},
		{"seen since", false, []storeOp{set, other(4, 5), op(6, 7, "get", "", d, "a"), op(8, 9, "get", "", nf, "")}},
		{"back again", false, []storeOp{set, other(4, 5), op(6, 7, "get", "", nf, ""), op(8, 9, "get", "", d, "a")}},
		{"no space is no effect", true, []storeOp{set, op(4, 5, "append", "b", oracle.NoSpace, ""), op(6, 7, "get", "", d, "a")}},
	} {
		t.Run(x.name, func(t *testing.T) { judgeStore(t, x.good, x.ops) })
	}
}

// An operation that was under way when its client crashed evicts nothing after the client is fenced; one of unknown outcome evicts nothing after
// its client has got that error.
func TestCrashedClientEvictsNothing(t *testing.T) {
	for _, x := range []struct {
		name       string
		told, gone bool
		good       bool
	}{
		{"dies", false, false, true},
		{"dies, and is shut out", false, true, false},
		{"is told that the outcome is unknown", true, false, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			var h oracle.StoreHistory
			do := func(o oracle.StoreOp) { h.End(h.Begin(o)) }
			dying := h.Begin(oracle.StoreOp{Client: 1, Method: "set", Key: "other", Arg: "x", Evicted: true})
			if x.told {
				h.End(dying)
			}
			if x.gone {
				h.Fence(func(client int) bool { return client == 1 })
			}
			do(oracle.StoreOp{Client: 2, Method: "set", Key: "k", Arg: "a", Result: oracle.Done})
			do(oracle.StoreOp{Client: 2, Method: "get", Key: "k", Result: oracle.NotFound})
			if wrong, undecided := h.Check(time.Second); (len(wrong) == 0) != x.good || undecided != 0 {
				t.Errorf("good is %v, found %v, %d undecided", x.good, wrong, undecided)
			}
		})
	}
}
