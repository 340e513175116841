package check

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric/sim"
)

// Trees on memory nodes that are replicated and end.
func TestTreePromote(t *testing.T) {
	runs := *flagSeeds
	u := seedsOf(t, TreePromote, runs)
	hasEffects(t, u, sim.Promotions, sim.Restarts, sim.Kills, sim.Stale)
	if u.Grants < uint64(10*runs) {
		t.Errorf("%d operations: that is too little", u.Grants)
	}
}

// Trees on memory nodes that are replicated and end, and to whose new backups what they have is copied.
func TestTreeRepair(t *testing.T) {
	runs := *flagSeeds
	u := seedsOf(t, TreeRepair, runs)
	if u.Grants < uint64(10*runs) || u.Copied < uint64(runs) || u.Effects[sim.Promotions] == 0 {
		t.Errorf("%d operations, %d backups have come in sync, %v: that is too little", u.Grants, u.Copied, &u.Effects)
	}
	t.Logf("%d operations, %d backups have come in sync", u.Grants, u.Copied)
}

// A memory node ends at every operation boundary of clients of a tree of small nodes, which are split and unlinked all the time, and does not come back with its memory: the primary, a backup, or
// one after the other, and a compute node that crashes before. Histories are linearizable: what was acknowledged is there.
func TestTreePromoteEverywhere(t *testing.T) {
	gone, kept := sim.FaultRestart, sim.FaultReboot
	for _, x := range []struct {
		name        string
		mns, copies int
		faults      []sim.Fault
		stride      int
	}{
		{"primary", 1, 2, []sim.Fault{endOf(0, gone)}, 17},
		{"primary of two numbers", 2, 2, []sim.Fault{endOf(0, gone)}, 29},
		{"backup", 1, 2, []sim.Fault{endOf(1, gone)}, 29},
		{"primary of three", 1, 3, []sim.Fault{endOf(0, gone)}, 37},
		{"first of two backups", 1, 3, []sim.Fault{endOf(1, gone)}, 37},
		{"primary, then the next", 1, 3, []sim.Fault{endOf(0, gone), endOf(1, gone)}, 241},
		{"backup that comes back, then primary", 1, 2, []sim.Fault{endOf(1, kept), endOf(0, kept)}, 171},
		{"writer, then primary", 1, 2, []sim.Fault{killOf(1), endOf(0, gone)}, 151},
		{"writer, then primary of two numbers", 2, 2, []sim.Fault{killOf(1), endOf(1, gone)}, 211},
	} {
		t.Run(x.name, func(t *testing.T) {
			stride := strideOf(x.stride)
			runs, failed := 0, 0
			for seed := range 3 {
				line := fmt.Sprintf("gen=%s class=treepromote seed=%d cns=2 clients=1 mns=%d copies=%d spares=%d policy=declock cap=3 ver=27 nic=cx4 scale=100 grain=8 "+
					"rounds=24 tree=1 keys=8 values=%d recheck=500000 reset=10000000 detect=20000 late=draw news=%d", generator, seed+1, x.mns, x.copies, x.copies-1, 100*(seed%2), 3000*(seed%2))
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
			if len(x.faults) == 1 && failed*4 > runs { // those with a chain to the backup under way that is promoted
				t.Error("that is too many")
			}
			if runs < 20 {
				t.Error("that is too few")
			}
		})
	}
}

// A new backup is copied to while the primary, the new backup, or the compute node that copies ends at each operation boundary, and the primary after that. No memory node comes back with its
// memory.
func TestTreeRepairEverywhere(t *testing.T) {
	gone := sim.FaultRestart
	for _, x := range []struct {
		name   string
		mns    int
		faults []sim.Fault
		stride int
	}{
		{"backup, then primary", 1, []sim.Fault{endOf(1, gone), endOf(0, gone)}, 301},
		{"backup, then primary of two numbers", 2, []sim.Fault{endOf(2, gone), endOf(0, gone)}, 601},
		{"backup, then who copies, then primary", 1, []sim.Fault{endOf(1, gone), killOf(1), endOf(0, gone)}, 801},
	} {
		t.Run(x.name, func(t *testing.T) {
			stride := strideOf(x.stride)
			runs, copied := 0, uint64(0)
			for seed := range 3 {
				line := fmt.Sprintf("gen=%s class=treerepair seed=%d cns=2 clients=1 mns=%d copies=2 spares=2 repair=1 policy=declock cap=3 ver=27 nic=cx4 scale=100 grain=8 "+
					"rounds=40 tree=1 keys=12 values=300 recheck=500000 reset=10000000 detect=20000 late=draw news=%d", generator, seed+1, x.mns, 3000*(seed%2))
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
