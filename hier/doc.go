// Package hier is DecLock's hierarchy: one participant for each compute node
// in the queue on the memory node, a local lock for its clients, and policies
// that decide whether a released lock stays on the node.
//
// [Locker] is one client's lock.Locker; all clients of a compute node share a
// [Table] of local locks. A local lock exists while a client of the node holds or
// wants the lock; an idle lock costs the node nothing. [Agent] is the node's
// side of resets; it must run beside the clients.
//
// The default policy ([DefaultPolicy], "declock") goes by timestamp, phase-fair, with all features but slack: a lock stays on the node
// for all clients that waited there when the node got it (batch), then as long as the first local waiter asked earlier than all waiters
// of the remote queue, as far as these are known. Their timestamps come with the grant, or are prefetched by clients that begin to wait
// locally. The other policies ([ParsePolicy]) are the paper's: no hierarchy ("cql", in the code [Flat]), remote-prefer, local-prefer,
// local-bound, and by timestamp, task-fair or phase-fair.
//
// # Difference from the paper
//
// In the paper's timestamp policies readers that join local holders never
// look at the remote queue, so a node with enough readers starves the writers of
// others. In the policies "declock*" they join without looking for [DefaultSharing] only, which doubles up to [MaxSharing] while no
// client of the node wants to write; then they queue and look. The paper's behaviour is there as "paper-tf" and "paper-pf".
//
// # States of a local lock
//
// A local lock is in one of these states. No mutex is held across a fabric call: while a remote operation is
// under way, the local lock is in a state (acquiring, releasing, ..) that others queue behind. "x --event--> y" is a legal
// transition; there are no others (machine.go, where each state has its meaning). Behind it is when it happens (guard), and what is done
// (action). A lock that is not contended goes idle, acquiring, held, releasing, idle.
//
//	idle --begin--> acquiring           a client wants the lock, and no other of the node has it: it is the owner, and posts the FAA
//
//	acquiring --grant--> held           the header was free for the owner; or the owner is a reader, and was granted by range before it had written its entry
//	acquiring --enqueue--> waiting      the entry is written
//	acquiring --abort--> parked         the header refuses the owner, or the reset that froze it counts its index
//	acquiring --choose--> acquiring     the owner gives up, and the first waiter is the owner: the fabric failed, Try found the lock busy, the deadline came
//	                                    (also after a fail in waiting or early), or the header is corrupt or exhausted
//	acquiring --forget--> idle          the same, and no client waits
//	acquiring --freeze--> acquiring     a reset: it waits until the owner has its entry, and is aborted
//
//	waiting --grant--> held             the grant for the index came, or the head is at it
//	waiting --abort--> parked           the agent said so, for a reset
//	waiting --quit--> abandoned         deadline or interrupt, and not frozen: the client hands its ID to the agent, which gets the grant
//	waiting --fail--> acquiring         deadline or interrupt, and frozen; or the fabric failed: a reset removes the ticket
//	waiting --arrive--> early           the grant came to the agent: the client is giving up, and has not said so yet
//	waiting --freeze--> waiting         a reset with a bound above the index: the agent sends the abort
//
//	early --quit--> abandoned           the client has given up: the agent is sent the grant again
//	early --fail--> acquiring           the same, and frozen: a reset removes the ticket
//	early --arrive--> early             a grant can come twice
//	early --freeze--> early             as of waiting
//
//	abandoned --grant--> held           the agent holds the lock for a moment, and releases it
//	abandoned --take over--> acquiring  the memory node has restarted: no grant comes, a client begins in the new epoch
//	abandoned --choose--> acquiring     a reset with a bound above the index, or the memory is gone: the first waiter is the owner
//	abandoned --forget--> idle          the same, and no client waits
//
//	held --share--> held                a reader joins the readers that hold, or is granted with them
//	held --unshare--> held              a holder releases, and others hold
//	held --hand over--> held            the last holder releases, and the policy keeps the lock for the first waiter; not if frozen
//	held --release--> releasing         the last holder releases, and there is no such waiter: it posts the FAA
//	held --choose--> acquiring          the last holder releases a lock that was lost: nothing is posted
//	held --forget--> idle               the same, and no client waits
//	held --set aside--> lost            the memory node has restarted, and the loss is reported: others begin anew (fabric.Caps.CutsEpochs)
//	held --freeze--> held               a reset: it waits until the last holder releases
//
//	releasing --choose--> acquiring     the release is done: the policy says which waiter is the owner
//	releasing --forget--> idle          the same, and no client waits
//	releasing --freeze--> releasing     a reset: it waits for the end of the release
//
//	parked --resume--> acquiring        the reset is over: the owner posts the FAA again
//	parked --choose--> acquiring        deadline, interrupt or failure: the first waiter is the owner
//	parked --forget--> idle             the same, and no client waits
//
//	lost --unshare--> lost              a holder releases, and others hold
//	lost --forget--> idle               the last holder releases: the local lock is garbage
//
// A lock that is frozen is so until an event by which the node is no participant any more, or a later one (enqueue, abort,
// choose, forget, set aside): then the agent learns that the reset needs not wait (cql.Client.Quiesced).
//
// # Recovery
//
// What a node knows of failures is in one place (recovery.go): clients record what they meet (leftover.go, incarnation.go), and the agent deals with it (repair.go).
//
//	what has happened                                      is recorded as   and means                                until
//	a client gave up before a reset was over, or an        leak            the header may count a ticket too        a client of the node is
//	operation of it has an unknown outcome                                 many: the next acquisition looks         admitted
//	                                                                       before it adds itself
//	a ticket could not be given up: the memory node        unreleased      the agent has the lock reset             the memory node answers
//	does not answer, or the client was closed
//	the agent has sent itself a request for a reset        asking          the node has left neither its locks nor  the agent has handled
//	                                                                       the cluster                              the request
//	an operation may still take effect                     mark            the node answers no reset of the lock    a later chain is executed
//	a compute node has crashed, a memory node restarted    suspected       waiters look often, and ask for resets   a minute, or the reset
//	a memory node has restarted                            over            holds are lost, waiters begin anew,      the agent has set the
//	                                                                       a client attaches when it holds nothing  lost holds aside
//	a memory node has lost its memory                      losses          each client is notified once
//	the cluster has given this node up                     ended           nothing begins, nothing is handed over
//
// docs/protocol.md has the policies and the values that stay with a lock, docs/failures.md what is promised after a crash,
// docs/incarnations.md the numbers that are compared, and docs/walks.md the way of a contended lock through the code.
//
// Source: DecLock, section 5, Fig. 9 to 11.
package hier
