package metrics

import (
	"fmt"
	"strings"

	"github.com/declock/declock"
	"github.com/declock/declock/cn"
	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
	"github.com/prometheus/client_golang/prometheus"
)

// hotLocks is how many hot locks are exported.
const hotLocks = 10

// A desc is a metric with its kind.
type desc struct {
	*prometheus.Desc
	kind prometheus.ValueType
}

func counter(name, help string, labels ...string) desc {
	return desc{prometheus.NewDesc("declock_"+name, help, labels, nil), prometheus.CounterValue}
}

func gauge(name, help string, labels ...string) desc {
	return desc{prometheus.NewDesc("declock_"+name, help, labels, nil), prometheus.GaugeValue}
}

// Of locks: one counter for each number of lock.Stats.
var lockCounters = []struct {
	desc
	of func(*lock.Stats) uint64
}{
	{counter("lock_acquires_total", "Acquisitions that were granted."), func(s *lock.Stats) uint64 { return s.Acquires }},
	{counter("lock_immediate_total", "Acquisitions that the memory node granted at once."), func(s *lock.Stats) uint64 { return s.Immediate }},
	{counter("lock_waits_total", "Acquisitions that waited for another compute node."), func(s *lock.Stats) uint64 { return s.Waits }},
	{counter("lock_local_joins_total", "Shared acquisitions that joined holders of this compute node."), func(s *lock.Stats) uint64 { return s.LocalJoins }},
	{counter("lock_local_waits_total", "Acquisitions that waited for another client of this compute node."), func(s *lock.Stats) uint64 { return s.LocalWaits }},
	{counter("lock_memory_operations_total", "Operations on memory nodes to acquire locks or to enter their queues, without prefetches, rechecks and releases."), func(s *lock.Stats) uint64 { return s.AcquireOps }},
	{counter("lock_retries_total", "Operations repeated because the lock was busy."), func(s *lock.Stats) uint64 { return s.Retries }},
	{counter("lock_refetches_total", "Queue reads repeated in a release."), func(s *lock.Stats) uint64 { return s.Refetches }},
	{counter("lock_prefetches_total", "READs of a queue for the timestamps of others, by clients that begin to wait for another of their node."), func(s *lock.Stats) uint64 { return s.Prefetches }},
	{counter("lock_aborts_total", "Acquisitions that a reset aborted, begun again."), func(s *lock.Stats) uint64 { return s.Aborts }},
	{counter("lock_resets_asked_total", "Resets that clients of this compute node asked for."), func(s *lock.Stats) uint64 { return s.Resets }},
	{counter("lock_busy_total", "Attempts (Try) that found the lock busy."), func(s *lock.Stats) uint64 { return s.Busy }},
	{counter("lock_cancels_total", "Acquisitions that timed out or were cancelled."), func(s *lock.Stats) uint64 { return s.Cancels }},
}

// Of resets.
var resetCounters = []struct {
	desc
	of func(*cql.AgentStats) uint64
}{
	{counter("resets_led_total", "Resets of locks that this compute node led to the end."), func(s *cql.AgentStats) uint64 { return s.Led }},
	{counter("resets_taken_over_total", "Of these, taken over from a compute node that had crashed."), func(s *cql.AgentStats) uint64 { return s.TakenOver }},
	{counter("resets_joined_total", "Resets that others led."), func(s *cql.AgentStats) uint64 { return s.Joined }},
	{counter("grants_adopted_total", "Grants of places whose clients had left, passed on by the agent."), func(s *cql.AgentStats) uint64 { return s.Adopted }},
}

// Of object stores.
var storeCounters = []struct {
	desc
	of func(*objstore.Stats) uint64
}{
	{counter("store_gets_total", "Objects that were asked for."), func(s *objstore.Stats) uint64 { return s.Gets }},
	{counter("store_hits_total", "Objects that were there."), func(s *objstore.Stats) uint64 { return s.Hits }},
	{counter("store_stores_total", "Objects stored."), func(s *objstore.Stats) uint64 { return s.Stores }},
	{counter("store_deletes_total", "Objects deleted."), func(s *objstore.Stats) uint64 { return s.Deletes }},
	{counter("store_evictions_total", "Objects evicted because memory was full."), func(s *objstore.Stats) uint64 { return s.Evictions }},
	{counter("store_expired_total", "Expired objects dropped."), func(s *objstore.Stats) uint64 { return s.Expired }},
	{counter("store_location_cache_hits_total", "Objects that were where the location cache said."), func(s *objstore.Stats) uint64 { return s.CacheHits }},
	{counter("store_location_cache_misses_total", "Objects that had to be read again."), func(s *objstore.Stats) uint64 { return s.CacheMisses }},
	{counter("store_extents_total", "Extents of memory taken from memory nodes."), func(s *objstore.Stats) uint64 { return s.Extents }},
	{counter("store_leaked_chunks_total", "Chunks lost by failed operations, until check --reclaim."), func(s *objstore.Stats) uint64 { return s.Leaked }},
	{counter("store_read_bytes_total", "Bytes of values returned."), func(s *objstore.Stats) uint64 { return s.BytesRead }},
	{counter("store_written_bytes_total", "Bytes of values stored."), func(s *objstore.Stats) uint64 { return s.BytesWritten }},
}

// The rest.
var (
	nodeInfo      = gauge("node_info", "Always 1; what this compute node is.", "node", "fabric")
	sessions      = gauge("sessions", "Clients of this compute node.")
	handovers     = counter("lock_handovers_total", "Releases that passed the lock on: to a client of this compute node, or to another.", "to")
	acquireTimes  = gauge("lock_acquire_seconds", "How long acquisitions took; a sample.")
	holdTimes     = gauge("lock_hold_seconds", "How long locks were held; a sample.")
	locksHeld     = gauge("lock_locks", "Locks that clients of this compute node hold or want.")
	lockHolders   = gauge("lock_holders", "Clients of this compute node that hold a lock.")
	lockWaiters   = gauge("lock_waiters", "Clients of this compute node that wait for a lock.")
	longestQueue  = gauge("lock_longest_queue", "Most waiters of this compute node for one lock.")
	hotLockShare  = gauge("hot_lock_share", "Part of the acquisitions of this compute node that a hot lock has.", "lock")
	hotLockWait   = gauge("hot_lock_acquire_seconds", "How long acquisitions of a hot lock take on average.", "lock")
	resetReasons  = counter("resets_led_by_reason_total", "Resets that this compute node led, by the reason.", "reason")
	operations    = counter("operations_total", "One-sided operations of this compute node on memory nodes.", "kind")
	operationSize = counter("operation_bytes_total", "Bytes that READs and WRITEs moved.", "kind")
	chains        = counter("chains_total", "Chains of operations posted: doorbells, or frames.")
	messages      = counter("messages_total", "Messages to clients of other compute nodes, or of this one.", "to")
	liveNodes     = gauge("live_nodes", "Live compute nodes as this one sees them.")
	lostNodes     = counter("lost_nodes_total", "Compute nodes that have crashed, as this one has seen.")
	viewEpoch     = gauge("view_epoch", "Epoch of the view of live nodes.")
	fenced        = gauge("fenced", "1 if the cluster has declared this compute node dead.")
	fencedTotal   = counter("fenced_total", "Times that the cluster declared a compute node of this process dead.")
	coordUp       = gauge("coordinator_up", "1 if the coordinator (etcd) answers this node.")
	coordSilent   = gauge("coordinator_silent_seconds", "Time since the coordinator (etcd) last answered this node.")
	memoryUp      = gauge("memory_up", "1 if the memory node answers this compute node.", "memory")
	memorySize    = gauge("memory_size_bytes", "Memory of the memory node.", "memory")
	memoryUsed    = gauge("memory_used_bytes", "Of it, taken by locks, indexes and extents of stores and trees; deleting objects does not give it back.", "memory")
	storeItems    = gauge("store_items", "About how many objects an object store has on a memory node.", "memory", "store")
	storeBytes    = gauge("store_items_bytes", "About how many bytes they take, with keys and headers.", "memory", "store")
	memoryEpoch   = gauge("memory_epoch", "Epoch of the memory node: grows when it restarts.", "memory")
	memoryLocal   = gauge("memory_local", "1 if this compute node executes operations on the memory node by its own CPU, 0 if over the network.", "memory")
	localChains   = counter("local_chains_total", "Chains that this compute node has executed by its own CPU.")
	localOps      = counter("local_operations_total", "Operations of this compute node on memory nodes that it has executed by its own CPU.", "kind")
	localBytes    = counter("local_operation_bytes_total", "Bytes that these READs and WRITEs moved.", "kind")
)

var plain = []desc{nodeInfo, sessions, handovers, acquireTimes, holdTimes, locksHeld, lockHolders, lockWaiters, longestQueue, hotLockShare, hotLockWait,
	resetReasons, operations, operationSize, chains, messages, liveNodes, lostNodes, viewEpoch, fenced, fencedTotal, coordUp, coordSilent, memoryUp, memorySize, memoryUsed, memoryEpoch, memoryLocal, localChains, localOps, localBytes, storeItems, storeBytes}

// ComputeNode returns a collector of a compute node. store returns the counters of object store clients, which
// belong to the program; nil: there are none. Wait for it before the cluster is closed.
func ComputeNode(c *declock.Cluster, store func() objstore.Stats) *Compute {
	probe := NewProbe(c)
	probe.stores = true
	return &Compute{c: c, store: store, probe: probe}
}

// A Compute is the collector of a compute node.
type Compute struct {
	c     *declock.Cluster
	store func() objstore.Stats
	probe *Probe
	// Fenced is how often compute nodes of this process were declared dead before this one.
	Fenced int
}

// Wait waits for looks at memory nodes that are under way.
func (m *Compute) Wait() { m.probe.Wait() }

// Describe implements prometheus.Collector.
func (m *Compute) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range plain {
		ch <- d.Desc
	}
	for _, d := range lockCounters {
		ch <- d.Desc
	}
	for _, d := range resetCounters {
		ch <- d.Desc
	}
	for _, d := range storeCounters {
		ch <- d.Desc
	}
}

// Collect implements prometheus.Collector.
func (m *Compute) Collect(ch chan<- prometheus.Metric) {
	e := emitter{ch}
	node := m.c.Node()
	o := node.Observe(hotLocks)
	e.one(nodeInfo, 1, node.Fabric().ID().String(), node.Fabric().Caps().Fabric)
	e.one(sessions, float64(o.Sessions))
	for _, d := range lockCounters {
		e.one(d.desc, float64(d.of(&o.Locks)))
	}
	e.one(handovers, float64(o.Locks.HandoversLocal), "local")
	e.one(handovers, float64(o.Locks.HandoversRemote), "remote")
	e.histogram(acquireTimes, &o.Acquire)
	e.histogram(holdTimes, &o.Hold)
	e.one(locksHeld, float64(o.Load.Locks))
	e.one(lockHolders, float64(o.Load.Holders))
	e.one(lockWaiters, float64(o.Load.Waiters))
	e.one(longestQueue, float64(o.Load.Longest))
	for _, h := range o.Hot {
		e.one(hotLockShare, h.Share, h.Lock.String())
		e.one(hotLockWait, float64(h.WaitNs)/1e9, h.Lock.String())
	}
	for _, d := range resetCounters {
		e.one(d.desc, float64(d.of(&o.Resets)))
	}
	for i, n := range o.Resets.ByReason {
		if i > 0 {
			e.one(resetReasons, float64(n), cql.Reason(i).String())
		}
	}
	m.collectNIC(e, &o.NIC)
	if l, ok := node.Fabric().(member.Local); ok {
		collectLocal(e, l)
	}
	m.collectCluster(e)
	if m.store != nil {
		s := m.store()
		for _, d := range storeCounters {
			e.one(d.desc, float64(d.of(&s)))
		}
	}
}

func (m *Compute) collectNIC(e emitter, nic *fabric.Stats) {
	for k, n := range nic.Ops {
		if k != int(fabric.OpNone) {
			e.one(operations, float64(n), fabric.OpKind(k).String())
		}
	}
	e.one(operationSize, float64(nic.ReadBytes), fabric.OpRead.String())
	e.one(operationSize, float64(nic.WriteBytes), fabric.OpWrite.String())
	e.one(chains, float64(nic.Chains))
	e.one(messages, float64(nic.Sent), "remote")
	e.one(messages, float64(nic.SentLocal), "local")
}

func collectLocal(e emitter, l member.Local) {
	for _, w := range l.Ways() {
		if w.Copy == 0 {
			e.one(memoryLocal, truth(w.Local), w.Memory.String())
		}
	}
	e.local(new(l.LocalCounters()), localChains, localOps, localBytes)
}

func (m *Compute) collectCluster(e emitter) {
	v := m.c.Node().Fabric().View()
	e.one(liveNodes, float64(v.Live.Len()))
	e.one(lostNodes, float64(v.Lost))
	e.one(viewEpoch, float64(v.Epoch))
	list, dead, _ := m.probe.Look(probeWait) // without a look there are no metrics of memory
	e.one(fenced, truth(dead))
	e.one(fencedTotal, float64(m.Fenced)+truth(dead))
	if f, ok := m.c.Node().Fabric().(member.Follower); ok {
		e.contact(f)
	}
	for _, r := range list {
		id := r.ID.String()
		e.one(memoryUp, truth(r.Err == nil), id)
		e.one(memorySize, float64(r.Size), id)
		e.one(memoryEpoch, float64(r.Epoch), id)
		if r.Err == nil {
			e.one(memoryUsed, float64(r.Used), id)
		}
		for _, st := range r.Stores {
			e.one(storeItems, float64(st.Items), id, strings.ToValidUTF8(st.Name, "?"))
			e.one(storeBytes, float64(st.Bytes), id, strings.ToValidUTF8(st.Name, "?"))
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// An emitter makes metrics.
type emitter struct{ ch chan<- prometheus.Metric }

func (e emitter) one(d desc, v float64, labels ...string) {
	m, err := prometheus.NewConstMetric(d.Desc, d.kind, v, labels...)
	if err != nil {
		panic(fmt.Sprintf("metrics: %v with labels %q: %v", d.Desc, labels, err)) // a bug of this package
	}
	e.ch <- m
}

// contact says how the coordinator is reached.
func (e emitter) contact(c member.Contact) {
	silent, why := c.Contact()
	e.one(coordUp, truth(why == nil))
	e.one(coordSilent, silent.Seconds())
}

func (e emitter) histogram(d desc, h *cn.Histogram) {
	buckets := make(map[float64]uint64, len(h.Counts))
	sum := uint64(0)
	for i, n := range h.Counts[:len(h.Counts)-1] {
		sum += n
		buckets[float64(cn.Bound(i))/1e9] = sum
	}
	m, err := prometheus.NewConstHistogram(d.Desc, h.Count(), float64(h.SumNs)/1e9, buckets)
	if err != nil {
		panic(fmt.Sprintf("metrics: %v: %v", d.Desc, err))
	}
	e.ch <- m
}

// Collectors returns one collector of each kind, for their descriptions only.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{&Compute{}, &memoryNode{}, Certificates(nil), Front(nil)}
}
