package declock

import "testing"

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
