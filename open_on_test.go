package declock_test

import (
	"slices"
	"testing"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/objstore"
)

// A client of a store or tree tells which other compute nodes have it open, until they leave: what a check finds meanwhile may be theirs.
func TestOpenOn(t *testing.T) {
	cs := cluster(t, 3)
	var stores []*objstore.Client
	var trees []*btree.Client
	for _, c := range cs[:2] {
		st, tr := storeAndTree(t, c)
		s := session(t, c)
		store, err := st.Client(s)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := tr.Client(s)
		if err != nil {
			t.Fatal(err)
		}
		stores, trees = append(stores, store), append(trees, tree)
	}
	want := func(other ...fabric.CNID) {
		t.Helper()
		list, err := stores[0].OpenOn()
		if err != nil || !slices.Equal(list, other) {
			t.Errorf("store: %v, %v; want %v", list, err, other)
		}
		if list, err = trees[0].OpenOn(); err != nil || !slices.Equal(list, other) {
			t.Errorf("tree: %v, %v; want %v", list, err, other)
		}
	}
	want(cs[1].Node().Fabric().ID())
	if err := cs[1].Close(); err != nil {
		t.Fatal(err)
	}
	want()
}
