package declock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/objstore"
	"github.com/declock/declock/region"
)

// Stores, trees and locks are dropped by name; who has them open hears of it within some seconds, and the names can be used again.
func TestDrop(t *testing.T) {
	ctx := context.Background()
	c, err := declock.Open(ctx, "shm:")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	st, err := c.Store(ctx, "s", objstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cache, err := st.Client(s)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := c.Tree(ctx, "t", btree.Config{})
	if err != nil {
		t.Fatal(err)
	}
	users, err := tr.Client(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Locks(ctx, "l", 10); err != nil {
		t.Fatal(err)
	}
	for _, drop := range []func() error{
		func() error { return c.DropStore(ctx, "s") }, func() error { return c.DropTree(ctx, "t") }, func() error { return c.DropLocks(ctx, "l") },
	} {
		if err := drop(); err != nil {
			t.Fatal(err)
		}
		if err := drop(); !errors.Is(err, region.ErrNotFound) {
			t.Fatalf("dropped twice: %v", err)
		}
	}
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		serr, terr := cache.Set([]byte("k"), []byte("v"), objstore.Options{}), users.Put([]byte("k"), []byte("v"))
		if errors.Is(serr, objstore.ErrDropped) && errors.Is(terr, btree.ErrDropped) {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("nobody has told: %v, %v", serr, terr)
		}
	}
	if st, err = c.Store(ctx, "s", objstore.Config{}); err != nil {
		t.Fatal(err)
	}
	if cache, err = st.Client(s); err != nil {
		t.Fatal(err)
	}
	if err := cache.Set([]byte("k"), []byte("v"), objstore.Options{}); err != nil {
		t.Fatal(err)
	}
}

// Locks that have been dropped are refused, and do not become those that have their name next, whoever has dropped them.
func TestDroppedLocksAreRefused(t *testing.T) {
	ctx := context.Background()
	cs := cluster(t, 2)
	for _, by := range cs {
		s := session(t, cs[0])
		old, err := cs[0].Locks(ctx, "l", 3)
		if err != nil {
			t.Fatal(err)
		}
		g, err := s.Lock(ctx, old.At(0))
		if err != nil {
			t.Fatal(err)
		}
		if err := by.DropLocks(ctx, "l"); err != nil {
			t.Fatal(err)
		}
		next, err := cs[0].Locks(ctx, "l", 3)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Lock(ctx, old.At(1)); !errors.Is(err, declock.ErrDropped) {
			t.Fatalf("a lock that was dropped: %v", err)
		}
		if old.At(0) == next.At(0) || old.At(0).Addr() == next.At(0).Addr() {
			t.Fatal("the locks that were dropped have become others")
		}
		other, err := s.TryLock(next.At(0))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(g.Unlock(), other.Unlock()); err != nil {
			t.Fatal(err)
		}
	}
}
