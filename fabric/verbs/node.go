//go:build cgo && !shmonly

package verbs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// A node is a compute node.
type node struct {
	peer.Node
	o       Options
	caps    fabric.Caps
	dev     *device
	pump    *pump
	pool    *pool // apart from the node: memory that Ports still have does not keep that
	chains  registry[chain]
	outs    registry[outLink]
	ins     registry[inLink]
	service *service

	waiting    atomic.Int32 // clients that poll for an operation
	processors int          // of Go's scheduler

	linkMu sync.Mutex // of accepting and ending links: one at a time

	portsMu sync.Mutex
	ports   map[*port]struct{} // that have not wound up; nil: all are being closed

	// Under Mu.

	attachments [MaxMN]*attachment
	inLinks     map[*session]*inLink
	arrived     map[member.Incarnation]uint64 // messages delivered over links that have ended
}

// Join makes the process a compute node of a cluster, with the lowest number
// that is free. A process may join more than once. ctx bounds the joining. A memory node that cannot be
// reached does not keep it from joining: operations on it are fabric.ErrNodeDown until it can.
func Join(ctx context.Context, o Options) (fabric.Node, error) {
	if err := o.checkJoin(); err != nil {
		return nil, err
	}
	n := &node{o: o, processors: runtime.GOMAXPROCS(0), ports: map[*port]struct{}{}, inLinks: map[*session]*inLink{}, arrived: map[member.Incarnation]uint64{}}
	n.Init(o.config(), n)
	if err := n.open(ctx); err != nil {
		n.Abort(ctx)
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
	addr, err := n.service.Contact(peer.MayCompute)
	if err != nil {
		return err
	}
	if _, err := n.Enter(ctx, addr); err != nil {
		return err
	}
	n.UseMemory()
	if err := n.awaitMemory(ctx); err != nil {
		return err
	}
	n.caps = n.capabilities()
	return n.OpenAgent()
}

// Start is peer.Network.Start.
func (n *node) Start() {
	n.pump.running.Go(n.pump.run)
	n.service.start(n.handle, n.ended)
}

// Shut is peer.Network.Shut.
func (n *node) Shut(st *member.State) (drain func()) {
	var gone []*inLink
	for s, l := range n.inLinks {
		if !peer.Present(st, l.peer) {
			gone = append(gone, l)
			s.close()
		}
	}
	return func() {
		var drains sync.WaitGroup
		for _, l := range gone {
			drains.Go(l.drain)
		}
		drains.Wait()
		n.forget(st)
	}
}

// forget forgets how many messages have come from nodes that have gone.
func (n *node) forget(st *member.State) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	sends := func(from member.Incarnation) bool {
		return slices.ContainsFunc(slices.Concat(st.CNs, st.Fencing), func(c member.CN) bool { return c.Incarnation == from })
	}
	maps.DeleteFunc(n.arrived, func(from member.Incarnation, _ uint64) bool { return !sends(from) })
}

// handle answers other compute nodes.
func (n *node) handle(c *session, kind string, body json.RawMessage) (any, error) {
	if kind == askLink {
		return decoded(body, func(r linkRequest) (any, error) { return n.accept(c, r) })
	}
	return nil, fmt.Errorf("%w: unknown kind of request %q", ErrProtocol, kind)
}

// capabilities asks the device what it can do.
func (n *node) capabilities() fabric.Caps {
	c := fabric.Caps{Fabric: "verbs", CutsEpochs: true, Inline: maxInline, MaxAtomics: int(min(n.dev.rdAtomic(), n.dev.initRDAtomic()))}
	for m := range n.Remotes {
		r := lanesOf(m)
		c.Inline = min(c.Inline, r.inline)
		c.MaxAtomics = min(c.MaxAtomics, r.rdAtomic)
	}
	return c
}

// Caps is fabric.Node.Caps.
func (n *node) Caps() fabric.Caps { return n.caps }

// Poll delivers messages that have come.
func (n *node) Poll() { n.pump.messages.poll() }

// Stop is peer.Network.Stop.
func (n *node) Stop() {
	if n.service != nil {
		n.service.close()
	}
}

// Release is peer.Network.Release. All chains are done. A client that has waited for one still reads what it brought.
func (n *node) Release() {
	n.closePorts()
	if n.pump != nil {
		n.pump.close()
	}
	if n.dev != nil {
		n.pool.close()
		n.dev.close()
	}
}
