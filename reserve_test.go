package declock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/objstore"
)

// A cache fills the memory. Locks, a tree and a store with the default sizes can be made all the same, and used.
func TestAFullCacheLeavesRoom(t *testing.T) {
	ctx := context.Background()
	c, err := declock.Open(ctx, "shm:")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := session(t, c)
	use := func(name string, n, size int) {
		t.Helper()
		st, err := c.Store(ctx, name, declock.StoreConfig{})
		if err != nil {
			t.Fatal(err)
		}
		k, err := st.Client(s)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if err := k.Set(fmt.Append(nil, i), make([]byte, size), objstore.Options{}); err != nil {
				t.Fatalf("%s: set %d: %v", name, i, err)
			}
		}
	}
	use("big", 3000, 100_000)
	if _, err := c.Locks(ctx, "l", 10_000); err != nil {
		t.Fatal(err)
	}
	tr, err := c.Tree(ctx, "t", declock.TreeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	k, err := tr.Client(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(k.Put([]byte("k"), []byte("v"))); err != nil {
		t.Fatal(err)
	}
	use("small", 10, 100)
}

// A tree fills the memory. Locks, another tree and a store can be made all the same, and used.
func TestAFullTreeLeavesRoom(t *testing.T) {
	ctx := context.Background()
	c, err := declock.Open(ctx, "shm:", declock.WithMemory(32<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := session(t, c)
	tree := func(name string) *btree.Client {
		t.Helper()
		tr, err := c.Tree(ctx, name, declock.TreeConfig{})
		if err != nil {
			t.Fatal(err)
		}
		k, err := tr.Client(s)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	big := tree("big")
	for i := 0; err == nil && i < 10_000; i++ {
		err = big.Put(fmt.Append(nil, i), make([]byte, 30_000))
	}
	if !errors.Is(err, btree.ErrNoSpace) {
		t.Fatal(err)
	}
	if _, err := c.Locks(ctx, "l", 1000); err != nil {
		t.Fatal(err)
	}
	if err := tree("small").Put([]byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	st, err := c.Store(ctx, "s", declock.StoreConfig{Objects: 100})
	if err != nil {
		t.Fatal(err)
	}
	cache, err := st.Client(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := cache.Set([]byte("k"), []byte("v"), objstore.Options{}); err != nil {
		t.Fatal(err)
	}
}
