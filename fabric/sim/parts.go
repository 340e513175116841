package sim

import "github.com/declock/declock/fabric"

// What the owner of an untimed cluster sees of its parts: Ports, tasks, nodes and chains.

// A Waiting is what the client of a Port waits for.
type Waiting struct {
	Kind  WaitKind
	Until fabric.Time // virtual; of WaitRecv, WaitPause, WaitPoll
	Chain *Chain      // of WaitChain
	By    *Task       // nil: the Port is used outside of clients
	Ready bool        // it has come: GoOn
}

// Waiting returns what the client of a Port waits for.
func (p *Port) Waiting() Waiting {
	w := Waiting{Kind: p.wait, Until: p.until, By: p.waiter, Ready: p.ready}
	if p.wait == WaitChain {
		w.Chain = p.c.chains[p.waitFor]
	}
	return w
}

// Index returns the number of the Port in Untimed.Ports.
func (p *Port) Index() uint32 { return p.index }

// Node returns the compute node.
func (p *Port) Node() *Node { return p.node }

// Inflight returns how many chains of the Port have been posted and not completed.
func (p *Port) Inflight() int { return p.inflight }

// Received returns how many messages are in the inbox.
func (p *Port) Received() int { return p.in.len }

// Interrupted reports whether the Port has been interrupted.
func (p *Port) Interrupted() bool { return p.interrupted }

// Closed reports whether the Port has been closed.
func (p *Port) Closed() bool { return p.closed }

// Index returns the number of the client in Untimed.Tasks.
func (t *Task) Index() uint32 { return t.index }

// Node returns the client's compute node.
func (t *Task) Node() *Node { return t.node }

// Port returns the client's Port.
func (t *Task) Port() *Port { return t.port }

// Agent reports whether the task is a node's agent.
func (t *Task) Agent() bool { return t.daemon }

// Started reports whether the client has begun.
func (t *Task) Started() bool { return t.started }

// Killed reports whether the client was killed.
func (t *Task) Killed() bool { return t.killed }

// Acted reports whether an operation of the client has taken effect. Untimed clusters only.
func (t *Task) Acted() bool { return t.acted }

// Index returns the number of the node in Untimed.Nodes.
func (n *Node) Index() int { return n.place }

// Time returns the node's clock.
func (n *Node) Time() fabric.Time { return n.clock.local(n.c.now) }

// Paused reports whether the node is paused.
func (n *Node) Paused() bool { return n.paused }

// Dead reports whether the node has been killed.
func (n *Node) Dead() bool { return n.dead }

// Closed reports whether the node has left.
func (n *Node) Closed() bool { return n.closed }

// Index returns a number that only this chain has among those not waited for yet.
func (ch *Chain) Index() uint32 { return ch.index }

// Port returns the Port that the chain was posted on.
func (ch *Chain) Port() *Port { return ch.port }

// MN returns the memory node.
func (ch *Chain) MN() fabric.MemID { return ch.qp.mn.id }

// region returns the memory that the chain is about; nil: the memory node has none of that number.
func (ch *Chain) region() *region { return ch.qp.mn.at(ch.ops[0].Addr.MN()) }

// Answered reports whether nothing but the chain's answer is under way.
func (ch *Chain) Answered() bool { return ch.answered }

// Ops returns the operations, with the results of those that have taken effect.
func (ch *Chain) Ops() []fabric.Op { return ch.ops }

// Done returns how many operations have taken effect.
func (ch *Chain) Done() int { return int(ch.cur) }

// Happened returns a bit for each part of the next operation that has happened.
func (ch *Chain) Happened() uint8 { return ch.part }

// Flying reports whether the chain has not completed.
func (ch *Chain) Flying() bool { return ch.state == chainFlying }

// Orphaned reports whether the chain's client was killed.
func (ch *Chain) Orphaned() bool { return ch.orphan }

// Wrote reports whether the chain has changed memory.
func (ch *Chain) Wrote() bool { return ch.wrote }

// Err returns the error that the chain has completed with.
func (ch *Chain) Err() error { return ch.err }

// Repeats reports whether the chain, executed as a whole now, would change nothing and return what another one has returned: was are its
// operations and data what its READs found, one behind the other.
func (ch *Chain) Repeats(was []fabric.Op, data []byte) bool {
	if ch.qp.mn.dead || ch.answered || ch.port.c.admissible(ch, &ch.ops[0]) != nil {
		return false
	}
	m := &ch.region().mem
	for i := range ch.ops {
		op := &ch.ops[i]
		off := op.Addr.Offset()
		switch {
		case !m.inBounds(off, op.Size()):
			return false
		case op.Kind == fabric.OpRead && op.Buf != nil:
			if !m.equal(off, data[:len(op.Buf)]) {
				return false
			}
			data = data[len(op.Buf):]
		case op.Kind == fabric.OpRead, op.Kind == fabric.OpCAS && was[i].Old != was[i].Cmp, op.Kind == fabric.OpFAA && op.Arg == 0:
			if m.word(off) != was[i].Old {
				return false
			}
		default:
			return false
		}
	}
	return true
}
