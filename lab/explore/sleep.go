package explore

import (
	"slices"

	"github.com/declock/declock/fabric/sim"
)

// Sleep sets (Godefroid, Partial-Order Methods for the Verification of Concurrent Systems, 1996): where a and b may
// both happen and do not meddle with each other, a first and then b is b first and then a. After all that begins with a has
// been explored, a sleeps while b happens, and what follows on b, until something happens that has to do
// with it. What sleeps is not chosen.
//
// A state that is met again need not be explored again if what sleeps there now is more than what slept there then: each state
// is kept with what slept. Otherwise what slept then and does not now is explored, and nothing else.

// A sleeper is a choice that need not be made.
type sleeper struct {
	id    uint64 // see explorer.idOf
	print sim.Footprint
}

// idOf names a choice, in all states in which it is the same; 0: it never sleeps.
func (ex *explorer) idOf(x choice) uint64 {
	id := uint64(x.kind) << 56
	switch x.kind {
	case chEffect, chPart:
		ch := ex.u.Chains[x.a]
		return id | uint64(x.part)<<48 | uint64(ch.Port().Index())<<24 | uint64(ch.MN())
	case chDeliver:
		// Not the Port that gets it: an agent's messages are also those to IDs that were abandoned to it.
		p := &ex.u.Pairs[x.a]
		return id | uint64(p.From)<<24 | uint64(p.To)
	case chResume:
		return id | uint64(x.a)
	case chStart:
		return id | uint64(ex.u.Starts[x.a].Index())
	case chAction:
		if a := &ex.c.actions[x.a]; a.kills {
			return id | uint64(a.node.ID())
		}
	}
	return 0
}

// wake ends a step: what has to do with what has happened sleeps no more.
func (ex *explorer) wake() {
	if ex.blind {
		return
	}
	print := &ex.u.Touched
	for _, n := range ex.u.Nodes() {
		x := ex.node(n)
		if before := x.digest; x.ran && x.shares != nil && !x.gone && ex.memoryOf(x) != before {
			print.Node(n)
		}
	}
	ex.asleep = slices.DeleteFunc(ex.asleep, func(s sleeper) bool { return s.print.Meets(print) })
	if ex.learn != nil {
		ex.learn()
		ex.learn = nil
	}
	if ex.record != nil {
		*ex.record = print.Clone()
		ex.record = nil
	}
	print.Clear()
}

// sleeps reports whether a choice need not be made.
func (ex *explorer) sleeps(x choice) bool {
	if len(ex.asleep) == 0 {
		return false
	}
	id := ex.idOf(x)
	return id != 0 && slices.ContainsFunc(ex.asleep, func(s sleeper) bool { return s.id == id })
}

// killed notes the footprint of Cluster.SometimeKill: no other node can tell a crashed node that is not yet fenced
// from one that is slow. (If it is the last thing that may happen, others go on at once from now on.)
func (ex *explorer) killed(n *sim.Node) {
	print := &ex.u.Touched
	print.Node(n)
	for _, p := range ex.u.Ports() {
		if p.Node() == n {
			print.Port(p)
			print.Shut(p)
		}
	}
	if ex.acted == ex.cfg.Actions && slices.ContainsFunc(ex.c.actions, func(a action) bool { return !a.done }) {
		print.All = true
	}
}
