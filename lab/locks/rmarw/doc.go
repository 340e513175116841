// Package rmarw is RMA-RW, with one level of queues and one counter: writers queue as in an MCS lock, readers count themselves in and out, and a
// bit of the counter says that writers have the lock.
//
// [Locker] is one client's lock.Locker. [Agent] must run beside the clients of a compute node: it takes over the tickets of writers that
// gave up.
//
// A writer enters the queue by a masked CAS whose mask of comparison is empty, and a message to the client before it, if there is one. The first of
// the queue waits until all readers that have arrived have departed, sets the write bit, and waits for readers that came
// meanwhile. A release hands the lock over by a message. After [Config.Writers] writers in a row, and when the queue is empty, it first resets the
// counter, which lets readers in; the message then says that the mode has changed, and the next writer begins with waiting for readers.
//
// A reader arrives by FAA. If the write bit is set, or [Config.Readers] readers have arrived since the last reset, it backs out by
// FAA, and READs the counter until it may try again. The reader that arrives as that number resets the counter if no writer waits.
//
// The order of operations, one chain each, is that of the published comparison. So a writer without contention needs 4 chains to acquire the lock
// and 3 to release it.
//
// # Differences from the papers
//
//   - The HPDC paper has a tree of queues over the levels of a machine, and counters for some processes each. ShiftLock's comparison has one
//     of each, and so has this.
//   - Arrive and depart are in one word, as in the published comparison, so a reset changes both at once. In the HPDC paper a reset is two operations:
//     between these, a writer would count too few readers.
//   - A reader that resets the counter sets a bit first, by a masked CAS. As published, two readers can reset it at once: one that arrives as the last
//     that may, beside a reader that still has to back out from the writers before; and one that does when that has backed out. Then more depart
//     than arrive.
//   - Messages carry the lock and the client that they are for, as those of lab/locks/mcs do. A writer that gives up leaves its client
//     ID to the agent (fabric.Port.Abandon), which does the rest under that ID.
//   - Try is a CAS from an empty queue: it never waits in it.
//
// # Fencing tokens
//
// A lock of 24 bytes has a third word: the token of the last writer that reset the counter. A handover carries the token along. With
// [Config.Plain] the lock is the published one: 16 bytes, and Token is always 0.
//
// # Failures
//
// There is no recovery. A client that crashes in the queue, or with the lock, breaks it for good; so does a reader that is counted.
//
// Source: P. Schmid, M. Besta, T. Hoefler, "High-Performance Distributed RMA Locks", HPDC 2016; J. Gao, Q. Wang, J. Shu, "ShiftLock:
// Mitigate One-sided RDMA Lock Contention via Handover", FAST 2025, section 4.1; published code github.com/thustorage/shiftlock.
package rmarw
