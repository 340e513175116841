//go:build linux

package tcp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/inbox"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// A node is a compute node.
type node struct {
	peer.Clock
	peer.Standing // what it acts on

	o        Options
	own      member.CN
	member   member.Member
	acceptor *acceptor
	mail     *mail
	table    *inbox.Table
	agent    *port

	closed  atomic.Bool
	fenced  atomic.Bool
	why     atomic.Pointer[error] // it is fenced, once it is
	closing sync.Mutex
	ctx     context.Context // ends with the node
	ended   chan struct{}   // closed when the cluster has given this node up
	cancel  context.CancelFunc
	tasks   sync.WaitGroup

	remotes [MaxMN]atomic.Pointer[remote]
	links   [int(fabric.MaxCN) + 1]atomic.Pointer[outLink]
	spread  atomic.Uint32 // of ports over lanes

	mu      sync.Mutex
	joined  bool
	arrived map[member.Life]*inLink // who sends, or has sent
}

// Join makes the process a compute node of a cluster, with the lowest number
// that is free. A process may join more than once. ctx bounds the joining. A memory node that cannot be
// reached does not keep it from joining: operations on it are fabric.ErrNodeDown until it can.
func Join(ctx context.Context, o Options) (fabric.Node, error) {
	if err := o.checkJoin(); err != nil {
		return nil, err
	}
	n := &node{Clock: peer.NewClock(), o: o, ended: make(chan struct{}), arrived: map[member.Life]*inLink{}}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	if err := n.open(ctx); err != nil {
		n.quit()
		_ = n.leave(ctx, peer.Leave)
		n.shut()
		return nil, err
	}
	return n, nil
}

func (n *node) open(ctx context.Context) (err error) {
	if n.acceptor, err = newAcceptor(&n.o, n.admit); err != nil {
		return err
	}
	addr, err := n.o.contact(n.acceptor.listener)
	if err != nil {
		return err
	}
	if n.mail, err = newMail(n); err != nil {
		return err
	}
	m, err := n.o.Members.JoinCN(ctx, addr.String(), n.ready)
	if err != nil {
		return err
	}
	if st, _ := m.State(); st != nil {
		if err := n.o.checkReach(st); err != nil {
			return err
		}
	}
	n.mu.Lock()
	n.joined = true
	st, _ := n.State()
	n.takeMemory(st)
	n.mu.Unlock()
	if err := n.awaitLanes(ctx); err != nil {
		return err
	}
	n.agent = n.newPort(n.table.Agent())
	return nil
}

// ready begins to let others in and to follow what happens: nobody knows of it yet.
func (n *node) ready(m member.Member) {
	n.member, n.own = m, m.CN()
	n.table = inbox.NewTable(n.own.ID, n)
	st, _ := m.State()
	n.take(st) // others may ask at once
	n.tasks.Go(n.mail.run)
	n.tasks.Go(n.follow)
	n.tasks.Go(n.watch)
	n.acceptor.start()
}

// awaitLanes waits until it has been tried to reach all memory nodes. That they refuse us, or are
// not what they should be, is an error.
func (n *node) awaitLanes(ctx context.Context) error {
	for i := range n.remotes {
		r := n.remotes[i].Load()
		if r == nil {
			continue
		}
		for _, l := range r.lanes {
			select {
			case <-l.first:
			case <-ctx.Done():
				return fmt.Errorf("%w: memory node %v: %w", ErrLost, r.mn.ID, ctx.Err())
			}
			l.mu.Lock()
			why := l.why
			l.mu.Unlock()
			if errors.Is(why, ErrAuth) || errors.Is(why, ErrVersion) || errors.Is(why, ErrProtocol) || errors.Is(why, fabric.ErrFenced) {
				return fmt.Errorf("memory node %v: %w", r.mn.ID, why)
			}
		}
	}
	return nil
}

// follow acts on states, until the membership ends.
func (n *node) follow() {
	if why := peer.Follow(n.ctx, n.member, n.take); why != nil {
		n.fence(why)
	}
}

// take acts on a state.
func (n *node) take(st *member.State) {
	n.mu.Lock()
	old, newer := n.Take(st)
	if !newer {
		n.mu.Unlock()
		return
	}
	n.takeMemory(st)
	gone := n.takePeers(st)
	n.mu.Unlock()
	for _, l := range gone {
		// What it had sent is delivered before the news that it has gone.
		n.mail.drain(l)
	}
	if old != nil {
		n.table.Deliver(fabric.AgentOf(n.own.ID).Index(), &fabric.Message{Kind: fabric.MsgView, Body: [7]uint64{st.Revision}})
	}
}

// takeMemory stops using memory nodes that have gone and attaches new ones; mu is held.
func (n *node) takeMemory(st *member.State) {
	for i := range n.remotes {
		if r := n.remotes[i].Load(); r != nil && !st.Has(r.mn.Life) {
			r.end()
		}
	}
	if !n.joined || n.fenced.Load() || n.closed.Load() {
		return
	}
	for _, m := range st.MNs {
		if m.ID >= MaxMN { // of another program: no memory node of ours joins with it
			continue
		}
		if r := n.remotes[m.ID].Load(); r == nil || r.mn.Life != m.Life {
			n.attach(m)
		}
	}
}

// takePeers ends the links to nodes that have gone, and returns those from them; mu is held.
func (n *node) takePeers(st *member.State) (gone []*inLink) {
	for i := range n.links {
		if l := n.links[i].Load(); l != nil && !peer.Lives(st, l.peer) {
			n.links[i].CompareAndSwap(l, nil)
			l.stop()
		}
	}
	for life, l := range n.arrived {
		if !peer.Lives(st, l.peer) {
			delete(n.arrived, life)
			gone = append(gone, l)
		}
	}
	return gone
}

// watch looks now and then whether those who should answer do.
func (n *node) watch() {
	t := time.NewTicker(n.o.Heartbeat)
	defer t.Stop()
	limit := int(n.o.DeadAfter / n.o.Heartbeat)
	for {
		select {
		case <-t.C:
		case <-n.ctx.Done():
			return
		}
		for i := range n.remotes {
			if r := n.remotes[i].Load(); r != nil {
				for _, l := range r.lanes {
					l.watch(limit)
				}
			}
		}
		for i := range n.links {
			if l := n.links[i].Load(); l != nil {
				l.watch(limit)
			}
		}
		n.mail.acknowledge()
	}
}

// fence notes that the cluster has given this node up.
func (n *node) fence(why error) {
	if n.closed.Load() {
		return
	}
	n.why.CompareAndSwap(nil, &why)
	if n.fenced.Swap(true) {
		return
	}
	close(n.ended)
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.remotes {
		if r := n.remotes[i].Load(); r != nil {
			r.end()
		}
	}
	for i := range n.links {
		if l := n.links[i].Load(); l != nil {
			l.stop()
		}
	}
}

// Fenced is closed when the cluster has given this node up: all its operations are fabric.ErrFenced from then on.
func (n *node) Fenced() <-chan struct{} { return n.ended }

// Err returns why this node has been given up; nil if it has not been.
func (n *node) Err() error {
	if !n.fenced.Load() {
		return nil
	}
	return n.dead(n.own.ID)
}

// Contact is member.Contact.
func (n *node) Contact() (silent time.Duration, why error) { return peer.Reach(n.member) }

var _ member.Follower = (*node)(nil)

// revision returns that of the state that the node acts on.
func (n *node) revision() uint64 {
	st, _ := n.State()
	return st.Revision
}

// ID is fabric.Node.ID.
func (n *node) ID() fabric.CNID { return n.own.ID }

// Caps is fabric.Node.Caps.
func (n *node) Caps() fabric.Caps { return caps }

// Poll delivers messages that have come.
func (n *node) Poll() { n.mail.poll() }

// Open is fabric.Node.Open.
func (n *node) Open() (fabric.Port, error) {
	box, err := n.table.Open()
	if err != nil {
		return nil, err
	}
	return n.newPort(box), nil
}

// Agent is fabric.Node.Agent.
func (n *node) Agent() fabric.Port { return n.agent }

// Retire is fabric.Node.Retire.
func (n *node) Retire(id fabric.ClientID) { n.table.Retire(id) }

// closeFlush is how long Close goes on trying to send what is queued.
const closeFlush = time.Second

// Close is fabric.Node.Close.
func (n *node) Close() error { return n.end(peer.Leave) }

// Fail is fabric.Node.Fail.
func (n *node) Fail() error { return n.end(peer.Fail) }

// end leaves the cluster, by leave of package peer.
func (n *node) end(leave func(context.Context, member.Member) error) error {
	n.closing.Lock()
	defer n.closing.Unlock()
	if n.closed.Load() {
		return nil
	}
	for i := range n.links {
		if l := n.links[i].Load(); l != nil {
			l.ask()
		}
	}
	limit := time.Now().Add(closeFlush)
	for n.unsent() && time.Now().Before(limit) && !n.fenced.Load() {
		time.Sleep(200 * time.Microsecond)
	}
	if n.unsent() { // who waits for such a message may wait for long: let all look after their locks
		leave = peer.Fail
	}
	n.quit()
	err := n.leave(context.Background(), leave)
	n.shut()
	return err
}

func (n *node) unsent() bool {
	for i := range n.links {
		if l := n.links[i].Load(); l != nil && l.unacknowledged() {
			return true
		}
	}
	return false
}

// leave ends the membership.
func (n *node) leave(ctx context.Context, how func(context.Context, member.Member) error) error {
	if n.fenced.Load() {
		return nil
	}
	return how(ctx, n.member)
}

// quit stops using the fabric.
func (n *node) quit() {
	n.closed.Store(true)
	if n.table != nil {
		n.table.CloseAll()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.remotes {
		if r := n.remotes[i].Load(); r != nil {
			r.end()
		}
	}
	for i := range n.links {
		if l := n.links[i].Load(); l != nil {
			l.stop()
		}
	}
}

// shut gives everything back.
func (n *node) shut() {
	n.cancel()
	if n.acceptor != nil {
		n.acceptor.close()
	}
	if n.mail != nil {
		n.mail.stop()
	}
	n.tasks.Wait()
	if n.mail != nil {
		n.mail.close()
	}
}

// dead says why there is no way to a compute node.
func (n *node) dead(cn fabric.CNID) error {
	if n.fenced.Load() {
		return peer.Fenced(n.own.ID, *n.why.Load())
	}
	return fmt.Errorf("%w: %v", fabric.ErrNodeDown, cn)
}
