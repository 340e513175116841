package bench

import (
	"context"
	"maps"
	"testing"
)

func tinyIndex(lock string, mix Mix) Index {
	x := Options{Tiny: true, NIC: DefaultNIC}.index(Index{Lock: lock, Clients: 16, CNs: 2, Mix: mix})
	x.Seed = 3
	return x
}

// All workloads run on all locks of the figures, small, and twice the same.
func TestIndex(t *testing.T) {
	for _, mix := range append(append([]Mix{}, ycsbMixes...), shermanMixes...) {
		for _, name := range shermanLocks {
			x := tinyIndex(name, mix)
			m, err := runIndex(context.Background(), x)
			if err != nil {
				t.Fatalf("%s, %s: %v", mix.Name, name, err)
			}
			if m["mops"] == 0 {
				t.Errorf("%s, %s: no operations", mix.Name, name)
			}
			if mix.Name == "A" {
				again, err := runIndex(context.Background(), x)
				if err != nil || !maps.Equal(again, m) {
					t.Errorf("%s, %s: %v, then %v, %v", mix.Name, name, m, again, err)
				}
			}
			if mix.Name == "C" && m["reads_per_op"] > 1.001 {
				t.Errorf("%s: %v READs per search", name, m["reads_per_op"])
			}
		}
	}
}

func TestIndexRefuses(t *testing.T) {
	for name, f := range map[string]func(*Index){
		"lock": func(x *Index) { x.Lock = "none" },
		"keys": func(x *Index) { x.KeySize = 1 << 20 },
		"nic":  func(x *Index) { x.NIC = "none" },
	} {
		x := tinyIndex("cas", ycsbMixes[0])
		f(&x)
		if _, err := runIndex(context.Background(), x); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
