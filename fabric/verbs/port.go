//go:build cgo && !shmonly

package verbs

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/inbox"
	"github.com/declock/declock/fabric/internal/peer"
)

// spinTime is how long a client polls for its operation before it parks until
// the pump wakes it: longer than an operation takes on an idle network, shorter
// than what others could use the processor for.
const spinTime = 50 * fabric.Microsecond

// pollsPerYield is how often a client polls before it lets another run.
const pollsPerYield = 32

// A port is one client of a compute node.
//
// Between submit and finish, the lane has a chain. It reads ops, and the device reads and writes their memory. So a chain is ended only
// when it is done: nothing cuts the wait for a device short (see doc.go).
//
// The owner may be reading what an operation brought when another goroutine closes the Port, so
// Close takes no memory away: other Ports get the memory when the garbage collector finds that the Port is unreachable (see portMemory).
// The node gives its queue pairs, memory registrations and device back when all its Ports have wound up (see closePorts). Memory that is not
// registered any more stays mapped for as long as one of the Ports is reachable (see pool.close).
type port struct {
	peer.Port
	n      *node
	atomic [MaxMN]int  // chains with READs and atomics that are posted and were not waited for
	memory *portMemory // what the arena has
	chains []*chain    // by their entries in the Port's table; nil until they are used
}

// NewPort is peer.Network.NewPort.
func (n *node) NewPort(box *inbox.Box) (fabric.Port, error) {
	p := &port{n: n, memory: &portMemory{pool: n.pool}}
	p.Arena.Source = p.memory
	p.Init(&n.Node, box, p)
	if !n.admit(p) {
		n.Table.Close(box)
		return nil, fabric.ErrClosed
	}
	runtime.AddCleanup(p, (*portMemory).end, p.memory)
	return p, nil
}

// Begin is peer.Mover.Begin.
func (p *port) Begin(i uint32, ops []fabric.Op) {
	r, n, refusal := p.target(ops)
	c := p.take(i, ops, n, refusal)
	if c.plan(); c.wrs == 0 {
		c.state.Store(chainDone)
		return
	}
	c.lane = r.lanes[p.Lane%len(r.lanes)]
	c.fence = p.atomic[r.MN.ID] > 0
	if c.atomic {
		p.atomic[r.MN.ID]++
	}
	c.lane.submit(c)
}

// target finds the memory node of a chain, and the first operation that cannot be
// executed there: a bad address must not reach the device, which would give
// up the queue pair for it.
func (p *port) target(ops []fabric.Op) (r *remote, n int, refusal error) {
	if len(ops) == 0 {
		return nil, 0, nil
	}
	m, refusal := p.Find(ops[0].Addr.MN())
	if refusal != nil {
		return nil, 0, refusal
	}
	r = lanesOf(m)
	for i := range ops {
		o := &ops[i]
		offset := o.Addr.Offset()
		if n := uint64(o.Size()); offset > r.MN.Size || n > r.MN.Size-offset {
			return r, i, fmt.Errorf("%w: %d bytes at %v, which has %d", fabric.ErrOutOfBounds, n, o.Addr, r.MN.Size)
		}
		if n := uint64(o.Size()); n > r.maxOperation() {
			return r, i, fmt.Errorf("%w: %d bytes at %v, which takes at most %d at a time", fabric.ErrBadBuffer, n, o.Addr, r.maxOperation())
		}
	}
	return r, len(ops), nil
}

// take returns the chain of an entry. It is not in use.
func (p *port) take(i uint32, ops []fabric.Op, n int, refusal error) *chain {
	for int(i) >= len(p.chains) {
		p.chains = append(p.chains, nil)
	}
	c := p.chains[i]
	if c == nil {
		c = p.newChain()
		p.chains[i] = c
	}
	c.ops, c.n, c.refusal = ops, n, refusal
	c.bad, c.status, c.err, c.atomic, c.lane = -1, 0, nil, false, nil
	return c
}

func (p *port) newChain() *chain {
	c := &chain{port: p, wake: make(chan struct{}, 1), timer: time.NewTimer(stallTime)}
	c.timer.Stop()
	c.state.Store(chainDone)
	words := p.Arena.Alloc(int(unsafe.Sizeof(*c.results)))
	c.results = (*[fabric.MaxChain]uint64)(unsafe.Pointer(unsafe.SliceData(words)))
	c.lkey = p.Arena.Key(words)
	c.id = p.n.chains.add(c)
	return c
}

// End is peer.Mover.End.
func (p *port) End(i uint32) error {
	c := p.chains[i]
	p.await(c)
	if c.atomic && c.lane != nil {
		p.atomic[c.lane.r.MN.ID]--
	}
	done := c.n
	if c.bad >= 0 {
		done = c.bad
	}
	for k := range c.ops[:done] {
		if o := &c.ops[k]; o.Kind.IsAtomic() || o.Kind == fabric.OpRead && o.Buf == nil {
			o.Old = c.results[k]
		}
	}
	var err error
	switch {
	case c.bad >= 0:
		err = &fabric.ChainError{Index: c.bad, Op: c.ops[c.bad], Err: c.err}
	case c.refusal != nil:
		err = &fabric.ChainError{Index: c.n, Op: c.ops[c.n], Err: c.refusal}
	}
	c.ops, c.err, c.refusal = nil, nil, nil
	if c.poisoned {
		p.chains[i] = nil
	}
	return err
}

// Hurry is peer.Mover.Hurry: the device is waited for.
func (p *port) Hurry() {}

// WoundUp is peer.Mover.WoundUp.
func (p *port) WoundUp() {
	for _, c := range p.chains {
		if c != nil {
			p.n.chains.remove(c.id)
		}
	}
	p.memory.leave()
	p.n.drop(p)
}

// await waits until a chain is done: it polls for a while, and then parks.
func (p *port) await(c *chain) {
	if c.state.Load() == chainDone {
		return
	}
	n := p.n
	// Where clients outnumber processors another may have something to do. Where they do
	// not, to yield is not free: it wakes a thread of the runtime that finds nothing.
	polls := pollsPerYield
	if n.waiting.Add(1) > int32(n.processors) {
		polls = 1
	}
	defer n.waiting.Add(-1)
	for until := fabric.Time(0); ; runtime.Gosched() {
		for range polls {
			if n.pump.operations.poll(); c.state.Load() == chainDone {
				return
			}
		}
		switch now := n.Now(); {
		case until == 0:
			until = now + spinTime
		case now > until:
			n.pump.park(c)
			return
		}
	}
}

// maxOperation is how many bytes one operation may move.
func (n *node) maxOperation() uint64 { return uint64(n.dev.port.max_message) }

// admit notes a Port that is to be closed with the node. It returns false if that has begun.
func (n *node) admit(p *port) bool {
	n.portsMu.Lock()
	defer n.portsMu.Unlock()
	if n.ports == nil {
		return false
	}
	n.ports[p] = struct{}{}
	return true
}

// drop forgets a Port that has wound up.
func (n *node) drop(p *port) {
	n.portsMu.Lock()
	defer n.portsMu.Unlock()
	delete(n.ports, p)
}

// closePorts closes all Ports and returns when none is in an operation any more. No chain is under way.
func (n *node) closePorts() {
	n.portsMu.Lock()
	ports := n.ports
	n.ports = nil
	n.portsMu.Unlock()
	for p := range ports {
		p.Shut()
		<-p.Ended()
	}
}
