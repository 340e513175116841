package bench

import (
	"context"
	"testing"
)

// All workloads run on all locks of the figures, small, and twice the same.
func TestIndex(t *testing.T) {
	for _, mix := range append(append([]Mix{}, ycsbMixes...), shermanMixes...) {
		for _, name := range registered(shermanLocks) {
			x := Index{Lock: name, Clients: 16, CNs: 2, Mix: mix, Theta: DefaultTheta, Seed: 3}.tiny()
			r, err := RunIndex(context.Background(), x)
			if err != nil {
				t.Fatalf("%s, %s: %v", mix.Name, name, err)
			}
			if r.Ops == 0 {
				t.Errorf("%s, %s: no operations", mix.Name, name)
			}
			if mix.Name == "A" {
				again, err := RunIndex(context.Background(), x)
				if err != nil || again.Ops != r.Ops || again.Ports != r.Ports {
					t.Errorf("%s, %s: %d operations, then %d, %v", mix.Name, name, r.Ops, again.Ops, err)
				}
			}
			if mix.Name == "C" && r.Metrics()["reads_per_op"] > 1.001 {
				t.Errorf("%s: %v READs per search", name, r.Metrics()["reads_per_op"])
			}
		}
	}
}

func TestIndexRefuses(t *testing.T) {
	good := Index{Lock: "cas", Clients: 4, CNs: 2, Mix: ycsbMixes[0]}
	for name, f := range map[string]func(*Index){
		"lock":    func(x *Index) { x.Lock = "none" },
		"clients": func(x *Index) { x.Clients = 1 },
		"mix":     func(x *Index) { x.Mix.Read = 3 },
		"keys":    func(x *Index) { x.KeySize = 4 },
		"nic":     func(x *Index) { x.NIC = "none" },
	} {
		x := good.tiny()
		f(&x)
		if _, err := RunIndex(context.Background(), x); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
