package declock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/objstore"
)

// A store and a tree are dropped right after they have been opened: the process that has dropped them opens and uses others by their names at once, and the memory
// comes back while it runs. So it does in a process in which another one drops them. Nothing is reported.
func TestDroppedAtOnce(t *testing.T) {
	ctx := context.Background()
	o := shm.Options{Name: "at-once", Dir: t.TempDir(), Size: 64 << 20, Sparse: true}
	m := serve(t, o)
	defer m.Close()
	var mu sync.Mutex
	var reports []error
	report := declock.WithReport(func(err error) {
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, err)
	})
	cs := make([]*declock.Cluster, 2)
	for i := range cs {
		var err error
		if cs[i], err = declock.Open(ctx, "shm:"+o.Name, declock.WithDir(o.Dir), report); err != nil {
			t.Fatal(err)
		}
		defer cs[i].Close()
	}
	c, s := cs[0], session(t, cs[0])
	before := freeBytes(t, c, s)
	seen := map[any]bool{}
	for range 4 { // by c
		st, err := c.Store(ctx, "s", declock.StoreConfig{Objects: 1000})
		if err != nil {
			t.Fatal(err)
		}
		tr, err := c.Tree(ctx, "t", declock.TreeConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if seen[st] || seen[tr] {
			t.Fatal("what has been dropped is opened again")
		}
		seen[st], seen[tr] = true, true
		if k, err := st.Client(s); err != nil {
			t.Fatal(err)
		} else if err := k.Set([]byte("k"), []byte("v"), objstore.Options{}); err != nil {
			t.Fatal(err)
		}
		if k, err := tr.Client(s); err != nil {
			t.Fatal(err)
		} else if err := k.Put([]byte("k"), []byte("v")); err != nil {
			t.Fatal(err)
		}
		if err := c.DropStore(ctx, "s"); err != nil {
			t.Fatal(err)
		}
		if err := c.DropTree(ctx, "t"); err != nil {
			t.Fatal(err)
		}
	}
	// By another, and opened again before it is let go.
	old, err := c.Store(ctx, "again", declock.StoreConfig{Objects: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if err := cs[1].DropStore(ctx, "again"); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(30 * time.Second); !old.Dropped() && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if st, err := c.Store(ctx, "again", declock.StoreConfig{Objects: 1000}); err != nil || st == old {
		t.Fatalf("opened again: the dropped one: %v, %v", st == old, err)
	}
	if err := c.DropStore(ctx, "again"); err != nil {
		t.Fatal(err)
	}
	for i := range 4 { // by another
		name, tree := fmt.Sprint("other", i), fmt.Sprint("tree", i)
		if _, err := c.Store(ctx, name, declock.StoreConfig{Objects: 1000}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Tree(ctx, tree, declock.TreeConfig{}); err != nil {
			t.Fatal(err)
		}
		if err := cs[1].DropStore(ctx, name); err != nil {
			t.Fatal(err)
		}
		if err := cs[1].DropTree(ctx, tree); err != nil {
			t.Fatal(err)
		}
	}
	for until := time.Now().Add(30 * time.Second); freeBytes(t, c, s) != before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d of %d bytes are free", freeBytes(t, c, s), before)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, err := range reports {
		t.Errorf("reported: %v", err)
	}
}

// A process that drops what it has open and closes then has given the memory back.
func TestDropThenClose(t *testing.T) {
	ctx := context.Background()
	o := shm.Options{Name: "drop-close", Dir: t.TempDir(), Size: 64 << 20, Sparse: true}
	m := serve(t, o)
	defer m.Close()
	watch, c := opened(t, o.Name, o.Dir), opened(t, o.Name, o.Dir)
	ws := session(t, watch)
	before := freeBytes(t, watch, ws)
	if _, err := c.Store(ctx, "s", declock.StoreConfig{Objects: 1000}); err != nil {
		t.Fatal(err)
	}
	if err := c.DropStore(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if free := freeBytes(t, watch, ws); free != before {
		t.Errorf("%d of %d bytes are free", free, before)
	}
}
