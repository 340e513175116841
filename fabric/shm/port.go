package shm

import (
	"fmt"
	"math/rand/v2"
	"runtime"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/inbox"
	"github.com/declock/declock/fabric/internal/ram"
)

// maxInline is a figure of fabric.Caps: here a WRITE of any size is a copy.
const maxInline = 1 << 20

const wordSize = 8

var caps = fabric.Caps{
	Fabric:     "shm",
	Masked:     true,
	Atomic16:   ram.HasAtomic16,
	Inline:     maxInline,
	MaxAtomics: fabric.MaxChain,

	ReadsInOrder: true,

	GlobalAtomics: true, // there are no others than those of CPUs
}

// A port is one client of a compute node.
type port struct {
	*inbox.Box // ID, Recv, Pause, Interrupt, ClearInterrupt
	ram.Arena  // Alloc, Free

	n     *node
	mem   [MaxMN]*memory // as this port attached to them
	stats fabric.Stats
	rng   rand.PCG

	// Chains are executed when they are posted; what is left is their outcome.
	posted []postedChain
	free   []uint32 // indexes of posted that are not in use
}

// A postedChain is the outcome of a chain that has not been waited for.
type postedChain struct {
	use  uint32 // of this entry: a Pending is good for one
	open bool
	err  error

	onlyRead bool
}

func (n *node) newPort(box *inbox.Box) *port {
	p := &port{Box: box, n: n}
	p.Arena.Caps = caps
	p.rng.Seed(rand.Uint64(), rand.Uint64())
	// Attached now: if the memory node restarts before the first operation,
	// the client must be notified.
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, m := range n.mems {
		if m != nil && m.isUp() {
			p.mem[id] = m
		}
	}
	return p
}

// OnWait sets a function that the client calls before it waits, in Recv and Pause: nothing else waits here.
func (p *port) OnWait(f func()) { p.SetOnWait(f) }

// Caps is fabric.Port.Caps.
func (p *port) Caps() fabric.Caps { return caps }

// Now is fabric.Port.Now.
func (p *port) Now() fabric.Time { return p.n.clock.now() }

// Rand is fabric.Port.Rand.
func (p *port) Rand() uint64 { return p.rng.Uint64() }

// Reattach is fabric.Port.Reattach.
func (p *port) Reattach(mem fabric.MemID, epoch uint32) error {
	if p.Closed() {
		return fabric.ErrClosed
	}
	m, err := p.n.memory(mem)
	if err != nil {
		return err
	}
	if m.epoch() != epoch {
		return fmt.Errorf("%w: %v is in epoch %d, not %d", fabric.ErrStaleEpoch, mem, m.epoch(), epoch)
	}
	p.mem[mem] = m
	return nil
}

// Stats is fabric.Port.Stats.
func (p *port) Stats() *fabric.Stats { return &p.stats }

// Do is fabric.Port.Do.
func (p *port) Do(ops []fabric.Op) error {
	return p.do(ops, false)
}

func (p *port) do(ops []fabric.Op, local bool) error {
	err := p.check(ops)
	if err == nil {
		p.count(ops, local)
		err = p.execute(ops)
	}
	// What has come is delivered behind the chain, not before it: the chain may
	// be what others wait for.
	p.poll(onlyReads(ops))
	return err
}

// Gather is fabric.Gatherer.Gather.
func (p *port) Gather(ops []fabric.Op) error {
	if p.Closed() {
		return fabric.ErrClosed
	}
	err := p.Arena.CheckReads(ops)
	if err == nil {
		p.count(ops, false)
		err = p.gather(ops)
	}
	p.poll(true)
	return err
}

// Fills is fabric.Filler.Fills.
func (p *port) Fills(fabric.MemID) bool { return true }

// Fill is fabric.Filler.Fill.
func (p *port) Fill(a fabric.Addr, n int, f func(dst []byte) int) (got int, err error) {
	if p.Closed() {
		return 0, fabric.ErrClosed
	}
	got, err = p.fill(a, n, f)
	p.poll(false)
	return got, err
}

// Near is fabric.Local.Near: there is one machine.
func (p *port) Near(fabric.MemID) bool { return true }

// DoLocal is fabric.Local.DoLocal: there is no other way than the CPU.
func (p *port) DoLocal(ops []fabric.Op) error {
	return p.do(ops, true)
}

// poll delivers what has come. The client that this wakes goes first: the lock that it was granted is held from now on. But a client whose chain did
// more than read may itself hold a lock, for which others wait: it goes on, and the next one whose chain only reads makes room.
func (p *port) poll(onlyRead bool) {
	if p.n.hint.Load() != 0 && p.n.drain() {
		p.n.woken.Store(true)
	}
	if onlyRead && p.n.woken.Load() && p.n.woken.Swap(false) {
		runtime.Gosched()
	}
}

func onlyReads(ops []fabric.Op) bool {
	for i := range ops {
		if ops[i].Kind != fabric.OpRead {
			return false
		}
	}
	return true
}

func (p *port) count(ops []fabric.Op, local bool) {
	switch {
	case local:
		p.stats.Local += uint64(len(ops))
	case len(ops) > 0:
		p.stats.Count(ops)
	}
}

// Post is fabric.Port.Post.
func (p *port) Post(ops []fabric.Op) (fabric.Pending, error) {
	if err := p.check(ops); err != nil {
		return 0, err
	}
	if len(p.free) == 0 {
		p.free = append(p.free, uint32(len(p.posted)))
		p.posted = append(p.posted, postedChain{})
	}
	last := len(p.free) - 1
	i := p.free[last]
	p.free = p.free[:last]
	c := &p.posted[i]
	c.use++
	c.open, c.onlyRead = true, onlyReads(ops)
	p.count(ops, false)
	c.err = p.execute(ops)
	return fabric.Pending(c.use)<<32 | fabric.Pending(i), nil
}

// Wait is fabric.Port.Wait.
func (p *port) Wait(pending fabric.Pending) error {
	i, use := uint32(pending), uint32(pending>>32)
	if uint64(i) >= uint64(len(p.posted)) || !p.posted[i].open || p.posted[i].use != use {
		return fmt.Errorf("%w: nothing is posted as %#x, or it was waited for", fabric.ErrBadChain, uint64(pending))
	}
	c := &p.posted[i]
	err := c.err
	c.open, c.err = false, nil
	p.free = append(p.free, i)
	p.poll(c.onlyRead)
	return err
}

// Send is fabric.Port.Send.
func (p *port) Send(to fabric.ClientID, m *fabric.Message) error {
	if p.Closed() {
		return fabric.ErrClosed
	}
	cn := to.CN()
	if cn == p.n.id && to>>fabric.ClientIDBits == 0 {
		p.stats.SentLocal++
		own := *m
		own.From = p.ID()
		if p.n.table.Deliver(to.Index(), &own) {
			runtime.Gosched() // the woken client goes first: with the lock that it may have been handed
		}
		return nil
	}
	if p.n.fenced() {
		return p.n.fencing()
	}
	if to>>fabric.ClientIDBits != 0 {
		return fmt.Errorf("%w: there is no client %#x", fabric.ErrNodeDown, uint32(to))
	}
	peer, err := p.n.peer(cn)
	if err != nil {
		return err
	}
	if err := peer.send(p.ID().Index(), to.Index(), m); err != nil {
		return err
	}
	p.stats.Sent++
	return nil
}

// Abandon is fabric.Port.Abandon.
func (p *port) Abandon() error { return p.n.table.Abandon(p.Box) }

// Close is fabric.Port.Close. The agent's Port stays open as long as its node.
func (p *port) Close() error {
	if p != p.n.agent {
		p.n.table.Close(p.Box)
	}
	return nil
}
