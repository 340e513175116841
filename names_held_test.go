package declock

import (
	"errors"
	"testing"
	"time"
)

// A name that is unlocked after the recorder has found it, and before it comes to it, is removed once: others stay.
func TestNameIsRemovedOnce(t *testing.T) {
	c, ctx := openPools(t)
	x, err := c.Names(ctx, "names", 0)
	if err != nil {
		t.Fatal(err)
	}
	var guards []Guard
	for _, name := range []string{"a", "b", "c"} {
		g, err := x.Lock(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		guards = append(guards, g)
	}
	found := guards[0].h.named
	for i, g := range guards {
		if err := g.Unlock(); err != nil {
			t.Fatal(err)
		}
		c.held.keep(found)
		c.held.mu.Lock()
		left := len(c.held.all)
		c.held.mu.Unlock()
		if want := len(guards) - 1 - i; left != want {
			t.Fatalf("%d names are held after %d of %d were unlocked", left, i+1, len(guards))
		}
	}
}

// What has released a lock since it was looked up is not broken, whether another holds the lock by now or none.
func TestBreakLooksAgain(t *testing.T) {
	c, err := Open(t.Context(), "shm:")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	x, err := c.Names(t.Context(), "t", 0)
	if err != nil {
		t.Fatal(err)
	}
	lock := func() Guard {
		t.Helper()
		g, err := x.Lock(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g := lock()
	var list []Holder
	for len(list) == 0 {
		if list, err = x.holders(t.Context(), "n"); err != nil && !errors.Is(err, ErrNotHeld) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	confirm := func(what string, want error) {
		t.Helper()
		if still, err := x.confirm(t.Context(), "n", list); !errors.Is(err, want) || want == nil && len(still) != 1 {
			t.Errorf("%s: %+v, %v", what, still, err)
		}
	}
	confirm("held", nil)
	if err := g.Unlock(); err != nil {
		t.Fatal(err)
	}
	confirm("free", ErrNotHeld)
	g = lock()
	confirm("another grant", ErrNotHeld)
	if err := g.Unlock(); err != nil {
		t.Fatal(err)
	}
}
