// Package ncosed is N-CoSED: a word names the last client that wants the lock exclusively, and counts those that want it shared since; clients
// grant it to each other by messages, and a home agent counts the releases of shared holders.
//
// [Locker] is one client's lock.Locker. [Agent] must run on each compute node: it takes over what clients of its node give up, and that of
// the lowest node is the home of all locks, or with [Config.Homes] several are, each of those of a part of the memory nodes.
//
// A writer makes itself the tail by CAS of the whole word, which sets the count to 0, again and again until it succeeds. If the word was 0 at the first CAS, it holds
// the lock. If it named a tail, the writer sends that client a message, with the count; else it sends the count to the home, which grants it the lock: also when a later CAS
// finds 0. A reader adds 1 to the
// count by FAA. If there was no tail, it holds the lock; else it sends the tail a message.
//
// A writer's release is a CAS that takes its name out of the word and leaves the count, and then a message to each reader that has
// queued at it. If there is another tail, the next writer's message says how many readers come before it. If there are none, it gets the lock from
// this writer; else from the home, to which this writer sends the count. A reader's release is a message to the home. The home grants the lock to a
// writer when as many readers as were counted before it have released.
//
// A lock that readers had last has their count in its word, also when all have released. So the next writer needs two CASes, and a message to the home and back.
//
// # Differences from the paper
//
//   - The home of a lock is the machine that has its memory, in the paper. Memory nodes of this project have no programs, so an agent of a compute node is: with
//     [Config.Homes] of as many compute nodes as are given, that of the first for the first memory node, and so on.
//   - Readers that have queued at a writer are granted one by one as their messages come, and not when all have come.
//   - A client that gives up leaves its client ID to the agent (fabric.Port.Abandon), which does the rest under that ID.
//   - Try never queues. A writer that tries a lock which has a count of readers asks the home whether all have released.
//   - The code of DSLR's evaluation has readers release by FAA of -1 while no writer has come: not the paper's, and not this.
//
// # Fencing tokens
//
// A lock of 16 bytes has a second word that counts exclusive grants, as lab/locks/cas has. With [Config.Plain] the lock is the paper's: 8 bytes,
// and Token is always 0.
//
// # Failures
//
// There is no recovery. A client that crashes in the queue, or with the lock, breaks it for good, and the crash of the home all locks that readers have: once it has been
// noticed, their releases fail, and so does each writer after them. What no reader has had since a writer can still be acquired. After 2^32 readers without
// a writer the count runs into the tail.
//
// Source: S. Narravula, A. Mamidala, A. Vishnu, K. Vaidyanathan, D. K. Panda, "High Performance Distributed Lock Management Services using
// Network-based Remote Atomic Operations", CCGrid 2007; D. Y. Yoon, M. Chowdhury, B. Mozafari, "Distributed Lock Management with RDMA:
// Decentralization without Starvation", SIGMOD 2018, sections 2.2 and 6.1.
package ncosed
