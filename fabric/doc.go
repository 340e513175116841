// Package fabric is what an RDMA NIC offers, as Go: addresses in the memory of
// memory nodes, one-sided operations, chains, small messages, a clock and
// errors. It holds contracts and no I/O.
//
// Everything that DecLock does (locks, the object store, the index) is
// straight-line blocking code over a [Port], one client's view of the fabric.
// The same code runs over four backends:
//
//   - fabric/shm: one machine; memory nodes are shared memory, atomics are CPU atomics;
//   - fabric/sim: a deterministic cluster in virtual time;
//   - fabric/verbs: RDMA NICs through libibverbs;
//   - fabric/tcp: any network; a software NIC on each memory node.
//
// fabric/fabrictest is the conformance suite that every backend passes. What
// it checks is what this package promises:
//
//   - A chain of operations ([Port.Do]) goes to one memory node with one
//     doorbell and executes there in order. Where real NICs need a fence flag
//     between a READ or an atomic and what follows, the backend sets it.
//   - 8-byte aligned atomics are atomic among themselves, and where [Caps] says so with those by CPU ([Local]). An aligned
//     word of a READ or WRITE is not torn. Anything larger may tear at any
//     8-byte boundary, in any order (NICs tear at 64 bytes; CPUs at 8).
//   - Completion of a WRITE means that later operations of this Port see it.
//     Other Ports see it once they learn of the completion.
//   - Messages are reliable and FIFO per pair of clients, and a message is
//     delivered after the effects of all operations that its sender completed
//     before sending it.
//   - Every completion has a status, and every status is an error of this
//     package. An atomic whose outcome is unknown is never issued again.
//
// docs/shm.md, docs/tcp.md and docs/rdma.md say how backends work; docs/failures.md how each keeps a crashed node out.
//
// Source: DecLock, section 2.1 (architecture) and 4.6 (failure model).
package fabric
