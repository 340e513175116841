// Package inbox is the part of a message that happens inside one compute node:
// the inboxes of its clients, which of them has which [fabric.ClientID], and how a client
// waits. The backends that run in real time (shm, tcp, verbs) share it; what
// brings a message from another node is theirs.
//
// A [Table] has the clients of one node. A [Box] is one client's inbox, for the
// lifetime of its Port: when the Port abandons its ID, the Box stays and gets a new
// one, and the old ID leads to the agent's Box until [Table.Retire].
//
// What it promises is what fabric.Port says of Recv, Pause, Interrupt and
// Abandon. Messages of one sender stay in order, across Abandon too.
//
// A waiting client first looks, then yields the processor a few times (a
// client of the same process often answers within a microsecond), and parks
// only then. Parking arms a timer only where the one that is armed already
// would come too late, so that a client which waits a million times with a
// deadline of a second arms about one timer a second.
package inbox
