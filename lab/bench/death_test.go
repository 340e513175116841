package bench

import (
	"context"
	"testing"

	"github.com/declock/declock/fabric"
)

// A reset signals nodes, not clients: its time does not grow with these (paper: from 83 to 521 us), and
// stays below 60 us.
func TestResetIsFlat(t *testing.T) {
	var few, many resetResult
	for clients, r := range map[int]*resetResult{32: &few, 256: &many} {
		var err error
		if *r, err = measureReset(1, "cx4", "declock", clients); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("32 clients: %+v, 256: %+v", few, many)
	if many.reset > 60*fabric.Microsecond || many.reset > few.reset*3/2 {
		t.Errorf("reset takes %d ns with 256 clients, %d with 32", many.reset, few.reset)
	}
}

// Throughput is back soon after a compute node has died, and after the memory node is back.
func TestThroughputComesBack(t *testing.T) {
	gap := 4 * fabric.Millisecond
	for _, w := range contentions {
		c, err := measureCourse(context.Background(), 1, "cx4", "declock", w.clients*courseCNs, gap)
		if err != nil {
			t.Fatal(err)
		}
		before, between, end := c.mean(c.slot, c.cnDies), c.mean(c.cnDies+detectNs, c.mnDies), c.mean(c.mnBack+2*c.slot, c.endsAt)
		if down := c.mean(c.mnDies+c.slot, c.mnBack); down != 0 || between < before/2 || end < between*3/4 {
			t.Errorf("%s contention: %.2f Mops, with a node less %.2f, without memory %.2f, then %.2f", w.name, before, between, down, end)
		}
	}
}
