package shm

import (
	"slices"

	"github.com/declock/declock/fabric"
)

// A ClusterInfo says what there is of a cluster.
type ClusterInfo struct {
	Name    string
	Dir     string // its directory
	MaxCN   int
	View    fabric.View
	Memory  []MemoryInfo
	Compute []ComputeInfo
	// Broken says why the cluster cannot be used, if so.
	Broken error
}

// A MemoryInfo says what there is of a memory node.
type MemoryInfo struct {
	fabric.Memory
	Path  string // the file or device with the memory
	PID   int    // of its server, even if that has crashed; 0 if it closed
	Alive bool
	Keep  bool // outlives its server
	// Broken says why the memory cannot be used, if so.
	Broken error
}

// A ComputeInfo says what there is of a compute node.
type ComputeInfo struct {
	ID          fabric.CNID
	PID         int
	Alive       bool
	Incarnation uint64
	Joined      fabric.Time
}

// Alive reports whether the cluster is in use.
func (i *ClusterInfo) Alive() bool {
	return slices.ContainsFunc(i.Memory, func(m MemoryInfo) bool { return m.Alive }) ||
		slices.ContainsFunc(i.Compute, func(c ComputeInfo) bool { return c.Alive })
}
