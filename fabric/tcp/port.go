//go:build linux

package tcp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/inbox"
	"github.com/declock/declock/fabric/internal/ram"
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
}

// largeChain is how many bytes a chain moves that may not fit into one frame.
const largeChain = maxFrame - headerSize - fabric.MaxChain*maxFixed - maxFixed - minPiece

// A port is one client of a compute node.
type port struct {
	*inbox.Box // its client, and all that waits
	n          *node
	lane       int // which of a memory node's lanes is its
	remote     [MaxMN]*remote
	arena      ram.Arena
	stats      fabric.Stats
	rng        rand.PCG
	limit      limit

	turn     atomic.Uint32 // which goroutine the chains belong to: see turn.go
	chains   []*chain
	free     []uint32                 // indexes of chains that are not in use
	outcomes map[fabric.Pending]error // of chains that were under way when the Port was closed
	woundUp  chan struct{}            // closed when the chains of a closed Port have ended
}

// States of a chain.
const (
	chainDone uint32 = iota
	chainUnderWay
	chainParked // who waits for it sleeps
	chainLeft   // nobody waits for it any more: its ops and their memory are somebody else's
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
	lane    *lane
	limit   *limit     // the port's
	results sync.Mutex // held while results are taken, or it is left
	changes bool       // left: it changes memory
	life    uint32     // of this entry: a Pending is good for one
	open    bool
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
// returns the place of the empty piece with which the chain is done. mu of the lane is held.
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

func (n *node) newPort(box *inbox.Box) *port {
	p := &port{Box: box, n: n, lane: int(n.spread.Add(1)), woundUp: make(chan struct{})}
	p.rng.Seed(rand.Uint64(), rand.Uint64())
	p.limit.passed = make(chan struct{}, 1)
	// Attached now: if a memory node restarts before the first operation, the
	// client must hear of it.
	for id := range n.remotes {
		if r := n.remotes[id].Load(); r != nil && !r.ended.Load() {
			p.remote[id] = r
		}
	}
	return p
}

// Caps is fabric.Port.Caps.
func (p *port) Caps() fabric.Caps { return caps }

// Now is fabric.Port.Now.
func (p *port) Now() fabric.Time { return p.n.Now() }

// Rand is fabric.Port.Rand.
func (p *port) Rand() uint64 { return p.rng.Uint64() }

// Reattach is fabric.Port.Reattach.
func (p *port) Reattach(mem fabric.MemID, epoch uint32) error {
	if p.Closed() {
		return fabric.ErrClosed
	}
	if p.n.fenced.Load() {
		return p.n.dead(p.n.own.ID)
	}
	var r *remote
	if mem < MaxMN {
		r = p.n.remotes[mem].Load()
	}
	if r == nil || r.ended.Load() {
		return fmt.Errorf("%w: %v", fabric.ErrNodeDown, mem)
	}
	if r.mn.Epoch != epoch {
		return fmt.Errorf("%w: %v is in epoch %d, not %d", fabric.ErrStaleEpoch, mem, r.mn.Epoch, epoch)
	}
	p.remote[mem] = r
	return nil
}

// Alloc is fabric.Port.Alloc.
func (p *port) Alloc(n int) []byte { return p.arena.Alloc(n) }

// Free is fabric.Port.Free.
func (p *port) Free(buf []byte) { p.arena.Free(buf) }

// Stats is fabric.Port.Stats.
func (p *port) Stats() *fabric.Stats { return &p.stats }

// Do is fabric.Port.Do.
func (p *port) Do(ops []fabric.Op) error {
	if !p.enter() {
		return p.noEntry()
	}
	i, err := p.begin(ops)
	if err == nil && i >= 0 {
		err = p.end(uint32(i))
	}
	p.exit()
	return err
}

// Post is fabric.Port.Post.
func (p *port) Post(ops []fabric.Op) (fabric.Pending, error) {
	if !p.enter() {
		return 0, p.noEntry()
	}
	i, err := p.begin(ops)
	pending := fabric.Pending(0)
	if err == nil {
		if i < 0 {
			i = p.take(ops) // a chain of nothing
		}
		pending = p.pendingOf(uint32(i))
	}
	p.exit()
	return pending, err
}

// pendingOf returns the name of a posted chain.
func (p *port) pendingOf(i uint32) fabric.Pending {
	return fabric.Pending(p.chains[i].life)<<32 | fabric.Pending(i)
}

// Wait is fabric.Port.Wait.
func (p *port) Wait(pending fabric.Pending) error {
	if !p.enter() {
		return p.outcome(pending)
	}
	i := uint32(pending)
	var err error
	if uint64(i) < uint64(len(p.chains)) && p.chains[i].open && p.pendingOf(i) == pending {
		err = p.end(i)
	} else {
		err = fmt.Errorf("%w: nothing is posted as %#x, or it was waited for", fabric.ErrBadChain, uint64(pending))
	}
	p.exit()
	return err
}

// begin posts a chain and returns its index, -1 if there is nothing to do. The
// error is what refuses the chain before anything is posted; what goes wrong later end tells.
func (p *port) begin(ops []fabric.Op) (int, error) {
	if p.Closed() {
		return 0, fabric.ErrClosed
	}
	bytes, err := p.check(ops)
	if err != nil || len(ops) == 0 {
		return -1, err
	}
	p.stats.Count(ops)
	i := p.take(ops)
	c := p.chains[i]
	r, err := p.find(ops[0].Addr.MN())
	if err != nil {
		c.ops, c.refusal, c.refused = nil, err, 0
		return i, nil
	}
	if bytes > largeChain {
		c.trim(r)
	}
	if len(c.ops) > 0 {
		c.lane = r.lanes[p.lane%len(r.lanes)]
		if p.Interrupted() {
			p.limit.renew(c.lane)
		}
		c.state.Store(chainUnderWay)
		c.lane.submit(c)
	}
	return i, nil
}

// trim takes out of a chain what will be refused: it goes in several frames, of which none knows of the
// others. (The memory node checks again.)
func (c *chain) trim(r *remote) {
	for i := range c.ops {
		o := &c.ops[i]
		if n, offset := uint64(o.Size()), o.Addr.Offset(); offset > r.mn.Size || n > r.mn.Size-offset {
			c.ops, c.refusal, c.refused = c.ops[:i], r.refused(statusOutOfBounds, o), i
			return
		}
	}
}

// check refuses a bad chain, and tells how many bytes it moves. The common case is decided here, without a call for
// each operation.
func (p *port) check(ops []fabric.Op) (bytes int, err error) {
	if len(ops) > fabric.MaxChain {
		return 0, p.refuse(ops)
	}
	for i := range ops {
		o := &ops[i]
		switch o.Kind {
		case fabric.OpRead, fabric.OpWrite:
			if o.Buf == nil && o.Addr%8 != 0 || o.Buf != nil && !p.arena.Owns(o.Buf) {
				return 0, p.refuse(ops)
			}
			bytes += len(o.Buf)
		case fabric.OpCAS, fabric.OpFAA:
			if o.Addr%8 != 0 {
				return 0, p.refuse(ops)
			}
		default:
			if err := p.refuse(ops); err != nil {
				return 0, err
			}
		}
		if o.Addr.MN() != ops[0].Addr.MN() {
			return 0, p.refuse(ops)
		}
	}
	return bytes, nil
}

// refuse says what is wrong with a chain, if anything is.
func (p *port) refuse(ops []fabric.Op) error {
	if err := fabric.CheckChain(ops, caps); err != nil {
		return err
	}
	for i := range ops {
		o := &ops[i]
		if (o.Kind == fabric.OpRead || o.Kind == fabric.OpWrite) && o.Buf != nil && !p.arena.Owns(o.Buf) {
			return &fabric.ChainError{Index: i, Op: *o, Err: fmt.Errorf("%w: %d bytes; use Alloc", fabric.ErrBadBuffer, len(o.Buf))}
		}
	}
	return nil
}

// find returns a memory node as this port has attached to it, or why it takes nothing.
func (p *port) find(id fabric.MemID) (*remote, error) {
	if p.n.fenced.Load() {
		return nil, p.n.dead(p.n.own.ID)
	}
	if id >= MaxMN {
		return nil, fmt.Errorf("%w: there is no %v", fabric.ErrNodeDown, id)
	}
	r := p.remote[id]
	if r == nil {
		if r = p.n.remotes[id].Load(); r == nil {
			return nil, fmt.Errorf("%w: %v", fabric.ErrNodeDown, id)
		}
		p.remote[id] = r
	}
	if r.ended.Load() {
		return nil, r.refusal()
	}
	return r, nil
}

func (p *port) newChain() *chain { return &chain{wake: make(chan struct{}, 1), limit: &p.limit} }

// take returns the index of a chain that is not in use, which is done.
func (p *port) take(ops []fabric.Op) int {
	if len(p.free) == 0 {
		p.free = append(p.free, uint32(len(p.chains)))
		p.chains = append(p.chains, p.newChain())
	}
	last := len(p.free) - 1
	i := p.free[last]
	p.free = p.free[:last]
	c := p.chains[i]
	c.ops, c.all, c.refusal, c.lane = ops, ops, nil, nil
	if c.failed() {
		c.failure.Store(nil)
	}
	c.life++
	c.open = true
	return int(i)
}

// end waits for a chain and returns its outcome. The caller has the turn: nobody else ends it.
func (p *port) end(i uint32) error {
	c := p.chains[i]
	if c.lane != nil && !c.lane.await(c) {
		return p.leave(i)
	}
	var err error
	if f := c.failure.Load(); f != nil {
		err = f
	} else if c.refusal != nil {
		err = &fabric.ChainError{Index: c.refused, Op: c.all[c.refused], Err: c.refusal}
	}
	c.open, c.ops, c.all, c.lane = false, nil, nil, nil
	p.free = append(p.free, i)
	return err
}

// Send is fabric.Port.Send.
func (p *port) Send(to fabric.ClientID, m *fabric.Message) error {
	if p.Closed() {
		return fabric.ErrClosed
	}
	cn := to.CN()
	switch {
	case to>>fabric.ClientIDBits != 0:
		return fmt.Errorf("%w: there is no client %#x", fabric.ErrNodeDown, uint32(to))
	case cn == p.n.own.ID:
		p.stats.SentLocal++
		own := *m
		own.From = p.ID()
		p.n.table.Deliver(to.Index(), &own)
		return nil
	}
	l, err := p.n.link(cn)
	if err == nil {
		err = l.send(p.ID().Index(), to.Index(), m)
	}
	if err == nil {
		p.stats.Sent++
	}
	return err
}

// Abandon is fabric.Port.Abandon.
func (p *port) Abandon() error { return p.n.table.Abandon(p.Box) }
