// Package tcp is the fabric on any network: a software NIC on each memory node executes what
// compute nodes ask for, over TCP. Linux.
//
// A memory node ([Serve]) has memory, and a few workers that execute operations on it. A compute node
// ([Join]) has a connection, or a few, to each memory node, which its Ports share, and one each way to each compute node that
// it exchanges messages with. Who is there, a member.Service says: package coordinator has some.
//
// # What it promises
//
// All of fabric's contract. Masked and 16-byte atomics are there on every machine, and are atomic with each other and
// with 8-byte atomics. An aligned word of a READ or WRITE of any size is not torn; larger ones may be.
//
//   - A chain is one frame, unless it is larger than 64 KiB: then it is several, one behind the other. Chains
//     of a Port to a memory node execute in the order in which they were posted.
//   - What many clients post goes out with one write: who finds that nobody is writing writes what has
//     gathered. A memory node executes all that one read brings, and answers with one write.
//   - Who waits for an answer looks for it himself for a while, and takes those of others along; then he sleeps. A memory
//     node looks for a while, too. How long follows what comes; an idle node uses no processor.
//   - At most 1024 frames of a lane are without answer; Post waits for room. Send never waits: up to a
//     million messages are kept for a compute node that does not take them; then Send is fabric.ErrResources,
//     until it takes them or is declared dead.
//
// # When connections break
//
// A compute node connects anew, for Options.DeadAfter at most. The memory node shuts the old connection
// out before it lets the new one in, and says how many frames of the lane it has executed. So what it has not
// executed is sent again, and so is what only reads. A chain that was executed, and of which the answer is
// lost, is fabric.ErrUnknownOutcome if it changes memory: it is never issued again. When the memory node cannot be reached
// chains are fabric.ErrNodeDown, and ErrUnknownOutcome if they may have been executed. Messages are sent again
// from where the receiver has got to: none is lost or doubled while both live.
//
// Until the memory node has cut the connection in which a chain of unknown outcome was, nothing that its compute node posts to it
// afterwards is executed. An interrupted Port waits 5 ms for an answer, then leaves its chain behind, which is the same.
//
// A connection on which an answer is due and nothing comes for Options.DeadAfter is broken, and so is one to a machine
// that acknowledges nothing.
//
// # Fencing
//
// A memory node lets in members of the newest state that it has, by their lives, and nobody else. On a state without a
// member it cuts his connections, waits until none of his frames is being executed, and only then
// acknowledges the state. Then no frame of his executes ever again. He gets fabric.ErrFenced from his next operation. A compute
// node cuts its connections to a memory node that is no member before it acknowledges.
//
// # Security
//
// TLS is mutual, and required unless Options.Insecure; then a node listens on the loopback, unless Options.Listen or
// Advertise say more. Certificates are verified against Options.TLS
// (ClientCAs and RootCAs), and say what a node may be, by DNS names: mn.declock for memory nodes, cn.declock for
// compute nodes. A certificate that also has names like mn3.declock is for those memory nodes only. The common name of a
// node's certificate is part of what it tells the coordinator about itself: who connects as that member, or is called as that
// member, must have a certificate with that name. So nobody can speak for a member
// who has not the coordinator's leave or not the member's certificate; give each node a common name of its own.
//
// Addresses, alignment, lengths and the key of the memory are checked by the memory node. Frames, queues and
// times have bounds; who breaks the protocol loses his connection.
//
// # Wire protocol
//
// Who connects sends a hello and is answered (frame.go draws both), within five seconds. Versions and
// capabilities are agreed on there. Then, on a lane (a compute node to a memory node), frames of operations go one way
// and their answers back, in order; on a link (a compute node to another), frames of messages go one
// way, and now and then back how many have been delivered. ops.go draws operations and messages.
//
// Source: DecLock, section 2.1, with software in the place of the NIC, and 4.6 (failure model).
package tcp
