package declock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
)

// Stores, trees and locks are dropped by name; those that have them open hear of it within some seconds, and the names can be used again.
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
	st, err := c.Store(ctx, "s", declock.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	cache, err := st.Client(s)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := c.Tree(ctx, "t", declock.TreeConfig{})
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
		if err := drop(); !errors.Is(err, memory.ErrNotFound) {
			t.Fatalf("dropped twice: %v", err)
		}
	}
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		serr, terr := cache.Set([]byte("k"), []byte("v"), objstore.Options{}), users.Put([]byte("k"), []byte("v"))
		if errors.Is(serr, objstore.ErrDropped) && errors.Is(terr, btree.ErrDropped) {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("not notified: %v, %v", serr, terr)
		}
	}
	if st, err = c.Store(ctx, "s", declock.StoreConfig{}); err != nil {
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

// The memory of locks that have been dropped is that of the next that are as many, unless one of them is held. Who uses the dropped ones still excludes those who use the new.
func TestMemoryOfDroppedLocksIsUsedAgain(t *testing.T) {
	ctx := context.Background()
	cs := cluster(t, 2)
	s, other := session(t, cs[0]), session(t, cs[1])
	locks := func(name string) *declock.Locks {
		t.Helper()
		l, err := cs[0].Locks(ctx, name, 5000)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := locks("l0")
	theirs, err := cs[1].Locks(ctx, "l0", 5000)
	if err != nil {
		t.Fatal(err)
	}
	free := freeBytes(t, cs[0], s)
	for i := range 20 {
		if err := cs[0].DropLocks(ctx, fmt.Sprint("l", i)); err != nil {
			t.Fatal(err)
		}
		next := locks(fmt.Sprint("l", i+1))
		if next.At(7).Addr() != first.At(7).Addr() || next.At(7) == first.At(7) {
			t.Fatalf("locks at %v, dropped ones at %v", next.At(7), first.At(7))
		}
		g, err := s.Lock(ctx, next.At(7))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.TryLock(theirs.At(7)); !errors.Is(err, lock.ErrBusy) { // it has not been notified
			t.Errorf("a lock that is held by its new name: %v", err)
		}
		if err := g.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	if got := freeBytes(t, cs[0], s); got != free {
		t.Errorf("%d bytes are free, %d before", got, free)
	}
	g, err := other.Lock(ctx, theirs.At(8))
	if err != nil {
		t.Fatal(err)
	}
	if err := cs[0].DropLocks(ctx, "l20"); err != nil {
		t.Fatal(err)
	}
	if next := locks("l21"); next.At(7).Addr() == first.At(7).Addr() {
		t.Error("memory is used again of which a lock is held")
	}
	if err := g.Unlock(); err != nil {
		t.Fatal(err)
	}
}
