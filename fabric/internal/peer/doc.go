// Package peer is what the fabrics between machines, tcp and verbs, share: all of a node but the part that moves bytes.
//
//	 compute node                                                  memory node
//	+-----------------------------------------------+             +---------------------------------------+
//	| Port    table of chains, turns of goroutines  |             | Server  joins, acts on states, is     |
//	| Node    joins, acts on states, fences, leaves |             |         given up, joins again        |
//	| Remote  a memory node in one epoch            |             +---------------------------------------+
//	| Link    messages to one compute node, kept    |             | Lender  lets compute nodes in, and    |
//	|         until they are delivered              |             |         shuts them out                |
//	+-----------------------------------------------+             +---------------------------------------+
//	| Mover, Network, Lanes, Wire                   | ----------> |         lanes, queue pairs, memory    |
//	+-----------------------------------------------+             +---------------------------------------+
//
// The upper half is here, the lower half in each fabric: frames and lanes over TCP sockets, queue pairs and completions on
// RDMA NICs. Both kinds of node have a [Door], through which others connect, and a [Standing], the state of the cluster that they act on. A
// node acts on a state before it acknowledges it: a compute node ends its Remotes to memory nodes that have gone, and delivers what
// compute nodes that have gone had sent; a memory node evicts them. Package member says what that promises.
//
// # Locks
//
// Node.Mu and Server.Mu are held while a node acts on a state, and while it lets another in: so a node is let in by the state in force, and by no
// other. Link.Mu and the mutexes of a fabric come after them.
package peer
