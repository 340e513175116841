//go:build linux && cgo

package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/inbox"
)

// A node is a compute node.
type node struct {
	o       Options
	life    life
	caps    fabric.Caps
	dev     *device
	pump    *pump
	pool    pool
	chains  registry[chain]
	outs    registry[outLink]
	ins     registry[inLink]
	table   *inbox.Table
	agent   *port
	service *service
	start   time.Time
	base    fabric.Time // Unix time at start

	closed atomic.Bool
	fenced atomic.Bool
	ctx    context.Context // ends with the node
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	remotes    [MaxMN]atomic.Pointer[remote]
	links      [int(fabric.MaxCN) + 1]atomic.Pointer[outLink]
	live       [int(fabric.MaxCN) + 1]atomic.Uint64 // tickets of the view; 0: not in it
	spread     atomic.Uint32                        // of ports over lanes
	users      atomic.Int32                         // clients within Do, Post or Wait
	waiting    atomic.Int32                         // clients that poll for an operation
	processors int                                  // of Go's scheduler

	linkMu sync.Mutex // of accepting and ending links: one at a time

	mu       sync.Mutex
	view     viewMessage
	lead     *session
	joined   chan struct{} // closed while the lead knows this node
	ready    chan struct{} // closed when Join is done
	inLinks  map[*session]*inLink
	arrived  map[uint64]uint64     // by sender's ticket: messages delivered over links that have ended
	attaches map[fabric.MemID]bool // under way
}

// Join makes the process a compute node of a cluster, with the lowest number
// that is free. A process may join more than once. ctx bounds the joining.
func Join(ctx context.Context, o Options) (fabric.Node, error) {
	if err := o.checkJoin(); err != nil {
		return nil, err
	}
	n := &node{o: o, start: time.Now(), joined: make(chan struct{}), ready: make(chan struct{}), inLinks: map[*session]*inLink{}, arrived: map[uint64]uint64{},
		attaches: map[fabric.MemID]bool{}}
	n.processors = runtime.GOMAXPROCS(0)
	n.base = fabric.Time(n.start.UnixNano())
	n.ctx, n.cancel = context.WithCancel(context.Background())
	if err := n.open(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *node) open(ctx context.Context) (err error) {
	if n.dev, err = openDevice(&n.o); err != nil {
		return err
	}
	n.pool.dev = n.dev
	if n.pump, err = newPump(n); err != nil {
		return err
	}
	if n.service, err = listen(&n.o); err != nil {
		return err
	}
	// Nobody knows the address yet.
	n.service.start(n.handle, n.ended)
	v, err := n.join(ctx)
	if err != nil {
		return err
	}
	n.table = inbox.NewTable(n.life.ID, n)
	n.takeView(v)
	for _, m := range v.Mem {
		if m.Up {
			if err := n.attach(ctx, m); err != nil {
				return err
			}
		}
	}
	n.caps = n.capabilities()
	n.agent = n.newPort(n.table.Agent())
	n.pump.start()
	n.tasks.Go(n.watchLead)
	close(n.joined)
	close(n.ready)
	return nil
}

// join makes the node known to the lead; after a restart of it as who it was.
func (n *node) join(ctx context.Context) (viewMessage, error) {
	s, err := dial(ctx, n.o.Lead, &n.o, n.handle)
	if err != nil {
		return viewMessage{}, err
	}
	n.tasks.Go(s.run)
	stop := context.AfterFunc(n.ctx, s.close)
	n.tasks.Go(func() { <-s.done; stop() })
	ctx, cancel := context.WithTimeout(ctx, 4*n.o.DeadAfter)
	defer cancel()
	var r joinReply
	if err := s.call(ctx, askJoin, joinRequest{life: n.life, Addr: n.o.address(n.service, s)}, &r); err != nil {
		s.close()
		return viewMessage{}, fmt.Errorf("join the cluster of %s: %w", n.o.Lead, err)
	}
	n.mu.Lock()
	if n.life.Ticket == 0 {
		n.life = r.life
	}
	n.lead = s
	n.mu.Unlock()
	return r.View, nil
}

// watchLead comes back to the lead when the connection to it is lost.
func (n *node) watchLead() {
	for {
		<-n.lead.done
		n.mu.Lock()
		n.joined = make(chan struct{})
		n.mu.Unlock()
		for {
			if n.closed.Load() || n.fenced.Load() {
				return
			}
			v, err := n.join(n.ctx)
			if err == nil {
				n.takeView(v)
				break
			}
			if errors.Is(err, fabric.ErrFenced) {
				n.fence()
				close(n.joined) // nobody need wait for that any more
				return
			}
			sleep(n.ctx, redialEvery)
		}
		n.mu.Lock()
		close(n.joined)
		n.mu.Unlock()
	}
}

// fence notes that the cluster has given this node up.
func (n *node) fence() {
	if n.fenced.Swap(true) {
		return
	}
	n.o.Report(fmt.Errorf("%w: %v", fabric.ErrFenced, n.life.ID))
	for i := range n.remotes {
		if r := n.remotes[i].Load(); r != nil {
			r.session.close()
		}
	}
}

// handle answers the lead and other compute nodes.
func (n *node) handle(c *session, kind string, body json.RawMessage) (any, error) {
	select {
	case <-n.ready:
	case <-n.ctx.Done():
		return nil, fabric.ErrClosed
	}
	switch kind {
	case askView:
		return decoded(body, func(v viewMessage) (any, error) { n.takeView(v); return nil, nil })
	case askLink:
		return decoded(body, func(r linkRequest) (any, error) { return n.accept(c, r) })
	}
	return nil, fmt.Errorf("%w: what is %q?", ErrProtocol, kind)
}

// takeView takes over a view, and tells the agent.
func (n *node) takeView(v viewMessage) {
	n.mu.Lock()
	if v.Epoch <= n.view.Epoch {
		n.mu.Unlock()
		return
	}
	first := n.view.Epoch == 0
	n.view = v
	tickets := [int(fabric.MaxCN) + 1]uint64{}
	for _, c := range v.Live {
		tickets[c.ID] = c.Ticket
	}
	for id := range tickets {
		n.live[id].Store(tickets[id])
		if l := n.links[id].Load(); l != nil && l.peer.Ticket != tickets[id] {
			n.links[id].CompareAndSwap(l, nil)
			l.stop()
		}
	}
	var gone []*inLink
	for s, l := range n.inLinks {
		if !v.has(l.peer) {
			gone = append(gone, l)
			s.close()
		}
	}
	n.mu.Unlock()
	for _, l := range gone {
		// What it had sent is delivered before the news that it has gone.
		l.drain()
	}
	n.mu.Lock()
	live := map[uint64]bool{}
	for _, c := range v.Live {
		live[c.Ticket] = true
	}
	maps.DeleteFunc(n.arrived, func(ticket, _ uint64) bool { return !live[ticket] })
	n.mu.Unlock()
	if first {
		return
	}
	for id := range n.remotes {
		r := n.remotes[id].Load()
		switch m, up := v.memory(fabric.MemID(id)); {
		case up && r == nil:
			n.reattach(m)
		case !up && r != nil:
			r.cut()
		}
	}
	n.table.Deliver(fabric.AgentOf(n.life.ID).Index(), &fabric.Message{Kind: fabric.MsgView, Body: [7]uint64{v.Epoch}})
}

// capabilities asks the device what it can do.
func (n *node) capabilities() fabric.Caps {
	c := fabric.Caps{Fabric: "verbs", Inline: maxInline, MaxAtomics: int(min(n.dev.rdAtomic(), n.dev.initRDAtomic()))}
	for i := range n.remotes {
		if r := n.remotes[i].Load(); r != nil {
			c.Inline = min(c.Inline, r.inline)
			c.MaxAtomics = min(c.MaxAtomics, r.rdAtomic)
		}
	}
	return c
}

// ID is fabric.Node.ID.
func (n *node) ID() fabric.CNID { return n.life.ID }

// Caps is fabric.Node.Caps.
func (n *node) Caps() fabric.Caps { return n.caps }

// Now returns the clock: Unix time that does not step.
func (n *node) Now() fabric.Time { return n.base + fabric.Time(time.Since(n.start)) }

// Poll delivers messages that have come.
func (n *node) Poll() { n.pump.pollMessages() }

// Memory is fabric.Node.Memory.
func (n *node) Memory() []fabric.Memory {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []fabric.Memory
	for _, m := range n.view.Mem {
		f := fabric.Memory{ID: m.ID, Size: m.Size, Epoch: m.Epoch}
		// What the memory node itself has said is newer than what the lead knows.
		if r := n.remotes[m.ID].Load(); r != nil && r.epoch > f.Epoch {
			f.Size, f.Epoch = r.size, r.epoch
		}
		list = append(list, f)
	}
	return list
}

// View is fabric.Node.View.
func (n *node) View() fabric.View {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.view.view()
}

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
func (n *node) Close() error {
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
	n.leave()
	n.shut()
	return nil
}

// leave tells the lead that what follows is no death. It need not hear of it.
func (n *node) leave() {
	n.mu.Lock()
	lead := n.lead
	n.mu.Unlock()
	if lead != nil && !n.fenced.Load() {
		ctx, cancel := context.WithTimeout(n.ctx, closeFlush)
		defer cancel()
		_ = lead.call(ctx, askLeave, nil, nil)
	}
}

func (n *node) unsent() bool {
	for i := range n.links {
		if l := n.links[i].Load(); l != nil && l.pending() {
			return true
		}
	}
	return false
}

// shut gives everything back. The lead notices.
func (n *node) shut() {
	if n.closed.Swap(true) {
		return
	}
	if n.table != nil {
		n.table.CloseAll()
	}
	n.cancel()
	if n.service != nil {
		n.service.close()
	}
	for i := range n.remotes {
		if r := n.remotes[i].Load(); r != nil {
			r.session.close()
		}
	}
	for i := range n.links {
		if l := n.links[i].Load(); l != nil {
			l.stop()
		}
	}
	n.tasks.Wait()
	// All chains are done. Who has waited for one still reads what it brought.
	for n.users.Load() > 0 {
		time.Sleep(100 * time.Microsecond)
	}
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
		return fmt.Errorf("%w: %v", fabric.ErrFenced, n.life.ID)
	}
	return fmt.Errorf("%w: %v", fabric.ErrNodeDown, cn)
}

// memoryAddr is where a memory node's control service is reached.
func (n *node) memoryAddr(m memoryInfo) string {
	if m.ID == 0 {
		return n.o.Lead
	}
	if host, port, err := net.SplitHostPort(m.Addr); err == nil && host == "" {
		lead, _, _ := net.SplitHostPort(n.o.Lead)
		return net.JoinHostPort(lead, port)
	}
	return m.Addr
}
