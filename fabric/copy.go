package fabric

import "sync/atomic"

// A Copy is the memory of a replicated memory-node number, on a memory node that has a replica of it.
type Copy struct {
	ID     MemID
	Size   uint64 // bytes
	Factor int    // replicas that there are to be
	// Origin and Began name the memory, all copies alike: the memory node with which it began, as a member of the cluster, and in which epoch.
	Origin uint64
	Began  uint32
	// Word returns a word of the memory, for the memory node's own use: offset is a multiple of 8.
	Word func(offset uint64) *atomic.Uint64
}
