package hier_test

import (
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock/locktest"
	"github.com/declock/declock/timesync"
)

// Every policy is a lock: the suite that all locks pass, in virtual time, on shared memory and over TCP.
func TestLock(t *testing.T) {
	// Without hierarchy each client is a participant.
	y := cql.Layout{CapacityBits: 6, VersionBits: cql.MaxVersionBits}
	for _, policy := range append(hier.PolicyNames(), "declock+no-train", "declock+no-train+train") {
		p, err := hier.ParsePolicy(policy)
		if err != nil {
			t.Fatal(err)
		}
		join := locktest.Join[*hier.Locker](func(n fabric.Node) (func(fabric.Port) *hier.Locker, locktest.Agent) {
			table, clock, cfg := hier.NewTable(p), new(timesync.Clock), hier.Config{Layout: y}
			agent := hier.NewAgent(table, n, clock, cfg, hier.SyncConfig{})
			return func(port fabric.Port) *hier.Locker { return hier.New(table, port, n, clock, cfg) }, agent
		})
		m := locktest.Mechanism{Layout: y.Lock(), Handoffs: p.Kind == hier.LocalPrefer || p.Batch, Deferred: p.Defer, Start: join.Start}
		t.Run(policy, func(t *testing.T) { locktest.All(t, 1, m) })
	}
}
