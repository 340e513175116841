package tcp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// A remote is a memory node in one of its epochs, as a compute node uses it.
type remote struct {
	peer.Remote
	n      *node
	lanes  []*lane
	trunks []*trunk // by lane
	short  shortcut

	limbo   atomic.Int32 // of all lanes
	limboMu sync.Mutex
	settled *sync.Cond // when limbo has become less, or a client waits no more
}

// lanesOf returns tcp's part of a memory node.
func lanesOf(r *peer.Remote) *remote { return r.Lanes.(*remote) }

// Attach begins to connect a memory node; Mu of the node is held.
func (n *node) Attach(m peer.Served) {
	if now := n.Remote(m.MN.ID); now != nil && now.Same(&m) {
		return
	}
	n.Place(n.Reach(m))
}

// Reach is peer.Network.Reach.
func (n *node) Reach(m peer.Served) *peer.Remote {
	r := &remote{n: n, Remote: peer.Remote{Node: &n.Node, Served: m, Verdict: make(chan struct{})}}
	r.Lanes, r.short.first = r, make(chan struct{})
	r.Up.Store(true)
	r.settled = sync.NewCond(&r.limboMu)
	r.trunks = n.trunksTo(m.MN.Incarnation)
	for i := range n.o.Lanes {
		r.lanes = append(r.lanes, newLane(r, uint16(i)))
	}
	for _, l := range r.lanes {
		n.Go(l.run)
	}
	return &r.Remote
}

// trunksTo returns what lanes to a memory node, as a process, share. Mu of the node is held.
func (n *node) trunksTo(host member.Incarnation) []*trunk {
	for m := range n.Remotes {
		if r := lanesOf(m); m.MN.Incarnation == host {
			return r.trunks
		}
	}
	list := make([]*trunk, n.o.Lanes)
	said := new(atomic.Bool)
	for i := range list {
		list[i] = newTrunk(said)
	}
	return list
}

// dial connects a lane.
func (r *remote) dial(ctx context.Context, index uint16, first uint32) (*stream, reply, error) {
	h := r.hello(roleLane, index, first)
	h.number |= uint64(r.lanes[index].tag) << 32
	s, a, err := dial(ctx, &r.n.Config, peer.MemoryNode(r.Host, r.MN.Addr), h, true)
	if err != nil {
		return nil, a, err
	}
	if a.size != r.MN.Size || a.epoch != r.MN.Epoch || a.caps&h.caps != h.caps {
		s.close()
		return nil, a, fmt.Errorf("%w: %v says %d bytes, epoch %d, capabilities %#x; the coordinator says %d bytes, epoch %d",
			ErrProtocol, r.MN.ID, a.size, a.epoch, a.caps, r.MN.Size, r.MN.Epoch)
	}
	return s, a, nil
}

// hello returns the hello of a connection.
func (r *remote) hello(as role, index uint16, number uint32) hello {
	h := hello{role: as, cn: uint8(r.n.Own.ID), index: index, caps: capMasked | capAtomic16, from: uint64(r.n.Own.Incarnation),
		to: uint64(r.MN.Incarnation), revision: r.n.Revision(), number: uint64(number)}
	if r.Term != 0 {
		h.target = target{id: r.MN.ID, replica: r.Backup, epoch: r.MN.Epoch}
	}
	return h
}

// End stops using the memory node: when it returns, nothing is executed in its memory here, and nothing more is sent to it but what its wires have been given: one that lives on, for
// other lanes, still writes that.
func (r *remote) End() {
	if !r.Up.Swap(false) {
		return
	}
	close(r.Verdict)
	r.short.lose(nil)
	r.wakeLimbo()
	for _, l := range r.lanes {
		l.end()
	}
}

// Mute is peer.Mute.
func (r *remote) Mute(times int) (mute bool) {
	for _, l := range r.lanes {
		mute = l.mute(times) || mute
	}
	return mute
}

// failed notes that a lane cannot be connected.
func (r *remote) failed(err error) {
	if errors.Is(err, fabric.ErrFenced) {
		r.n.Go(func() { r.n.Fence(err) })
		return
	}
	r.n.Report(fmt.Errorf("memory node %v: %w", r.MN.ID, err))
}

// unreachable returns the error of clients on a memory node that should be there and takes nothing.
func (r *remote) unreachable(err error) error {
	if errors.Is(err, fabric.ErrFenced) {
		return err
	}
	return fmt.Errorf("%w: %v: %v", fabric.ErrNodeDown, r.MN.ID, err)
}

// refused returns why an operation was refused.
func (r *remote) refused(s status, o *fabric.Op) error {
	switch s {
	case statusOutOfBounds:
		return fmt.Errorf("%w: %d bytes at %v, which has %d", fabric.ErrOutOfBounds, o.Size(), o.Addr, r.MN.Size)
	case statusMisaligned:
		return fmt.Errorf("%w: %v at %v needs %d-byte alignment", fabric.ErrMisaligned, o.Kind, o.Addr, o.Align())
	case statusBadKey:
		return fmt.Errorf("%w: by %v", fabric.ErrBadKey, r.MN.ID)
	case statusUnsupported:
		return fmt.Errorf("%w: %v by %v", fabric.ErrUnsupported, o.Kind, r.MN.ID)
	}
	return fmt.Errorf("%w: %v refuses %v with status %d", fabric.ErrBadChain, r.MN.ID, o.Kind, s)
}
