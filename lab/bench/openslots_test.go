package bench

import (
	"context"
	"testing"
)

// With open slots most sets take no lock, whatever lock that is, and take one chain: fewer operations, in less time.
func TestOpenSlotsOpen(t *testing.T) {
	for _, name := range openLocks {
		var of [2]Metrics
		for i := range of {
			m := Default(name)
			m.NIC, m.Clients, m.CNs = DefaultNIC, 16, 2
			r := openRun{sets: 50, skew: 0.99, open: i == 1, keys: 200, m: m.WithDefaults()}
			r.m.Seed = 1
			var err error
			if of[i], err = r.run(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		if without, with := of[0], of[1]; without["without_pct"] > 0 || with["without_pct"] < 80 || with["mops"] < 1.1*without["mops"] || with["set_p50_us"] > 0.7*without["set_p50_us"] {
			t.Errorf("%s: without %v\nwith %v", name, without, with)
		}
	}
}
