//go:build linux && cgo

package verbs

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/inbox"
	"github.com/declock/declock/fabric/internal/ram"
)

// spinTime is how long a client polls for its operation before it sleeps until
// the pump wakes it: longer than an operation takes on an idle network, shorter
// than what others could use the processor for.
const spinTime = 50 * fabric.Microsecond

// pollsPerYield is how often a client polls before it lets another run.
const pollsPerYield = 32

// A port is one client of a compute node.
type port struct {
	*inbox.Box // its client, and all that waits
	n          *node
	lane       int // which of a memory node's queue pairs is its
	remote     [MaxMN]*remote
	atomic     [MaxMN]int  // chains with READs and atomics that are posted and were not waited for
	arena      ram.Arena   // always its owner's, see turn.go
	memory     *portMemory // what arena has
	stats      fabric.Stats
	rng        rand.PCG

	turn     atomic.Uint32 // which goroutine the chains belong to: see turn.go
	chains   []*chain
	free     []uint32                 // indexes of chains that are not in use
	outcomes map[fabric.Pending]error // of chains that were under way when the Port was closed
	woundUp  chan struct{}            // closed when the chains of a closed Port have ended
}

func (n *node) newPort(box *inbox.Box) *port {
	p := &port{Box: box, n: n, lane: int(n.spread.Add(1)) % n.o.QueuePairs, memory: &portMemory{pool: n.pool}, woundUp: make(chan struct{})}
	p.arena.Source = p.memory
	runtime.AddCleanup(p, (*portMemory).end, p.memory)
	p.rng.Seed(rand.Uint64(), rand.Uint64())
	// Attached now: if a memory node restarts before the first operation, the
	// client must hear of it.
	for id := range n.remotes {
		if r := n.remotes[id].Load(); r != nil && r.alive.Load() {
			p.remote[id] = r
		}
	}
	return p
}

// Caps is fabric.Port.Caps.
func (p *port) Caps() fabric.Caps { return p.n.caps }

// Now is fabric.Port.Now.
func (p *port) Now() fabric.Time { return p.n.Now() }

// Rand is fabric.Port.Rand.
func (p *port) Rand() uint64 { return p.rng.Uint64() }

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
	defer p.exit()
	i, err := p.begin(ops)
	if err != nil || i < 0 {
		return err
	}
	return p.end(uint32(i))
}

// Post is fabric.Port.Post.
func (p *port) Post(ops []fabric.Op) (fabric.Pending, error) {
	if !p.enter() {
		return 0, p.noEntry()
	}
	defer p.exit()
	i, err := p.begin(ops)
	if err != nil {
		return 0, err
	}
	if i < 0 {
		i = p.take(ops, 0, nil) // a chain of nothing
		p.chains[i].state.Store(chainDone)
	}
	return p.pendingOf(uint32(i)), nil
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
	defer p.exit()
	i := uint32(pending)
	if uint64(i) >= uint64(len(p.chains)) || !p.chains[i].open || p.pendingOf(i) != pending {
		return fmt.Errorf("%w: nothing is posted as %#x, or it was waited for", fabric.ErrBadChain, uint64(pending))
	}
	return p.end(i)
}

// begin posts a chain and returns its index, -1 if there is nothing to do. The
// error is what refuses the chain before anything is posted; what goes wrong later end tells.
func (p *port) begin(ops []fabric.Op) (int, error) {
	if p.Closed() {
		return 0, fabric.ErrClosed
	}
	if err := p.check(ops); err != nil || len(ops) == 0 {
		return -1, err
	}
	p.stats.Count(ops)
	r, n, refusal := p.target(ops)
	i := p.take(ops, n, refusal)
	c := p.chains[i]
	if c.plan(); c.wrs == 0 {
		c.state.Store(chainDone)
		return i, nil
	}
	c.lane = r.lanes[p.lane%len(r.lanes)]
	c.fence = p.atomic[r.mn.ID] > 0
	if c.atomic {
		p.atomic[r.mn.ID]++
	}
	c.lane.submit(c)
	return i, nil
}

// check refuses a bad chain. The common case is decided here, without a call for
// each operation.
func (p *port) check(ops []fabric.Op) error {
	if len(ops) > fabric.MaxChain {
		return p.refuse(ops)
	}
	for i := range ops {
		o := &ops[i]
		switch o.Kind {
		case fabric.OpRead, fabric.OpWrite:
			if o.Buf == nil && o.Addr%8 != 0 || !p.arena.Owns(o.Buf) ||
				uint64(len(o.Buf)) > p.n.maxOperation() {
				return p.refuse(ops)
			}
		case fabric.OpCAS, fabric.OpFAA:
			if o.Addr%8 != 0 {
				return p.refuse(ops)
			}
		default:
			return p.refuse(ops)
		}
		if o.Addr.MN() != ops[0].Addr.MN() {
			return p.refuse(ops)
		}
	}
	return nil
}

// refuse says what is wrong with a chain.
func (p *port) refuse(ops []fabric.Op) error {
	if err := fabric.CheckChain(ops, p.n.caps); err != nil {
		return err
	}
	for i := range ops {
		o := &ops[i]
		var err error
		switch {
		case o.Kind != fabric.OpRead && o.Kind != fabric.OpWrite || len(o.Buf) == 0:
		case !p.arena.Owns(o.Buf):
			err = fmt.Errorf("%w: %d bytes; use Alloc", fabric.ErrBadBuffer, len(o.Buf))
		case uint64(len(o.Buf)) > p.n.maxOperation():
			err = fmt.Errorf("%w: %d bytes, the device moves at most %d at a time", fabric.ErrBadBuffer, len(o.Buf), p.n.maxOperation())
		}
		if err != nil {
			return &fabric.ChainError{Index: i, Op: *o, Err: err}
		}
	}
	return nil
}

// target finds the memory node of a chain, and the first operation that cannot be
// executed there: a bad address must not reach the device, which would give
// up the queue pair for it.
func (p *port) target(ops []fabric.Op) (r *remote, n int, refusal error) {
	r, refusal = p.find(ops[0].Addr.MN())
	if refusal != nil {
		return nil, 0, refusal
	}
	for i := range ops {
		o := &ops[i]
		offset := o.Addr.Offset()
		if n := uint64(o.Size()); offset > r.mn.Size || n > r.mn.Size-offset {
			return r, i, fmt.Errorf("%w: %d bytes at %v, which has %d", fabric.ErrOutOfBounds, n, o.Addr, r.mn.Size)
		}
		if n := uint64(o.Size()); n > r.maxOperation() {
			return r, i, fmt.Errorf("%w: %d bytes at %v, which takes at most %d at a time", fabric.ErrBadBuffer, n, o.Addr, r.maxOperation())
		}
	}
	return r, len(ops), nil
}

// find returns a memory node as this port has attached to it, or why it takes nothing.
func (p *port) find(id fabric.MemID) (*remote, error) {
	if id >= MaxMN {
		return nil, fmt.Errorf("%w: there is no %v", fabric.ErrNodeDown, id)
	}
	r := p.remote[id]
	if r != nil && r.alive.Load() && !p.n.fenced.Load() {
		return r, nil
	}
	now := p.n.remotes[id].Load()
	switch {
	case p.n.fenced.Load():
		return nil, p.n.dead(p.n.own.ID)
	case now == nil:
		return nil, fmt.Errorf("%w: %v", fabric.ErrNodeDown, id)
	case r == nil && !now.alive.Load():
		return nil, now.refusal()
	case r == nil:
		p.remote[id] = now
		return now, nil
	}
	err := r.refusal()
	if now = p.n.remotes[id].Load(); now.alive.Load() && now.mn.Life == r.mn.Life && !p.n.fenced.Load() {
		// The same life of it: only the connection was lost.
		p.remote[id] = now
		return now, nil
	}
	return nil, err
}

// Reattach is fabric.Port.Reattach.
func (p *port) Reattach(mem fabric.MemID, epoch uint32) error {
	if p.Closed() {
		return fabric.ErrClosed
	}
	if p.n.fenced.Load() {
		return p.n.dead(p.n.own.ID)
	}
	var r *remote
	if int(mem) < len(p.n.remotes) {
		r = p.n.remotes[mem].Load()
	}
	if r == nil || !r.alive.Load() {
		return fmt.Errorf("%w: %v", fabric.ErrNodeDown, mem)
	}
	if r.mn.Epoch != epoch {
		return fmt.Errorf("%w: %v is in epoch %d, not %d", fabric.ErrStaleEpoch, mem, r.mn.Epoch, epoch)
	}
	p.remote[mem] = r
	return nil
}

// take returns the index of a chain that is not in use.
func (p *port) take(ops []fabric.Op, n int, refusal error) int {
	if len(p.free) == 0 {
		c := p.newChain() // first: without memory it panics
		p.free = append(p.free, uint32(len(p.chains)))
		p.chains = append(p.chains, c)
	}
	last := len(p.free) - 1
	i := p.free[last]
	p.free = p.free[:last]
	c := p.chains[i]
	c.ops, c.n, c.refusal = ops, n, refusal
	c.bad, c.status, c.err, c.atomic, c.lane = -1, 0, nil, false, nil
	c.life++
	c.open = true
	return int(i)
}

func (p *port) newChain() *chain {
	c := &chain{port: p, wake: make(chan struct{}, 1), timer: time.NewTimer(stallTime)}
	c.timer.Stop()
	c.state.Store(chainDone)
	words := p.arena.Alloc(int(unsafe.Sizeof(*c.results)))
	c.results = (*[fabric.MaxChain]uint64)(unsafe.Pointer(unsafe.SliceData(words)))
	c.lkey = p.arena.Key(words)
	c.id = p.n.chains.add(c)
	return c
}

// end waits for a chain and returns its outcome. The caller has the turn: nobody else ends it.
func (p *port) end(i uint32) error {
	c := p.chains[i]
	p.await(c)
	if c.atomic && c.lane != nil {
		p.atomic[c.lane.r.mn.ID]--
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
	c.open, c.ops, c.err, c.refusal = false, nil, nil, nil
	if !c.poisoned {
		p.free = append(p.free, i)
	}
	return err
}

// await waits until a chain is done: it polls for a while, and then sleeps.
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
