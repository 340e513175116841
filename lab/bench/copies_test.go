package bench

import (
	"context"
	"testing"

	"github.com/declock/declock/fabric"
)

// A promoted copy serves when the coordinator has worked on the acknowledgements of all members, one after another; no set fails, and the same seed gives the same figures.
func TestFailoverWaitsForAcknowledgements(t *testing.T) {
	of := func(acks acksModel) Metrics {
		t.Helper()
		r := copiesRun{nic: "cx4", seed: 1, copies: 2, numbers: 1, cns: 9, clients: 9, keys: 500, acks: acks}
		m, err := r.failover(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if m["failed"] > 0 || m["median_ms"] < m["served_ms"] || m["max_ms"] < m["median_ms"] {
			t.Errorf("%s: %v", acks.name, m)
		}
		return m
	}
	slow := acksModel{name: "slow", each: fabric.Millisecond}
	free, work := of(acksFree)["served_ms"], of(slow)["served_ms"]
	if members := float64(9 + copiesMNs - 1); work < 10+members || work > free+members+2 || free < 10 || free > 13 {
		t.Errorf("served after %g ms, with 1 ms of work on each of %g acknowledgements after %g", free, members, work)
	}
	if again := of(slow)["served_ms"]; again != work {
		t.Errorf("%g, then %g", work, again)
	}
}
