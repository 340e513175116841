package hier_test

import (
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
	"github.com/declock/declock/timesync"
)

// nodeLocks is what the clients of a node share.
type nodeLocks struct {
	table *hier.Table
	clock *timesync.Clock
	node  fabric.Node
}

// lockSession is hier's locktest.Session: a table and an agent on each node.
type lockSession struct {
	cfg   hier.Config
	nodes []nodeLocks
}

func (s *lockSession) Locker(node int, p fabric.Port) lock.Locker {
	n := &s.nodes[node]
	return hier.New(n.table, p, n.node, n.clock, s.cfg)
}

// Stop interrupts the agents: their Run ends.
func (s *lockSession) Stop() {
	for _, n := range s.nodes {
		n.node.Agent().Interrupt()
	}
}

func mechanism(t testing.TB, policy string) locktest.Mechanism {
	p, err := hier.ParsePolicy(policy)
	if err != nil {
		t.Fatal(err)
	}
	// Without hierarchy each client is a participant.
	y := cql.Layout{CapacityBits: 6, VersionBits: cql.MaxVersionBits}
	return locktest.Mechanism{
		Layout:   y.Lock(),
		Handoffs: p.Kind == hier.LocalPrefer || p.Batch,
		Deferred: p.Defer,
		Start: func(t testing.TB, cl fabrictest.Cluster, nodes int) locktest.Session {
			s := &lockSession{cfg: hier.Config{Layout: y}}
			for i := range nodes {
				n := nodeLocks{table: hier.NewTable(p), clock: new(timesync.Clock), node: cl.Node(i)}
				agent := hier.NewAgent(n.table, n.node, n.clock, s.cfg, hier.SyncConfig{})
				cl.Go(n.node.Agent(), func(fabric.Port) {
					if err := agent.Run(func(err error) { t.Errorf("agent: %v", err) }); err != nil {
						t.Errorf("agent: %v", err)
					}
				})
				s.nodes = append(s.nodes, n)
			}
			return s
		},
	}
}

// Every policy is a lock: the suite that all locks pass, in virtual time, on shared memory and over TCP.
func TestLock(t *testing.T) {
	for _, policy := range hier.PolicyNames() {
		t.Run(policy+"/sim", func(t *testing.T) { locktest.Run(t, locktest.Sim(1), mechanism(t, policy)) })
		t.Run(policy+"/shm", func(t *testing.T) { locktest.Run(t, locktest.Shm(t.TempDir()), mechanism(t, policy)) })
		t.Run(policy+"/tcp", func(t *testing.T) { locktest.Run(t, locktest.TCP(), mechanism(t, policy)) })
	}
}
