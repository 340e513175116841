package btree

import (
	"bytes"
	"slices"
	"testing"

	"github.com/declock/declock/fabric/sim"
)

// A client has found that the tree has no level for a separator, and another of its compute node makes one before it does: it makes none above that one, in which a node would have a child of its own level.
// (Between the two it does nothing over the fabric, so no schedule of the simulator has this: a tree was seen to be lost so on Soft-RoCE, with threads.)
func TestGrownMeanwhile(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1)
	tree := w.open(0, w.tiny())
	a, b := w.client(0, tree), w.client(0, tree)
	key := func(i int) []byte { return []byte{'k', byte('a' + i)} }
	value := bytes.Repeat([]byte{'v'}, 16)
	n := 0
	for ; a.stats.Splits == 0; n++ {
		a.jobs = slices.Repeat([]job{{kind: jobRedo}}, maxJobs) // there is room for no other: what it finds to do is left to the next visitor
		wantErr(t, "put", a.Put(key(n), value), nil)
	}
	var s search
	s.begin(0, nil, false, false)
	wantErr(t, "the first leaf", a.seek(&s, &a.n, a.leaf), nil)
	j := job{kind: jobComplete, level: 1, low: bytes.Clone(a.n.high.key), self: a.n.link}
	s.begin(j.level, j.low, false, true)
	wantErr(t, "the level above", a.seek(&s, &a.n, a.leaf), ErrLevel)
	for ; b.stats.Completed == 0 && n < 24; n++ {
		wantErr(t, "put", b.Put(key(n), value), nil)
	}
	grown, err := a.grow(&j, s.top)
	if wantErr(t, "grow", err, nil); grown {
		t.Error("it has made a root above that of another")
	}
	for i := range n {
		wantValue(t, a, string(key(i)), string(value))
	}
	r, err := a.Check(CheckOptions{})
	wantErr(t, "check", err, nil)
	if !r.Sound() {
		t.Errorf("%+v", r)
	}
}
