// Package hier is DecLock's hierarchy: one participant for each compute node
// in the queue on the memory node, a local lock for its clients, and policies
// that decide whether a released lock stays on the node.
//
// [Locker] is one client's lock.Locker; all clients of a compute node share a
// [Table] of local locks. A local lock exists while a client of the node holds or
// wants the lock; an idle lock costs the node nothing. [Agent] is the node's
// side of resets; it must run beside the clients.
//
// The policies ([ParsePolicy]) are the paper's: flat (no hierarchy),
// remote-prefer, local-prefer, local-bound, and by timestamp, task-fair or
// phase-fair. By timestamp a lock stays on the node if the first local
// waiter asked earlier than all who wait in the remote queue. The timestamps
// of those are prefetched by clients that begin to wait locally, and come with the grant.
//
// # Difference from the paper
//
// In the paper's timestamp policies readers that join local holders never
// look at the remote queue, so a node with enough readers starves the writers of
// others. Here they join without looking for [DefaultSharing] only; then they
// queue and look. The paper's behaviour is there as "paper-tf" and "paper-pf".
//
// No mutex is held across a fabric call: while a remote operation is
// under way, the local lock is in a state (acquiring, releasing, ..) that
// others queue behind.
//
// Source: DecLock, section 5, Fig. 9 to 11.
package hier
