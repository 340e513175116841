// Package tcp is the fabric on any network: a software NIC on each memory node executes the operations of
// compute nodes, over TCP. Linux.
//
// A memory node ([Serve]) has memory, and a few workers that execute operations on it. A compute node
// ([Join]) has a connection, or a few, to each memory node, which its Ports share, and one each way to each compute node that
// it exchanges messages with. A member.Service has the membership: package coordinator has some.
//
// # What it promises
//
// All of fabric's contract. Masked and 16-byte atomics are there on every machine, and are atomic with each other and
// with 8-byte atomics. An aligned word of a READ or WRITE of any size is not torn; larger ones may be.
//
//   - A chain is one frame, unless it is larger than 64 KiB: then it is several, one behind the other. Chains
//     of a Port to a memory node execute in the order in which they were posted.
//   - Chains that many clients post go out with one write: a client that finds no writer at work writes all that has
//     gathered. A memory node executes all that one read brings, and answers with one write.
//   - A client that waits for an answer spins for a while, and takes the answers of others along; then it parks. A memory
//     node spins for a while, too. How long adapts to the traffic; an idle node uses no processor.
//   - At most 1024 frames of a lane are without answer; Post waits for room. Send never waits: up to a
//     million messages are kept for a compute node that does not take them; then Send is fabric.ErrResources,
//     until it takes them or is declared dead.
//
// # When connections break
//
// A compute node connects anew, for Options.DeadAfter at most. The memory node cuts the old connection
// before it lets the new one in, and says how many frames of the lane it has executed. So the frames that it has not
// executed are sent again, and so are those that only read. A chain that was executed, and of which the answer is
// lost, is fabric.ErrUnknownOutcome if it changes memory: it is never issued again. When the memory node cannot be reached
// chains are fabric.ErrNodeDown, and ErrUnknownOutcome if they may have been executed. Messages are sent again
// from the first that was not delivered: none is lost or doubled while both nodes are members.
//
// Until the memory node has cut the connection of a chain of unknown outcome, nothing that its compute node posts to it
// afterwards is executed. An interrupted Port waits 5 ms for an answer, then leaves its chain behind, which is the same.
//
// A connection on which an answer is due and nothing comes for Options.DeadAfter is broken, and so is one to a machine
// that acknowledges nothing.
//
// # Fencing
//
// A memory node lets in members of the newest state that it has, by their incarnations, and no other node. On a state without a
// member it cuts that node's connections, waits until none of its frames is being executed, and only then
// acknowledges the state. Then no frame of that node executes ever again, and its next operation is fabric.ErrFenced. A compute
// node cuts its connections to a memory node that is no member before it acknowledges.
//
// # Security
//
// TLS is mutual, and required unless Options.Insecure; then a node listens on the loopback, unless Options.Listen or
// Advertise say more. Certificates are verified against Options.TLS
// (ClientCAs and RootCAs), and say what a node may be, by DNS names: mn.declock for memory nodes, cn.declock for
// compute nodes. A certificate that also has names like mn3.declock is for those memory nodes only. The coordinator has the
// common name of a member's certificate with its address: a node that connects as that member, or is called as that
// member, must have a certificate with that name. So a node can speak for a member only with the coordinator's leave and the
// member's certificate; give each node a common name of its own.
//
// Addresses, alignment, lengths and the key of the memory are checked by the memory node. Frames, queues and
// times have bounds; a node that breaks the protocol loses its connection.
//
// # Wire protocol
//
// The connecting node sends a hello and is answered (frame.go draws both), within five seconds. Versions and
// capabilities are agreed on there. Then, on a lane (a compute node to a memory node), frames of operations go one way
// and their answers back, in order; on a link (a compute node to another), frames of messages go one
// way, and now and then back how many have been delivered. ops.go draws operations and messages.
//
// docs/tcp.md has the way of an operation and of a message, what is bounded, and figures.
//
// Source: DecLock, section 2.1, with software in the place of the NIC, and 4.6 (failure model).
package tcp
