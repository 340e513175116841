//go:build linux && cgo

package verbs

import (
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/cas"
	"github.com/declock/declock/lock/locktest"
	"github.com/declock/declock/timesync"
)

// hierLocks is the hierarchical lock on a cluster: a table and an agent on each node.
type hierLocks struct {
	cfg    hier.Config
	tables []*hier.Table
	clocks []*timesync.Clock
	nodes  []fabric.Node
}

func (s *hierLocks) Locker(node int, p fabric.Port) lock.Locker {
	return hier.New(s.tables[node], p, s.nodes[node], s.clocks[node], s.cfg)
}

// Stop interrupts the agents: their Run ends.
func (s *hierLocks) Stop() {
	for _, n := range s.nodes {
		n.Agent().Interrupt()
	}
}

func hierMechanism(t testing.TB, policy string) locktest.Mechanism {
	p, err := hier.ParsePolicy(policy)
	if err != nil {
		t.Fatal(err)
	}
	y := cql.Layout{CapacityBits: 6, VersionBits: cql.MaxVersionBits}
	return locktest.Mechanism{Layout: y.Lock(), Start: func(t testing.TB, cl fabrictest.Cluster, nodes int) locktest.Session {
		s := &hierLocks{cfg: hier.Config{Layout: y}}
		for i := range nodes {
			table, clock := hier.NewTable(p), new(timesync.Clock)
			s.tables, s.clocks, s.nodes = append(s.tables, table), append(s.clocks, clock), append(s.nodes, cl.Node(i))
			agent := hier.NewAgent(table, cl.Node(i), clock, s.cfg, hier.SyncConfig{})
			cl.Go(cl.Node(i).Agent(), func(fabric.Port) {
				if err := agent.Run(func(err error) { t.Errorf("agent: %v", err) }); err != nil {
					t.Errorf("agent: %v", err)
				}
			})
		}
		return s
	}}
}

// The locks do over RDMA what they do in the simulator and on shared memory.
func TestLocks(t *testing.T) {
	needDevice(t)
	policies := hier.PolicyNames()
	if testing.Short() {
		policies = []string{hier.DefaultPolicy} // the others take five minutes in the guest
	}
	for _, policy := range policies {
		t.Run(policy, func(t *testing.T) { locktest.Run(t, harness{}, hierMechanism(t, policy)) })
	}
	t.Run("cas", func(t *testing.T) {
		locktest.Run(t, harness{}, locktest.Mechanism{Layout: cas.Config{}.Layout(),
			Start: func(testing.TB, fabrictest.Cluster, int) locktest.Session {
				return locktest.Lockers(func(_ int, p fabric.Port) lock.Locker { return cas.New(p, cas.Config{}) })
			}})
	})
}
