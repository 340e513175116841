// Package cql is cooperative queue-notify locking: the lock on the memory
// node that orders compute nodes, and the messages by which they pass it on.
//
// A lock is a header of 8 bytes ([Header]) and a circular queue of 2^c entries of 8 bytes ([Entry]). An acquiring client adds itself to
// the header with one FAA and learns from the old value whether it holds the lock or waits; a waiter writes its entry and is notified.
// That is at most two operations on the memory node. A releasing holder takes itself off the header with one FAA, reads the queue in the
// same chain ([Ticket].Lean: only if others wait), and notifies the clients that the queue names.
//
// Three paths change the header by CAS instead: [Client.TryEnqueue], [Client.EnqueueCautious] (after an error that may have left a ticket
// in the lock), and a reset. Waiters do not poll for the lock; but a grant may be lost, so each READs the header every 100 ms
// ([Config].RecheckNs), and every millisecond while the lock is suspected to be a crashed node's.
//
// [Client] is the protocol as one participant runs it: [Client.Enqueue] and
// [Client.Await] acquire (Fig. 7, lines 1 to 5), [Client.Release] releases
// (lines 6 to 19). [Agent] is a compute node's side of lock resets (section
// 4.4). Which participants there are, and on whose behalf, is package hier's: there one
// participant stands for all clients of a compute node, or, without
// hierarchy, each client for itself.
//
// # Differences from the paper
//
//   - Zeroed memory is a free lock: versions begin at 1, and an entry that was
//     never written has version 0 (the paper: all ones).
//   - The queue index is never restarted. A reset moves it on to a round whose
//     version no participant has used, so a late entry WRITE or notification of the time
//     before the reset can never be taken for a valid one, no compute node
//     keeps a reset counter for each lock, and the index is the main part of the fencing token ([Token]).
//   - A grant names the index it grants. A notification for another index is
//     dropped.
//   - The last round of a version cycle is never used: a participant that is counted into it
//     asks for a reset. So no entry of the cycle before is ever taken for one of this.
//   - A writer that finds the slot of a waiting reader used again (the lock
//     became shared at its FAA, others came and left before its READ) grants
//     by index range to all compute nodes instead of resetting the lock.
//   - Resets have one message per compute node, not per client.
//
// docs/protocol.md draws header, queue and messages, docs/incarnations.md says which number guards against what, and docs/walks.md
// follows a contended lock through the code.
//
// Source: DecLock, section 4, Fig. 4 to 8, Appendix A and B.
package cql
