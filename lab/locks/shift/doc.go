// Package shift is ShiftLock: writers queue as in an MCS lock and hand the lock over by
// messages, readers are counted beside the queue, and an epoch bit passes the lock from writers to the
// readers that wait.
//
// [Locker] is one client's lock.Locker. [Agent] must run beside the clients of a compute
// node: it takes over the tickets of writers that gave up, and the agent of the lowest live node is
// the lock server of section 3.6, which recovers locks.
//
// An entry is 16 bytes, and every change of it one 16-byte masked atomic. A free lock is
// acquired and released in a chain each. A writer that waits for a writer waits in its inbox; one that waits
// for readers polls RelCnt, and readers that wait poll Epoch. After [Config.Threshold]
// writers in a row the lock goes to the readers that wait by then.
//
// [Config.Artifact] is the lock as its authors published it: a handover does not count RelCnt in memory, which the
// paper's Algorithm 3 does in line 20: one round trip less for each handover.
//
// # Differences from the paper
//
// docs/findings.md has the interleavings behind the first two.
//
//   - Handover carries the epoch, as in the published code. To the letter a writer flips the epoch that it
//     saw when it entered the queue: after a ModeChanged before it, that is no flip, and readers wait for ever.
//   - Where Algorithm 3 adds to RelCnt (lines 16 and 20), and in line 6, the atomic is a CAS that compares RelCnt too: no other client
//     changes it while a writer holds. So a writer whose lock was recovered changes nothing.
//   - Recovery adds 2^48 to RelCnt instead of 2^63, so that RelCnt grows over 65536 recoveries instead of one.
//     The upper 16 bits are the lock's era (the paper mentions one era counter for several locks).
//   - Messages carry the lock, the client they are for, and the era: a message from before a recovery does
//     not count after it.
//   - A reader that sees the epoch change verifies the era before it holds (in one chain with its READs),
//     because a recovery clears the epoch too.
//   - A waiting writer that gives up leaves its client ID to the agent (fabric.Port.Abandon), which does the rest of the
//     algorithm under that ID. A waiting reader takes its count back, by CAS, while the
//     epoch has not changed: then no writer has counted on it.
//   - Try never enters the queue.
//   - Waiters poll by one READ after the other, as Algorithm 2 has it. The client of the published code pauses for 1862 ns between two: [Config.PauseNs].
//   - The paper delays messages within a node to make them as slow as others. That is left to the fabric.
//     The published client tries twice by CAS to take a free lock before it queues: [Config.Tries], which is 0 unless it is set.
//
// # Fencing tokens
//
// RelCnt grows with every release, and by 2^48 with a recovery: the token is RelCnt + 1 for
// a writer and RelCnt for a reader. They cost nothing.
//
// # Failures
//
// A holder has a lease. A waiter that sees RelCnt unchanged for three leases asks the lock server to
// recover the lock; all that wait see the leap of RelCnt and begin again. Exclusion of readers rests on
// time, as the paper's: a reader's release that is under way for longer than the leases
// leave room for hits the recovered lock. Writers' releases compare RelCnt.
//
// Source: J. Gao, Q. Wang, J. Shu, "ShiftLock: Mitigate One-sided RDMA Lock
// Contention via Handover", FAST 2025, section 3, Algorithms 2 and 3; published code
// github.com/thustorage/shiftlock.
package shift
