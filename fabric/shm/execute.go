package shm

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/ram"
)

// check refuses a bad chain before anything of it is executed.
func (p *port) check(ops []fabric.Op) error {
	if p.Closed() {
		return fabric.ErrClosed
	}
	return p.Arena.Check(ops)
}

// execute executes a chain that check has passed.
func (p *port) execute(ops []fabric.Op) error {
	m, err := p.target(ops)
	if m == nil {
		return err
	}
	if len(ops) >= ram.LongChain && !p.n.fenced() && m.live.Load() == m.expect {
		ram.Touch(ops, m.base, m.size)
	}
	for i := range ops {
		o := &ops[i]
		if p.n.fenced() || m.live.Load() != m.expect {
			return p.lost(i, ops, m)
		}
		if !ram.Fits(o, m.size) {
			return outOfBounds(i, o, m)
		}
		ram.Perform(o, unsafe.Add(m.base, o.Addr.Offset()))
	}
	// If the memory node ended meanwhile, the memory may have been replaced
	// under the operations: what they returned means nothing.
	if m.live.Load() != m.expect {
		return p.unknown(ops, m)
	}
	runtime.KeepAlive(m)
	return nil
}

// gather executes READs that CheckReads has passed.
func (p *port) gather(ops []fabric.Op) error {
	m, err := p.target(ops)
	if m == nil {
		return err
	}
	if p.n.fenced() || m.live.Load() != m.expect {
		return p.lost(0, ops, m)
	}
	if i := ram.Gather(ops, m.base, m.size); i < len(ops) {
		return outOfBounds(i, &ops[i], m)
	}
	switch {
	case p.n.fenced():
		return p.lost(0, ops, m)
	case m.live.Load() != m.expect:
		return p.unknown(ops, m)
	}
	runtime.KeepAlive(m)
	return nil
}

// fill has f write to memory.
func (p *port) fill(a fabric.Addr, n int, f func(dst []byte) int) (got int, err error) {
	if n == 0 {
		return 0, nil
	}
	ops := []fabric.Op{{Kind: fabric.OpWrite, Addr: a}}
	m, err := p.target(ops)
	switch {
	case m == nil:
		return 0, err
	case p.n.fenced() || m.live.Load() != m.expect:
		return 0, p.lost(0, ops, m)
	case !ram.Holds(a, n, m.size):
		return 0, &fabric.ChainError{Op: ops[0], Err: fmt.Errorf("%w: %d bytes at %v, which has %d", fabric.ErrOutOfBounds, n, a, m.size)}
	}
	got = ram.Fill(unsafe.Add(m.base, a.Offset()), n, f)
	p.stats.CountFill(got)
	switch {
	case p.n.fenced():
		return got, p.lost(0, ops, m)
	case m.live.Load() != m.expect:
		return got, p.unknown(ops, m)
	}
	runtime.KeepAlive(m)
	return got, nil
}

// target returns the memory of the memory node that a chain is for; nil: the chain is empty, or fails.
func (p *port) target(ops []fabric.Op) (*memory, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	id := ops[0].Addr.MN()
	if id < MaxMN && p.mem[id] != nil {
		return p.mem[id], nil
	}
	m, err := p.attach(id)
	if err != nil {
		return nil, &fabric.ChainError{Op: ops[0], Err: err}
	}
	return m, nil
}

func outOfBounds(i int, o *fabric.Op, m *memory) error {
	return &fabric.ChainError{Index: i, Op: *o, Err: fmt.Errorf("%w: %d bytes at %v, which has %d", fabric.ErrOutOfBounds, o.Size(), o.Addr, m.size)}
}

// attach attaches the port to a memory node that it has not used yet.
func (p *port) attach(id fabric.MemID) (*memory, error) {
	m, err := p.n.memory(id)
	if err == nil {
		p.mem[id] = m
	}
	return m, err
}

// unknown is the error of a chain that may have been executed on something else than the memory.
func (p *port) unknown(ops []fabric.Op, m *memory) error {
	err := fmt.Errorf("%w: %v ended meanwhile", fabric.ErrUnknownOutcome, m.id)
	switch {
	case p.Closed():
		err = fmt.Errorf("%w; %w", fabric.ErrClosed, fabric.ErrUnknownOutcome)
	case m.m.isLost():
		err = fmt.Errorf("%w: %w", fabric.ErrUnknownOutcome, p.n.refusal(m))
	}
	return p.stats.CountError(&fabric.ChainError{Op: ops[0], Err: err})
}

// lost says why the target refuses operation i.
func (p *port) lost(i int, ops []fabric.Op, m *memory) error {
	if i > 0 && m.m.isReplaced() {
		return p.unknown(ops, m) // those before may have been executed on zero pages
	}
	var err error
	switch {
	case p.Closed():
		err = fabric.ErrClosed
	case p.n.fenced():
		err = p.n.fencing()
	default:
		err = p.n.refusal(m)
	}
	return &fabric.ChainError{Index: i, Op: ops[i], Err: err}
}

// fenced reports whether the cluster has given this incarnation of the node up. It
// should not have, for the process holds the lock of its file; but another process may have
// removed the file, or truncated one that the node cannot do without: see fail.
func (n *node) fenced() bool { return n.slot.counter.Load() != n.alive.Load() }
