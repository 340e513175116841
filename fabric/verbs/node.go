//go:build linux && cgo

package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
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
	o             Options
	own           member.CN
	member        member.Member
	caps          fabric.Caps
	dev           *device
	pump          *pump
	pool          *pool // apart from the node: memory that Ports still have does not keep that
	chains        registry[chain]
	outs          registry[outLink]
	ins           registry[inLink]
	table         *inbox.Table
	agent         *port
	service       *service

	closed atomic.Bool
	fenced atomic.Bool
	why    atomic.Pointer[error] // it is fenced, once it is
	given  chan struct{}         // closed when it is fenced: given up
	ctx    context.Context       // ends with the node
	cancel context.CancelFunc
	at     context.Context // at work: ends when it is closed or fenced
	halt   context.CancelFunc
	tasks  sync.WaitGroup

	remotes    [MaxMN]atomic.Pointer[remote]
	links      [int(fabric.MaxCN) + 1]atomic.Pointer[outLink]
	spread     atomic.Uint32 // of ports over lanes
	waiting    atomic.Int32  // clients that poll for an operation
	processors int           // of Go's scheduler

	linkMu sync.Mutex // of accepting and ending links: one at a time

	portsMu sync.Mutex
	ports   map[*port]struct{} // that have not wound up; nil: all are being closed

	mu      sync.Mutex
	joined  bool
	keepers [MaxMN]*keeper
	inLinks map[*session]*inLink
	arrived map[member.Life]uint64 // messages delivered over links that have ended
}

// Join makes the process a compute node of a cluster, with the lowest number
// that is free. A process may join more than once. ctx bounds the joining. A memory node that cannot be
// reached does not keep it from joining: operations on it are fabric.ErrNodeDown until it can.
func Join(ctx context.Context, o Options) (fabric.Node, error) {
	if err := o.checkJoin(); err != nil {
		return nil, err
	}
	n := &node{Clock: peer.NewClock(), o: o, given: make(chan struct{}), processors: runtime.GOMAXPROCS(0), ports: map[*port]struct{}{}, inLinks: map[*session]*inLink{}, arrived: map[member.Life]uint64{}}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.at, n.halt = context.WithCancel(n.ctx)
	if err := n.open(ctx); err != nil {
		n.quit()
		_ = n.leave(ctx, peer.Leave)
		n.shut()
		return nil, err
	}
	return n, nil
}

func (n *node) open(ctx context.Context) (err error) {
	if n.dev, err = openDevice(&n.o); err != nil {
		return err
	}
	n.pool = &pool{dev: n.dev}
	if n.pump, err = newPump(n); err != nil {
		return err
	}
	if n.service, err = listen(&n.o); err != nil {
		return err
	}
	addr, err := n.o.contact(n.service.listener, peer.MayCompute)
	if err != nil {
		return err
	}
	if _, err := n.o.Members.JoinCN(ctx, addr, n.ready); err != nil {
		return err
	}
	n.mu.Lock()
	n.joined = true
	st, _ := n.State()
	n.keep(st)
	n.mu.Unlock()
	if err := n.awaitMemory(ctx); err != nil {
		return err
	}
	n.caps = n.capabilities()
	n.agent = n.newPort(n.table.Agent())
	n.admit(n.agent)
	return nil
}

// ready begins to let others in and to follow what happens: nobody knows of it yet.
func (n *node) ready(m member.Member) {
	n.member, n.own = m, m.CN()
	n.table = inbox.NewTable(n.own.ID, n)
	st, _ := m.State()
	n.take(st) // others may ask at once
	n.pump.start()
	n.tasks.Go(n.follow)
	n.tasks.Go(n.watch)
	n.service.start(n.handle, n.ended)
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
	for i := range n.remotes {
		if r := n.remotes[i].Load(); r != nil && !st.Has(r.mn.Life) {
			r.cut()
		}
	}
	n.keep(st)
	gone := n.takePeers(st)
	n.mu.Unlock()
	// What those had sent is delivered before the news that they have gone.
	var drains sync.WaitGroup
	for _, l := range gone {
		drains.Go(l.drain)
	}
	drains.Wait()
	n.forget(st)
	if old != nil {
		n.table.Deliver(fabric.AgentOf(n.own.ID).Index(), &fabric.Message{Kind: fabric.MsgView, Body: [7]uint64{st.Revision}})
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
	for s, l := range n.inLinks {
		if !peer.Lives(st, l.peer) {
			gone = append(gone, l)
			s.close()
		}
	}
	return gone
}

// forget forgets how many messages have come from those who send none any more.
func (n *node) forget(st *member.State) {
	n.mu.Lock()
	defer n.mu.Unlock()
	live := map[member.Life]bool{}
	for _, list := range [][]member.CN{st.CNs, st.Fencing} {
		for _, c := range list {
			live[c.Life] = true
		}
	}
	for life := range n.arrived {
		if !live[life] {
			delete(n.arrived, life)
		}
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
	n.cut()
	close(n.given)
}

// Fenced is closed when the cluster has given this node up: all its operations are fabric.ErrFenced from then on.
func (n *node) Fenced() <-chan struct{} { return n.given }

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

// cut lets nothing out any more.
func (n *node) cut() {
	n.halt()
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.remotes {
		if r := n.remotes[i].Load(); r != nil {
			r.cut()
		}
	}
	for i := range n.links {
		if l := n.links[i].Load(); l != nil {
			l.stop()
		}
	}
}

// handle answers other compute nodes.
func (n *node) handle(c *session, kind string, body json.RawMessage) (any, error) {
	if kind == askLink {
		return decoded(body, func(r linkRequest) (any, error) { return n.accept(c, r) })
	}
	return nil, fmt.Errorf("%w: what is %q?", ErrProtocol, kind)
}

// capabilities asks the device what it can do.
func (n *node) capabilities() fabric.Caps {
	c := fabric.Caps{Fabric: "verbs", CutsEpochs: true, Inline: maxInline, MaxAtomics: int(min(n.dev.rdAtomic(), n.dev.initRDAtomic()))}
	for i := range n.remotes {
		if r := n.remotes[i].Load(); r != nil {
			c.Inline = min(c.Inline, r.inline)
			c.MaxAtomics = min(c.MaxAtomics, r.rdAtomic)
		}
	}
	return c
}

// ID is fabric.Node.ID.
func (n *node) ID() fabric.CNID { return n.own.ID }

// Caps is fabric.Node.Caps.
func (n *node) Caps() fabric.Caps { return n.caps }

// Poll delivers messages that have come.
func (n *node) Poll() { n.pump.pollMessages() }

// Open is fabric.Node.Open.
func (n *node) Open() (fabric.Port, error) {
	box, err := n.table.Open()
	if err != nil {
		return nil, err
	}
	p := n.newPort(box)
	if !n.admit(p) {
		n.table.Close(box)
		return nil, fabric.ErrClosed
	}
	return p, nil
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
	if n.closed.Load() {
		return nil
	}
	for i := range n.links {
		if l := n.links[i].Load(); l != nil {
			l.mark()
		}
	}
	limit := time.Now().Add(closeFlush)
	for n.unsent() && time.Now().Before(limit) && !n.fenced.Load() {
		time.Sleep(200 * time.Microsecond)
	}
	if n.unsent() { // who waits for such a message may wait for long: let all look after their locks
		leave = peer.Fail
	}
	if !n.quit() {
		return nil
	}
	err := n.leave(context.Background(), leave)
	n.shut()
	return err
}

func (n *node) unsent() bool {
	for i := range n.links {
		if l := n.links[i].Load(); l != nil && l.pending() {
			return true
		}
	}
	return false
}

// quit stops using the fabric. It returns false if that was done before.
func (n *node) quit() bool {
	if n.closed.Swap(true) {
		return false
	}
	if n.table != nil {
		n.table.CloseAll()
	}
	n.cut()
	return true
}

// leave ends the membership: what follows is no death.
func (n *node) leave(ctx context.Context, how func(context.Context, member.Member) error) error {
	if n.fenced.Load() {
		return nil
	}
	return how(ctx, n.member)
}

// shut gives everything back.
func (n *node) shut() {
	n.cancel()
	if n.service != nil {
		n.service.close()
	}
	n.tasks.Wait()
	// All chains are done. A client that has waited for one still reads what it brought.
	n.closePorts()
	if n.pump != nil {
		n.pump.close()
	}
	if n.dev != nil {
		n.pool.close()
		n.dev.close()
	}
}

// dead says why there is no way to a compute node.
func (n *node) dead(cn fabric.CNID) error {
	if n.fenced.Load() {
		return peer.Fenced(n.own.ID, *n.why.Load())
	}
	return fmt.Errorf("%w: %v", fabric.ErrNodeDown, cn)
}

// fatal reports whether an error of a connection is for people to mend, and not for time.
func fatal(err error) bool {
	return errors.Is(err, ErrAuth) || errors.Is(err, ErrVersion) || errors.Is(err, ErrProtocol) || errors.Is(err, fabric.ErrFenced)
}
