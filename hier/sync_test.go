package hier_test

import (
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
)

// spread returns how far the clocks of all nodes are apart, in microseconds.
func (r *rig) spread() int {
	lo, hi := 0, 0
	stamp := func(i int) uint16 { return uint16(r.clocks[i].Stamp(r.nodes[i].Agent().Now())) }
	for i := range r.nodes {
		d := int(int16(stamp(i) - stamp(0)))
		lo, hi = min(lo, d), max(hi, d)
	}
	return hi - lo
}

// everySecond is what users have: rounds that are much rarer than a node waits for.
func everySecond(r *rig) {
	r.sync = hier.SyncConfig{IntervalNs: fabric.Second}
	r.simcfg.Clocks = []sim.Clock{{Drift: 20_000}, {Offset: 5 * ms}, {Offset: fabric.Second / 3, Drift: -20_000}, {Offset: 17 * ms}, {Offset: 1 << 50, Drift: 1000}}
}

// Agents keep the clocks together: also when a node joins at any moment between two
// rounds, was away for a while, or dies in the middle of a round.
func TestAgentsKeepClocksTogether(t *testing.T) {
	for seed := range uint64(4) {
		r := newRig(t, seed, 3, "declock-tf", cql.Layout{CapacityBits: 3, VersionBits: 16}, everySecond)
		p, _ := hier.ParsePolicy("declock-tf")
		step := func(what string, until fabric.Time) {
			t.Helper()
			if err := r.c.RunUntil(until); err != nil {
				t.Fatal(err)
			}
			// Two drift apart by 40 us in a second.
			if d := r.spread(); d > 60 {
				t.Errorf("seed %d, %s: clocks are %d us apart", seed, what, d)
			}
		}
		step("after the start", 4*fabric.Second)
		r.c.At(4*fabric.Second+fabric.Time(seed)*237*ms, func() { r.addNode(p) })
		step("after a node joined", 8*fabric.Second)
		r.c.At(8*fabric.Second+fabric.Time(seed)*111*ms, func() { r.c.Pause(r.nodes[1]) })
		if err := r.c.RunUntil(12 * fabric.Second); err != nil {
			t.Fatal(err)
		}
		r.c.Resume(r.nodes[1])
		step("after a node was away", 16*fabric.Second)
		before := r.clocks[0].Rounds()
		step("at rest", 26*fabric.Second)
		if n := r.clocks[0].Rounds() - before; n < 8 || n > 12 {
			t.Errorf("seed %d: %d rounds in 10 s", seed, n)
		}
		r.c.At(26*fabric.Second+fabric.Time(seed)*99*ms, func() { r.c.Kill(r.nodes[2]) })
		if err := r.c.RunUntil(32 * fabric.Second); err != nil {
			t.Fatal(err)
		}
		r.nodes = append(r.nodes[:2], r.nodes[3])
		r.clocks = append(r.clocks[:2], r.clocks[3])
		step("after a node died", 33*fabric.Second)
	}
}
