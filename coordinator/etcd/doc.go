// Package etcd keeps the membership of a cluster in etcd (version 3.4 or later):
// an implementation of fabric/member.
//
//	c, err := etcd.New(ctx, etcd.Options{Endpoints: []string{"http://10.0.0.1:2379"}, Cluster: "demo"})
//	m, err := c.JoinCN(ctx, "10.0.0.2:7000", ready)
//
// # Keys
//
// All under /declock/CLUSTER/. An incarnation is the ID of the etcd lease that the node keeps alive; leased
// keys go with it.
//
//	format           2                        version of this layout; another one is refused. 3: with groups
//	history          PXGK..                   a random value, another one with each change of the State that is not the end of a lease
//	live/cn/007      7587..                   leased   number 7 is taken by this incarnation
//	live/mn/00000    7587..                   leased
//	node/cn/007      {"life", "addr", ..}     a member; or, once its live key is gone, one that is being
//	node/mn/00000    {"life", "addr", "size", "epoch", ..}   fenced; "gone" then says "left" or "died"
//	ack/694d..       1234                     leased   this incarnation (hexadecimal) acts on all revisions up to it, that of a change of history
//	epoch/00000      3                        the last epoch of a memory node
//	served/00000     3                        the last epoch in which its join succeeded (those that failed have counted epoch/)
//	forgotten/00000  3                        the epoch with which a memory node was forgotten: it is not expected back
//	group/00000      {"term", "epoch", ..}    the hosts with copies of a replicated memory-node number, and the one that serves it: member.Group
//	lost             2                        compute nodes that have crashed
//
// Each step is one transaction, which fails if another was faster:
//
//	reserve   no live and no node key: put live (and epoch+1, or one more than the node's last, if that is larger)
//	publish   our live key is there: put node, history
//	leave     our node key is as we wrote it: put node with gone=left (or died, as the node says), history, delete live
//	note      a node key without live key and gone, and history is as read: put node with gone=died, history.
//	          From its revision on nodes can be asked to acknowledge it
//	forget    a node key with gone, and all members' acks are at its revision or later, and (of a
//	          compute node) no memory node has gone, and history is as read: put history, delete node; lost+1 if it died
//	forgetMN  a memory node without live and node key, whose epoch is as we read it: put forgotten, history
//	group     a group is to become another, because nodes have come, gone or acknowledged, or because a node wishes that; history, the
//	          group and its epoch are as read, and the live key of its primary is there: put group (and epoch), history
//	ack       history is as read, and our ack key not older than we wrote it: put ack
//	joined    our live and node keys are as we wrote them, and all have acknowledged: the join is over (put served, of a memory node)
//
// The words "life", "died" and "note" are of the format of the keys: life is the incarnation, gone=died says that the node crashed or was
// fenced, and the step note records that.
//
// Any member may note, forget and change groups: the first does. For what waits for acknowledgements that is a memory node, or a compute node if no memory node is a
// member: others do not watch ack keys once they have joined, or each change would cost etcd the square of the members. Each step is one of member.Ledger's, and what the keys
// mean is read into one, which says what the State is, which number is free, and which nodes are to be forgotten.
// The revision of a State is etcd's.
//
// # Failures
//
// A member that does not reach etcd goes on, and tries again and again, some times a second. It is
// fenced when etcd says that its lease is gone, or that its live key is. While etcd itself is away no lease
// runs out, and after it comes back each has its full time again: so crashes of that time are noticed late.
//
// An etcd that has lost its data knows no lease: all members are fenced, and may join again. A memory node brings its epoch along.
//
// An etcd that was restored from a backup has lost what was changed since, and others may go by that. As often as it renews its lease a node looks
// whether etcd's revision is lower than one that it has seen, and whether its own ack key is older than it wrote it; if so, it is
// fenced. The second finds all changes that were acknowledged, also when other writes have passed the old revision: each member acknowledges each change.
// A change that was lost before a node acknowledged it was not acted on by all, so that node goes on:
// the history key keeps what is lost and what has come instead apart. A view takes in a change of history only if it replaces the value
// that the view has (the watch tells of both); else the keys are listed anew. An acknowledgement is written only while history has the value that the view has,
// and for a state of before such a listing not at all. The node has acted on a State of the view's revision already: when a listing of another history has the
// same revision, it gives history a new value, which moves etcd on, and lists the keys again.
//
// A join of which only the answer to the last step was lost fails, and has put served all the same.
//
// A watch that is cut off, or whose revisions have been compacted, begins again with
// a new listing.
//
// # Versions
//
// Format 1 has neither history nor served. A cluster of format 1 is refused while it has a live key; if it has none, the first node that joins puts format 2, and nodes of the
// version before refuse that.
//
// Format 3 is format 2 with groups (docs/replication.md). The first memory node with replicas puts it, if the cluster has no live key: else it is refused. A
// program that does not know groups would take a spare for the memory node with its number.
//
// docs/restarts.md says what becomes of a cluster when etcd loses its data, docs/incarnations.md which numbers show it.
package etcd
