package metrics

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/prometheus/client_golang/prometheus"
)

var (
	mnInfo        = gauge("mn_info", "Always 1; what this memory node is.", "memory", "fabric")
	mnSize        = gauge("mn_size_bytes", "Memory that this memory node lends.")
	mnEpoch       = gauge("mn_epoch", "Epoch of this memory node: grows when it restarts.")
	mnFenced      = counter("mn_fenced_total", "Times that the cluster declared this memory node dead, and it joined again with its memory.")
	mnOperations  = counter("mn_operations_total", "Operations that the software NIC executed.", "kind")
	mnBytes       = counter("mn_operation_bytes_total", "Bytes that they read and wrote.", "kind")
	mnFrames      = counter("mn_frames_total", "Frames of operations: chains, or pieces of long ones.")
	mnBatches     = counter("mn_batches_total", "Times that frames were taken off a connection.")
	mnConnections = gauge("mn_connections", "Connections to compute nodes.")
	mnLocal       = gauge("mn_local", "Times that memory is lent to a compute node of this machine, which executes operations itself.")
	mnLocalChains = counter("mn_local_chains_total", "Chains that such compute nodes have executed, which are in no other counter.")
	mnLocalOps    = counter("mn_local_operations_total", "Operations that such compute nodes have executed.", "kind")
	mnLocalBytes  = counter("mn_local_operation_bytes_total", "Bytes that they read and wrote.", "kind")
)

// A MemoryServer is a memory node, as its collector sees it; one that is a member.Contact says how it reaches the coordinator.
type MemoryServer interface {
	ID() fabric.MemID
	Size() uint64
	Epoch() uint32
}

// MemoryNode returns a collector of a memory node that has just started. counters is nil where the NIC does not count for us.
func MemoryNode(s MemoryServer, fabricName string, counters func() member.Counters) prometheus.Collector {
	return &memoryNode{s, s.Epoch(), fabricName, counters}
}

type memoryNode struct {
	s        MemoryServer
	first    uint32 // epoch
	fabric   string
	counters func() member.Counters
}

// Describe implements prometheus.Collector.
func (m *memoryNode) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []desc{mnInfo, mnSize, mnEpoch, mnFenced, coordUp, coordSilent, mnOperations, mnBytes, mnFrames, mnBatches, mnConnections, mnLocal, mnLocalChains, mnLocalOps, mnLocalBytes} {
		ch <- d.Desc
	}
}

// Collect implements prometheus.Collector.
func (m *memoryNode) Collect(ch chan<- prometheus.Metric) {
	e := emitter{ch}
	epoch := m.s.Epoch()
	e.one(mnInfo, 1, m.s.ID().String(), m.fabric)
	e.one(mnSize, float64(m.s.Size()))
	e.one(mnEpoch, float64(epoch))
	e.one(mnFenced, float64(epoch-m.first))
	if c, ok := m.s.(member.Contact); ok {
		e.contact(c)
	}
	if m.counters == nil {
		return
	}
	c := m.counters()
	for k, n := range c.Ops {
		e.one(mnOperations, float64(n), k.String())
	}
	e.one(mnBytes, float64(c.ReadBytes), fabric.OpRead.String())
	e.one(mnBytes, float64(c.WriteBytes), fabric.OpWrite.String())
	e.one(mnFrames, float64(c.Frames))
	e.one(mnBatches, float64(c.Batches))
	e.one(mnConnections, float64(c.Connections))
	e.one(mnLocal, float64(c.Local))
	e.local(&c.ByCPU, mnLocalChains, mnLocalOps, mnLocalBytes)
}

// local emits what compute nodes have executed by their own CPUs.
func (e emitter) local(c *member.LocalCounters, chains, ops, bytes desc) {
	e.one(chains, float64(c.Chains))
	for k, n := range c.Ops {
		e.one(ops, float64(n), k.String())
	}
	e.one(bytes, float64(c.ReadBytes), fabric.OpRead.String())
	e.one(bytes, float64(c.WriteBytes), fabric.OpWrite.String())
}
