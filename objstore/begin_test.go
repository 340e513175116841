package objstore

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// 256 clients of 16 compute nodes begin at once on an empty store, with objects of about 9 KB. Each compute node needs chunks of each size.
func TestManyBeginAtOnce(t *testing.T) {
	const cns, each, sets = 16, 16, 8
	w := newWorld(t, sim.Config{Seed: 1, NIC: sim.CX4()}, 1, 256<<20, cns)
	cfg := w.config()
	cfg.Objects = 40_000
	var all []*Client
	for cn := range cns {
		s := w.open(cn, cfg)
		for range each {
			all = append(all, w.client(cn, s))
		}
	}
	began, before := w.c.Now(), uint64(0)
	for i, c := range all {
		before += c.port.Stats().Total()
		w.c.GoOn(c.port, "begin", func(fabric.Port) {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for k := range sets {
				size := min(int(9213*math.Exp(r.NormFloat64()/2)), 100_000)
				wantErr(t, "set", c.Set(keyOf(i*sets+k), make([]byte, size), Options{}), nil)
			}
		})
	}
	wantErr(t, "run", w.c.Run(), nil)
	took, ops, runs := w.c.Now()-began, -before, uint64(0)
	for _, c := range all {
		ops += c.port.Stats().Total()
		runs += c.Stats().Extents
	}
	t.Logf("%d us, %d operations a set, %d runs of pages", took/fabric.Microsecond, ops/cns/each/sets, runs)
	if took > 20*fabric.Millisecond || ops > 60*cns*each*sets {
		t.Errorf("%d sets took %d us and %d operations", cns*each*sets, took/fabric.Microsecond, ops)
	}
	if r := mustBeSound(t, all[0]); r.Nodes[0].Extents != runs {
		t.Errorf("%d runs were taken, %d are there", runs, r.Nodes[0].Extents)
	}
}
