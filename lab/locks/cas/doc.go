// Package cas is a reader-writer spinlock on one word, acquired by remote
// compare-and-swap: what applications on disaggregated memory commonly use, and
// CASLock in the evaluation of DecLock (section 6). It has no queue and no
// fairness, and it spins through the memory node's NIC: that is the problem
// which DecLock solves.
//
// A writer acquires by CAS of the whole word from 0. A reader acquires by FAA
// of the reader count: it is granted at once if there is no writer; else it
// stays counted and polls by READ until the writer has gone, so that readers
// alone never retry. Both release by FAA. Readers overtake waiting writers.
// With [Config.ReleaseByCAS] a writer releases by CAS of the whole word, again and again while readers
// come, as published locks do: it holds the lock for longer.
// With [Config.Adaptive] the longest backoff adapts to the share of tries in vain, as in SMART and in the CAS lock of ShiftLock's evaluation. (Its clients
// adapt after 64 acquisitions at the earliest, and release by CAS; here after each, and by FAA.)
//
// An acquisition without contention is one chain, with the caller's READs in
// it; a release is one chain with the caller's operations before it.
//
// # Fencing tokens
//
// A lock of 16 bytes has a second word that counts exclusive grants. The
// writer's FAA of it travels in the chain of the acquire: tokens grow with
// every exclusive grant, also when a holder crashed and its lock was cleared, as
// long as only the first word is cleared. A failed try costs a token, and no
// harm is done. With [Config.Plain] the lock is the literature's: 8 bytes, no
// second operation, and Token is always 0.
//
// # Failures
//
// The word names the writer, so [Owner] tells whom a lock waits for. A
// reader leaves no name. Only a caller that knows that all holders are
// gone can clear a lock: there is no reset. If the outcome of an atomic is
// unknown (fabric.ErrUnknownOutcome), the lock may stay held by no client.
//
// Source: Y. Chung and E. Zamanian, "Using RDMA for lock management", 2015
// (arXiv:1507.03274); truncated exponential backoff as in DSLR+ (DecLock, section 2.3), or of F. Ren et al., "Scaling Up Memory Disaggregated Applications
// with SMART", ASPLOS 2024, section 4.3, by the published code of ShiftLock, github.com/thustorage/shiftlock.
package cas
