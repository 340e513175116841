package declock

import (
	"testing"
	"time"

	"github.com/declock/declock/lock"
)

// A client that has read which slot a name has, and begins to wait for it when another name has got it, does not wait for the holder of that, who may wait for what
// the client holds.
func TestNamesWaitForNoOtherName(t *testing.T) {
	c, ctx := openPools(t)
	x, err := c.Names(ctx, "names", 1)
	if err != nil {
		t.Fatal(err)
	}
	k := x.key("waited for")
	other, err := x.Lock(ctx, "another")
	if err != nil {
		t.Fatal(err)
	}
	if other.h.Lock != x.slot(&k, 0).Addr() {
		t.Fatal("the other name has another slot")
	}
	began := time.Now()
	if _, ok, err := x.enter(ctx, &k, 0, lock.Request{Mode: lock.Exclusive}); ok || err != nil {
		t.Errorf("entered: %v, %v", ok, err)
	}
	if d := time.Since(began); d > stallAfter {
		t.Errorf("after %v", d)
	}
	g, err := x.Lock(ctx, "waited for")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []Guard{g, other} {
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
	}
}
