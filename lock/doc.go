// Package lock is the contract of a lock on disaggregated memory: modes,
// tokens, the Locker that every mechanism implements, errors and statistics.
//
// A lock is some bytes in the memory of a memory node ([Layout] tells how many); all zero is
// a free lock. A [Locker] is one client's handle on all locks of one
// mechanism: DecLock ([github.com/declock/declock/hier] over
// [github.com/declock/declock/cql]) or another lock of the literature
// (lab/locks/cas, ...). It works over the client's fabric.Port, and like the Port
// it is used by one goroutine at a time.
//
// Data that a lock protects travels with the lock's own operations: READs of
// [Request.Reads] go in the chain of the acquire, and the operations given to Release
// go in the chain of the release, before it.
//
// Source: DecLock, sections 2 to 5.
package lock
