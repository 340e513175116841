// Package coordinator keeps the membership of a cluster: it implements the
// contract of fabric/member, which fabrics between machines need.
//
//   - [Memory] is a coordinator in this process, for tests and for clusters of one process;
//   - coordinator/etcd keeps the membership in etcd;
//   - coordinator/embedded runs an etcd server in this process, for clusters on one machine.
//
// coordinator/coordtest is the conformance suite that both pass, and the one of the simulator (fabric/sim).
// The rules are those of member.Ledger for all three.
//
// What every coordinator promises, in the order of a node's membership:
//
//	reserved   it has a number and an incarnation, and no other node knows (ready is called)
//	joined     all states show it; Join returns when all members have acknowledged that
//	gone       it has left or crashed: in Fencing, until all members have acknowledged that, and
//	           there is no memory node that has gone and whose end is not acknowledged by all
//	forgotten  its number is free; Lost has grown if it crashed
//
// docs/failures.md (Membership) has the rules for each fabric.
//
// Source: DecLock, sections 4.4, 4.6 and appendix B (the coordinator that it
// takes for given).
package coordinator
