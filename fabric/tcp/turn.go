//go:build linux

package tcp

import (
	"fmt"
	"time"

	"github.com/declock/declock/fabric"
)

// Ownership of a Port's chains.
//
// Three parties meet at a chain: the Port's owner (the goroutine that calls Do, Post and Wait), the lane (whoever reads its answers,
// or connects it again), and Close, which another goroutine calls when a compute node is closed under its sessions.
//
//   - The table of chains, the free entries, and each chain's ops, all, refusal, life and open belong to the Port's turn. The owner has the
//     turn while it is in Do, Post or Wait. Close takes it only if nobody has it, and then keeps it. Otherwise Close notes that the Port
//     is closed, hurries the owner as Interrupt does, and touches nothing: the owner ends all chains when its operation ends. One
//     compare-and-swap of turn decides which of the two it is. So one goroutine waits for a chain, and it is ended once.
//   - Between submit and complete, the lane has the chain in its ring. It reads ops and all, and writes results and failure, and the
//     chain is done when its last frame has left the ring. The goroutine that has the turn ends a chain (takes ops away and gives the
//     entry back) only when it is done; or it leaves the chain to the lane (see leave), and puts another in its entry. So no frame in a
//     ring belongs to a chain that has ended.
//   - complete and leave meet at state: one of them is first, and the other acts on what it finds.

// Turns of a Port.
const (
	turnFree    uint32 = iota // no operation is under way
	turnOwner                 // the owner is in Do, Post or Wait
	turnClosing               // so it is, and the Port was closed meanwhile: the owner winds up
	turnClosed                // Close winds up, or has
)

// enter takes the turn for the owner.
func (p *port) enter() bool { return p.turn.CompareAndSwap(turnFree, turnOwner) }

// exit gives the turn back.
func (p *port) exit() {
	if !p.turn.CompareAndSwap(turnOwner, turnFree) {
		p.windUp()
	}
}

// noEntry says why there is no turn for an operation.
func (p *port) noEntry() error {
	if t := p.turn.Load(); t == turnFree || t == turnOwner {
		return fmt.Errorf("%w: two goroutines use a Port at the same time", fabric.ErrBadChain)
	}
	return fabric.ErrClosed
}

// Close is fabric.Port.Close. The agent's Port lives as long as its node.
func (p *port) Close() error {
	if p == p.n.agent {
		return nil
	}
	p.n.table.Close(p.Box)
	for {
		switch {
		case p.turn.CompareAndSwap(turnFree, turnClosed):
			p.windUp()
			return nil
		case p.turn.CompareAndSwap(turnOwner, turnClosing):
			p.hurry()
			return nil
		case p.turn.Load() == turnClosed:
			<-p.woundUp
			return nil
		case p.turn.Load() == turnClosing:
			return nil
		}
	}
}

// windUp ends the chains that are posted and that nobody waits for; the caller has the turn, for good. Their results
// are kept for Wait.
func (p *port) windUp() {
	for i, c := range p.chains {
		if !c.open {
			continue
		}
		if p.outcomes == nil {
			p.outcomes = map[fabric.Pending]error{}
		}
		if !c.isDone() {
			p.hurry()
		}
		pending := p.pendingOf(uint32(i))
		p.outcomes[pending] = p.end(uint32(i))
	}
	close(p.woundUp)
}

// outcome is Wait on a closed Port.
func (p *port) outcome(pending fabric.Pending) error {
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

// hurry is an Interrupt that nothing clears: the Port is closed.
func (p *port) hurry() {
	p.limit.mu.Lock()
	defer p.limit.mu.Unlock()
	p.limit.closed.Store(true)
	if !p.limit.on {
		p.limit.start(p.expire)
	}
}

// start gives a Port that is interrupted, or closed, its last time to wait; mu is held.
func (t *limit) start(expire func()) {
	t.on = true
	t.due = time.Now().Add(grace)
	t.timer = time.AfterFunc(grace, expire)
}

// reason says why a Port does not wait any longer.
func (t *limit) reason() error {
	if t.closed.Load() {
		return fabric.ErrClosed
	}
	return fabric.ErrInterrupted
}
