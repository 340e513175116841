package check

import (
	"testing"

	"github.com/declock/declock/fabric/sim"
)

// Stores and trees that are dropped all the time beside one that stays, mostly on memory nodes that are replicated and end, and to whose new backups what they have is copied.
func TestDrops(t *testing.T) {
	runs := max(1, *flagSeeds/5) // what is dropped is let go after seconds: that takes more events than other classes
	u := seedsOf(t, Drops, runs)
	hasEffects(t, u, sim.Promotions, sim.Restarts, sim.Kills, sim.Stale)
	if u.Dropped < uint64(4*runs) || u.LetGo < uint64(10*runs) || u.Copied < uint64(runs)/4 {
		t.Errorf("%d dropped, let go %d times, %d backups have come in sync: that is too little", u.Dropped, u.LetGo, u.Copied)
	}
	t.Logf("%d operations, %d dropped, let go %d times, %d backups have come in sync, %v", u.Grants, u.Dropped, u.LetGo, u.Copied, &u.Effects)
}
