package btree

import (
	"math"
	"testing"

	"github.com/declock/declock/fabric/sim"
)

// estimates compares estimates of a tree with what it has: each is within 4 of its standard errors, the whole of them on average within less than 2,
// and the standard errors are small. The seed is fixed, so is the outcome.
func estimates(t *testing.T, c *Client, what string, keys int, worst float64) {
	t.Helper()
	const runs = 50
	var sum float64
	for range runs {
		e, err := c.Estimate(0)
		wantErr(t, what, err, nil)
		off := math.Abs(float64(e.Count) - float64(keys))
		if e.Error == 0 || float64(e.Error) > worst*float64(keys) || off > 4*float64(e.Error) {
			t.Fatalf("%s: %d keys, give or take %d, of %d", what, e.Count, e.Error, keys)
		}
		sum += off / float64(e.Error)
	}
	t.Logf("%s: off by %.2f standard errors on average", what, sum/runs)
	if sum/runs > 1.5 { // of a normal distribution 0.8
		t.Errorf("%s: off by %.2f standard errors on average", what, sum/runs)
	}
}

func TestEstimateCount(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal(), Seed: 7}, 1, 64<<20, 1)
	c := w.client(0, w.open(0, w.config()))
	const keys = 20000
	exactly := func(what string, n uint64) {
		t.Helper()
		e, err := c.Estimate(0)
		if err != nil || e != (Estimate{Count: n}) {
			t.Errorf("%s: %+v, %v; want %d", what, e, err, n)
		}
	}
	exactly("empty", 0)
	wantErr(t, "put", c.Put(keyOf(1), nil), nil)
	exactly("one", 1)
	wantErr(t, "delete", c.Delete(keyOf(1)), nil)
	wantErr(t, "load", c.BulkLoad(pairsOf(keys), BulkOptions{}), nil)
	estimates(t, c, "loaded", keys, 0.1)
	// Of the first half one key in ten is left: half of the leaves have one or two.
	for i := range keys / 2 {
		if i%10 != 0 {
			wantErr(t, "delete", c.Delete(keyOf(i)), nil)
		}
	}
	estimates(t, c, "sparse", keys*11/20, 0.1)
	// All but one in a hundred of the rest: most leaves are gone.
	left := 0
	for i := range keys {
		if i%100 == 0 {
			left++
		} else if err := c.Delete(keyOf(i)); err != nil && err != ErrNotFound {
			t.Fatal(err)
		}
	}
	estimates(t, c, "few left", left, 0.15)
	e, err := c.Estimate(1 << 20)
	if err != nil || e.Count != uint64(left) {
		t.Errorf("%d left, all read: %d, %v", left, e.Count, err)
	}
}
