package sim_test

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// near returns a cluster with one compute node on the memory node's machine, and one elsewhere.
func near(t *testing.T, cfg sim.Config) (c *sim.Cluster, here, far *sim.Node) {
	t.Helper()
	c = sim.New(cfg)
	c.AddMN(1 << 16)
	here, far = c.AddCN(), c.AddCN()
	c.Place(here, 0)
	return c, here, far
}

// What an access costs: by CPU, through the NIC to the own machine, through the network.
func TestLocalCosts(t *testing.T) {
	c, here, far := near(t, sim.Config{})
	timed := func(n *sim.Node, do func(p fabric.Port) error) (took fabric.Time) {
		c.Go(n, "client", func(p fabric.Port) {
			began := p.Now()
			if err := do(p); err != nil {
				t.Error(err)
			}
			took = p.Now() - began
		})
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		return took
	}
	cas := []fabric.Op{fabric.CAS(fabric.At(0, 64), 0, 0)}
	by := func(p fabric.Port) error { return p.Do(cas) }
	cpu := timed(here, func(p fabric.Port) error { return fabric.LocalOf(p).DoLocal(cas) })
	loop, net := timed(here, by), timed(far, by)
	nic := sim.CX4()
	if cpu != nic.CPUAccess {
		t.Errorf("a CAS by CPU takes %d ns, want %d", cpu, nic.CPUAccess)
	}
	if net-loop < 2*(nic.OneWay-nic.Loopback)-nic.Pipe-nic.PostMax || loop < 10*cpu {
		t.Errorf("a CAS takes %d ns by loopback, %d by network, %d by CPU", loop, net, cpu)
	}
}

// Where atomics are not global, increments by CPU and by NIC lose one another; those by NIC alone do not, and none is lost where they are.
func TestSplitAtomics(t *testing.T) {
	const n = 300
	run := func(split, cpu bool) uint64 {
		c, here, far := near(t, sim.Config{SplitAtomics: split})
		a := fabric.At(0, 64)
		c.Go(here, "near", func(p fabric.Port) {
			do := p.Do
			if cpu {
				do = fabric.LocalOf(p).DoLocal
			}
			for range n {
				if err := do([]fabric.Op{fabric.FAA(a, 1)}); err != nil {
					t.Error(err)
				}
				_ = p.Pause(p.Now() + fabric.Time(p.Rand()%200))
			}
		})
		for range 3 {
			c.Go(far, "far", func(p fabric.Port) {
				for range n {
					if err := p.Do([]fabric.Op{fabric.FAA(a, 1)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		return c.PeekWord(a)
	}
	if v := run(false, true); v != 4*n {
		t.Errorf("global atomics: %d of %d increments", v, 4*n)
	}
	if v := run(true, false); v != 4*n {
		t.Errorf("atomics of the NIC alone: %d of %d increments", v, 4*n)
	}
	if v := run(true, true); v >= 4*n || v < n {
		t.Errorf("split atomics: %d of %d increments, want some lost", v, 4*n)
	}
}

// A WRITE of the NIC to a word whose atomic is between its halves is not lost: the atomic's second half comes first.
func TestSplitAtomicsOfTheNICAreAtomic(t *testing.T) {
	c, _, far := near(t, sim.Config{SplitAtomics: true, NIC: func() sim.NIC { n := sim.CX4(); n.Atomic, n.PCIeAtomic = 2000, 2000; return n }()})
	a := fabric.At(0, 64)
	c.Go(far, "atomic", func(p fabric.Port) { _ = p.Do([]fabric.Op{fabric.FAA(a, 1)}) })
	wrote := false
	c.Go(c.AddCN(), "write", func(p fabric.Port) {
		_ = p.Pause(p.Now() + 500)
		wrote = p.Do([]fabric.Op{fabric.Store(a, 100)}) == nil
		if v := c.PeekWord(a); v != 100 {
			t.Errorf("the word is %d behind the WRITE", v)
		}
	})
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if v := c.PeekWord(a); v != 100 || !wrote {
		t.Errorf("the word is %d at the end", v)
	}
}
