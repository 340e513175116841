// Package sherman is the hierarchical lock of the Sherman B+tree: a local lock on
// each compute node in front of a remote spinlock. One client of a node spins for
// all; the others wait in a local queue, in order of arrival, and a release hands
// the lock to the next of them, [DefaultBound] times in a row at most, before the
// node gives it up. It is local-bound over lab/locks/cas.
//
// [Locker] is one client's lock.Locker. It stands on a Locker of the remote lock, whose Holds must
// be good for the Lockers of other clients too, as lab/locks/cas's are: the client that acquired
// the remote lock for the node need not be the one that releases it. All clients of a node share a [Table]. No
// agent is needed.
//
// No mutex is held across a fabric call: while the remote lock is acquired or
// released, the local lock is in a state of its own, which others queue behind.
//
// # Differences from the paper
//
// Sherman's locks are exclusive, for its readers take none; here readers of a node share
// the remote lock, and join each other while no client of the node waits: a reader is let in wherever the
// remote lock would let it in, and as there, readers can keep the writers of other nodes out.
// Sherman keeps the remote lock words in the NIC's own memory; that is a matter of the fabric.
//
// # Fencing tokens
//
// If the remote lock has tokens, so has this: the remote lock's, followed by the
// number of the grant within the node. Without, tokens are 0.
//
// # Failures
//
// As those of the remote lock: lab/locks/cas has no reset.
//
// Source: Q. Wang, Y. Lu, J. Shu, "Sherman: A Write-Optimized Distributed B+Tree Index on
// Disaggregated Memory", SIGMOD 2022, section 4.3 (hierarchical on-chip lock, Fig. 7).
package sherman
