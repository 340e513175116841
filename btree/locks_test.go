package btree

import (
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/cas"
	"github.com/declock/declock/timesync"
)

// lockers are the Lockers of a mechanism, by compute node.
type lockers struct {
	layout lock.Layout
	locker func(cn int, p fabric.Port) lock.Locker
}

func casLocks() lockers {
	cfg := cas.Config{Plain: true}
	return lockers{cfg.Layout(), func(_ int, p fabric.Port) lock.Locker { return cas.New(p, cfg) }}
}

// decLocks returns DecLock by its default policy, with agents that run until the test ends.
func decLocks(t testing.TB, cl fabrictest.Cluster, cns int) lockers {
	t.Helper()
	p, err := hier.ParsePolicy(hier.DefaultPolicy)
	wantErr(t, "policy", err, nil)
	y, err := cql.LayoutFor(cns)
	wantErr(t, "layout", err, nil)
	cfg := hier.Config{Layout: y}
	tables, clocks := make([]*hier.Table, cns), make([]timesync.Clock, cns)
	for i := range cns {
		node := cl.Node(i)
		tables[i] = hier.NewTable(p)
		agent := hier.NewAgent(tables[i], node, &clocks[i], cfg, hier.SyncConfig{})
		cl.Go(node.Agent(), func(fabric.Port) {
			if err := agent.Run(func(err error) { t.Errorf("agent: %v", err) }); err != nil {
				t.Errorf("agent: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		for i := range cns {
			cl.Node(i).Agent().Interrupt()
		}
		cl.Wait()
	})
	return lockers{y.Lock(), func(cn int, port fabric.Port) lock.Locker {
		return hier.New(tables[cn], port, cl.Node(cn), &clocks[cn], cfg)
	}}
}
