package daemon

import (
	"context"
	"os"
	"runtime"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/objstore"
)

// hotLocks is how many hot locks a status has.
const hotLocks = 10

// hot are the locks that are acquired most here.
func (d *CN) hot() (list []control.HotLock) {
	for _, h := range d.cluster.Node().Observe(hotLocks).Hot {
		list = append(list, control.HotLock{Lock: h.Lock.String(), Share: h.Share, Error: h.Error, AcquireUs: float64(h.WaitNs) / 1e3})
	}
	return list
}

// storeStats are the counters of the object store clients of replays.
func (d *CN) storeStats() objstore.Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.done.Store
	if d.work != nil {
		now := d.work.total()
		s.Add(&now.Store)
	}
	return s
}

// Status implements control.Handler.
func (d *CN) Status() *control.Status {
	node := d.cluster.Node()
	view := node.Fabric().View()
	s := &control.Status{
		Node: node.Fabric().ID().String(), Address: d.cfg.Cluster.Address(), Pid: os.Getpid(), Policy: d.cfg.Policy,
		Procs: runtime.GOMAXPROCS(0), UptimeS: time.Since(d.started).Seconds(),
		Live: nodeNames(view), View: view.Epoch, Resets: node.Agent().Counted(), Hot: d.hot(),
		Memory: DescribeMemory(context.Background(), d.cluster),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.Counters = d.done
	if d.work != nil {
		now := d.work.total()
		s.Counters.Add(&now)
		p := d.work.progressNow()
		s.Job = &p
	}
	return s
}

func nodeNames(v fabric.View) []string {
	var names []string
	for cn, ok := v.Live.Next(0); ok; cn, ok = v.Live.Next(cn) {
		names = append(names, cn.String())
	}
	return names
}

// DescribeMemory reads what the memory nodes of a cluster say of themselves.
func DescribeMemory(_ context.Context, c *declock.Cluster) []control.Memory {
	node := c.Node()
	live := map[fabric.MemID]fabric.Memory{}
	for _, m := range node.Fabric().Memory() {
		live[m.ID] = m
	}
	s, err := c.Session()
	if err != nil {
		return []control.Memory{{Error: err.Error()}}
	}
	defer s.Close()
	var list []control.Memory
	for _, r := range node.Regions() {
		m := control.Memory{
			Node: r.Memory().String(), Size: r.Size(), Epoch: live[r.Memory()].Epoch,
			UUID: r.UUID().String(), LockCapacity: 1 << r.CapacityLog2(),
		}
		used, err := r.Used(s.Port())
		if err == nil {
			m.Used = used
			entries, lerr := r.List(s.Port())
			for _, e := range entries {
				m.Entries = append(m.Entries, control.Entry{
					Name: e.Name, Kind: e.Kind.String(), Address: e.Addr.String(), Length: e.Length, Creator: e.Creator.String(),
				})
			}
			err = lerr
		}
		if err != nil {
			m.Error = err.Error()
		}
		list = append(list, m)
	}
	return list
}

// resetsSince returns what an agent counted since before.
func resetsSince(now cql.AgentStats, before *cql.AgentStats) cql.AgentStats {
	d := now
	d.Led -= before.Led
	d.TakenOver -= before.TakenOver
	d.Joined -= before.Joined
	d.Adopted -= before.Adopted
	for i := range d.ByReason {
		d.ByReason[i] -= before.ByReason[i]
	}
	return d
}
