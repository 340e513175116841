package locks_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lab/locks/mcs"
	"github.com/declock/declock/lab/locks/shift"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

// counterAt is the word of clock synchronisation: below the locks of locktest.
const counterAt = 64

// agent is a locktest.Agent.
type agent func(func(error)) error

func (a agent) Run(report func(error)) error { return a(report) }

// mechanism makes a registered lock testable.
func mechanism(t testing.TB, name string, cfg locks.Config) locktest.Mechanism {
	t.Helper()
	m, err := locks.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	cfg.CNs, cfg.Clients, cfg.Counter = 3, 8, fabric.At(0, counterAt)
	sys, err := m.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	join := locktest.Join[lock.Locker](func(n fabric.Node) (func(fabric.Port) lock.Locker, locktest.Agent) {
		joined, err := sys.Join(n)
		if err != nil {
			t.Fatal(err)
		}
		if joined.Run == nil {
			return joined.Locker, nil
		}
		return joined.Locker, agent(joined.Run)
	})
	return locktest.Mechanism{Layout: sys.Layout(), ExclusiveOnly: m.Exclusive, Start: join.Start}
}

// Every registered mechanism passes the conformance suite, set up as the registry sets it up.
func TestConformance(t *testing.T) {
	for _, name := range append(locks.Names(), "local-bound:2", "dslr:busy", "dslr:10") {
		m := mechanism(t, name, locks.Config{Tokens: true})
		t.Run(name, func(t *testing.T) { locktest.Run(t, locktest.Sim(1), m) })
		t.Run(name+", READs exchanged", func(t *testing.T) { locktest.Run(t, locktest.SimUnordered(1), m) })
	}
}

func TestLookup(t *testing.T) {
	for _, name := range []string{"spin", "dslr:", "dslr:0", "dslr:-1", "dslr:soon"} {
		if _, err := locks.Lookup(name); !errors.Is(err, locks.ErrUnknown) {
			t.Errorf("unknown name %q: %v", name, err)
		}
	}
	seen := map[string]bool{}
	for _, m := range locks.All() {
		if seen[m.Name] || m.About == "" {
			t.Errorf("%q is there twice, or says nothing about itself", m.Name)
		}
		seen[m.Name] = true
		for _, bad := range []locks.Config{{}, {CNs: 300, Clients: 1}, {CNs: 1, Clients: 1 << 20}} {
			if _, err := m.New(bad); err == nil {
				t.Errorf("%s: %+v is accepted", m.Name, bad)
			}
		}
	}
}

// A fabric that lacks what a lock needs is refused by name.
func TestNeeds(t *testing.T) {
	c := sim.New(sim.Config{})
	defer c.Close()
	if err := (locks.Needs{Masked: true, Atomic16: true}).Check(c.AddCN().Caps()); err != nil {
		t.Errorf("sim: %v", err)
	}
	for _, n := range []locks.Needs{{Masked: true}, {Atomic16: true}} {
		if err := n.Check(fabric.Caps{Fabric: "poor"}); !errors.Is(err, fabric.ErrUnsupported) {
			t.Errorf("%+v on a fabric without: %v", n, err)
		}
	}
}

// On a fabric that lacks what a lock needs, the lock itself refuses, too, and holds nothing.
func TestLockersOnPoorFabrics(t *testing.T) {
	for name, locker := range map[string]func(fabric.Node, fabric.Port) lock.Locker{
		"mcs":   func(_ fabric.Node, p fabric.Port) lock.Locker { return mcs.New(p, mcs.Config{}) },
		"shift": func(n fabric.Node, p fabric.Port) lock.Locker { return shift.New(p, n, shift.Config{}) },
	} {
		c := sim.New(sim.Config{NIC: sim.CXL()})
		defer c.Close()
		a, n := fabric.At(c.AddMN(1<<20), 4096), c.AddCN()
		c.Go(n, name, func(p fabric.Port) {
			for mode := lock.Shared; mode <= lock.Exclusive; mode++ {
				var h lock.Hold
				if err := locker(n, p).Acquire(&h, &lock.Request{Lock: a, Mode: mode}); !errors.Is(err, fabric.ErrUnsupported) || h.Held {
					t.Errorf("%s %v: %v", name, mode, err)
				}
			}
		})
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
	}
}
