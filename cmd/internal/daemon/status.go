package daemon

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/internal/stats"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/metrics"
	"github.com/declock/declock/objstore"
)

// memoryWait is how long a status waits for memory nodes.
const memoryWait = time.Second

// looks is what a status reads of the memory nodes.
type looks struct {
	memory []control.Memory
	queues map[fabric.Addr]queue
}

// A queue is what the memory of a lock says.
type queue struct {
	of              string
	queued, writers uint64
}

// hotQueues reads the queues of the locks that are acquired most. What cannot be read is missing.
func hotQueues(c *declock.Cluster) map[fabric.Addr]queue {
	node, list := c.Node(), map[fabric.Addr]queue{}
	s, err := c.Session()
	if err != nil {
		return list
	}
	defer s.Close()
	p, y := s.Port(), node.Layout()
	word := p.Alloc(8)
	defer p.Free(word)
	for _, h := range node.Observe(hotLocks).Hot {
		r := node.Region(h.Lock.MN())
		ops := [1]fabric.Op{fabric.Read(h.Lock, word)}
		if r == nil || p.Do(ops[:]) != nil {
			continue
		}
		header := cql.Header(binary.LittleEndian.Uint64(word))
		q := queue{queued: y.Size(header), writers: y.Writers(header)}
		if q.queued > y.Capacity() {
			continue
		}
		entries, err := r.List(p)
		for _, e := range entries {
			if err == nil && h.Lock >= e.Addr && uint64(h.Lock-e.Addr) < e.Length {
				q.of = fmt.Sprintf("%v %s", e.Kind, e.Name)
			}
		}
		list[h.Lock] = q
	}
	return list
}

// memory describes the memory nodes, and the queues of hot locks. While a memory node does not answer, it is what was seen last.
func (d *CN) memory() ([]control.Memory, map[fabric.Addr]queue) {
	last, ended := d.look.Get(memoryWait, func() looks { return looks{DescribeMemory(d.cluster), hotQueues(d.cluster)} })
	list := slices.Clone(last.memory)
	for i := range list {
		if !ended && list[i].Error == "" {
			list[i].Error = "a memory node does not answer: this is as it was before"
		}
	}
	return list, last.queues
}

// hotLocks is how many hot locks a status has.
const hotLocks = 10

// seen returns what the process does, and the locks that it acquires most.
func (d *CN) seen(queues map[fabric.Addr]queue) (s control.Seen, hot []control.HotLock, resetting []string) {
	o := d.cluster.Node().Observe(hotLocks)
	for _, h := range o.Hot {
		q := queues[h.Lock]
		hot = append(hot, control.HotLock{
			Lock: h.Lock.String(), Share: h.Share, Error: h.Error, AcquireUs: float64(h.WaitNs) / 1e3,
			Of: q.of, Held: h.Holders, Waiting: h.Waiters, Queued: q.queued, Writers: q.writers,
		})
	}
	for _, l := range o.Resetting {
		resetting = append(resetting, l.String())
	}
	s.Counters = d.storeCounters()
	s.Locks, s.NIC = o.Locks, o.NIC
	s.Acquisitions, s.AcquireNs, s.Sessions, s.Held, s.Waiters = o.Acquire.Count(), o.Acquire.SumNs, o.Sessions, o.Load.Holders, o.Load.Waiters
	return s, hot, resetting
}

// repairs adds what the cluster is repairing, as the coordinator has it.
func repairs(s *control.Status, st *member.State) {
	for _, c := range st.Fencing {
		s.Fencing = append(s.Fencing, c.ID.String())
	}
	for _, g := range st.Groups {
		for _, r := range g.Replicas {
			if r.Phase != member.InSync {
				s.Repairs = append(s.Repairs, control.Repair{Number: g.ID.String(), On: r.ID.String(), Phase: r.Phase.String()})
			}
		}
	}
}

// storeCounters returns what clients of object stores have counted, those of replays and of front ends.
func (d *CN) storeCounters() control.Counters {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.done
	for _, f := range d.fronts {
		n := f.Counters()
		of := control.Counters{Store: f.StoreStats(), Gets: n.Gets, Stores: n.Stores}
		stats.Add(&s, &of)
	}
	if d.work != nil {
		stats.Add(&s, new(d.work.total()))
	}
	return s
}

// storeStats returns what storeCounters says of operations.
func (d *CN) storeStats() objstore.Stats { return d.storeCounters().Store }

// Status implements control.Handler.
func (d *CN) Status() *control.Status {
	node := d.cluster.Node()
	view := node.Fabric().View()
	s := &control.Status{
		Node: node.Fabric().ID().String(), Address: d.cfg.Cluster.Address(), Pid: os.Getpid(), Policy: d.cfg.Policy,
		Procs: runtime.GOMAXPROCS(0), UptimeS: time.Since(d.started).Seconds(),
		Live: nodeNames(view), View: view.Epoch, Resets: node.Agent().Counted(),
	}
	var queues map[fabric.Addr]queue
	s.Memory, queues = d.memory()
	s.Seen, s.Hot, s.Resetting = d.seen(queues)
	if f, ok := node.Fabric().(member.Follower); ok {
		silent, why := f.Contact()
		s.Coordinator = &control.Coordinator{SilentS: silent.Seconds()}
		if why != nil {
			s.Coordinator.Error = why.Error()
		}
		if w, ok := f.(member.Watcher); ok {
			st, _ := w.State()
			repairs(s, st)
		}
	}
	if f, ok := node.Fabric().(member.Local); ok {
		for _, w := range f.Ways() {
			s.Ways = append(s.Ways, control.Way{Memory: w.Memory.String(), Copy: w.Copy, Local: w.Local, Why: w.Why, Chains: w.Chains})
		}
		s.Seen.LocalChains = f.LocalCounters().Chains
	}
	if x := d.cluster.Copying(); x != nil {
		s.Copying = &control.Copying{Number: x.Number.String(), Done: x.Done, All: x.All}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.Counters = d.done
	if d.work != nil {
		now := d.work.total()
		stats.Add(&s.Counters, &now)
		p := d.work.progressNow()
		s.Job = &p
	}
	return s
}

// sampledBuckets is how many buckets of a store are read to estimate how many objects it has.
const sampledBuckets = 256

func nodeNames(v fabric.View) []string {
	var names []string
	for cn, ok := v.Live.Next(0); ok; cn, ok = v.Live.Next(cn) {
		names = append(names, cn.String())
	}
	return names
}

// DescribeMemory reads what the memory nodes of a cluster say of themselves.
func DescribeMemory(c *declock.Cluster) []control.Memory {
	node := c.Node()
	s, err := c.Session()
	if err != nil {
		return []control.Memory{{Error: err.Error()}}
	}
	defer s.Close()
	var list []control.Memory
	for _, known := range metrics.Expected(node) {
		r := node.Region(known.ID)
		m := control.Memory{Node: known.ID.String(), Size: known.Size, Epoch: known.Epoch}
		if r == nil {
			m.Error = "it was down when this compute node joined, and is not back yet"
			list = append(list, m)
			continue
		}
		m.UUID, m.LockCapacity, m.Layout = r.UUID().String(), 1<<r.CapacityLog2(), r.Version()
		pages, err := r.Pages(s.Port())
		if err == nil {
			m.Used = r.Size() - pages.Free()
			entries, lerr := r.List(s.Port())
			for _, e := range entries {
				x := control.Entry{Name: e.Name, Kind: e.Kind.String(), Address: e.Addr.String(), Length: e.Length, Creator: e.Creator.String(), Taken: pages.Owned(&e)}
				switch e.Kind {
				case memory.KindTree:
					x.Limit = btree.Trees.LimitOf(&e)
				case memory.KindStore:
					x.Limit = objstore.Stores.LimitOf(&e)
					u, err := objstore.Estimate(s.Port(), r, &e, sampledBuckets)
					if lerr = errors.Join(lerr, err); err == nil {
						x.Usage = &u
					}
				}
				m.Entries = append(m.Entries, x)
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
