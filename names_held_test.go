package declock

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock/lock"
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
	found.since = found.since.Add(-time.Hour) // it is due
	for i, g := range guards {
		if err := g.Unlock(); err != nil {
			t.Fatal(err)
		}
		c.held.keep(found)
		if found.key != nil {
			t.Fatal("a name that is unlocked is recorded")
		}
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
	acquire := func() Guard {
		t.Helper()
		g, err := x.Lock(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g := acquire()
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
	g = acquire()
	confirm("another grant", ErrNotHeld)
	if err := g.Unlock(); err != nil {
		t.Fatal(err)
	}
	g, list = acquire(), nil
	for len(list) == 0 {
		if list, err = x.holders(t.Context(), "n"); err != nil && !errors.Is(err, ErrNotHeld) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	// It unlocks the name, and cannot remove its record.
	n, h := g.h.named, &c.held
	n.mu.Lock()
	key := n.key
	n.key = nil
	n.mu.Unlock()
	if err := g.Unlock(); err != nil {
		t.Fatal(err)
	}
	g = acquire()
	n.mu.Lock()
	n.key = key
	n.mu.Unlock()
	h.mu.Lock()
	n.at = len(h.all)
	h.all = append(h.all, n)
	h.mu.Unlock()
	confirm("a record that could not be removed", ErrNotHeld)
	if err := g.Unlock(); err != nil {
		t.Fatal(err)
	}
}

// Of several records of an exclusive lock the one with the greatest token counts: the others are of grants that were lost, and are not unlocked yet.
func TestHolderOfTheLastGrant(t *testing.T) {
	c, ctx := openPools(t)
	x, err := c.Names(ctx, "names", 0)
	if err != nil {
		t.Fatal(err)
	}
	st, err := x.records(ctx)
	if err != nil {
		t.Fatal(err)
	}
	print := printOf("n")
	for _, token := range []lock.Token{7, 9, 8} {
		b, err := json.Marshal(record{Name: "n", Mode: Exclusive, Node: c.node.Fabric().ID(), Incarnation: c.held.incarnation, Token: token})
		if err == nil {
			err = st.Set(ctx, append(print[:printSize:printSize], byte(token)), b, SetOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if list, err := x.holders(ctx, "n"); err != nil || len(list) != 1 || list[0].Token != 9 {
		t.Errorf("%+v, %v", list, err)
	}
}

// What has lost a lock has no record any more, before it is unlocked: others may hold it.
func TestHolderOfALostLock(t *testing.T) {
	c, ctx := openPools(t)
	x, err := c.Names(ctx, "names", 0)
	if err != nil {
		t.Fatal(err)
	}
	g, err := x.Lock(ctx, "n")
	if err != nil {
		t.Fatal(err)
	}
	n := g.h.named
	if c.held.keep(n); !n.recorded {
		t.Fatal("no record")
	}
	lost := make(chan struct{})
	close(lost)
	n.mu.Lock()
	n.lost = lost
	n.mu.Unlock()
	c.held.keep(n)
	if list, err := x.holders(ctx, "n"); !errors.Is(err, ErrNotHeld) {
		t.Errorf("%+v, %v", list, err)
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
}
