//go:build linux && cgo

package verbs

import (
	"fmt"

	"github.com/declock/declock/fabric"
)

// Ownership of a Port's chains and memory.
//
// Three parties meet at a Port: its owner (the goroutine that calls Do, Post and Wait, Alloc and Free), the lanes with the device, and Close,
// which another goroutine calls when a compute node is closed under its sessions.
//
//   - The table of chains, the free entries, and the ends of chains belong to the Port's turn. The owner has the turn while it is in Do, Post or
//     Wait. Close takes it only if nobody has it, and then keeps it. Otherwise Close notes that the Port is closed, and touches nothing: the owner
//     ends all chains when its operation ends. One compare-and-swap of turn decides which of the two it is. So one goroutine waits for a
//     chain, and it is ended once.
//   - Between submit and finish, the lane has the chain. It reads ops, and the device reads and writes their memory. So a chain is ended only
//     when it is done: nothing cuts the wait for a device short (see doc.go).
//   - The arena always belongs to the owner. It may be reading what an operation brought when another goroutine closes the Port, so
//     Close takes no memory away: other Ports get the memory when the garbage collector finds that nobody has the Port (see portMemory).
//   - The node gives its queue pairs, memory registrations and device back when all its Ports have wound up (see node.shut). Memory that is not
//     registered any more stays mapped for as long as somebody has one of the Ports (see pool.close).

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
	if p != p.n.agent {
		p.close()
	}
	return nil
}

// close closes a Port. If its owner is in an operation, the Port winds up when that ends; woundUp says when.
func (p *port) close() {
	p.n.table.Close(p.Box)
	for {
		switch {
		case p.turn.CompareAndSwap(turnFree, turnClosed):
			p.windUp()
			return
		case p.turn.CompareAndSwap(turnOwner, turnClosing), p.turn.Load() == turnClosing:
			return
		case p.turn.Load() == turnClosed:
			<-p.woundUp
			return
		}
	}
}

// windUp ends the chains that are posted and that nobody waits for; the caller has the turn, for good. Their results
// are kept for Wait.
func (p *port) windUp() {
	for i, c := range p.chains {
		if c.open {
			if p.outcomes == nil {
				p.outcomes = map[fabric.Pending]error{}
			}
			pending := p.pendingOf(uint32(i))
			p.outcomes[pending] = p.end(uint32(i))
		}
		if !c.poisoned {
			p.n.chains.remove(c.id)
		}
	}
	p.memory.leave()
	p.n.drop(p)
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

// closePorts closes all Ports and returns when nobody is in an operation any more. No chain is under way.
func (n *node) closePorts() {
	n.portsMu.Lock()
	ports := n.ports
	n.ports = nil
	n.portsMu.Unlock()
	for p := range ports {
		p.close()
		<-p.woundUp
	}
}
