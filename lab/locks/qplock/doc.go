// Package qplock is the asymmetric lock: clients on the machine of a lock's memory node use it by their CPU, all others by NIC, and neither kind needs
// atomics that are atomic with those of the other.
//
// Clients are in one of two cohorts, local and remote ([fabric.Local], Near). A cohort is an MCS queue with a tail of its own, which only its members change by CAS. The head of
// the queue is the cohort's leader; the two leaders agree by Peterson's algorithm, for which loads and stores are enough: a leader names its
// cohort as the victim, and waits until the other's tail is empty, or the other is the victim. A holder hands
// the lock to the next of its cohort with a budget less by one. What gets an empty budget yields: it is a leader again, and waits as one.
//
// [Locker] is one client's lock.Locker. [Agent] must run beside the clients of a compute node: it takes over the tickets of
// waiters that gave up. There is no shared mode: Shared requests are granted one at a time.
//
// With [Config.ALock] it is ALock, by the same group and the same algorithm, as its authors published it: a cache line for each lock, a victim that
// remote leaders swap in by CAS, a READ of the whole lock while they wait, and a remote release that always begins with its CAS.
//
// # Differences from the papers
//
//   - A WRITE into another client's descriptor (next, budget) is a message here: memory of compute nodes has no addresses. So a queued client
//     waits in its inbox. Messages between clients of one compute node use no NIC.
//   - "Remote processes avoid remote spinning" holds for clients in the queue. The leader of the remote cohort does READ the memory node until it is let in,
//     in the paper's Algorithm 1, too; there is one at a time.
//   - A waiter that gives up leaves its client ID, and its ticket, to the node's agent, as in lab/locks/mcs. A leader that gives up frees its cohort's tail, or
//     hands an empty budget to the next, which makes that the leader.
//   - Try is a CAS from null, and one look at the other cohort.
//
// # Fencing tokens
//
// A lock with tokens has one word more: the token of the last holder that left its cohort. Only a holder, or what yields, writes it, so that needs no
// atomics either. With [Config.Plain] the lock is the papers', and Token is always 0.
//
// # Failures
//
// There is no recovery: the papers assume that accesses to memory are free of failures. A client that crashes in a queue breaks it for good.
//
// Source: J. Nelson-Slivon, L. Tseng, R. Palmieri, "Technical Report: Asymmetric Mutual Exclusion for RDMA", 2022, Algorithms 1 and 2 and appendix A; A.
// Baran, J. Nelson-Slivon, L. Tseng, R. Palmieri, "ALock: Asymmetric Lock Primitive for RDMA Systems", SPAA 2024, by its abstract and its
// published code (github.com/sss-lehigh/alock), of which the budgets are, too.
package qplock
