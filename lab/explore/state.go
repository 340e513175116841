package explore

import "github.com/declock/declock/fabric/sim"

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
	u, y := ex.u, &ex.tally
	if n := len(u.Nodes()); len(y.local) != n {
		y.local, y.sent = make([]uint64, n), make([]uint64, n)
	}
	y.all = ex.general()
	for i, n := range u.Nodes() {
		y.local[i], y.sent[i] = ex.nodeState(n), 0
	}
	for _, t := range u.Tasks() {
		if n := t.Node(); !ex.node(n).gone && !ex.exactly {
			y.local[n.Index()] += sim.Mix(fold(ex.client(t).private.told, uint64(t.Index())<<8|flag(ex.mayRepeat(t))<<1|1))
		}
	}
	for _, p := range u.Ports() {
		if n := p.Node(); !p.Closed() && !ex.node(n).gone {
			y.local[n.Index()] += sim.Mix(ex.hashOf(p.AppendState))
		}
	}
	for i, ch := range u.Chains {
		y.local[ch.Port().Node().Index()] += sim.Mix(ex.chainState(i, ch))
	}
	y.judged = 0
	for _, f := range ex.c.hashers {
		y.judged = fold(y.judged, f())
	}
	y.judged = sim.Mix(y.judged)
	y.sum = sim.Mix(y.all) + y.judged + u.MemoryState()
	for i := range u.Pairs {
		q := ex.pairState(&u.Pairs[i])
		if from := u.NodeOf(u.Pairs[i].From.CN()); from != nil {
			y.sent[from.Index()] += q
		}
		y.sum += q
	}
	for _, l := range y.local {
		y.sum += l
	}
}

// general returns the hash of what everybody may go by.
func (ex *explorer) general() uint64 {
	h := ex.hashOf(ex.u.AppendState)
	for _, n := range ex.u.Nodes() {
		if ex.node(n).gone {
			h = fold(h, flag(n.Fenced()))
		} else {
			h = fold(h, ex.hashOf(n.AppendState))
		}
	}
	for i := range ex.c.actions {
		h = fold(h, flag(ex.c.actions[i].done))
	}
	h = fold(h, uint64(ex.ticks)<<16|uint64(ex.acted)<<32|flag(ex.resting)<<48)
	if ex.cfg.MaxSwitches > 0 {
		h = fold(h, uint64(ex.switches)<<32|uint64(ex.actor))
	}
	return h
}

// nodeState returns the hash of what the clients of a node share.
func (ex *explorer) nodeState(n *sim.Node) uint64 {
	x := ex.node(n)
	if x.gone {
		return 0
	}
	if ex.exactly {
		return sim.Mix(fold(x.exact, uint64(n.ID())<<8|2))
	}
	h := fold(x.memo.told, uint64(n.ID())<<8|2)
	if x.shares != nil {
		h = fold(h, ex.memoryOf(x))
	}
	return sim.Mix(h)
}

// pairState returns the hash of the messages from one client to another.
func (ex *explorer) pairState(p *sim.Pair) uint64 {
	if p.Len() == 0 {
		return 0
	}
	return sim.Mix(ex.hashOf(func(dst []byte) []byte { return ex.u.AppendPair(dst, p) }))
}

// chainState returns the hash of how far Chains[i] has got, and what it will return. Chains of a Port count in their order.
func (ex *explorer) chainState(i int, ch *sim.Chain) uint64 {
	n := uint64(0)
	for _, x := range ex.u.Chains[:i] {
		if x.Port() == ch.Port() {
			n++
		}
	}
	again := ex.isAgain(ch)
	return fold(ex.hashOf(ch.AppendState), n<<2|flag(again)<<1|flag(again && ex.polls(ch)))
}
