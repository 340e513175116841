// Package declock is locks, an object store and (to come) an index on
// disaggregated memory: memory nodes that only lend their DRAM, and compute
// nodes whose clients reach it by one-sided operations. Its lock is DecLock,
// which queues waiters on the memory node with one atomic and passes locks on
// by messages between compute nodes.
//
// Open a cluster by its address, open a [Session] for each goroutine, and lock:
//
//	c, err := declock.Open(ctx, "shm:demo")
//	...
//	s, err := c.Session()
//	locks, err := c.Locks(ctx, "accounts", 10_000)
//	g, err := s.Lock(ctx, locks.At(17))
//	...
//	err = g.Unlock()
//
// # Addresses
//
// An address names a cluster and the fabric to reach it:
//
//	shm:NAME   processes on one machine, over shared memory; "declock up" or declock-mn starts it
//	shm:       a cluster of this process alone, made by Open and gone with Close
//
// Other fabrics are added with [Register].
//
// # Locks
//
// A lock is a few bytes in a memory node's memory; zeroed memory is a free
// lock. [Cluster.Locks] allocates any number of them by name. Locks are
// readers-writer locks ([Session.Lock], [Session.RLock]), fair as the
// cluster's policy says, and can be waited for with a context. An exclusive
// grant has a fencing token ([Guard.Token]) that grows with every grant of that lock.
//
// # Objects
//
// [Cluster.Store] opens an object store by name: a cache with memcached's
// operations, shared by all compute nodes. See package objstore.
//
// # Errors
//
// Errors are sentinels for errors.Is: those of package lock (waiting, lost
// locks), objstore (keys and values) and fabric (nodes and memory).
package declock
