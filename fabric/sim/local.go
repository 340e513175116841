package sim

import (
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
)

// A compute node may be on the machine of a memory node. Its clients reach that memory by their CPU (fabric.Local), which takes
// NIC.CPUAccess for each operation, or through the NIC and back, which takes NIC.Loopback instead of NIC.OneWay.
// With Config.SplitAtomics atomics of NICs and of CPUs are not atomic with each other.

var _ fabric.Local = (*Port)(nil)

// Place puts a compute node on the machine of a memory node. It comes before the node's first chain. Messages between compute nodes of one machine take
// NIC.LocalWake.
func (c *Cluster) Place(n *Node, mem fabric.MemID) {
	mn := c.mn(mem)
	if mn.replicas > 0 {
		panic(fmt.Sprintf("sim: Place(%v) beside %v, which is replicated", n, mem))
	}
	n.host = mn
}

// besides reports whether two compute nodes are on one machine.
func (n *Node) besides(o *Node) bool { return n == o || n.host != nil && n.host == o.host }

// Near implements fabric.Local.
func (p *Port) Near(mem fabric.MemID) bool { return p.node.host != nil && p.node.host.id == mem }

// DoLocal implements fabric.Local. A WRITE or READ of many words is not torn.
func (p *Port) DoLocal(ops []fabric.Op) error {
	p.enter()
	if p.closed {
		return fabric.ErrClosed
	}
	if len(ops) == 0 {
		return nil
	}
	if err := p.check(ops); err != nil {
		return err
	}
	if err := fabric.CheckLocal(p, ops); err != nil {
		return err
	}
	p.stats.Local += uint64(len(ops))
	return p.waitChain(p.launchLocal(ops))
}

// launchLocal has the CPU execute a chain that has been checked.
func (p *Port) launchLocal(ops []fabric.Op) *Chain {
	c, ch, id := p.c, p.c.newChain(), ops[0].Addr.MN()
	ch.ops, ch.port, ch.qp, ch.cpu = ops, p, c.qp(p, p.node.host), true
	ch.epoch, ch.state = p.epoch(id), chainFlying
	p.inflight++
	if c.untimed != nil {
		c.untimed.listener.Posted(ch)
	}
	for i := range ops {
		c.observeOp(StepPost, ch, i, &ops[i], 0, 0)
	}
	if c.untimed != nil {
		c.untimed.launch(ch)
		return ch
	}
	c.nextLocal(ch)
	return ch
}

// nextLocal has the core spend its time on the next operation.
func (c *Cluster) nextLocal(ch *Chain) {
	co := ch.port.core
	co.free = max(co.free, c.now) + c.nic.CPUAccess
	c.post(co.free, evLocal, ch.index, 0)
}

// effectLocal is effect of a chain that the CPU executes.
func (c *Cluster) effectLocal(ch *Chain) {
	op := &ch.ops[ch.cur]
	if ch.orphan { // the CPU has stopped
		ch.port.landed(ch)
		c.releaseChain(ch)
		return
	}
	err := c.admissible(ch, op)
	if ch.qp.mn.dead {
		err = fabric.ErrNodeDown
	}
	if err != nil {
		ch.err = &fabric.ChainError{Index: int(ch.cur), Op: *op, Err: err}
		c.complete(ch, true)
		return
	}
	old, new := c.execute(&ch.qp.mn.mem, op)
	c.note(StepEffect, ch.port.id, uint64(op.Kind)<<56^uint64(op.Addr), old)
	c.observeOp(StepEffect, ch, int(ch.cur), op, old, new)
	if ch.cur++; int(ch.cur) == len(ch.ops) {
		c.complete(ch, true)
		return
	}
	c.nextLocal(ch)
}

// loop sends a segment of a chain through the NIC to itself, and returns when it is there.
func (n *nic) loop(m *NIC, now, rung fabric.Time, ops int) fabric.Time {
	n.pipeFree = max(n.pipeFree, now) + fabric.Time(ops)*m.Pipe
	n.stats.PipeBusy += fabric.Time(ops) * m.Pipe
	return max(n.pipeFree, rung) + m.Loopback
}

// splitEffect is the first half of an atomic of the NIC, with Config.SplitAtomics.
func (c *Cluster) splitEffect(ch *Chain, op *fabric.Op) {
	mn := ch.qp.mn
	fetch(&mn.at(op.Addr.MN()).mem, op)
	ch.part = 1
	mn.split = append(mn.split, ch)
	c.note(StepPart, ch.port.id, uint64(op.Addr), 1)
	c.observeOp(StepPart, ch, ch.nth(int(ch.cur)), op, op.Old, op.Old)
	c.post(ch.when[ch.cur].end, evTear, ch.index, 0)
}

// splitEnd is the second half, which mend may have done already.
func (c *Cluster) splitEnd(ch *Chain) {
	mn, op := ch.qp.mn, &ch.ops[ch.nth(int(ch.cur))]
	mn.split = slices.DeleteFunc(mn.split, func(x *Chain) bool { return x == ch })
	done := ch.part > 1
	ch.part = 0
	err := c.admissible(ch, op)
	switch {
	case done:
	case ch.drop:
		c.finish(ch, c.now)
		return
	case mn.dead:
		c.lose(ch)
		return
	case err != nil:
		c.refuse(ch, err, c.now+c.nic.OneWay)
		return
	case changes(op):
		leave(&mn.at(op.Addr.MN()).mem, op)
	}
	c.effected(ch, op, op.Old, left(op)[0])
}

// mend has atomics of the NIC write at once that are between their halves at words of another operation of the NIC: these are atomic among themselves.
func (mn *memNode) mend(op *fabric.Op) {
	for _, x := range mn.split {
		half := &x.ops[x.nth(int(x.cur))]
		if x.part == 1 && overlap(half, op) {
			x.part = 2
			if changes(half) {
				leave(&mn.at(half.Addr.MN()).mem, half)
			}
		}
	}
}

// overlap reports whether two operations have a byte in common.
func overlap(a, b *fabric.Op) bool {
	from, to := a.Addr.Offset(), b.Addr.Offset()
	return a.Addr.MN() == b.Addr.MN() && from < to+uint64(b.Size()) && to < from+uint64(a.Size())
}

// splits reports whether the next operation of a chain takes effect in two halves.
func (u *Untimed) splits(ch *Chain) bool {
	return u.cfg.SplitAtomics && !ch.cpu && !ch.answered && ch.ops[ch.cur].Kind.IsAtomic()
}

// waitsForSplit reports whether an atomic of the NIC is between its halves that the next operation of a chain has to wait for.
func (u *Untimed) waitsForSplit(ch *Chain) bool {
	if !u.cfg.SplitAtomics || ch.cpu || ch.answered {
		return false
	}
	return slices.ContainsFunc(u.Chains, func(x *Chain) bool {
		return x != ch && x.part > 0 && x.qp.mn == ch.qp.mn && u.splits(x) && overlap(&x.ops[x.cur], &ch.ops[ch.cur])
	})
}
