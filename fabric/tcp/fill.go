package tcp

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/internal/ram"
)

// maxFill is how many bytes are filled at a time at most: a memory node that takes a leave back waits until that is done.
const maxFill = 1 << 20

var errOutOfReach = fmt.Errorf("%w: the memory is not lent, or the way over the network is in use", fabric.ErrUnsupported)

// Fills is fabric.Filler.Fills.
func (p *port) Fills(mem fabric.MemID) bool {
	if mem >= peer.MaxMN {
		return false
	}
	r := p.n.Remote(mem)
	return r != nil && r.Up.Load() && lanesOf(r).short.local.Load() != nil
}

// Fill is fabric.Filler.Fill: by this CPU, or not at all. What f writes is as a chain that is executed here (local.go).
func (p *port) Fill(a fabric.Addr, n int, f func(dst []byte) int) (got int, err error) {
	op := fabric.Write(a, nil)
	err = p.InTurn(func() error {
		if n == 0 {
			return nil
		}
		m, err := p.Find(a.MN())
		if err == nil {
			got, err = p.fill(lanesOf(m), &op, min(n, maxFill), f)
		}
		var e *fabric.ChainError
		if err != nil && !errors.As(err, &e) {
			err = &fabric.ChainError{Op: op, Err: err}
		}
		return err
	})
	return got, p.Stats().CountError(err)
}

// fill has f write to memory that is lent.
func (p *port) fill(r *remote, op *fabric.Op, n int, f func(dst []byte) int) (got int, err error) {
	l := r.short.local.Load()
	switch {
	case l == nil || r.limbo.Load() > 0 || p.isOnLane(r):
		return 0, errOutOfReach
	case !ram.Holds(op.Addr, n, r.MN.Size):
		return 0, fmt.Errorf("%w: %d bytes at %v, which has %d", fabric.ErrOutOfBounds, n, op.Addr, r.MN.Size)
	}
	dst, allowed := l.fill(op.Addr, n, f, 1+p.Lane%controlSlots, p.tally)
	if !allowed {
		return 0, errOutOfReach
	}
	p.Stats().CountFill(len(dst))
	ops := []fabric.Op{fabric.Write(op.Addr, dst)}
	x := &chain{ops: ops, all: ops}
	if l.conclude(x, 1); x.refusal != nil {
		return len(dst), x.refusal
	}
	return len(dst), r.Counts(ops, x.lease)
}

// fill has f write to n bytes of memory, if that is allowed, and returns those that it has written.
func (l *local) fill(a fabric.Addr, n int, f func(dst []byte) int, slot, tally int) (dst []byte, allowed bool) {
	if !l.control.begin(slot, &l.over) {
		return nil, false
	}
	defer l.control.end(slot) // also if f panics
	if now := peer.Near(); l.lapsed(now) || l.r.LeasedAt(now) != nil {
		return nil, false
	}
	at := unsafe.Add(l.base, a.Offset())
	dst = unsafe.Slice((*byte)(at), ram.Fill(at, n, f))
	l.control.count(tally, []fabric.Op{fabric.Write(a, dst)})
	return dst, true
}
