// Package server is locking by messages to a server: the RPC lock of ShiftLock's evaluation, and the traditional lock manager of DSLR's, with its
// variant in which readers pass writers.
//
// [Locker] is one client's lock.Locker. [Agent] must run on each compute node; that of the node with the lowest number is the server. It has
// the table of all locks: what lies in a lock's memory means nothing, and its address is its name.
//
// A client sends a request and waits for the answer. What comes then depends on [Config.Kind]:
//
//   - [Retry]: the server refuses a lock that is not free for the mode, and the client asks again at once;
//   - [Queue]: the server puts the request at the end of the lock's queue, and answers when it is its turn;
//   - [ReadersFirst]: so it does, but readers are granted a lock that readers hold though writers wait: at most [Config.Passes] before one writer.
//
// A release is a message without an answer, sent when the operations before it have been executed. With [Config.Answered] the client waits for an answer to it.
//
// The server has some workers ([Config.Workers]) that take one request after the other, in the order of arrival, and each takes some time for
// one ([Config.ServiceNs]): so in virtual time its CPU is a bottleneck, as in the papers. In real time requests take what they take.
// All answers of a server are sent from one Port, one after the other: in the simulator that is one posting core, which sends 3 to 4 M messages a second
// with the model cx4. So more than 8 workers of 1 us bring nothing (TestManagersScale of lab/bench); servers on several nodes do.
//
// With [Config.Homes] several compute nodes have a server each, of a part of the locks: ParLock of FissLock's evaluation, whose SrvLock is one server with 8 workers. Then the
// crash of one stops its part of the locks. The nodes have numbers one after the other. A client that is Near ([Locker.Near]) executes its requests for locks at its own node itself, without a message
// or a worker, as in ParLock's published code.
//
// # Differences from the papers
//
//   - The papers' servers run on the machine that has the memory. Memory nodes of this project have no programs, so the server is on a compute node,
//     and shares a NIC with its clients.
//   - In ShiftLock's published code a release waits for its answer, and a server has 47 threads, each of which waits until its answer has been acknowledged before it takes the
//     next request. That is "rpc:shiftlock" of lab/locks, but for the one machine: here a Port sends all answers of a node, so these threads are
//     dealt out to all compute nodes.
//   - A client that gives up sends a message, which takes its request out of the queue or releases the lock. DSLR's evaluation gives up after a number
//     of retries, and does not say how.
//   - Traditional locking in DSLR's evaluation has a lock manager on each node, for the objects of that node. With Homes there is one on each compute node, for
//     a part of the locks by a hash of the address, which is nearer to that than one server with as many workers.
//
// # Fencing tokens
//
// The server counts exclusive grants of each lock. With [Config.Plain] it forgets locks that no client holds or wants, and Token is always 0.
//
// # Failures
//
// When a compute node has left the view, which is after all memory nodes have cut it off, the server releases what its clients held, and forgets what
// they wanted; also if another node has its number by then, where the fabric tells one from the other ([Locker.Incarnation]). If the server itself crashes, its table is lost, and nothing replaces it:
// all that wait do so until their deadlines, and requests fail once its node has left the view. No node may join in its number before all others have left: it would serve with an empty table, and grant what others hold.
//
// Source: J. Gao, Q. Wang, J. Shu, "ShiftLock: Mitigate One-sided RDMA Lock Contention via Handover", FAST 2025, section 4.1; published code
// github.com/thustorage/shiftlock; D. Y. Yoon, M. Chowdhury, B. Mozafari, "Distributed Lock Management with RDMA: Decentralization without
// Starvation", SIGMOD 2018, sections 6.1 and 6.4.
package server
