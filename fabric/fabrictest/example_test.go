package fabrictest_test

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/sim"
)

// simHarness hooks the simulator up. A backend in real time embeds
// fabrictest.Goroutines instead of Go and Wait.
type simHarness struct{}

type simCluster struct {
	c     *sim.Cluster
	t     testing.TB
	nodes []fabric.Node
}

func (simHarness) Start(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	s := &simCluster{c: sim.New(sim.Config{}), t: t}
	for _, size := range cfg.Mem {
		s.c.AddMN(size)
	}
	for range cfg.CNs {
		s.nodes = append(s.nodes, s.c.AddCN())
	}
	return s
}

func (s *simCluster) Node(i int) fabric.Node { return s.nodes[i] }

func (s *simCluster) Go(p fabric.Port, body func(fabric.Port)) { s.c.GoOn(p, fmt.Sprint(p.ID()), body) }

func (s *simCluster) Wait() {
	if err := s.c.Run(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *simCluster) Close() {
	if err := s.c.Close(); err != nil {
		s.t.Error(err)
	}
}

func Example() {
	_ = func(t *testing.T) { // in a test of the backend: func TestConformance(t *testing.T)
		fabrictest.Run(t, simHarness{})
	}
}
