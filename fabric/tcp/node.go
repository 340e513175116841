package tcp

import (
	"context"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// A node is a compute node.
type node struct {
	peer.Node
	o        Options
	acceptor *acceptor
	mail     *mail
	arrived  map[member.Incarnation]*inLink // by sender; changed under Mu
	tags     atomic.Uint32                  // of lanes
	locals   locals
}

// Join makes the process a compute node of a cluster, with the lowest number
// that is free. A process may join more than once. ctx bounds the joining. A memory node that cannot be
// reached does not keep it from joining: operations on it are fabric.ErrNodeDown until it can.
func Join(ctx context.Context, o Options) (fabric.Node, error) {
	if err := o.checkJoin(); err != nil {
		return nil, err
	}
	n := &node{o: o, arrived: map[member.Incarnation]*inLink{}}
	n.Init(o.config(), n)
	if err := n.open(ctx); err != nil {
		n.Abort(ctx)
		return nil, err
	}
	return n, nil
}

func (n *node) open(ctx context.Context) (err error) {
	if n.acceptor, err = newAcceptor(&n.Config, n.admit); err != nil {
		return err
	}
	addr, err := n.acceptor.door.Contact(nil)
	if err != nil {
		return err
	}
	if n.mail, err = newMail(n); err != nil {
		return err
	}
	m, err := n.Enter(ctx, addr)
	if err != nil {
		return err
	}
	if st, _ := m.State(); st != nil {
		if err := n.o.checkReach(st); err != nil {
			return err
		}
	}
	n.UseMemory()
	if err := n.awaitLanes(ctx); err != nil {
		return err
	}
	return n.OpenAgent()
}

// Start is peer.Network.Start.
func (n *node) Start() {
	n.Go(n.mail.run)
	n.acceptor.start()
}

// awaitLanes waits until it has been tried to reach all memory nodes.
func (n *node) awaitLanes(ctx context.Context) error {
	for r := range n.Remotes {
		for _, l := range lanesOf(r).lanes {
			why := func() error {
				l.mu.Lock()
				defer l.mu.Unlock()
				return l.why
			}
			if err := n.AwaitTry(ctx, r.MN.ID, l.first, why); err != nil {
				return err
			}
		}
		lanesOf(r).short.await(ctx)
	}
	return nil
}

// Shut is peer.Network.Shut.
func (n *node) Shut(st *member.State) (drain func()) {
	var gone []*inLink
	for from, l := range n.arrived {
		if !peer.Present(st, l.peer) {
			delete(n.arrived, from)
			gone = append(gone, l)
		}
	}
	return func() {
		for _, l := range gone {
			n.mail.drain(l)
		}
	}
}

// Beat is peer.Network.Beat: it gives up connections on which nothing moves that should.
func (n *node) Beat() {
	limit := n.Limit()
	for r := range n.Remotes {
		for _, l := range lanesOf(r).lanes {
			l.watch(limit)
		}
	}
	for l := range n.Links {
		l.Wire.(*outLink).watch(limit)
	}
	n.mail.acknowledge()
}

// Caps is fabric.Node.Caps.
func (n *node) Caps() fabric.Caps { return caps }

// Poll delivers messages that have come, unless waiters should park: then a client that waits for an answer does, or the goroutine of the mail.
func (n *node) Poll() {
	if !machine.crowded() {
		n.mail.poll()
	}
}

// Stop is peer.Network.Stop.
func (n *node) Stop() {
	if n.acceptor != nil {
		n.acceptor.door.Close()
	}
	if n.mail != nil {
		n.mail.poller.stop()
	}
}

// Release is peer.Network.Release.
func (n *node) Release() {
	if n.mail != nil {
		n.mail.close()
	}
}
