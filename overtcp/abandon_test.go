package overtcp_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/objstore"
)

// losers are a store on each number, and a tree on all, that a process has open while numbers are lost.
type losers struct {
	t      *testing.T
	stores [failoverNumbers]*declock.Store
	tree   *declock.Tree
}

func newLosers(t *testing.T, c *declock.Cluster) *losers {
	t.Helper()
	x := &losers{t: t}
	var err error
	for number := range x.stores {
		if x.stores[number], err = failoverStore(t.Context(), c, 0, number); err == nil {
			err = x.stores[number].Set(t.Context(), []byte("k"), []byte("before"), declock.SetOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if x.tree, err = c.Tree(t.Context(), "tree", declock.TreeConfig{MaxKey: 16, NodeSize: 256, MaxInline: 32, Nodes: []fabric.MemID{0, 1, 2}}); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := x.tree.Put(t.Context(), []byte{byte(i)}, make([]byte, i)); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

// used calls an operation until it does not report a loss of memory any more, and returns whether it has.
func (x *losers) used(what string, f func(ctx context.Context) error) (lost bool) {
	x.t.Helper()
	for until := time.Now().Add(patience); ; lost = true {
		err := f(x.t.Context())
		if err == nil || !errors.Is(err, declock.ErrMemoryLost) && !errors.Is(err, fabric.ErrNodeDown) || time.Now().After(until) {
			if err != nil {
				x.t.Errorf("%s: %v", what, err)
			}
			return lost
		}
	}
}

// goOn uses all when the numbers serve again that were abandoned: those that a memory node has begun with since. before is number 0 as it was.
func (x *losers) goOn(r *replicas, before *member.Group) {
	x.t.Helper()
	s := r.whole()
	for number, st := range x.stores {
		g := s.Group(fabric.MemID(number))
		anew := number == 0 || g.Term > before.Term && g.Began > before.Began
		var value []byte
		lost := x.used("get", func(ctx context.Context) (err error) {
			value, err = st.Get(ctx, []byte("k"), nil)
			if errors.Is(err, objstore.ErrNotFound) {
				value, err = nil, nil
			}
			return err
		})
		if number == 0 && (!lost || value != nil) || !anew && string(value) != "before" {
			x.t.Errorf("store %d: lost %v, value %q, %+v", number, lost, value, *g)
		}
		x.used("set", func(ctx context.Context) error {
			return st.Set(ctx, []byte("k"), []byte("after"), declock.SetOptions{})
		})
		if v, err := st.Get(x.t.Context(), []byte("k"), nil); err != nil || string(v) != "after" {
			x.t.Errorf("store %d: %q, %v", number, v, err)
		}
	}
	x.used("put", func(ctx context.Context) error { return x.tree.Put(ctx, []byte("new"), []byte("value")) })
	if v, err := x.tree.Get(x.t.Context(), []byte("new"), nil); err != nil || string(v) != "value" {
		x.t.Errorf("tree: %q, %v", v, err)
	}
	if v, err := x.tree.Get(x.t.Context(), []byte{50}, nil); !errors.Is(err, btree.ErrNotFound) {
		x.t.Errorf("tree: %d bytes, %v, of what was lost with a part of it", len(v), err)
	}
}
