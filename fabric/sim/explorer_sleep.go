package sim

import (
	"slices"

	"github.com/declock/declock/fabric"
)

// Sleep sets (Godefroid, Partial-Order Methods for the Verification of Concurrent Systems, 1996): where a and b may
// both happen and do not meddle with each other, a first and then b is b first and then a. After all that begins with a has
// been explored, a sleeps while b happens, and what follows on b, until something happens that has to do
// with it. What sleeps is not chosen.
//
// A state that is met again need not be explored again if what sleeps there now is more than what slept there then: each state
// is kept with what slept. Otherwise what slept then and does not now is explored, and nothing else.

// A footprint is what something that happened has to do with. Two things that may happen in one state, and whose
// footprints do not meet, can happen in either order, each does what it does in the other, and both lead to the same state.
type footprint struct {
	all          bool     // it may have to do with everything
	witnessed    bool     // an oracle took note of it
	ports, nodes uint64   // by index and number; nodes: of which code ran, on memory that its clients share,
	changed      uint64   // and changed it
	sends, shuts uint64   // ports to which something was sent, and that are not there any more
	words        []access // of memory nodes
}

// An access is one to bytes of a memory node.
type access struct {
	mn       fabric.MemID
	from, to uint64
	write    bool
}

// A sleeper is a choice that need not be made.
type sleeper struct {
	id    uint64 // see explorer.idOf
	print footprint
}

func (f *footprint) clear() { *f = footprint{words: f.words[:0]} }

func (f *footprint) clone() footprint {
	g := *f
	g.words = slices.Clone(f.words)
	return g
}

// meets tells whether the order of two things may make a difference.
func (f *footprint) meets(g *footprint) bool {
	if f.all || g.all || f.witnessed && g.witnessed || f.ports&g.ports|f.nodes&g.changed|f.changed&g.nodes|f.sends&g.shuts|f.shuts&g.sends != 0 {
		return true
	}
	for _, a := range f.words {
		for _, b := range g.words {
			if (a.write || b.write) && a.mn == b.mn && a.from < b.to && b.from < a.to {
				return true
			}
		}
	}
	return false
}

// add adds a number to a set.
func (f *footprint) add(set *uint64, i uint32) {
	if i > 63 {
		f.all = true
		return
	}
	*set |= 1 << i
}

func (f *footprint) port(p *Port) { f.add(&f.ports, p.index) }

// node notes that a node's memory has changed, or may have.
func (f *footprint) node(n *Node) {
	f.add(&f.nodes, uint32(n.id))
	f.add(&f.changed, uint32(n.id))
}

// sendsTo notes a message to a Port: who sends to it need not know what else it does.
func (f *footprint) sendsTo(p *Port) { f.add(&f.sends, p.index) }

// gone notes that a Port gets no more messages, or others.
func (f *footprint) gone(p *Port) { f.add(&f.shuts, p.index) }

// runs notes that a client begins or goes on.
func (f *footprint) runs(t *Task) {
	f.port(t.port)
	switch ex := t.c.ex; {
	case t.node.shares != nil:
		f.add(&f.nodes, uint32(t.node.id)) // whether it changes is seen
	case !ex.cfg.Private || ex.shared.Has(t.node.id):
		f.node(t.node)
	}
}

// accesses notes the effect of an operation, or of a piece of one.
func (f *footprint) accesses(ch *chain, op *fabric.Op) {
	f.port(ch.port)
	if ch.again && ch.polls() {
		f.node(ch.port.node) // whether it stutters depends on who went on there
	}
	off := op.Addr.Offset()
	f.words = append(f.words, access{ch.qp.mn.id, off, off + uint64(op.Size()), op.Kind != fabric.OpRead})
}

// meddled notes that something has happened that may have to do with everything.
func (c *Cluster) meddled() {
	if c.ex != nil {
		c.ex.print.all = true
	}
}

// idOf names a choice, in all states in which it is the same; 0: it never sleeps.
func (ex *explorer) idOf(x choice) uint64 {
	id := uint64(x.kind) << 56
	switch x.kind {
	case chEffect, chPiece:
		ch := ex.chains[x.a]
		return id | uint64(x.piece)<<48 | uint64(ch.port.index)<<24 | uint64(ch.qp.mn.id)
	case chDeliver:
		// Not the Port that gets it: an agent's messages are also those to IDs that were abandoned to it.
		p := &ex.pairs[x.a]
		return id | uint64(p.from)<<24 | uint64(p.to)
	case chResume:
		return id | uint64(x.a)
	case chStart:
		return id | uint64(ex.starts[x.a].index)
	case chAction:
		if a := &ex.actions[x.a]; a.kills {
			return id | uint64(a.node.id)
		}
	}
	return 0
}

// wake ends a step: what has to do with what has happened sleeps no more.
func (ex *explorer) wake() {
	if ex.blind {
		return
	}
	for _, n := range ex.c.nodes {
		if before := n.digest; n.ran && n.shares != nil && !n.gone && ex.memoryOf(n) != before {
			ex.print.node(n)
		}
	}
	ex.asleep = slices.DeleteFunc(ex.asleep, func(s sleeper) bool { return s.print.meets(&ex.print) })
	if ex.learn != nil {
		ex.learn()
		ex.learn = nil
	}
	if ex.record != nil {
		*ex.record = ex.print.clone()
		ex.record = nil
	}
	ex.print.clear()
}

// sleeps tells whether a choice need not be made.
func (ex *explorer) sleeps(x choice) bool {
	if len(ex.asleep) == 0 {
		return false
	}
	id := ex.idOf(x)
	return id != 0 && slices.ContainsFunc(ex.asleep, func(s sleeper) bool { return s.id == id })
}

// killed notes the footprint of Cluster.SometimeKill: nobody else can tell a node that is dead and not yet fenced
// from one that is slow. (If it is the last thing that may happen, others go on at once from now on.)
func (ex *explorer) killed(n *Node) {
	ex.print.node(n)
	for _, p := range ex.c.ports {
		if p.node == n {
			ex.print.port(p)
			ex.print.gone(p)
		}
	}
	if ex.acted == ex.cfg.Actions && slices.ContainsFunc(ex.actions, func(a action) bool { return !a.done }) {
		ex.print.all = true
	}
}
