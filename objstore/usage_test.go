package objstore

import (
	"testing"

	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/memory"
)

// What a store has in use goes up and down with its objects, while the memory it has taken only grows; a sample comes near it.
func TestEstimate(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 64<<20, 1)
	cfg := w.config()
	cfg.Objects = 8000
	c := w.client(0, w.open(0, cfg))
	port := w.port(0)
	estimate := func(sample uint64) (sum Usage) {
		t.Helper()
		for _, mn := range w.mns {
			r, err := memory.Open(port, mn)
			if err != nil {
				t.Fatal(err)
			}
			e, err := r.Lookup(port, cfg.Name, memory.KindStore)
			if err != nil {
				t.Fatal(err)
			}
			u, err := Estimate(port, r, &e, sample)
			if err != nil {
				t.Fatal(err)
			}
			buckets, _ := c.s.Buckets()
			if few := u.Items <= 5; u.Exact != (few || sample >= buckets) {
				t.Errorf("exact is %v for %d of %d buckets, %d objects", u.Exact, sample, buckets, u.Items)
			}
			sum.Items, sum.Bytes = sum.Items+u.Items, sum.Bytes+u.Bytes
		}
		return sum
	}
	if u := estimate(1 << 30); u.Items != 0 || u.Bytes != 0 {
		t.Errorf("an empty store: %+v", u)
	}
	const n = 12_000 // more than it was made for: some buckets overflow
	value := make([]byte, 300)
	for i := range n {
		wantErr(t, "set", c.Set(keyOf(i), value, Options{}), nil)
	}
	object := uint64(headerSize + len(keyOf(0)) + len(value))
	all := estimate(1 << 30)
	if all.Items != n || all.Bytes < n*object || all.Bytes > n*(object+64) {
		t.Errorf("%d objects of %d bytes: %+v", n, object, all)
	}
	for range 20 {
		if u := estimate(100); u.Items < n*7/10 || u.Items > n*13/10 {
			t.Errorf("from a sample: %+v", u)
		}
	}
	for i := range n - 5 {
		wantErr(t, "delete", c.Delete(keyOf(i)), nil)
	}
	for _, sample := range []uint64{1 << 30, 100} { // a sample of 100 is too small for so few
		if u := estimate(sample); u.Items != 5 {
			t.Errorf("5 objects are left: %+v", u)
		}
	}
}
