package declock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// Batches beside each other and beside single operations: each key of a batch is as whole and as new as by a get.
func TestBatchesBesideWriters(t *testing.T) {
	const keys, readers, rounds = 50, 3, 200
	c, _ := open(t)
	ctx := t.Context()
	st, err := c.Store(ctx, "s", declock.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var names [][]byte
	for i := range keys {
		names = append(names, fmt.Appendf(nil, "key %d", i))
	}
	var stored [keys]atomic.Int64 // rounds that are known to be stored
	var stop atomic.Bool
	var all, writer sync.WaitGroup
	writer.Go(func() {
		defer stop.Store(true)
		for round := 1; round <= rounds; round++ {
			var items []declock.SetItem
			for i, k := range names {
				items = append(items, declock.SetItem{Key: k, Value: []byte(strings.Repeat(fmt.Sprintf("%d of %s\n", round, k), 1+(i+round)%20))})
			}
			if err := st.SetMulti(ctx, items); err != nil {
				t.Error(err)
				return
			}
			for i := range stored {
				stored[i].Store(int64(round))
			}
		}
	})
	for range readers {
		all.Go(func() {
			for !stop.Load() {
				var least [keys]int64
				for i := range least {
					least[i] = stored[i].Load()
				}
				results, err := st.GetMulti(ctx, names)
				if err != nil {
					t.Error(err)
					return
				}
				for i, r := range results {
					first, _, _ := strings.Cut(string(r.Value), "\n")
					var round int64
					if _, err := fmt.Sscanf(first, "%d of ", &round); r.Err == nil && err != nil || round < least[i] {
						t.Errorf("%s: %.40q, %v, and round %d had been stored", names[i], r.Value, r.Err, least[i])
						return
					}
					if r.Err == nil && strings.Count(string(r.Value), fmt.Sprintf("%d of %s\n", round, names[i])) != 1+(i+int(round))%20 {
						t.Errorf("%s: %q is not whole", names[i], r.Value)
						return
					}
				}
			}
		})
	}
	writer.Wait()
	all.Wait()
	if n, err := st.DeleteMulti(ctx, append(names, []byte("none"))); n != keys || err != nil {
		t.Errorf("%d deleted, %v", n, err)
	}
	results, err := st.GetMulti(ctx, names)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if !errors.Is(r.Err, objstore.ErrNotFound) {
			t.Errorf("after the deletion: %q, %v", r.Value, r.Err)
		}
	}
	_, err = st.GetMulti(ctx, [][]byte{names[0], nil})
	serr := st.SetMulti(ctx, []declock.SetItem{{Key: names[0]}, {}})
	if !errors.Is(err, objstore.ErrKeySize) || !errors.Is(serr, objstore.ErrKeySize) {
		t.Errorf("a key of no bytes: %v; %v", err, serr)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := st.GetMulti(ended, names); !errors.Is(err, lock.ErrCanceled) {
		t.Errorf("the context has ended: %v", err)
	}
}

// Batches of a tree, and the first keys of ranges.
func TestTreeBatches(t *testing.T) {
	c, _ := open(t)
	ctx := t.Context()
	tr, err := c.Tree(ctx, "t", declock.TreeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var items []declock.TreeItem
	var keys [][]byte
	for i := range 120 {
		keys = append(keys, fmt.Appendf(nil, "k%03d", i))
		items = append(items, declock.TreeItem{Key: keys[i], Value: fmt.Appendf(nil, "v%d", i)})
	}
	if err := tr.PutMulti(ctx, items); err != nil {
		t.Fatal(err)
	}
	got, err := tr.GetMulti(ctx, append(keys[:120:120], []byte("none")))
	if err != nil || !errors.Is(got[120].Err, btree.ErrNotFound) {
		t.Fatalf("%v, of a key that is not there %v", err, got[120].Err)
	}
	for i, x := range got[:120] {
		if string(x.Key) != string(keys[i]) || string(x.Value) != fmt.Sprintf("v%d", i) || x.Err != nil {
			t.Errorf("%d: %q, %q, %v", i, x.Key, x.Value, x.Err)
		}
	}
	for want, r := range map[string]btree.Range{
		"k000": {}, "k119": {Descending: true}, "k050": {From: keys[50]}, "k051": {From: keys[50], FromOpen: true},
		"k049": {From: keys[50], FromOpen: true, Descending: true}, "k000 to": {To: keys[0]}, "": {From: keys[50], To: keys[50], ToOpen: true},
	} {
		want, _, _ = strings.Cut(want, " ")
		key, value, err := tr.First(ctx, r)
		if string(key) != want || (want == "") != errors.Is(err, btree.ErrNotFound) || want != "" && (err != nil || len(value) == 0) {
			t.Errorf("first of %+v: %q, %q, %v", r, key, value, err)
		}
	}
	for _, x := range []struct {
		key, want string
		f         func(context.Context, []byte) (key, value []byte, err error)
	}{{"k050", "k050", tr.Seek}, {"k0505", "k051", tr.Seek}, {"l", "", tr.Seek}, {"k050", "k049", tr.Prev}, {"k0505", "k050", tr.Prev}, {"k000", "", tr.Prev}, {"", "k000", tr.Seek}} {
		key, _, err := x.f(ctx, []byte(x.key))
		if string(key) != x.want || (x.want == "") != errors.Is(err, btree.ErrNotFound) {
			t.Errorf("beside %q: %q, %v; want %q", x.key, key, err, x.want)
		}
	}
	if n, err := tr.DeleteMulti(ctx, append(keys[:120:120], keys[0])); n != 120 || err != nil {
		t.Errorf("%d deleted, %v", n, err)
	}
	if err := tr.PutMulti(ctx, []declock.TreeItem{{Key: make([]byte, 10_000)}}); !errors.Is(err, btree.ErrKeySize) {
		t.Errorf("a key of many bytes: %v", err)
	}
}

// Updates by functions of many goroutines, beside deletions: each is applied to what was there just before, and none is lost.
func TestTreeUpdate(t *testing.T) {
	const goroutines, updates = 8, 40
	c, _ := open(t)
	ctx, key := t.Context(), []byte("n")
	tr, err := c.Tree(ctx, "t", declock.TreeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range updates {
				if err := tr.Update(ctx, key, func(v []byte) []byte {
					if v == nil {
						return []byte{1, 0}
					}
					if v[0]++; v[0] == 0 {
						v[1]++
					}
					return v
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if v, err := tr.Get(ctx, key, nil); err != nil || int(v[0])+256*int(v[1]) != goroutines*updates {
		t.Errorf("% x, %v", v, err)
	}
	if err := errors.Join(tr.Put(ctx, key, nil), tr.Update(ctx, key, func(v []byte) []byte {
		if v == nil {
			t.Error("an empty value is none")
		}
		return nil
	}), tr.Update(ctx, []byte("other"), func(v []byte) []byte { return v })); err != nil {
		t.Error(err)
	}
	if _, err := tr.Get(ctx, []byte("other"), nil); !errors.Is(err, btree.ErrNotFound) {
		t.Errorf("what a function has left as it is: %v", err)
	}
}
