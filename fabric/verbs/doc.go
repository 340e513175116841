// Package verbs is the fabric on RDMA NICs: InfiniBand, RoCE, Soft-RoCE, through
// libibverbs.
//
// A memory node ([Serve]) registers memory and connects compute nodes; then its
// processor has nothing to do with what they do to its memory. A compute node
// ([Join]) has a few queue pairs to each memory node, which its Ports share, and two
// to each compute node that it exchanges messages with.
//
//   - A Port always uses the same queue pair of a memory node, so that its chains execute in the order in which
//     they were posted. A chain is one list of work requests and one doorbell; only
//     its last operation is signalled; a WRITE that fits goes inline; an operation behind a READ or an atomic that
//     it must not overtake has the fence flag.
//   - What does not fit into a queue pair waits in a queue. Nothing is refused for want of room.
//   - A client polls for its own operation for a while (and handles the completions of others), and then parks.
//     One goroutine, the pump, waits on the completion channel and wakes parked clients; messages are delivered
//     by it, or by a client that waits for one. An idle node uses no processor.
//   - Addresses, alignment and buffers are checked before anything is posted: a bad address would cost all clients
//     the queue pair. So ErrOutOfBounds does not come from the NIC, which however enforces the same bounds.
//   - A queue pair that fails is replaced. Chains that were posted and have not completed then are
//     ErrUnknownOutcome and never issued again; chains behind them that were not posted go on. Messages are
//     sent again from the first that was not delivered: none is lost or doubled.
//
// # Control
//
// Each memory node and compute node has a control service on TCP, by which queue pairs
// get to know each other, under a shared secret or mutual TLS. A certificate has the DNS name cn.declock or mn.declock, or
// both: what its owner may be (with mn3.declock and the like, only those memory nodes); and its common name, which the
// coordinator has with the address, so that no node can speak for another. The coordinator has the membership
// (package fabric/member). A memory node that acts on a state without a compute node has destroyed its queue pairs
// before it acknowledges that, and only when all have the others get a view without it: no late WRITE can
// reach memory. The next operation of a node that was given up, and still runs, is ErrFenced.
// A memory node that the coordinator has given up is cut off in the same way, by the compute nodes. It joins again by
// itself, with its memory, in a new epoch and with a new key. While the coordinator is away no node joins and none is given up; all others go on.
//
// Interrupt of a Port ends Recv and Pause. It does not end Do, Post and Wait: these return when the device has answered or
// given up, or the connection is replaced, which takes up to 20 s. Until then the device reads and writes the memory of the operations.
//
// Another goroutine may close a Port, or the node, meanwhile: no memory of the Port is given to another, or unmapped, before the garbage collector finds
// that the Port is unreachable. So keep the Port for as long as you use memory of its Alloc.
//
// # Building
//
// The library is loaded when the program runs: a program runs everywhere, and Serve and Join
// say [ErrUnavailable] where the library is missing. What is needed to build
// is cgo and infiniband/verbs.h (Debian: libibverbs-dev). Without them the package
// builds too, as a stub that says what was missing; with the build tag verbs, missing headers stop the build instead.
//
// docs/rdma.md says how to set it up and tune it.
//
// Source: DecLock, section 2.1 (one-sided verbs) and 4.6 (failure model).
package verbs
