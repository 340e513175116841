// Package memory is the layout of a memory node's memory: a superblock, a root directory in which stores, trees and lock tables are
// found by name, and pages that they take and give back.
//
// A region, the formatted memory of one memory node, begins at offset 0:
//
//	superblock      identity, state, counter of timesync, the change word of the pages   super.go
//	root directory  an entry for each store, tree and lock table                         root.go
//	page table      a word for each page: its owner, the length and class of its run     pages.go
//	free bits       a bit for each 64 bytes: package memory/slab                         pages.go
//	pages           memory of the entries
//
// Everything is done by one-sided operations, by any number of compute nodes at once, and without a lock. A CAS on an 8-byte claim word,
// which names the compute node, decides which one creates an entry; the same word publishes the result. A creator that
// crashes halfway leaves a claim that names it. A node that finds such a claim waits until a deadline and then returns
// [ErrHalfCreated]; if Spec.DeadNow has the crashed node, it frees the claim. Each memory node formats its own memory. Pages change their owner through one
// change word, so that each change is done whole or not at all.
//
// docs/architecture.md (Memory) has the outline, docs/incarnations.md the numbers that tell old words from new ones.
//
// The memory must be zero when a region is formatted: locks and stores rely on memory from [Region.Alloc] being zero.
package memory
