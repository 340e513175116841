// Package drtm is the lock of DrTM: writers acquire by CAS, readers set a lease that ends by itself.
//
// The word is free, names the compute node of a writer, or says until when readers may read. A writer acquires by CAS from a free
// word or from a lease that has expired, and releases by CAS. A reader acquires by CAS to the time that is a lease from now, or joins
// the lease that it finds while that is valid; its release is no operation. Waiting clients repeat their CAS: there is no
// queue, and no fairness. A writer behind a reader waits until the lease has expired, however soon the reader is done.
//
// Clocks of compute nodes must agree to within [Config.UncertaintyNs]: a lease is valid until that long before its end, and expired
// that long after it. So two clocks that differ by up to twice the uncertainty never see one lease as valid and as expired.
//
// An acquisition without contention is one chain, with the caller's READs in it. The word of a lock that readers had last is
// their expired lease, so the next CAS from a free word fails, and a second one follows.
//
// # Differences from the paper
//
//   - DrTM aborts a transaction that meets a conflict, and runs it again. A lock waits: each try follows the one before, as in ShiftLock's
//     published comparison, from which the constants are.
//   - The paper joins any lease that has not expired, and notices at commit that it is too late. So does this; ShiftLock's comparison joins one only
//     if half of it is left, and else tries again: [Config.Half].
//   - DrTM confirms leases when a transaction commits. Here that is the release of a reader: after the lease it is lock.ErrLost, and the
//     operations given to it are not executed.
//   - Times are in microseconds: in nanoseconds, as in the published comparison, 55 bits last for a year.
//   - A transaction's leases end at one time; this lock knows no transactions, so each lease has its own end.
//
// # Fencing tokens
//
// A lock of 16 bytes has a second word that counts exclusive grants, as lab/locks/cas has. With [Config.Plain] the lock is the paper's: 8 bytes,
// and Token is always 0.
//
// # Failures
//
// A crashed reader's lease ends by itself. A crashed writer's node is in the word, with its incarnation: once that node has left the view,
// which is after all memory nodes have cut it off, or another has its number there, a client that wants the lock takes it by CAS from that word. (DrTM first replays the
// writer's log; a lock has none.) A fabric without incarnations (fabric.Members) does not tell the two nodes apart. Exclusion of readers rests on clocks and on time: a reader that stands still between looking at its
// clock and using what it has read can use what is another's by then.
//
// Source: X. Wei, J. Shi, Y. Chen, R. Chen, H. Chen, "Fast In-memory Transaction Processing using RDMA and HTM", SOSP 2015, section 4;
// J. Gao, Q. Wang, J. Shu, "ShiftLock: Mitigate One-sided RDMA Lock Contention via Handover", FAST 2025, section 4.1; published code
// github.com/thustorage/shiftlock.
package drtm
