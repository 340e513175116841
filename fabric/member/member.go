// Package member is what a fabric between machines needs to know of its
// nodes: which of them are members of the cluster, how they are reached, which have
// crashed, and whether every memory node has cut them off. Contracts, and the rules by
// which a membership changes ([Ledger]), no I/O: package coordinator has implementations
// (etcd, and one in memory), and fabric/sim another, in virtual time.
//
// docs/failures.md (Membership) has the same for each fabric.
//
// # Fence before reset
//
// A compute node that is declared dead or leaves is out of [State.CNs] at once, and stays in
// [State.Fencing] until every member has acknowledged a state without it.
// A memory node acknowledges a state only when it has cut off
// every node that is not in its CNs: from then on nothing of a node that has gone can reach
// its memory. Compute nodes take members of both lists for live ([State.View]): so they
// reset a dead node's locks only when no late WRITE of it can land.
//
// A memory node that is cut off from the coordinator leaves [State.MNs], and cannot be
// waited for. Compute nodes stop using it before they acknowledge a state without it: they cut
// their connections to a memory node whose incarnation is not in MNs. While a memory node has gone and not
// all have acknowledged that, no compute node leaves Fencing: so a node that is dead for others
// cannot reach memory that others still use. When that memory node is a member again, in a
// new incarnation, it must have dropped all connections of before.
//
// # Joining
//
// Join returns when the ledger admits the new node ([Ledger.Admits]): all members have acknowledged a state with
// it, and so has every node that has gone since then, unless it is forgotten. All members can reach the new node before
// it is in any queue; and no node whose view lacks it can reach memory any more: a node whose lease has run out may be alive,
// and lead the reset of a lock without asking the new one.
//
// # Acknowledging
//
// Everything waits for acknowledgements: each member, compute node or memory node, joining or not, acknowledges
// each state soon after State has given it ([Member.Ack]). States may be skipped: an
// acknowledgement is for a state and all before it.
package member

import (
	"context"
	"slices"

	"github.com/declock/declock/fabric"
)

// An Incarnation names one membership of a node. Numbers of nodes are used again, incarnations never;
// 0 is none.
type Incarnation uint64

// A CN is a compute node that is a member.
type CN struct {
	ID          fabric.CNID
	Incarnation Incarnation
	Addr        string // where other compute nodes reach it, host:port; the fabric's business
}

// An MN is a memory node that is a member.
type MN struct {
	ID          fabric.MemID
	Incarnation Incarnation
	Addr        string // where compute nodes reach it, host:port
	Size        uint64 // bytes
	Epoch       uint32 // grows whenever a memory node with this ID starts anew
	// Served is, in what [Member.MN] says, the last epoch before its own in which the join of a memory node with this ID succeeded, as far as the
	// coordinator knows. (Epochs of joins that failed are skipped.) It is 0 in states.
	Served uint32
	// Replicas is how many copies its number is to have: see Group. 0 or 1: it is not replicated.
	Replicas int
	// MinInSync is how many of them are to be in sync where data of its number is changed: see Group. 0 or 1: its own is enough.
	MinInSync int
	// Label names what fails with it, such as its rack: copies of a number are put on memory nodes with different labels, if there are any.
	Label string
	// Room is how many bytes it lends to backups of others' numbers. 0: the ledger puts none on it.
	Room uint64
	// Was is an incarnation in which this process was a member before, if it has all memory that it lent then; else 0. It is the last in which it knows that it is in a group,
	// or its first one: it may have been put into groups since by incarnations that ended before it heard so.
	Was Incarnation
	// Known is what it knows of replicated numbers from before, if it joins again: a coordinator that has lost its data knows nothing of them.
	Known []Known
}

// A State is the membership at a revision. It is never changed once it is known: others share it.
type State struct {
	// Revision grows with every change. It is the same count for all members: a
	// state shows all changes up to its revision. (A member that lost sight of the coordinator may
	// see a state with a revision that others have skipped.)
	Revision uint64
	CNs      []CN // members, by ID: memory nodes serve these and no others
	Fencing  []CN // have gone, by a crash or by leaving, and are not shut out for certain yet; by ID
	MNs      []MN // by ID
	Down     []MN // memory nodes that the cluster has had, has not now, and expects back: their ID and last Epoch, by ID
	// Groups are the configurations of the memory-node numbers that are replicated, by ID. What serves such a number is not the memory node that has joined with
	// it: see Server and Memory.
	Groups []*Group
	// Waiting are the configurations of numbers of which the coordinator has lost data (Group.Lost), also of those without replicas, by ID.
	Waiting []*Group
	// Lost counts compute nodes that were declared dead, and not those that have left. It
	// grows in the state in which the crashed node is in Fencing no more.
	Lost uint64
}

// View returns the nodes that are live to compute nodes: members, and nodes that are not shut out yet.
func (s *State) View() fabric.View {
	v := fabric.View{Epoch: s.Revision, Lost: s.Lost}
	for _, c := range s.CNs {
		v.Live.Add(c.ID)
	}
	for _, c := range s.Fencing {
		v.Live.Add(c.ID)
	}
	return v
}

// CN returns the member with a number.
func (s *State) CN(id fabric.CNID) (CN, bool) {
	if i := slices.IndexFunc(s.CNs, func(c CN) bool { return c.ID == id }); i >= 0 {
		return s.CNs[i], true
	}
	return CN{}, false
}

// MN returns the memory node with a number.
func (s *State) MN(id fabric.MemID) (MN, bool) {
	if i := slices.IndexFunc(s.MNs, func(m MN) bool { return m.ID == id }); i >= 0 {
		return s.MNs[i], true
	}
	return MN{}, false
}

// Has reports whether an incarnation is that of a member.
func (s *State) Has(l Incarnation) bool {
	return slices.ContainsFunc(s.CNs, func(c CN) bool { return c.Incarnation == l }) ||
		slices.ContainsFunc(s.MNs, func(m MN) bool { return m.Incarnation == l })
}

// A Service is a coordinator, for processes that are not members yet. Any goroutine may use it.
type Service interface {
	// JoinCN makes this process a compute node: with the lowest number that neither a
	// member nor a node that is being fenced has. ctx bounds the joining. ready is called
	// once, when number and incarnation are known and before others can know them: it starts what others will
	// reach at addr, and whatever acknowledges states (a goroutine: ready must return). All numbers
	// taken: ErrFull. When JoinCN fails after ready, the member that ready got is Done.
	JoinCN(ctx context.Context, addr string, ready func(Member)) (Member, error)

	// JoinMN makes this process memory node mn.ID, with mn's Size and Addr; its Incarnation is given. Its epoch is larger than mn.Epoch,
	// the last that a node with memory of before knows of itself (0: none), and than that of all before it that the
	// coordinator knows. There is one already: ErrInUse. (The end of one that has crashed is waited for until the
	// coordinator knows.)
	JoinMN(ctx context.Context, mn MN, ready func(Member)) (Member, error)

	// ForgetMN takes a memory node that is in [State.Down] out of it: it is not expected back. Its number keeps its epochs: a node
	// that joins with it has a later one. One that is up is ErrInUse, one that is not known ErrUnknown. (That all nodes
	// acknowledge its end is waited for.)
	ForgetMN(ctx context.Context, id fabric.MemID) error

	// Change changes the group of a replicated memory-node number: see [Ledger.Change]. When it returns nil, the change is committed, and not all
	// members know.
	Change(ctx context.Context, c Change) error

	// Watch returns the present state and those that follow, without a
	// membership: for tools. It ends with ctx.
	Watch(ctx context.Context) (Watcher, error)
}

// A Watcher tells of states. Any goroutine may use it.
type Watcher interface {
	// State returns the newest state that is known here, and a channel that is closed
	// when there is a newer one. It does not block. After the end of a watch or a
	// membership it may tell nothing new for ever.
	State() (*State, <-chan struct{})
}

// A Member is one node's membership, until Leave or its end. Any goroutine may use it.
type Member interface {
	Watcher

	// CN returns what others know of this node, if it is a compute node.
	CN() CN
	// MN returns what others know of this node, if it is a memory node.
	MN() MN

	// Ack says that this node acts on the state with a revision and all before it. A memory node
	// must have shut out every node that is not in its CNs; a compute node must have stopped
	// using memory nodes that are not in its MNs. Each member acknowledges each state that it
	// gets, soon: it is what joins and resets wait for. It does not block.
	Ack(revision uint64)

	// Report says that a node has ended for certain (its process is gone), so that
	// the end of its lease need not be waited for. It does not block. Reports of incarnations that are no members are ignored.
	Report(dead Incarnation)

	// Done is closed when the membership has ended, and Err says why: nil after Leave,
	// fabric.ErrFenced when the cluster has given this node up. A coordinator that cannot be reached
	// does not end a membership.
	Done() <-chan struct{}
	Err() error

	// Leave ends the membership: not a crash. The node must use the fabric no more.
	Leave(ctx context.Context) error
	// Fail is Leave as a crash: for a compute node that leaves something behind in the queues of locks.
	Fail(ctx context.Context) error
}
