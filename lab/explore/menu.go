package explore

import (
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// fuses reports whether the delivery of a message and its receiver's going on are one: between them, nothing can
// happen that would make a difference to the receiver.
func (ex *explorer) fuses(pr *sim.Pair, to *sim.Port) bool {
	from := ex.u.NodeOf(pr.From.CN()) // nil: the fabric
	if from == to.Node() {
		from = nil // they are fenced together
	}
	if ex.cfg.NoEager || len(ex.u.News) > 0 || ex.ticks < ex.cfg.Ticks || to.Interrupted() || to.Node().Paused() || from != nil && (from.Dead() || from.Closed()) {
		return false
	}
	return !ex.mayAct(func(a *action) bool {
		switch {
		case a.kills:
			return a.node == from
		case a.port != nil, a.link != nil:
			return false
		}
		return a.node == nil || a.node == from || a.node == to.Node()
	})
}

// arrives reports whether the next message between two clients may be delivered.
func (ex *explorer) arrives(pr *sim.Pair) bool {
	if pr.Len() == 0 || ex.severed(pr) {
		return false
	}
	to := ex.u.Inbox(pr.To)
	if to == nil || !ex.fuses(pr, to) {
		return true
	}
	w := to.Waiting()
	if w.Kind == sim.WaitChain { // a loop that polls memory may wait for a message
		return ex.isAgain(w.Chain)
	}
	return (w.Kind == sim.WaitRecv || w.Kind == sim.WaitPoll) && !w.Ready
}

// list makes the menu. What comes first is of the last actor.
func (ex *explorer) list() {
	u := ex.u
	ex.menu = ex.menu[:0]
	for i, p := range u.Ports() {
		if p.Waiting().Ready && !p.Node().Paused() && ex.eager(p.Node()) {
			ex.addResume(uint32(i)) // the choice is only whether it ticks
			return
		}
	}
	for i, p := range u.Ports() {
		if w := p.Waiting(); !p.Node().Paused() && (w.Ready || w.Kind == sim.WaitPoll && !ex.pollsInVain(p)) {
			ex.addResume(uint32(i))
		}
	}
	for i, t := range u.Starts {
		if !ex.defers(t, (*sim.Task).Started) {
			ex.add(choice{kind: chStart, a: uint32(i), actor: t.Port().Index()})
		}
	}
	for i, ch := range u.Chains {
		if ex.enabled(i) && !ex.stutters(ch) {
			ex.addEffect(uint32(i))
		}
	}
	for i := range u.Pairs {
		if ex.arrives(&u.Pairs[i]) {
			ex.add(choice{kind: chDeliver, a: uint32(i), actor: ex.receiver(u.Pairs[i].To)})
		}
	}
	for i := range u.Doomed {
		ex.add(choice{kind: chFence, a: uint32(i), actor: nobody})
	}
	for _, i := range u.News {
		ex.add(choice{kind: chNews, a: i, actor: nobody})
	}
	if len(ex.menu) == 0 { // messages for clients that wait for something else arrive before time passes
		for i := range u.Pairs {
			if p := &u.Pairs[i]; p.Len() > 0 && !ex.severed(p) {
				ex.add(choice{kind: chDeliver, a: uint32(i), actor: ex.receiver(p.To)})
			}
		}
	}
	regular := len(ex.menu)
	if !ex.resting && u.Live() > 0 {
		ex.listOptional()
	}
	if regular == 0 && len(ex.menu) > 0 {
		ex.menu = slices.Insert(ex.menu, 0, choice{kind: chRest, actor: nobody})
		return
	}
	ex.order()
}

// listOptional lists what may happen, but need not.
func (ex *explorer) listOptional() {
	if ex.acted < ex.cfg.Actions {
		for i := range ex.c.actions {
			if a := &ex.c.actions[i]; a.offered(ex.cfg.NoEager) && (a.link == nil || slices.ContainsFunc(ex.u.Pairs, ex.under(a.link))) {
				ex.add(choice{kind: chAction, a: uint32(i), actor: nobody})
			}
		}
	}
}

// under returns a function that reports whether messages are on their way over a link.
func (ex *explorer) under(l *link) func(p sim.Pair) bool {
	return func(p sim.Pair) bool { return p.Len() > 0 && l.has(&p) }
}

// severed reports whether messages between two clients go over a link that is cut.
func (ex *explorer) severed(p *sim.Pair) bool {
	for i := range ex.c.actions {
		if a := &ex.c.actions[i]; a.done && a.link != nil && a.link.has(p) {
			return true
		}
	}
	return false
}

// offered reports whether an action may happen now: a client notices an interrupt in a wait, not before.
func (a *action) offered(always bool) bool {
	if a.done || a.port == nil || always {
		return !a.done
	}
	w := a.port.Waiting()
	return !a.port.Closed() && !w.Ready && (w.Kind == sim.WaitRecv || w.Kind == sim.WaitPause)
}

func (ex *explorer) add(x choice) { ex.menu = append(ex.menu, x) }

func (ex *explorer) addResume(port uint32) {
	ex.add(choice{kind: chResume, a: port, actor: port})
	if ex.ticks < ex.cfg.Ticks {
		ex.add(choice{kind: chTick, a: port, actor: port})
	}
}

func (ex *explorer) addEffect(i uint32) {
	ch := ex.u.Chains[i]
	n := ex.u.Parts(ch)
	if n == 1 {
		ex.add(choice{kind: chEffect, a: i, actor: ch.Port().Index()})
		return
	}
	for b := range uint8(n) {
		if ch.Happened()>>b&1 == 0 {
			ex.add(choice{kind: chPart, a: i, part: b, actor: ch.Port().Index()})
		}
	}
}

// receiver returns the port that a client's messages go to.
func (ex *explorer) receiver(id fabric.ClientID) uint32 {
	if p := ex.u.Inbox(id); p != nil {
		return p.Index()
	}
	return nobody
}

// defers reports whether another client has to make the first step before this one, by InOrder.
func (ex *explorer) defers(t *sim.Task, made func(*sim.Task) bool) bool {
	after := ex.client(t).after
	return after != nil && !made(t) && !made(after) && !after.Killed() && !after.Done()
}

// enabled reports whether the next operation of Chains[i] may take effect.
func (ex *explorer) enabled(i int) bool {
	if !ex.u.Enabled(i) {
		return false
	}
	t := ex.u.Chains[i].Port().Waiting().By
	return t == nil || !ex.defers(t, (*sim.Task).Acted) || ex.client(t).after.Node() == t.Node()
}

// order puts the choices of the last actor first, and withholds the others if
// there have been enough switches.
func (ex *explorer) order() {
	own := 0
	for i, x := range ex.menu {
		if x.actor == ex.actor {
			copy(ex.menu[own+1:i+1], ex.menu[own:i])
			ex.menu[own] = x
			own++
		}
	}
	if own > 0 && own < len(ex.menu) && ex.cfg.MaxSwitches > 0 && ex.switches >= ex.cfg.MaxSwitches {
		ex.menu = ex.menu[:own]
		ex.withheld = true
	}
}
