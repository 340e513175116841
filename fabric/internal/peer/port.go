package peer

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/inbox"
	"github.com/declock/declock/fabric/internal/ram"
)

// A Port is a client of a compute node, but for the part that moves bytes: its [Mover].
//
// # Ownership of a Port's chains
//
// Three parties meet at a Port: its owner (the goroutine that calls Do, Post and Wait), the network, and Close,
// which another goroutine calls when a compute node is closed under its sessions.
//
// The table of chains, the free entries, and the Mover's chains that are not under way belong to the goroutine that has the Port's turn. The owner has
// the turn while it is in Do, Post or Wait. If the turn is free, Close takes it for good and ends all chains. Otherwise Close marks the Port
// closed, hurries the owner, and touches nothing: the owner ends all chains when its operation ends. One
// compare-and-swap of turn decides between the two. So exactly one goroutine waits for a chain, and it is ended once.
//
// The arena always belongs to the owner, which may be reading what an operation brought when another goroutine closes the Port.
type Port struct {
	*inbox.Box // its client, and all that waits
	Arena      ram.Arena
	Lane       int // grows from Port to Port: which of the connections to a memory node is its

	n      *Node
	mover  Mover
	remote [MaxMN]*Remote
	backup *Remote // to which the present chain goes; nil: to what serves the number
	stats  fabric.Stats
	rng    rand.PCG
	woke   atomic.Bool // another client, since HasWoken was asked: Send sets it without the turn

	turn     atomic.Uint32 // which goroutine the chains belong to
	entries  []entry
	free     []uint32                 // indexes of entries that are not in use
	outcomes map[fabric.Pending]error // of chains that were under way when the Port was closed
	woundUp  chan struct{}            // closed when the chains of a closed Port have ended
}

// An entry of a Port's table has a chain, or is free.
type entry struct {
	use  uint32 // grows: a Pending is good for one use
	open bool   // it has a chain that was not waited for
}

// A Mover is the part of a Port that moves bytes. The goroutine that has the turn calls it, one at a time.
type Mover interface {
	// Begin posts a chain, which was checked and may be empty, in an entry of the table: indexes count from 0, and are used again after End. All that
	// goes wrong End returns; Begin may panic for want of memory before anything is posted.
	Begin(i uint32, ops []fabric.Op)
	// End waits for the chain of an entry and returns its outcome.
	End(i uint32) error
	// Hurry cuts waits short, where the network can: the Port is closed. Any goroutine may call it.
	Hurry()
	// WoundUp is called when the Port is closed and all its chains have ended.
	WoundUp()
}

// Turns of a Port.
const (
	turnFree    uint32 = iota // no operation is under way
	turnOwner                 // the owner is in Do, Post or Wait
	turnClosing               // so it is, and the Port was closed meanwhile: the owner winds up
	turnClosed                // Close winds up, or has
)

// Init makes p a Port of a node.
func (p *Port) Init(n *Node, box *inbox.Box, mover Mover) {
	p.Box, p.n, p.Arena.Caps, p.mover, p.Lane, p.woundUp = box, n, n.net.Caps(), mover, int(n.spread.Add(1)), make(chan struct{})
	p.rng.Seed(rand.Uint64(), rand.Uint64())
	// Attached now: if a memory node restarts before the first operation, the
	// client must hear of it.
	for id := range n.remotes {
		if r := n.remotes[id].Load(); r != nil && r.Up.Load() {
			p.remote[id] = r
		}
	}
}

// Caps is fabric.Port.Caps.
func (p *Port) Caps() fabric.Caps { return p.Arena.Caps }

// Now is fabric.Port.Now.
func (p *Port) Now() fabric.Time { return p.n.Now() }

// Rand is fabric.Port.Rand.
func (p *Port) Rand() uint64 { return p.rng.Uint64() }

// Alloc is fabric.Port.Alloc.
func (p *Port) Alloc(n int) []byte { return p.Arena.Alloc(n) }

// Lend implements fabric.Port.
func (p *Port) Lend(buf []byte) bool { return p.Arena.Lend(buf) }

// Free is fabric.Port.Free.
func (p *Port) Free(buf []byte) { p.Arena.Free(buf) }

// Stats is fabric.Port.Stats.
func (p *Port) Stats() *fabric.Stats { return &p.stats }

// Do is fabric.Port.Do.
func (p *Port) Do(ops []fabric.Op) error {
	if !p.enter() {
		return p.noEntry()
	}
	defer p.exit()
	if err := p.check(ops); err != nil || len(ops) == 0 {
		return err
	}
	return p.end(p.begin(ops))
}

// Post is fabric.Port.Post.
func (p *Port) Post(ops []fabric.Op) (fabric.Pending, error) {
	if !p.enter() {
		return 0, p.noEntry()
	}
	defer p.exit()
	if err := p.check(ops); err != nil {
		return 0, err
	}
	return p.pendingOf(p.begin(ops)), nil
}

// Wait is fabric.Port.Wait.
func (p *Port) Wait(pending fabric.Pending) error {
	if !p.enter() {
		return p.outcome(pending)
	}
	defer p.exit()
	i := uint32(pending)
	if uint64(i) >= uint64(len(p.entries)) || !p.entries[i].open || p.pendingOf(i) != pending {
		return fmt.Errorf("%w: nothing is posted as %#x, or it was waited for", fabric.ErrBadChain, uint64(pending))
	}
	return p.end(i)
}

// InTurn calls f as an operation of the Port's owner.
func (p *Port) InTurn(f func() error) error {
	if !p.enter() {
		return p.noEntry()
	}
	defer p.exit()
	if p.Closed() {
		return fabric.ErrClosed
	}
	return f()
}

// pendingOf returns the name of a posted chain.
func (p *Port) pendingOf(i uint32) fabric.Pending {
	return fabric.Pending(p.entries[i].use)<<32 | fabric.Pending(i)
}

// begin posts a chain in a free entry, and returns its index.
func (p *Port) begin(ops []fabric.Op) uint32 {
	if len(ops) > 0 {
		p.stats.Count(ops)
	}
	if len(p.free) == 0 {
		p.free = append(p.free, uint32(len(p.entries)))
		p.entries = append(p.entries, entry{})
	}
	last := len(p.free) - 1
	i := p.free[last]
	p.mover.Begin(i, ops) // first: it may panic
	p.free = p.free[:last]
	p.entries[i].use++
	p.entries[i].open = true
	return i
}

// end waits for a chain and returns its outcome. The caller has the turn.
func (p *Port) end(i uint32) error {
	err := p.mover.End(i)
	p.entries[i].open = false
	p.free = append(p.free, i)
	if err != nil {
		_ = p.stats.CountError(err)
	}
	return err
}

// check refuses a bad chain.
func (p *Port) check(ops []fabric.Op) error {
	if p.Closed() {
		return fabric.ErrClosed
	}
	return p.Arena.Check(ops)
}

// Find returns a memory node as this Port has attached to it, or why it takes nothing. Whether this node may act there yet is another matter: Remote.Leased.
func (p *Port) Find(id fabric.MemID) (*Remote, error) {
	n := p.n
	if p.backup != nil {
		return p.findBackup()
	}
	if id >= MaxMN {
		return nil, fmt.Errorf("%w: there is no %v", fabric.ErrNodeDown, id)
	}
	r := p.remote[id]
	if r != nil && r.Up.Load() && !n.fenced.Load() {
		return r, nil
	}
	now := n.remotes[id].Load()
	switch {
	case n.fenced.Load():
		return nil, n.Dead(n.Own.ID)
	case now == nil:
		return nil, fmt.Errorf("%w: %v", fabric.ErrNodeDown, id)
	case r == nil && !now.Up.Load():
		return nil, now.Refusal()
	case r == nil:
		p.remote[id] = now
		return now, nil
	}
	err := r.Refusal()
	if now = n.remotes[id].Load(); now.Up.Load() && now.Same(&r.Served) && !n.fenced.Load() {
		// The same epoch of it: only the connection was lost.
		p.remote[id] = now
		return now, nil
	}
	return nil, err
}

// Reattach is fabric.Port.Reattach.
func (p *Port) Reattach(mem fabric.MemID, epoch uint32) error {
	if p.Closed() {
		return fabric.ErrClosed
	}
	if p.n.fenced.Load() {
		return p.n.Dead(p.n.Own.ID)
	}
	r := p.n.Remote(mem)
	switch {
	case r == nil || !r.Up.Load():
		return fmt.Errorf("%w: %v", fabric.ErrNodeDown, mem)
	case r.MN.Epoch != epoch:
		return fmt.Errorf("%w: %v is in epoch %d, not %d", fabric.ErrStaleEpoch, mem, r.MN.Epoch, epoch)
	}
	p.remote[mem] = r
	return nil
}

// Send is fabric.Port.Send.
func (p *Port) Send(to fabric.ClientID, m *fabric.Message) error {
	if p.Closed() {
		return fabric.ErrClosed
	}
	cn := to.CN()
	switch {
	case to>>fabric.ClientIDBits != 0:
		return fmt.Errorf("%w: there is no client %#x", fabric.ErrNodeDown, uint32(to))
	case cn == p.n.Own.ID:
		p.stats.SentLocal++
		own := *m
		own.From = p.ID()
		if p.n.Table.Deliver(to.Index(), &own) {
			p.woke.Store(true)
		}
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

// HasWoken reports whether a message from here has woken another client of the node since it was asked last: that client should run before this one waits.
func (p *Port) HasWoken() bool { return p.woke.Load() && p.woke.Swap(false) }

// Abandon is fabric.Port.Abandon.
func (p *Port) Abandon() error { return p.n.Table.Abandon(p.Box) }

// enter takes the turn for the owner.
func (p *Port) enter() bool { return p.turn.CompareAndSwap(turnFree, turnOwner) }

// exit gives the turn back.
func (p *Port) exit() {
	if !p.turn.CompareAndSwap(turnOwner, turnFree) {
		p.windUp()
	}
}

// noEntry returns why there is no turn for an operation.
func (p *Port) noEntry() error {
	if t := p.turn.Load(); t == turnFree || t == turnOwner {
		return fmt.Errorf("%w: two goroutines use a Port at the same time", fabric.ErrBadChain)
	}
	return fabric.ErrClosed
}

// Close is fabric.Port.Close. The agent's Port ends with its node.
func (p *Port) Close() error {
	if p.Box != p.n.Table.Agent() {
		p.Shut()
	}
	return nil
}

// Shut closes a Port. If its owner is in an operation, the Port winds up when that ends: see Ended.
func (p *Port) Shut() {
	p.n.Table.Close(p.Box)
	for {
		switch {
		case p.turn.CompareAndSwap(turnFree, turnClosed):
			p.windUp()
			return
		case p.turn.CompareAndSwap(turnOwner, turnClosing):
			p.mover.Hurry()
			return
		case p.turn.Load() == turnClosed:
			<-p.woundUp
			return
		case p.turn.Load() == turnClosing:
			return
		}
	}
}

// Ended is closed when a Port that was closed has wound up.
func (p *Port) Ended() <-chan struct{} { return p.woundUp }

// windUp ends the chains that are posted and were not waited for, and keeps their outcomes for Wait. The caller has the turn, for good.
func (p *Port) windUp() {
	for i := range p.entries {
		if !p.entries[i].open {
			continue
		}
		if p.outcomes == nil {
			p.outcomes = map[fabric.Pending]error{}
			p.mover.Hurry()
		}
		pending := p.pendingOf(uint32(i))
		p.outcomes[pending] = p.end(uint32(i))
	}
	p.mover.WoundUp()
	close(p.woundUp)
}

// outcome is Wait on a closed Port.
func (p *Port) outcome(pending fabric.Pending) error {
	if p.turn.Load() < turnClosing {
		return p.noEntry()
	}
	<-p.woundUp
	err, ok := p.outcomes[pending]
	if !ok {
		return fabric.ErrClosed
	}
	delete(p.outcomes, pending)
	return err
}
