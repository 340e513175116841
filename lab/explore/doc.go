// Package explore executes a small program under every schedule: every order in which the events of its clients can happen.
//
// A program is a function that adds nodes, clients and checks to an empty [Cluster]. [Explore] executes it again and again, by
// depth-first search: one execution for each schedule that is not known to be equal to another. A failure comes as a [Schedule], shrunk,
// which [Replay] executes again.
//
//	Explore -- search ---- explorer ---------- sim.Untimed
//	           which       one execution:      the cluster:
//	           choices     what can happen,    what happens,
//	           are new     what clients know   what it has to do with
//
// # Events
//
// The events are: the effect of the next operation of a chain (in order, for each client and memory node), the delivery of the
// next message between two clients, a client that goes on when what it waits for has come, a deadline that passes, the fencing of a
// killed node, and actions ([Cluster.Sometime]). Messages over a link that is cut ([Cluster.SometimeCut]) never arrive. A run ends when
// nothing more can happen.
//
// # States
//
// A client is a function of what it has been told: results, messages, errors, times, views. Clients of one compute node share its
// memory, so a node is a function of what its clients were told, in that order. Hence a state is: the memory nodes; what
// each compute node has been told; chains, messages and inboxes; clocks; and what the
// caller's oracles remember ([Cluster.HashWith]). Where it is known what a node's clients share ([Cluster.NodeState]), the node is a function
// of that, and each client of what it was told and of what it found there. A state met again is not explored again. 64-bit hashes
// are compared: of a million states, two are taken for one with a chance of 3 in 100 million.
// Clients of different nodes must not communicate but through the fabric. Config.Audit checks what programs say of their states.
//
// # Schedules that are not executed
//
// A client goes on at once, without a choice, when it is the only one of its node
// that ever does something (the agent's start does not count) and no action
// or fence that concerns the node is outstanding: no other node then sees when it does, for what it posts and sends
// takes effect by events of its own. Which nodes are so is assumed. When another client of
// such a node becomes active, exploration starts anew without the assumption. (If
// there is a schedule in which it becomes active, up to that moment it is
// equal to one that was executed, which has the same message on its way.)
//
// A message is delivered when its receiver waits for one, and the receiver goes on with it at once: only the receiver
// can tell since when it was in the inbox. That is not so for messages of a node that may be fenced meanwhile, for those
// to a client that is interrupted, and as long as clocks may tick.
//
// What happens on a compute node goes by that node's part of the state, by what everybody goes by, and by the words of memory that it is
// about; and it changes nothing else. So what it led to once, it leads to again. Where that is a state that need not be explored, it is not
// executed.
//
// With Config.Sleep, two events that have nothing to do with each other are tried in one order only: sleep sets, and what sleeps is kept
// with each state. What an event has to do with (words of memory, Ports, memory that clients of a node share, oracles) is
// noted while it happens ([sim.Footprint]).
//
// An execution begins like the one before it. That part is repeated without a look at what else could happen, and without hashes.
//
// docs/explored.md has what was explored.
package explore
