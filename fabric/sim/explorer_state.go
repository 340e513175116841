package sim

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A tally is the hash of a state, in parts: those that something that happens on a compute node does not go by, and does
// not change, count to the sum only.
type tally struct {
	sum    uint64   // of all
	all    uint64   // what everybody may go by
	judged uint64   // what oracles remember
	local  []uint64 // of each node, by index: what its clients remember and share, their Ports and chains
	sent   []uint64 // the messages that are under way from it
}

// state returns the hash of the present state: of all that determines what can happen from now on.
func (ex *explorer) state() uint64 {
	if !ex.counted || ex.cfg.Audit {
		ex.count()
		ex.counted = true
	}
	return ex.tally.sum
}

// count brings the tally up to date.
func (ex *explorer) count() {
	c, y := ex.c, &ex.tally
	if len(y.local) != len(c.nodes) {
		y.local, y.sent = make([]uint64, len(c.nodes)), make([]uint64, len(c.nodes))
	}
	y.all = ex.general()
	for i, n := range c.nodes {
		y.local[i], y.sent[i] = ex.nodeState(n), 0
	}
	for _, t := range c.tasks {
		if !t.node.gone && !ex.exactly {
			y.local[t.node.place] += mix64(fold(t.private.told, uint64(t.index)<<8|1))
		}
	}
	for _, p := range c.ports {
		if !p.closed && !p.node.gone {
			y.local[p.node.place] += mix64(ex.portState(p))
		}
	}
	for i, ch := range ex.chains {
		y.local[ch.port.node.place] += mix64(ex.chainState(i, ch))
	}
	y.judged = 0
	for _, f := range c.hashers {
		y.judged = fold(y.judged, f())
	}
	y.judged = mix64(y.judged)
	y.sum = mix64(y.all) + y.judged
	for i := range ex.pairs {
		q := ex.pairState(&ex.pairs[i])
		if from := c.cns[ex.pairs[i].from.CN()]; from != nil {
			y.sent[from.place] += q
		}
		y.sum += q
	}
	for _, l := range y.local {
		y.sum += l
	}
	for i, mn := range c.mns {
		y.sum += mn.sum * uint64(2*i+1)
	}
}

// general returns the hash of what everybody may go by.
func (ex *explorer) general() uint64 {
	c := ex.c
	h := fold(uint64(c.now), uint64(c.live))
	for _, mn := range c.mns {
		h = fold(h, uint64(mn.epoch)<<2|flag(mn.dead)<<1|flag(mn.revoked))
	}
	for _, n := range c.nodes {
		if n.gone {
			h = fold(h, flag(n.isFenced())|1<<63)
			continue
		}
		h = fold(h, flag(n.dead)|flag(n.isFenced())<<1|flag(n.paused)<<2|flag(n.closed)<<3|uint64(n.clock.Offset)<<4)
		h = fold(h, n.view.Epoch)
		if n.shares != nil {
			h = fold(h, n.idState())
		}
		for i, d := range n.downMN {
			h += mix64(flag(d) * uint64(1+i))
		}
	}
	if ex.cfg.News {
		h = fold(h, c.ledger.Revision)
		for _, m := range c.members {
			h = fold(h, m.acts<<8|uint64(m.entry.Phase))
			h = fold(h, m.entry.Acked<<8|flag(m.forgotten != member.Unnoted))
		}
	}
	var sum uint64
	for _, t := range ex.starts {
		sum += mix64(uint64(t.index)<<8 | 6)
	}
	for _, m := range ex.dead {
		sum += mix64(uint64(m.id)<<8 | 7)
	}
	for i := range ex.actions {
		sum += mix64(flag(ex.actions[i].done) * uint64(i<<8|8))
	}
	h = fold(h, sum)
	h = fold(h, uint64(ex.early)|uint64(ex.ticks)<<16|uint64(ex.acted)<<32|flag(ex.resting)<<48)
	if ex.cfg.MaxSwitches > 0 {
		h = fold(h, uint64(ex.switches)<<32|uint64(ex.actor))
	}
	return h
}

// nodeState returns the hash of what the clients of a node share.
func (ex *explorer) nodeState(n *Node) uint64 {
	if n.gone {
		return 0
	}
	if ex.exactly {
		return mix64(fold(n.exact, uint64(n.id)<<8|2))
	}
	h := fold(n.memo.told, uint64(n.id)<<8|2)
	if n.shares != nil {
		h = fold(h, ex.memoryOf(n))
	}
	return mix64(h)
}

// pairState returns the hash of the messages from one client to another.
func (ex *explorer) pairState(p *pair) uint64 {
	if len(p.queue) == 0 {
		return 0
	}
	q := fold(uint64(p.from)<<32|uint64(p.to), 5)
	for _, f := range p.queue {
		q = fold(q, hashMessage(&ex.c.flights[f].msg))
	}
	return mix64(q)
}

// portState returns the hash of what a Port waits for and has received.
func (ex *explorer) portState(p *Port) uint64 {
	h := fold(uint64(p.id)<<8|uint64(p.wait), flag(p.ready)|flag(p.interrupted)<<1)
	if p.wait >= waitRecv {
		h = fold(h, uint64(p.until))
	}
	for _, e := range p.epochs {
		h = fold(h, uint64(e))
	}
	for i := range p.in.len {
		h = fold(h, hashMessage(&p.in.ring[(p.in.head+i)&(len(p.in.ring)-1)]))
	}
	return h
}

// chainState returns the hash of how far a chain has got, and what it will return. (What it
// is follows from what its client has been told, if that is not forgotten.) Chains of a Port count in their order.
func (ex *explorer) chainState(i int, ch *chain) uint64 {
	n := uint64(0)
	for _, x := range ex.chains[:i] {
		if x.port == ch.port {
			n++
		}
	}
	h := fold(uint64(ch.port.index)<<32|n<<16|uint64(ch.state), uint64(ch.cur)|uint64(ch.part)<<8|flag(ch.orphan)<<16|flag(ch.again)<<17|flag(ch.again && ch.polls())<<18)
	done := int(ch.cur)
	if ch.part > 0 {
		done++ // the buffer of a READ holds what has come
	}
	h = fold(h, ch.results(done))
	if ch.err != nil {
		h = fold(h, hashError(ch.err))
	}
	for i := int(ch.cur); i < len(ch.ops) && ch.port.node.gone; i++ {
		h = fold(h, hashOp(&ch.ops[i]))
	}
	return h
}

// hashOp returns the hash of what an operation is to do.
func hashOp(op *fabric.Op) uint64 {
	h := fold(fold(fold(uint64(op.Kind), uint64(op.Addr)), op.Arg), op.Cmp)
	if op.Kind == fabric.OpWrite && op.Buf != nil {
		h = fold(h, hashBytes(op.Buf))
	}
	if w := op.Wide; w != nil {
		h = fold(h, hashBytes(fmt.Appendf(nil, "%v", *w)))
	}
	return h
}
