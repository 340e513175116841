// Package dslr is DSLR, a ticket lock for readers and writers: Lamport's bakery on
// one word. FAA draws a ticket; a waiter polls the word by READ until the counters of
// clients that have left show its numbers. Grants are first come, first served.
//
// [Locker] is one client's lock.Locker. [Agent] should run beside the clients of a compute
// node: it waits with the tickets of those that gave up, and returns them.
//
// The variants differ in how a waiter pauses between polls ([Config.Wait]):
//
//   - [Dynamic], the paper's dynamic interval polling: in proportion to the tickets before it;
//   - [Truncated], DSLR+ of DecLock's evaluation: SMART's truncated exponential backoff;
//   - [Overflowing], DSLR+ as that evaluation ran it: the 64-bit backoff is doubled without
//     a bound and truncated only where it is used, so that after 62 polls it is 0, and the waiter
//     pauses for the random part only;
//   - [Busy], what the paper compares with: one poll follows the other.
//
// Counters are reset before they overflow, by the client that drew the last ticket of a
// cycle (section 4.9): until all before it have left, no client gets in, and readers do not join readers. A holder has a lease; a client that sees no progress for two leases assumes those
// before it to have crashed and moves the counters past them (section 4.7).
//
// # Differences from the paper
//
// To the letter, Algorithms 1 to 3 lose tickets, and exclusion. docs/findings.md has the
// interleavings. What is different, and why:
//
//   - A reader that waits is passed over only when nX is beyond its ticket. By
//     line 3 of Algorithm 2 it would also fail when nS is, but readers with later tickets may have left
//     before it looks: its ticket would be lost, and the lock stand still for two leases.
//   - Therefore a reader's reset (line 13) moves nX only, and the reader is then granted. The crashed
//     readers before it are left to the next writer that waits for them.
//   - Counters that go back mean that the lock has been reset to zero: the ticket is void.
//   - A ticket that is drawn when a counter is at its limit (lines 5 and 19 of Algorithm 1) is not withdrawn: an FAA could hit the
//     lock after its reset to zero, and a CAS succeeds for one client at a time, while those of the others keep the word from
//     the value that the reset waits for. It stays, one for each client at most, until the reset, which asks only that
//     all that were before it have left. Until then the client reads the word, with the same backoff. ([Config.Withdraw] is the letter, by FAA, to be measured.)
//   - A reset to zero on behalf of a dead client (line 8 of Algorithm 1, line 18 of Algorithm 2)
//     takes two steps two leases apart: first all tickets are passed over, so that
//     those that still wait can see it.
//   - A holder whose lease has expired never touches the lock, also not to reset its counters.
//   - A pause is no longer than half a lease, and grants are checked before failures.
//   - DSLR in ShiftLock's figures is that of its authors' code: a reader pauses for the writers before it alone ([Config.ForWriters]), 1862 ns each. (Its
//     counters have 32 bits, and need no reset, and its lease is 1 s where no client fails. Here they are the paper's.)
//   - A client that is passed over, or has reset the lock, draws its next ticket by itself. The paper (section 4.7) has its transaction release all locks that it has, and begin again:
//     with [Locker.FailPassed] Acquire fails, and the caller does so.
//   - Try draws its ticket by CAS, and only if that is granted at once.
//   - A waiter that gives up takes its ticket back if no client depends on it yet; otherwise the agent
//     waits in its place. The paper lets the lease do that.
//
// # Update locks
//
// The paper (section 5.2) gives update locks two counters of their own, so that six share the word. They need none: a ticket for update is a writer's, granted as
// a reader's is, when all writers before it have left. Readers and writers with later tickets wait for it as for any writer. An upgrade waits until the readers before it have
// left, too. What is released without an upgrade while these still hold goes to the agent, which waits for them as a writer does: a reader that has not looked since
// its turn came would else take itself for passed over. So does a ticket for update that a waiting client gives up. An upgrade does not make the lease longer. A reader that has crashed is passed over by the next
// writer only, so a client whose upgrade ends with lock.ErrLost acquires the lock anew as a writer.
//
// # Leases of several slots
//
// With [Config.MultiSlot] a client that asks for a longer lease (lock.Request.LeaseNs) draws as many tickets as it takes, 100 at most, and gives all of them back (section 5.1).
// When counters are at their limit each client may draw its tickets in vain, and they stay until the reset. So that no counter runs over, (clients + 1) x slots is at most 32768: of more than
// 326 clients ([Config.Clients]) one that asks for more is refused ([Config.Check]). Clients that come in place of crashed ones count beside these until then.
// A waiting client takes those before it for crashed after two leases for each of their tickets: as the paper has it, in proportion to tickets, for one client may have them
// all. So the recovery of a lock takes longer the more clients waited before.
//
// # Fencing tokens
//
// A lock of 16 bytes has a second word that counts exclusive grants, as lab/locks/cas has; resets leave it
// alone. With [Config.Plain] the lock is the paper's: 8 bytes, and Token is always 0.
//
// # Failures
//
// Exclusion rests on time: a client whose release is under way for longer than a lease, or
// that stands still between looking at its clock and releasing, can release what is another's by
// then. That is the paper's assumption (section 4.1); a user who cannot make it needs the tokens.
//
// Source: D. Y. Yoon, M. Chowdhury, B. Mozafari, "Distributed Lock Management with RDMA:
// Decentralization without Starvation", SIGMOD 2018, section 4, Algorithms 1 to 3, and appendix A.3;
// F. Ren et al., "Scaling Up Memory Disaggregated Applications with SMART", ASPLOS 2024, section 4.3.
package dslr
