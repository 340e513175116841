// Package declock is locks, an object store and an index on
// disaggregated memory: memory nodes that only lend their DRAM, and compute
// nodes whose clients reach it by one-sided operations. Its lock is DecLock,
// which queues waiters on the memory node with one atomic and passes locks on
// by messages between compute nodes.
//
// [Open] a cluster by its address, allocate or find locks by name with
// [Cluster.Locks], and lock with [Cluster.Lock]; the [Guard] unlocks. The package's example does all of that.
//
// # Goroutines
//
// Any number of goroutines may use a [Cluster], a [Store] and a [Tree]: these take sessions from pools ([WithSessions],
// [WithLockSessions]), and results are the caller's own memory. A goroutine that has a [Session] of its own needs none of
// the pools, and gets results without a copy. docs/library.md says what each costs, and what a pool means for locks.
//
// # Addresses
//
// An address names a cluster and the fabric to reach it:
//
//	shm:NAME                                processes on one machine, over shared memory; "declock up" or declock-mn starts it
//	shm:                                    a cluster of this process alone, made by Open and gone with Close, or with the process
//	tcp://ETCD[,ETCD..]/NAME?OPTION=..&..   any network; etcd, at these endpoints, knows the nodes
//	verbs://ETCD[,ETCD..]/NAME?OPTION=..&.. RDMA
//
// The last two need
//
//	import _ "github.com/declock/declock/overtcp"
//	import _ "github.com/declock/declock/oververbs"
//
// and these packages say what the options are: certificates, or insecure=true, where to listen. A program that joins by itself, with Join of
// package fabric/verbs, say, gives what it gets to [OpenNode]. Fabrics of one's
// own are added with [Register]. There is no address for the simulator: in virtual time
// clients are coroutines, which package fabric/sim starts.
//
// # Locks
//
// A lock is a few bytes in a memory node's memory; zeroed memory is a free
// lock. [Cluster.Locks] allocates any number of them by name. Locks are
// readers-writer locks ([Session.Lock], [Session.RLock]), fair as the
// cluster's policy says, and can be waited for with a context. An exclusive
// grant has a fencing token ([Guard.Token]) that grows with every grant of that lock.
//
// Misuse is refused: a [LockID] that is not of an open [Locks] ([ErrLockID]), a [Mode] that is none ([ErrMode]), a lock that the session
// holds already (lock.ErrDeadlock: locks are not reentrant). A second goroutine in a session panics, as it does in a map; most of the
// time it is found, so do not rely on it. What is called after Close is [ErrClosed]. [Session.Close] and [Cluster.Close] release locks that are still held, and say so ([ErrHeld]).
//
// # Objects
//
// [Cluster.Store] opens an object store by name: a cache with memcached's
// operations, shared by all compute nodes. See package objstore.
//
// # Index
//
// [Cluster.Tree] opens a B+tree by name: keys in order, scans, readers that take no lock. See package btree.
//
// # Errors
//
// Errors are sentinels for errors.Is: those of this package (addresses, policies, [ErrHeld]), of package lock (waiting, lost
// locks), objstore and btree (keys and values) and fabric (nodes and memory).
//
// docs/failures.md says what a program sees when something crashes, docs/operations.md how a cluster is run.
package declock
