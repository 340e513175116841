package sim_test

import (
	"testing"
	"time"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

func TestAdhoc(t *testing.T) {
	big := cql.Layout{CapacityBits: 3, VersionBits: 16}
	tiny := cql.Layout{CapacityBits: 2, VersionBits: 2}
	wall := 20 * time.Second
	try := func(what string, l locking, cfg sim.ExploreConfig) {
		cfg.FairPolls = true
		cfg.MaxWall = wall
		r := sim.Explore(cfg, l.build)
		t.Logf("%s: %v", what, r)
	}
	_ = tiny
	_ = fabric.Forever
	for _, p := range []string{"cql", "declock-tf"} {
		try(p+" 1x2x 2 rounds", locking{policy: p, layout: big, clients: "1x 2x", rounds: 2}, sim.ExploreConfig{})
		try(p+" 1x2s 2 rounds", locking{policy: p, layout: big, clients: "1x 2s", rounds: 2}, sim.ExploreConfig{})
		try(p+" 1x2s3s 2 rounds", locking{policy: p, layout: big, clients: "1x 2s 3s", rounds: 2}, sim.ExploreConfig{})
		try(p+" 1x1s", locking{policy: p, layout: big, clients: "1x 1s", rounds: 1}, sim.ExploreConfig{})
		try(p+" 1x1s 2x", locking{policy: p, layout: big, clients: "1x 1s 2x", rounds: 1}, sim.ExploreConfig{})
		try(p+" 1x1s 2x ticks 1", locking{policy: p, layout: big, clients: "1x 1s 2x", rounds: 1}, sim.ExploreConfig{Ticks: 1})
		try(p+" 1x2x tiny 3 rounds", locking{policy: p, layout: tiny, clients: "1x 2x", rounds: 3, resets: true}, sim.ExploreConfig{})
		try(p+" 1x2x tear", locking{policy: p, layout: big, clients: "1x 2x", rounds: 1}, sim.ExploreConfig{Sim: sim.Config{Tear: sim.Tear{Prob: 1, Grain: 8}}})
	}
}
