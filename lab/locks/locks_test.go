package locks_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

// counterAt is the word of clock synchronisation: below the locks of locktest.
const counterAt = 64

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
	return locktest.Mechanism{
		Layout: sys.Layout(), ExclusiveOnly: m.Exclusive,
		Start: func(t testing.TB, cl fabrictest.Cluster, nodes int) locktest.Session {
			joined := make([]*locks.Node, nodes)
			for i := range nodes {
				if joined[i], err = sys.Join(cl.Node(i)); err != nil {
					t.Fatal(err)
				}
			}
			locker := func(i int, p fabric.Port) lock.Locker {
				return joined[i].Locker(p)
			}
			if !joined[0].HasAgent() {
				return locktest.Lockers(locker)
			}
			return locktest.Agents(t, cl, nodes, func(i int, _ fabric.Node) locktest.Agent { return joined[i] }, locker)
		},
	}
}

// Every registered mechanism passes the conformance suite, set up as the registry sets it up.
func TestConformance(t *testing.T) {
	for _, name := range append(locks.Names(), "local-bound:2") {
		t.Run(name, func(t *testing.T) {
			locktest.Run(t, locktest.Sim(1), mechanism(t, name, locks.Config{Tokens: true}))
		})
	}
}

func TestLookup(t *testing.T) {
	if _, err := locks.Lookup("spin"); !errors.Is(err, locks.ErrUnknown) {
		t.Errorf("unknown name: %v", err)
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
