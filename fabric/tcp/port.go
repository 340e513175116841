package tcp

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/inbox"
	"github.com/declock/declock/fabric/internal/peer"
)

// caps are what the software NIC can do, on every machine.
var caps = fabric.Caps{
	Fabric:     "tcp",
	Masked:     true,
	Atomic16:   true,
	Inline:     maxFrame / 4,
	MaxAtomics: ringSize,

	ReadsInOrder: true,
	CutsEpochs:   true,

	GlobalAtomics: true, // memory nodes execute by CPU
}

// largeChain is how many bytes a chain moves that may not fit into one frame.
const largeChain = maxFrame - headerSize - fabric.MaxChain*maxFixed - maxFixed - minPart

// A port is one client of a compute node.
type port struct {
	peer.Port
	n      *node
	limit  limit
	chains []*chain // by their entries in the Port's table; nil until they are used

	executed uint32 // chains, by this CPU
	tally    int    // where their operations are counted
	waited   uint64 // the last of this process's waits that was this one's
}

// States of a chain.
const (
	chainDone uint32 = iota
	chainUnderWay
	chainParked // its client is parked
	chainLeft   // left behind: its ops and their memory are its client's again
)

// A chain is one of a port's, on its way.
type chain struct {
	state   atomic.Uint32
	wake    chan struct{} // gets a token when it is done, if it was parked
	ops     []fabric.Op   // those that are sent
	all     []fabric.Op
	refusal error                             // of an operation, if ops are not all
	refused int                               // which
	failure atomic.Pointer[fabric.ChainError] // of those that were sent: the first
	r       *remote                           // where it is executed; nil: nowhere
	lane    *lane                             // nil: it was executed when it was posted
	lease   error                             // of one without a lane: of this node, when it had been executed
	backup  bool                              // it goes to a backup
	lone    bool                              // while it was under way last nobody else waited
	limit   *limit                            // the port's
	results sync.Mutex                        // held while results are taken, or it is left
	changes bool                              // left: it changes memory
}

func (c *chain) isDone() bool { return c.state.Load() == chainDone }

func (c *chain) isLeft() bool { return c.state.Load() == chainLeft }

// fail notes that a chain has failed at a place. The first time counts.
func (c *chain) fail(at cursor, err error) {
	if !c.failed() {
		c.failure.CompareAndSwap(nil, &fabric.ChainError{Index: at.op, Op: c.all[at.op], Err: c.inPart(at, err)})
	}
}

// inPart returns the error of an operation that ends at a place: a WRITE of which a part was sent may have changed memory.
func (c *chain) inPart(at cursor, err error) error {
	if at.off == 0 || c.all[at.op].Kind != fabric.OpWrite || errors.Is(err, fabric.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w: %d bytes of it were sent: %w", fabric.ErrUnknownOutcome, at.off, err)
}

// breakOff ends a chain at a place where no more of it is queued: what is queued goes on, and may be of unknown outcome; the rest is refused. It
// returns the place of the empty part with which the chain is done. mu of the lane is held.
func (c *chain) breakOff(at cursor, err error) cursor {
	c.results.Lock()
	defer c.results.Unlock()
	n := at.op
	if at.off > 0 {
		n++
	}
	c.ops, c.refusal, c.refused = c.ops[:n], c.inPart(at, err), at.op
	return cursor{op: n}
}

func (c *chain) failed() bool { return c.failure.Load() != nil }

// complete ends the wait for a chain. It is the port's again then. It returns the state of before.
func (c *chain) complete() uint32 {
	before := c.state.Swap(chainDone)
	if before == chainParked {
		c.wake <- struct{}{}
	}
	return before
}

// NewPort is peer.Network.NewPort.
func (n *node) NewPort(box *inbox.Box) (fabric.Port, error) {
	p := &port{n: n}
	p.limit.passed, p.limit.patience = make(chan struct{}, 1), min(backupGrace, n.DeadAfter)
	p.Init(&n.Node, box, p)
	p.tally = n.locals.take(p.Lane)
	return p, nil
}

// OnWait sets a function that the client calls before it waits: in Recv and Pause, for a lane, and for the coordinator. Chains that this CPU executes wait for nothing: the contexts of
// operations that are done so are never watched, which would cost a third of a get, and have all clients meet at the mutex of their common parent.
func (p *port) OnWait(f func()) { p.SetOnWait(f) }

// DropBackup is fabric.Replicator.DropBackup.
func (p *port) DropBackup(g *fabric.Replicas, i int, underWay bool) error {
	p.Waits()
	return p.Port.DropBackup(g, i, underWay)
}

// take returns the chain of an entry. It is done.
func (p *port) take(i uint32, ops []fabric.Op) *chain {
	for int(i) >= len(p.chains) {
		p.chains = append(p.chains, nil)
	}
	c := p.chains[i]
	if c == nil {
		c = &chain{wake: make(chan struct{}, 1), limit: &p.limit}
		p.chains[i] = c
	}
	c.ops, c.all, c.refusal, c.lane, c.r = ops, ops, nil, nil, nil
	if c.failed() {
		c.failure.Store(nil)
	}
	return c
}

// Begin is peer.Mover.Begin. Until the chain is complete, the lane has it in its ring: it reads ops and all, and writes results and failure, and the
// chain is done when its last frame has left the ring.
func (p *port) Begin(i uint32, ops []fabric.Op) {
	c := p.take(i, ops)
	if len(ops) == 0 {
		return
	}
	m, err := p.Find(ops[0].Addr.MN())
	if err != nil {
		c.ops, c.refusal, c.refused = nil, err, 0
		return
	}
	r := lanesOf(m)
	bytes := 0
	for i := range ops {
		bytes += len(ops[i].Buf)
	}
	if bytes <= maxLocal && p.direct(c, r) {
		c.r = r
		return
	}
	if c.refusal = r.Leased(); c.refusal != nil {
		c.ops, c.refused = nil, 0
		return
	}
	if bytes > largeChain {
		c.trim(r)
	}
	if len(c.ops) > 0 {
		c.r, c.lane = r, r.lanes[p.Lane%len(r.lanes)]
		if c.backup = m.Backup != 0; c.backup {
			p.limit.backups.Add(1)
		}
		p.Waits()
		if p.Interrupted() {
			p.limit.renew(c.lane)
		}
		c.state.Store(chainUnderWay)
		c.lane.submit(c)
	}
}

// trim takes out of a chain what will be refused: it goes in several frames, of which none knows of the
// others. (The memory node checks again.)
func (c *chain) trim(r *remote) {
	for i := range c.ops {
		o := &c.ops[i]
		if n, offset := uint64(o.Size()), o.Addr.Offset(); offset > r.MN.Size || n > r.MN.Size-offset {
			c.ops, c.refusal, c.refused = c.ops[:i], r.refused(statusOutOfBounds, o), i
			return
		}
	}
}

// End is peer.Mover.End. A chain ends when it is done; or it is left to the lane, and its entry gets another (leave): so no frame in a
// ring belongs to a chain that has ended. complete and leave meet at state: one of them is first, and the other acts on what it finds.
func (p *port) End(i uint32) error {
	c := p.chains[i]
	if c.lane != nil && c.backup {
		defer p.limit.backups.Add(-1)
	}
	if c.lane != nil {
		c.lone = p.isLone()
	}
	if c.lane != nil && !c.lane.await(c) {
		return p.leave(i)
	}
	var err error
	if f := c.failure.Load(); f != nil {
		err = f
	} else if c.refusal != nil {
		err = &fabric.ChainError{Index: c.refused, Op: c.all[c.refused], Err: c.refusal}
	}
	if err == nil && c.r != nil {
		lease := c.lease
		if c.lane != nil {
			lease = c.r.Leased()
		}
		err = c.r.Counts(c.all, lease)
	}
	c.ops, c.all, c.lane, c.r = nil, nil, nil, nil
	return err
}

// waits counts the waits of this process's clients.
var waits atomic.Uint64

// isLone reports whether the client is about to wait, and no other of its process has begun to wait since it last did, nor was woken by it. Then no other
// wants the processor, as far as one can see.
func (p *port) isLone() bool {
	n, last := waits.Add(1), p.waited
	p.waited = n
	return !p.HasWoken() && n == last+1
}

// WoundUp is peer.Mover.WoundUp.
func (p *port) WoundUp() { p.n.locals.give(p.tally) }
