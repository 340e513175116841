package sim

import (
	"slices"

	"github.com/declock/declock/fabric"
)

// An operation of unknown outcome may take effect after its client has heard of that: over TCP it lies in the socket of a memory node that
// stands still. It does so, if at all, before anything that the compute node posts to the memory node afterwards, which is what
// fabric.ErrUnknownOutcome promises: the memory node cuts the old connection before it lets a new one in. Here a late chain
// stands for such an operation, and what would overtake it waits in its queue pair, or is refused.

// linger makes a late chain of a request that is lost: its connection breaks at one time, and it would have arrived at another.
func (c *Cluster) linger(lost *Chain, from, to int, breaks, there fabric.Time) {
	q := &queuePair{node: lost.qp.node, mn: lost.qp.mn, head: none, tail: none}
	ch := c.newChain()
	ch.ops = make([]fabric.Op, to)
	for i := from; i < to; i++ {
		ch.ops[i] = ownCopy(&lost.ops[i])
		if ch.ops[i].Kind != fabric.OpWrite {
			q.pending++
		}
	}
	ch.port, ch.qp, ch.epoch, ch.backup = lost.port, q, lost.epoch, lost.backup
	ch.cur, ch.sent, ch.state = uint8(from), uint8(to), chainFlying
	ch.orphan, ch.late = true, true
	ch.drop = c.faults.Uint64()&1 == 0
	ch.until = max(there, breaks+1) + fabric.Time(c.faults.Uint64n(uint64(c.cfg.BrokenLate)))
	ch.rung = lost.rung
	c.post(breaks+1+fabric.Time(c.faults.Uint64n(uint64(ch.until-breaks))), evArrive, ch.index, 0)
	lost.qp.lingering++
	ch.of, lost.remains = lost.qp, ch
}

// ownCopy returns an operation with memory of its own: the client uses its memory for something else.
func ownCopy(o *fabric.Op) fabric.Op {
	op := *o
	op.Buf = slices.Clone(o.Buf)
	if o.Wide != nil {
		w := *o.Wide
		op.Wide = &w
	}
	return op
}

// A lingering counts the late chains of a node at a memory node, of those whose clients have heard that their outcome is unknown.
type lingering struct {
	n         int
	turnsBack bool // what the node posts meanwhile is refused, else it waits: a fabric may do either
}

// unsettled holds back what a compute node posts from now on, when the client of a lost chain hears of that.
func (c *Cluster) unsettled(lost *Chain) {
	if lost.remains == nil {
		return
	}
	lost.remains.known = true
	l := lost.port.node.lingeringAt(lost.qp.mn)
	if l.n == 0 {
		l.turnsBack = c.faults.Uint64n(4) > 0
	}
	l.n++
}

// lingers reports whether a late chain of the node may still take effect at a memory node.
func (n *Node) lingers(mn *memNode) bool { return int(mn.id) < len(n.linger) && n.linger[mn.id].n > 0 }

func (n *Node) turnsBack(mn *memNode) bool { return n.lingers(mn) && n.linger[mn.id].turnsBack }

// settled lets the node go on when a late chain is over, and its connection is known to be shut out.
func (c *Cluster) settled(ch *Chain) {
	if c.now < ch.until {
		c.post(ch.until, evComplete, ch.index, 1)
		return
	}
	n, mn := ch.port.node, ch.qp.mn
	ch.of.lingering--
	if ch.known {
		n.linger[mn.id].n--
	}
	c.releaseChain(ch)
	for _, co := range n.cores {
		if int(mn.id) < len(co.qps) && co.qps[mn.id] != nil {
			c.kickAt(co.qps[mn.id], c.now)
		}
	}
}
