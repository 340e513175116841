package check

import (
	"context"
	"testing"

	"github.com/declock/declock/fabric/sim"
)

// Stores on memory nodes that are replicated and end, and to whose new backups what they have is copied.
func TestStoreRepair(t *testing.T) {
	runs := 300
	if testing.Short() {
		runs = 60
	}
	u, err := Faults(context.Background(), Options{Classes: []Class{StoreRepair}, First: *flagFirst, Runs: runs, Keep: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range u.Failures {
		t.Errorf("%v", f)
	}
	for _, e := range []sim.FaultEffect{sim.Promotions, sim.Restarts, sim.Kills, sim.Stale} {
		if u.Effects[e] == 0 {
			t.Errorf("no %v in %d runs", e, u.Runs)
		}
	}
	if u.Grants < uint64(10*runs) || u.Copied < uint64(2*runs) {
		t.Errorf("%d operations, %d backups have come in sync: that is too little", u.Grants, u.Copied)
	}
	t.Logf("%d operations, %d backups have come in sync, %v", u.Grants, u.Copied, &u.Effects)
}
