// Package mcs is the MCS lock on disaggregated memory: the lock word names the
// last of a queue; each client in the queue is notified by its successor which one that
// is, and hands the lock over to it by a message. Waiters wait in their inbox
// and do not touch the memory node.
//
// [Locker] is one client's lock.Locker. [Agent] must run beside the clients of a
// compute node: it takes over the tickets of waiters that gave up.
//
// An acquisition is one masked CAS whose mask of comparison is empty, which
// makes it the fetch-and-store of the algorithm, and a message to
// the predecessor if there is one. A release is one CAS, or one message.
// Grants are in the order of the fetch-and-stores: first come, first served.
//
// The algorithm knows no shared mode: Shared requests are granted one at a time.
//
// # Differences from the paper
//
//   - Messages carry the address of the lock and the client that they are for, because a client may
//     hold several locks, and give up a ticket that a message is on its way to.
//   - A waiter that gives up cannot leave the middle of the queue. It leaves its
//     client ID behind (fabric.Port.Abandon) and the node's agent does the rest of
//     Algorithm 1 under that ID. A holder that is interrupted while it waits for
//     its successor's message leaves the rest of its release to the agent likewise.
//   - Try is a CAS from null: it never enters the queue.
//
// # Fencing tokens
//
// A lock of 16 bytes has a second word with the token of the last holder that
// left the queue empty; a handover carries the token along. So tokens count grants. With
// [Config.Plain] the lock is the paper's: 8 bytes, and Token is always 0.
//
// # Failures
//
// There is no recovery: a client that crashes in the queue breaks it for good. So the paper says of
// the algorithm (section 2.4), and it is why ShiftLock exists (lab/locks/shift).
//
// Source: J. Gao, Q. Wang, J. Shu, "ShiftLock: Mitigate One-sided RDMA Lock
// Contention via Handover", FAST 2025, section 2.4, Algorithm 1, and section 3.3
// (the queue over RDMA); the lock is Mellor-Crummey's and Scott's (1991).
package mcs
