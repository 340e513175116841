package check

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric/sim"
)

// Stores on memory nodes that are replicated and end, and to whose new backups what they have is copied.
func TestStoreRepair(t *testing.T) {
	runs := *flagSeeds
	u := seedsOf(t, StoreRepair, runs)
	hasEffects(t, u, sim.Promotions, sim.Restarts, sim.Kills, sim.Stale)
	if u.Grants < uint64(10*runs) || u.Copied < uint64(runs) {
		t.Errorf("%d operations, %d backups have come in sync: that is too little", u.Grants, u.Copied)
	}
	t.Logf("%d operations, %d backups have come in sync, %v", u.Grants, u.Copied, &u.Effects)
}

// A new backup is copied to while the primary, the new backup, or the compute node that copies ends at each operation boundary, and the primary after that: before, in the middle
// of, or behind the copy. No memory node comes back with its memory.
func TestStoreRepairEverywhere(t *testing.T) {
	gone := sim.FaultRestart
	for _, x := range []struct {
		name   string
		copies int
		faults []sim.Fault
		stride int
	}{
		{"backup, then primary", 2, []sim.Fault{endOf(1, gone), endOf(0, gone)}, 211},
		{"backup, then the new one, then primary", 2, []sim.Fault{endOf(1, gone), endOf(2, gone), endOf(0, gone)}, 401},
		{"backup, then who copies, then primary", 2, []sim.Fault{endOf(1, gone), killOf(1), endOf(0, gone)}, 401},
		{"primary, who copies, then the next", 3, []sim.Fault{endOf(0, gone), killOf(1), endOf(1, gone)}, 601},
	} {
		t.Run(x.name, func(t *testing.T) {
			stride := strideOf(x.stride)
			runs, copied := 0, uint64(0)
			for seed := range 3 {
				line := fmt.Sprintf("gen=%s class=storerepair seed=%d cns=2 clients=1 mns=1 copies=%d spares=%d repair=1 policy=declock cap=3 ver=27 nic=cx4 scale=100 grain=8 "+
					"rounds=40 keys=12 values=300 recheck=500000 reset=10000000 detect=20000 late=draw news=%d", generator, seed+1, x.copies, x.copies, 3000*(seed%2))
				s, err := ParseScenario(line)
				if err != nil {
					t.Fatal(err)
				}
				e := faultsEverywhere{Base: s, Faults: x.faults, Stride: stride, From: seed % stride}
				if err := e.Run(); err != nil {
					t.Fatal(err)
				}
				for _, f := range e.Failures {
					t.Errorf("%v", f)
				}
				runs += e.Runs
				copied += e.Copied
			}
			t.Logf("%d runs, %d backups have come in sync", runs, copied)
			if runs < 20 || copied < uint64(runs)/2 {
				t.Error("that is too few")
			}
		})
	}
}
