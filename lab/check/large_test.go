package check

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric/sim"
)

// Stores in which most values have segments, under the faults of other classes of stores.
func TestStoreLarge(t *testing.T) {
	runs := *flagSeeds
	u := seedsOf(t, StoreLarge, runs)
	hasEffects(t, u, sim.Promotions, sim.Kills, sim.Stale)
	if u.Grants < uint64(10*runs) {
		t.Errorf("%d operations: that is too little", u.Grants)
	}
	t.Logf("%d operations, %v", u.Grants, &u.Effects)
}

// A compute node crashes at each operation boundary while it and another store, read and delete values in segments.
func TestStoreLargeEverywhere(t *testing.T) {
	runs := 0
	for seed := range 3 {
		line := fmt.Sprintf("gen=%s class=storelarge seed=%d cns=2 clients=1 mns=2 policy=declock cap=3 ver=27 nic=cx4 scale=100 grain=8 "+
			"rounds=12 keys=2 values=1500 segment=256 recheck=500000 reset=10000000 detect=20000 late=draw news=%d", generator, seed+1, 3000*(seed%2))
		s, err := ParseScenario(line)
		if err != nil {
			t.Fatal(err)
		}
		stride := strideOf(17)
		e := faultsEverywhere{Base: s, Faults: []sim.Fault{killOf(1)}, Stride: stride, From: seed % stride}
		if err := e.Run(); err != nil {
			t.Fatal(err)
		}
		for _, f := range e.Failures {
			t.Errorf("%v", f)
		}
		runs += e.Runs
	}
	if t.Logf("%d runs", runs); runs < 20 {
		t.Error("that is too few")
	}
}
