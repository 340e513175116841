package declock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/objstore"
)

// After Close of a client, of its session, or of the cluster, every call is ErrClosed or does nothing. None panics, and no lock stays held.
func TestCallsAfterClose(t *testing.T) {
	ctx := context.Background()
	k, v := []byte("k"), []byte("v")
	for _, what := range []string{"client", "session", "cluster"} {
		c, s := open(t)
		l, err := c.Locks(ctx, "l", 1)
		if err != nil {
			t.Fatal(err)
		}
		st, tr := storeAndTree(t, c)
		store, err := st.Client(s)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := tr.Client(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(store.Set(k, v, objstore.Options{}), tree.Put(k, v)); err != nil {
			t.Fatal(err)
		}
		it, fresh := tree.Scan(btree.Range{}), tree.Scan(btree.Range{})
		it.Next()
		switch what {
		case "client":
			store.Close()
			tree.Close()
		case "session":
			err = s.Close()
		case "cluster":
			err = c.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		calls := callsOf(store, tree)
		calls["Fresh iterator"] = func() error { fresh.Next(); return fresh.Err() }
		calls["Iterator.Close"] = func() error { it.Close(); fresh.Close(); return declock.ErrClosed }
		calls["Client.Close"] = func() error { store.Close(); tree.Close(); return declock.ErrClosed }
		if what != "client" {
			calls["Lock"] = func() error { _, err := s.Lock(ctx, l.At(0)); return err }
			calls["TryRLock"] = func() error { _, err := s.TryRLock(l.At(0)); return err }
			calls["Store.Client"] = func() error { _, err := st.Client(s); return err }
			calls["Tree.Client"] = func() error { _, err := tr.Client(s); return err }
			calls["Session.Close"] = func() error { return errors.Join(declock.ErrClosed, s.Close()) }
		}
		if what == "cluster" {
			calls["Session"] = func() error { _, err := c.Session(); return err }
			calls["Locks"] = func() error { _, err := c.Locks(ctx, "m", 1); return err }
			calls["Store"] = func() error { _, err := c.Store(ctx, "s", declock.StoreConfig{}); return err }
			calls["Tree"] = func() error { _, err := c.Tree(ctx, "u", declock.TreeConfig{}); return err }
			calls["Cluster.Close"] = func() error { return errors.Join(declock.ErrClosed, c.Close()) }
		}
		for _, name := range inOrder(calls) {
			text := panicOf(func() {
				if err := calls[name](); !errors.Is(err, declock.ErrClosed) {
					t.Errorf("%s after Close of the %s: %v", name, what, err)
				}
			})
			if text != "" {
				t.Errorf("%s after Close of the %s panics: %s", name, what, text)
			}
		}
		if what == "cluster" {
			continue
		}
		other := session(t, c)
		again, err := tr.Client(other)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(again.Put(k, v), again.Delete(k)); err != nil {
			t.Errorf("another client of the tree after Close of the %s: %v", what, err)
		}
	}
}

// callsOf returns every operation of a client of a store and one of a tree.
func callsOf(store *objstore.Client, tree *btree.Client) map[string]func() error {
	k, v := []byte("k"), []byte("v")
	o := objstore.Options{}
	none := func(func(a, b []byte) bool) {}
	return map[string]func() error{
		"store.Get":            func() error { _, err := store.Get(k); return err },
		"store.Set":            func() error { return store.Set(k, v, o) },
		"store.Add":            func() error { return store.Add(k, v, o) },
		"store.Replace":        func() error { return store.Replace(k, v, o) },
		"store.CompareAndSwap": func() error { return store.CompareAndSwap(k, v, o, 1) },
		"store.Delete":         func() error { return store.Delete(k) },
		"store.Touch":          func() error { return store.Touch(k, 1) },
		"store.Append":         func() error { return store.Append(k, v) },
		"store.Incr":           func() error { _, err := store.Incr(k, 1); return err },
		"store.Drain":          func() error { return errors.Join(store.Drain(), declock.ErrClosed) },
		"store.Check":          func() error { _, err := store.Check(objstore.CheckOptions{}); return err },
		"store.Inspect":        func() error { _, err := store.Inspect(0, 0); return err },
		"store.ReclaimStep":    func() error { _, err := store.ReclaimStep(nil); return err },
		"store.Leave":          func() error { return store.Leave() },
		"tree.Get":             func() error { _, err := tree.Get(k); return err },
		"tree.Put":             func() error { return tree.Put(k, v) },
		"tree.Insert":          func() error { return tree.Insert(k, v) },
		"tree.CompareAndPut":   func() error { return tree.CompareAndPut(k, v, v) },
		"tree.Delete":          func() error { return tree.Delete(k) },
		"tree.BulkLoad":        func() error { return tree.BulkLoad(none, btree.BulkOptions{}) },
		"tree.Each":            func() error { return tree.Each(btree.Range{}, func(k, v []byte) bool { return true }) },
		"tree.Drain":           func() error { return errors.Join(tree.Drain(), declock.ErrClosed) },
		"tree.Check":           func() error { _, err := tree.Check(btree.CheckOptions{}); return err },
		"tree.Inspect":         func() error { _, err := tree.Inspect(k, 0); return err },
		"tree.Estimate":        func() error { _, err := tree.Estimate(1); return err },
		"tree.ReclaimStep":     func() error { _, err := tree.ReclaimStep(nil); return err },
		"tree.Leave":           func() error { return tree.Leave() },
	}
}

func inOrder(calls map[string]func() error) (names []string) {
	for name := range calls {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// A panic in the sequence of a bulk load reaches the caller, and leaves no lock behind: neither for others nor for the session's Close.
func TestPanicInABulkLoad(t *testing.T) {
	ctx := context.Background()
	c, s := open(t)
	tr, err := c.Tree(ctx, "t", declock.TreeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := c.Store(ctx, "s", declock.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := tr.Client(s)
	if err != nil {
		t.Fatal(err)
	}
	store, err := st.Client(s) // of the same session: the sequence may use it
	if err != nil {
		t.Fatal(err)
	}
	text := panicOf(func() {
		_ = tree.BulkLoad(func(yield func(k, v []byte) bool) {
			for i := range 5000 {
				k := fmt.Appendf(nil, "%05d", i)
				if err := store.Set(k, k, objstore.Options{}); err != nil {
					t.Error(err)
				}
				if !yield(k, k) {
					return
				}
			}
			panic("sequence")
		}, btree.BulkOptions{})
	})
	if text != "sequence" {
		t.Fatalf("panic %q", text)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close of the session: %v", err)
	}
	again, err := tr.Client(session(t, c))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Put([]byte("k"), []byte("v")); err != nil {
		t.Error(err)
	}
	if r, err := again.Check(btree.CheckOptions{}); err != nil || !r.Sound() || r.Keys != 1 {
		t.Errorf("check: %v, %v", r, err)
	}
}
