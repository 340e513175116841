package btree

import (
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
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

// While a leaf's lock stays on a compute node, its holders hand the leaf on: they READ it once, and one WRITE and store of the word is
// for all who have released it.
func TestStreakOfHolders(t *testing.T) {
	const clients, each = 8, 20
	cl := realCluster(t, locktest.Sim(1), 16<<20, 1)
	l := decLocks(t, cl, 1)
	cfg := shmConfig()
	cfg.Lock, cfg.MaxKey, cfg.NodeSize = l.layout, 16, 4096
	tr, err := Open(shmPort(t, cl, 0), cfg)
	wantErr(t, "open", err, nil)
	var list []*Client
	running := clients
	for i := range clients {
		c, err := tr.Client(l.locker(0, shmPort(t, cl, 0)))
		wantErr(t, "client", err, nil)
		list = append(list, c)
		cl.Go(c.port, func(fabric.Port) {
			for k := range each {
				if err := c.Put(keyOf(k*clients+i), valueOf(k, i)); err != nil {
					t.Error(err)
					break
				}
			}
			if running--; running == 0 {
				cl.Node(0).Agent().Interrupt()
			}
		})
	}
	cl.Wait()
	var reads, writes uint64
	for _, c := range list {
		reads += c.port.Stats().Ops[fabric.OpRead]
		writes += c.port.Stats().Ops[fabric.OpWrite]
	}
	t.Logf("%d puts: %d READs, %d WRITEs", clients*each, reads, writes)
	if reads > clients*each/2 || writes > clients*each {
		t.Errorf("%d puts: %d READs, %d WRITEs", clients*each, reads, writes)
	}
	if n := len(all(t, list[0], Range{})); n != clients*each {
		t.Errorf("%d keys of %d", n, clients*each)
	}
}
