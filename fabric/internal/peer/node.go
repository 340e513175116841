package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/inbox"
	"github.com/declock/declock/fabric/member"
)

// A Node is a compute node, but for the part that moves bytes: its [Network].
type Node struct {
	Clock
	Standing // what it acts on
	Config
	Own   member.CN
	Table *inbox.Table
	Ctx   context.Context // ends with the node
	Work  context.Context // ends when the node is closed or fenced

	net     Network
	member  member.Member
	leased  member.Leased // the same; nil: it has no lease
	agent   fabric.Port
	closed  atomic.Bool
	fenced  atomic.Bool
	why     atomic.Pointer[error] // it is fenced, once it is
	closing sync.Mutex
	given   chan struct{} // closed when the node is fenced
	cancel  context.CancelFunc
	halt    context.CancelFunc
	tasks   sync.WaitGroup
	spread  atomic.Uint32 // of Ports over lanes

	remotes [MaxMN]atomic.Pointer[Remote]
	backups atomic.Pointer[[]*Remote] // in use; replaced under Mu
	links   [int(fabric.MaxCN) + 1]atomic.Pointer[Link]

	Mu      sync.Mutex // held while the node takes a state
	joined  bool
	leasing bool // it goes by its lease
}

// A Network is the part of a compute node that moves bytes.
type Network interface {
	inbox.Host
	Caps() fabric.Caps
	// Start begins to let others in and to receive. The node has its number by then, and no other node knows of it yet.
	Start()
	// Attach begins to use a number that is served, if it is not in use already. Mu is held.
	Attach(s Served)
	// Shut shuts out compute nodes that are not in a state any more. Mu is held. Then drain is called without Mu: it delivers what they have sent.
	Shut(st *member.State) (drain func())
	// Reach begins to use a backup. Mu is held.
	Reach(s Served) *Remote
	// NewWire and NewPort make the parts of a Link and a Port that move bytes. Mu is held while NewWire is called.
	NewWire(l *Link) (Wire, error)
	NewPort(box *inbox.Box) (fabric.Port, error)
	// Beat is called every Heartbeat.
	Beat()
	// Stop ends what Start has begun. Release frees the rest, when all tasks have ended. Both may be called for a node that failed to join
	// half way.
	Stop()
	Release()
}

// A Remote is the memory of a number in one of its epochs, as a compute node uses it.
type Remote struct {
	Node *Node
	Served
	Up atomic.Bool // operations may go there
	// Verdict is closed when it is not up and it is known why: whether
	// this node is fenced, or the memory node has restarted, or is down.
	Verdict chan struct{}
	Lanes   Lanes
}

// Lanes are the connections to a memory node: the part of a Remote that moves bytes. End ends them: when it returns, nothing more is given to a connection to be sent, nothing is executed
// here, and no result counts. What a connection has been given may still go out, and be executed until the memory node cuts the lanes: it does before it acknowledges the state in which it serves no more.
type Lanes interface{ End() }

// Refusal returns why a memory node that is not up takes no operations.
func (r *Remote) Refusal() error {
	n := r.Node
	select {
	case <-r.Verdict:
	case <-n.Ctx.Done():
	}
	now := n.remotes[r.MN.ID].Load()
	switch {
	case n.closed.Load():
		return fabric.ErrClosed
	case n.fenced.Load():
		return n.Dead(n.Own.ID)
	case r.Backup != 0 && (now == nil || now.MN.Epoch == r.MN.Epoch): // it is no backup any more, or its host has gone
	case now != nil && now != r && now.Up.Load() && !now.Same(&r.Served):
		return fmt.Errorf("%w: %v is in epoch %d, and was in epoch %d when this Port was attached", fabric.ErrStaleEpoch, r.MN.ID, now.MN.Epoch, r.MN.Epoch)
	}
	return fmt.Errorf("%w: %v is no member, or cannot be reached", fabric.ErrNodeDown, r.MN.ID)
}

// Init makes n a node that is not a member yet.
func (n *Node) Init(cfg Config, net Network) {
	n.Clock, n.Config, n.net, n.given = NewClock(), cfg, net, make(chan struct{})
	n.Ctx, n.cancel = context.WithCancel(context.Background())
	n.Work, n.halt = context.WithCancel(n.Ctx)
}

// Enter makes the node a member, which others reach at addr.
func (n *Node) Enter(ctx context.Context, addr string) (member.Member, error) {
	return n.Members.JoinCN(ctx, addr, n.ready)
}

// ready begins to let others in and to follow states. No other node knows of this one yet.
func (n *Node) ready(m member.Member) {
	n.member, n.Own = m, m.CN()
	n.leased, _ = m.(member.Leased)
	n.Table = inbox.NewTable(n.Own.ID, n.net)
	st, _ := m.State()
	n.Act(st) // others may ask at once
	n.net.Start()
	n.Go(n.follow)
	n.Go(n.beat)
	if n.SilentAfter > 0 {
		n.Go(n.watchSilence)
	}
}

// UseMemory begins to use the memory nodes that there are, and those that come.
func (n *Node) UseMemory() {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	n.joined = true
	st, _ := n.State()
	n.attach(st)
}

// AwaitTry waits until it has been tried to reach a memory node. That the memory node refuses this node, or is
// not what it should be, is an error: why returns how the try went.
func (n *Node) AwaitTry(ctx context.Context, id fabric.MemID, tried <-chan struct{}, why func() error) error {
	select {
	case <-tried:
	case <-ctx.Done():
		return fmt.Errorf("%w: memory node %d: %w", ErrLost, id, ctx.Err())
	}
	if err := why(); Fatal(err) {
		return fmt.Errorf("memory node %d: %w", id, err)
	}
	return nil
}

// OpenAgent opens the agent's Port. It is the last step of joining.
func (n *Node) OpenAgent() (err error) {
	if n.agent, err = n.net.NewPort(n.Table.Agent()); err == nil && n.Config.Copy != nil {
		n.CopyWith(n.copyOver)
	}
	return err
}

// Abort ends a node that could not join.
func (n *Node) Abort(ctx context.Context) {
	n.quit()
	_ = n.leave(ctx, member.Member.Leave)
	n.shut()
}

// Vanish ends a node as the end of its process would: it does not leave. For tests.
func (n *Node) Vanish() {
	n.quit()
	n.shut()
}

// Go runs a task of the node, which ends before the node does.
func (n *Node) Go(task func()) { n.tasks.Go(task) }

// follow acts on states, until the membership ends.
func (n *Node) follow() {
	if why := Follow(n.Ctx, n.member, n.Act); why != nil {
		n.Fence(why)
	}
}

// Act acts on a state.
func (n *Node) Act(st *member.State) {
	n.Mu.Lock()
	old, newer := n.Take(st)
	if !newer {
		n.Mu.Unlock()
		return
	}
	for r := range n.Remotes {
		if !isServed(st, &r.Served) {
			r.Lanes.End()
		}
	}
	n.keepBackups()
	n.attach(st)
	if len(st.Groups) > 0 && !n.leasing {
		n.leasing = true
		n.Go(n.watchLease)
	}
	for l := range n.Links {
		if !Present(st, l.Peer) {
			n.links[l.Peer.ID].CompareAndSwap(l, nil)
			l.stop()
		}
	}
	drain := n.net.Shut(st)
	n.Mu.Unlock()
	drain() // the messages of nodes that have gone are delivered before the new view
	if old != nil {
		n.Table.Deliver(fabric.AgentOf(n.Own.ID).Index(), &fabric.Message{Kind: fabric.MsgView, Body: [7]uint64{st.Revision}})
	}
}

// attach begins to use the memory nodes of a state; Mu is held.
func (n *Node) attach(st *member.State) {
	if !n.joined || n.Work.Err() != nil || n.fenced.Load() || n.closed.Load() {
		return
	}
	for _, m := range st.Memory() {
		if m.ID >= MaxMN { // larger numbers are of other programs
			continue
		}
		if s, ok := servedIn(st, m.ID); ok {
			n.net.Attach(s)
		}
	}
}

// beat calls Network.Beat at every heartbeat.
func (n *Node) beat() {
	t := time.NewTicker(n.Heartbeat)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			n.net.Beat()
		case <-n.Ctx.Done():
			return
		}
	}
}

// Remote returns a memory node as it is in use at present; nil: it never was.
func (n *Node) Remote(id fabric.MemID) *Remote {
	if id >= MaxMN {
		return nil
	}
	return n.remotes[id].Load()
}

// Place puts a memory node into its place: Ports find it there. Mu is held.
func (n *Node) Place(r *Remote) { n.remotes[r.MN.ID].Store(r) }

// Remotes yields all memory nodes that are or were in use.
func (n *Node) Remotes(yield func(*Remote) bool) {
	for i := range n.remotes {
		if r := n.remotes[i].Load(); r != nil && !yield(r) {
			return
		}
	}
	if list := n.backups.Load(); list != nil {
		for _, r := range *list {
			if !yield(r) {
				return
			}
		}
	}
}

// Links yields all links to other compute nodes.
func (n *Node) Links(yield func(*Link) bool) {
	for i := range n.links {
		if l := n.links[i].Load(); l != nil && !yield(l) {
			return
		}
	}
}

// Fence notes that the cluster has given this node up, and why.
func (n *Node) Fence(why error) {
	if n.closed.Load() {
		return
	}
	n.why.CompareAndSwap(nil, &why)
	if n.fenced.Swap(true) {
		return
	}
	n.cut()
	close(n.given)
}

// cut lets nothing out any more.
func (n *Node) cut() {
	n.halt()
	n.Mu.Lock()
	defer n.Mu.Unlock()
	for r := range n.Remotes {
		r.Lanes.End()
	}
	for l := range n.Links {
		l.stop()
	}
}

// Fenced is closed when the cluster has given this node up: all its operations are fabric.ErrFenced from then on.
func (n *Node) Fenced() <-chan struct{} { return n.given }

// Err returns why the cluster has given this node up; nil if it has not.
func (n *Node) Err() error {
	if !n.fenced.Load() {
		return nil
	}
	return n.Dead(n.Own.ID)
}

// IsFenced reports whether the cluster has given this node up.
func (n *Node) IsFenced() bool { return n.fenced.Load() }

// IsClosed reports whether the node is closed, or is about to be.
func (n *Node) IsClosed() bool { return n.closed.Load() }

// Contact is member.Contact.
func (n *Node) Contact() (silent time.Duration, why error) { return Reach(n.member) }

var _ member.Follower = (*Node)(nil)

// Revision returns that of the state that the node acts on.
func (n *Node) Revision() uint64 {
	st, _ := n.State()
	return st.Revision
}

// Incarnation implements fabric.Members.
func (n *Node) Incarnation(id fabric.CNID) uint64 {
	st, _ := n.State()
	for _, list := range [][]member.CN{st.CNs, st.Fencing} {
		for _, c := range list {
			if c.ID == id {
				return uint64(c.Incarnation)
			}
		}
	}
	return 0
}

// Expel implements fabric.Members.
func (n *Node) Expel(id fabric.CNID, incarnation uint64) error {
	if id != n.Own.ID && incarnation != 0 && n.Incarnation(id) == incarnation {
		n.member.Report(member.Incarnation(incarnation))
	}
	return nil
}

var _ fabric.Members = (*Node)(nil)

// ID is fabric.Node.ID.
func (n *Node) ID() fabric.CNID { return n.Own.ID }

// Open is fabric.Node.Open.
func (n *Node) Open() (fabric.Port, error) {
	box, err := n.Table.Open()
	if err != nil {
		return nil, err
	}
	return n.net.NewPort(box)
}

// Agent is fabric.Node.Agent.
func (n *Node) Agent() fabric.Port { return n.agent }

// Retire is fabric.Node.Retire.
func (n *Node) Retire(id fabric.ClientID) { n.Table.Retire(id) }

// Dead returns why there is no way to a compute node.
func (n *Node) Dead(cn fabric.CNID) error {
	if n.fenced.Load() {
		return Fenced(n.Own.ID, *n.why.Load())
	}
	return fmt.Errorf("%w: %v", fabric.ErrNodeDown, cn)
}

// closeFlush is how long Close goes on trying to send what is queued.
const closeFlush = time.Second

// Close is fabric.Node.Close.
func (n *Node) Close() error { return n.end(member.Member.Leave) }

// Fail is fabric.Node.Fail.
func (n *Node) Fail() error { return n.end(member.Member.Fail) }

// end leaves the cluster, by Leave or Fail of the membership.
func (n *Node) end(how func(member.Member, context.Context) error) error {
	n.closing.Lock()
	defer n.closing.Unlock()
	if n.closed.Load() {
		return nil
	}
	for l := range n.Links {
		l.Wire.Ask()
	}
	limit := time.Now().Add(closeFlush)
	for n.unsent() && time.Now().Before(limit) && !n.fenced.Load() {
		time.Sleep(200 * time.Microsecond)
	}
	if n.unsent() { // a client may wait for such a message: after a crash the others check their locks
		how = member.Member.Fail
	}
	n.quit()
	err := n.leave(context.Background(), how)
	n.shut()
	return errors.Join(err, n.Left())
}

func (n *Node) unsent() bool {
	for l := range n.Links {
		if l.Wire.Unsent() {
			return true
		}
	}
	return false
}

// quit stops using the fabric.
func (n *Node) quit() {
	n.closed.Store(true)
	if n.Table != nil {
		n.Table.CloseAll()
	}
	n.cut()
}

// leave ends the membership.
func (n *Node) leave(ctx context.Context, how func(member.Member, context.Context) error) error {
	if n.fenced.Load() {
		return nil
	}
	return leave(ctx, n.member, how)
}

// shut gives everything back.
func (n *Node) shut() {
	n.cancel()
	n.net.Stop()
	n.tasks.Wait()
	n.net.Release()
}
