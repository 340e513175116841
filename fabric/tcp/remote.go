//go:build linux

package tcp

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// A remote is a memory node in one of its lives, as a compute node uses it.
type remote struct {
	n     *node
	mn    member.MN
	lanes []*lane
	ended atomic.Bool // this life of it has gone, or we have

	limbo   atomic.Int32 // of all lanes
	limboMu sync.Mutex
	settled *sync.Cond // when limbo has become less, or somebody does not want to wait any more
}

// attach begins to connect a memory node; mu of the node is held.
func (n *node) attach(m member.MN) {
	r := &remote{n: n, mn: m}
	r.settled = sync.NewCond(&r.limboMu)
	for i := range n.o.Lanes {
		r.lanes = append(r.lanes, newLane(r, uint16(i)))
	}
	n.remotes[m.ID].Store(r)
	for _, l := range r.lanes {
		n.tasks.Go(l.run)
	}
}

// dial connects a lane.
func (r *remote) dial(ctx context.Context, index uint16, first uint32) (*stream, reply, error) {
	h := hello{role: roleLane, cn: uint8(r.n.own.ID), index: index, caps: capMasked | capAtomic16, from: uint64(r.n.own.Life),
		to: uint64(r.mn.Life), revision: r.n.revision(), number: uint64(first)}
	to := callee{peer.ParseContact(r.mn.Addr), peer.NameMN, func(c *x509.Certificate) error { return peer.MayServe(c, r.mn.ID) }}
	s, a, err := dial(ctx, &r.n.o, to, h, true)
	if err != nil {
		return nil, a, err
	}
	if a.size != r.mn.Size || a.epoch != r.mn.Epoch || a.caps&h.caps != h.caps {
		s.close()
		return nil, a, fmt.Errorf("%w: %v says %d bytes, epoch %d, capabilities %#x; the coordinator says %d bytes, epoch %d",
			ErrProtocol, r.mn.ID, a.size, a.epoch, a.caps, r.mn.Size, r.mn.Epoch)
	}
	return s, a, nil
}

// end stops using the memory node: when it returns, nothing more is sent to it.
func (r *remote) end() {
	if r.ended.Swap(true) {
		return
	}
	r.wakeLimbo()
	for _, l := range r.lanes {
		l.end()
	}
}

// refusal says why a memory node that has ended takes nothing.
func (r *remote) refusal() error {
	now := r.n.remotes[r.mn.ID].Load()
	switch {
	case r.n.closed.Load():
		return fabric.ErrClosed
	case r.n.fenced.Load():
		return r.n.dead(r.n.own.ID)
	case now != r && !now.ended.Load():
		return fmt.Errorf("%w: %v had epoch %d and has %d: open a new Port", fabric.ErrStaleEpoch, r.mn.ID, r.mn.Epoch, now.mn.Epoch)
	}
	return fmt.Errorf("%w: %v is no member any more", fabric.ErrNodeDown, r.mn.ID)
}

// failed notes that a lane cannot be connected.
func (r *remote) failed(err error) {
	if errors.Is(err, fabric.ErrFenced) {
		r.n.tasks.Go(func() { r.n.fence(err) })
		return
	}
	r.n.o.Report(fmt.Errorf("memory node %v: %w", r.mn.ID, err))
}

// unreachable says to clients why a memory node that should be there takes nothing.
func (r *remote) unreachable(err error) error {
	if errors.Is(err, fabric.ErrFenced) {
		return err
	}
	return fmt.Errorf("%w: %v: %v", fabric.ErrNodeDown, r.mn.ID, err)
}

// refused says why an operation was refused.
func (r *remote) refused(s status, o *fabric.Op) error {
	switch s {
	case statusOutOfBounds:
		return fmt.Errorf("%w: %d bytes at %v, which has %d", fabric.ErrOutOfBounds, o.Size(), o.Addr, r.mn.Size)
	case statusMisaligned:
		return fmt.Errorf("%w: %v at %v needs %d-byte alignment", fabric.ErrMisaligned, o.Kind, o.Addr, o.Align())
	case statusBadKey:
		return fmt.Errorf("%w: by %v", fabric.ErrBadKey, r.mn.ID)
	case statusUnsupported:
		return fmt.Errorf("%w: %v by %v", fabric.ErrUnsupported, o.Kind, r.mn.ID)
	}
	return fmt.Errorf("%w: %v refuses %v with status %d", fabric.ErrBadChain, r.mn.ID, o.Kind, s)
}
