package sim_test

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/sim"
)

type harness struct {
	cfg   sim.Config
	place bool // compute nodes are on the machine of memory node 0
}

type cluster struct {
	*sim.Cluster
	t     testing.TB
	nodes []*sim.Node
}

func (h harness) Start(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	c := &cluster{Cluster: sim.New(h.cfg), t: t}
	for _, size := range cfg.Mem {
		c.AddMN(size)
	}
	for range cfg.CNs {
		c.nodes = append(c.nodes, c.AddCN())
		if h.place {
			c.Place(c.nodes[len(c.nodes)-1], 0)
		}
	}
	if h.cfg.BreakAfter > 0 {
		return stalling{c}
	}
	return c
}

// StartReplicated is fabrictest.ReplicaHarness.
func (h harness) StartReplicated(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	c := &cluster{Cluster: sim.New(h.cfg), t: t}
	p := c.AddReplicatedMN(cfg.Mem[0], 2)
	c.AddBackup(p, c.AddMN(cfg.Mem[1]))
	for range cfg.CNs {
		c.nodes = append(c.nodes, c.AddCN())
	}
	return promoting{c}
}

// A promoting is a cluster with a backup.
type promoting struct{ *cluster }

func (c promoting) Promote() {
	if err := c.cluster.Promote(0); err != nil {
		c.t.Fatal(err)
	}
	c.Wait()
}

func (c *cluster) Node(i int) fabric.Node { return c.nodes[i] }

func (c *cluster) Go(p fabric.Port, body func(fabric.Port)) {
	c.GoOn(p, fmt.Sprint("client ", p.ID()), body)
}

func (c *cluster) Wait() {
	if err := c.Run(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) Close() {
	if err := c.Cluster.Close(); err != nil {
		c.t.Error(err)
	}
}

// A stalling is a cluster whose connections break.
type stalling struct{ *cluster }

// Stall holds up what compute nodes send to a memory node.
func (c stalling) Stall(mn fabric.MemID) {
	for _, n := range c.nodes {
		c.Cut(sim.OfCN(n.ID()), sim.OfMN(mn), c.Now()+fabric.Millisecond)
	}
}

func (c stalling) Continue(fabric.MemID) {}

// JoinInLease lets virtual time release what is held up.
func (c *cluster) JoinInLease(i int, joined func(n fabric.Node)) (release func()) {
	const us = fabric.Microsecond
	gone, began := c.nodes[i], c.Now()
	c.Detach(sim.OfCN(gone.ID()), began+2000*us)
	c.At(began+10*us, func() { joined(c.AddCN()) })
	c.At(began+500*us, func() { c.Detach(sim.OfMN(0), began+2000*us) })
	c.At(began+510*us, func() { c.Fence(gone) })
	return func() {}
}

func (c *cluster) Kill(i int) { c.Cluster.Kill(c.nodes[i]) }

func TestConformance(t *testing.T) {
	for _, nic := range []sim.NIC{sim.CX4(), sim.Ideal(), sim.CXL()} {
		t.Run(nic.Name, func(t *testing.T) {
			fabrictest.Run(t, harness{cfg: sim.Config{Seed: 1, NIC: nic}})
		})
	}
	t.Run("connections break", func(t *testing.T) {
		for seed := range uint64(8) {
			fabrictest.Run(t, harness{cfg: sim.Config{Seed: seed, NIC: sim.CX4(), BreakAfter: 100 * fabric.Microsecond, BrokenLate: 5 * fabric.Millisecond}})
		}
	})
	t.Run("news that take time", func(t *testing.T) {
		fabrictest.Run(t, harness{cfg: sim.Config{Seed: 1, NIC: sim.CX4(), NewsDelay: 20 * fabric.Microsecond}})
	})
	for _, cfg := range []sim.Config{{Seed: 1}, {Seed: 1, SplitAtomics: true}, {Seed: 1, ShortWay: true}} {
		t.Run(fmt.Sprintf("near, split atomics %t, short way %t", cfg.SplitAtomics, cfg.ShortWay), func(t *testing.T) {
			fabrictest.Run(t, harness{cfg, true})
		})
	}
	t.Run("READs exchanged", func(t *testing.T) {
		fabrictest.Run(t, harness{cfg: sim.Config{Seed: 1, NIC: sim.CX4(), ExchangeReads: 0.5}})
	})
	t.Run("cx6, torn, clocks wrong", func(t *testing.T) {
		fabrictest.Run(t, harness{cfg: sim.Config{Seed: 1, NIC: sim.CX6(),
			Tear:   sim.Tear{Prob: 1, Grain: 8, Window: 5000},
			Clocks: []sim.Clock{{Offset: 12345, Drift: 200_000}, {Offset: -77, Drift: -300_000}}}})
	})
}
