package check

import (
	"testing"

	"github.com/declock/declock/fabric/sim"
)

// Stores with slots that open, under the faults of other classes of stores.
func TestStoreOpen(t *testing.T) {
	runs := *flagSeeds
	u := seedsOf(t, StoreOpen, runs)
	hasEffects(t, u, sim.Kills, sim.Stale, sim.Broken)
	if u.Open < uint64(runs) {
		t.Errorf("%d sets without the lock: that is too little", u.Open)
	}
	t.Logf("%d operations, %d sets without the lock, %v", u.Grants, u.Open, &u.Effects)
}

// Sets and deletes of one key that a later client of the compute node does, under the faults of other classes of stores.
func TestStoreRuns(t *testing.T) {
	runs := *flagSeeds
	u := seedsOf(t, StoreRuns, runs)
	if u.Absorbed < uint64(runs) {
		t.Errorf("%d sets and deletes done by another client: that is too little", u.Absorbed)
	}
	t.Logf("%d operations, %d sets and deletes done by another client, %v", u.Grants, u.Absorbed, &u.Effects)
}
