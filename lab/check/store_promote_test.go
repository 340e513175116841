package check

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// Stores on memory nodes that are replicated and end.
func TestStorePromote(t *testing.T) {
	runs := *flagSeeds
	u := seedsOf(t, StorePromote, runs)
	hasEffects(t, u, sim.Promotions, sim.Restarts, sim.Kills, sim.Stale)
	if u.Grants < uint64(10*runs) || u.Evicted == 0 || u.Expired == 0 {
		t.Errorf("%d operations, %d objects evicted, %d expired: that is too little", u.Grants, u.Evicted, u.Expired)
	}
}

func endOf(mn int, kind sim.FaultKind) sim.Fault {
	return sim.Fault{Kind: kind, Node: sim.OfMN(fabric.MemID(mn)), Until: 200 * fabric.Microsecond}
}

// A memory node ends at every operation boundary of clients that do all that there is to do with objects, and does not come back with its memory: the primary, a backup, or one after
// the other, and a compute node that crashes before. Histories are linearizable: what was acknowledged is there.
func TestStorePromoteEverywhere(t *testing.T) {
	gone, kept := sim.FaultRestart, sim.FaultReboot
	for _, x := range []struct {
		name   string
		copies int
		faults []sim.Fault
		stride int
	}{
		{"primary", 2, []sim.Fault{endOf(0, gone)}, 13},
		{"backup", 2, []sim.Fault{endOf(1, gone)}, 13},
		{"primary of three", 3, []sim.Fault{endOf(0, gone)}, 19},
		{"first of two backups", 3, []sim.Fault{endOf(1, gone)}, 23},
		{"last of two backups", 3, []sim.Fault{endOf(2, gone)}, 29},
		{"primary, then the next", 3, []sim.Fault{endOf(0, gone), endOf(1, gone)}, 151},
		{"backup, then primary", 3, []sim.Fault{endOf(2, gone), endOf(0, gone)}, 151},
		{"backup that comes back, then primary", 2, []sim.Fault{endOf(1, kept), endOf(0, kept)}, 101},
		{"writer, then primary", 2, []sim.Fault{killOf(1), endOf(0, gone)}, 101},
		{"writer, then primary of three, then the next", 3, []sim.Fault{killOf(1), endOf(0, gone), endOf(1, gone)}, 401},
	} {
		t.Run(x.name, func(t *testing.T) {
			stride := strideOf(x.stride)
			runs, failed := 0, 0
			for seed := range 3 {
				line := fmt.Sprintf("gen=%s class=storepromote seed=%d cns=2 clients=1 mns=1 copies=%d spares=%d policy=declock cap=3 ver=27 nic=cx4 scale=100 grain=8 "+
					"rounds=12 keys=2 values=100 recheck=500000 reset=10000000 detect=20000 late=draw news=%d", generator, seed+1, x.copies, x.copies-1, 3000*(seed%2))
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
				failed += e.Failed
			}
			t.Logf("%d runs, %d operations failed", runs, failed)
			if len(x.faults) == 1 && failed*10 > runs { // others outlast it: their callers see a wait
				t.Error("that is too many")
			}
			if runs < 20 {
				t.Error("that is too few")
			}
		})
	}
}
