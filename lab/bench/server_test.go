package bench

import (
	"context"
	"testing"

	"github.com/declock/declock/fabric"
)

// A server has one posting core: more than 8 workers bring nothing. A server on each node is bounded by the workers of all.
func TestManagersScale(t *testing.T) {
	mops := func(name string) float64 {
		r, m := dslrTxn(name, 8, 10)
		r.m, r.trace = m.WithDefaults(), "zipf"
		r.m.Theta, r.m.Locks, r.m.Clients, r.m.Seed, r.m.WarmupNs, r.m.WindowNs = 0, 100_000, 256, 1, fabric.Millisecond, 4*fabric.Millisecond
		got, err := r.run(context.Background(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return got["mops"]
	}
	// A lock and its release are two requests of 1 us each.
	one, few, many, each := mops("server:1"), mops("server:8"), mops("server:64"), mops(manager)
	if one < 0.45 || one > 0.51 || few < 7*one || many > few || each < 3*many {
		t.Errorf("M transactions/s: %v with one worker, %v with 8, %v with 64, %v with a server of 4 on each of 8 nodes", one, few, many, each)
	}
}
