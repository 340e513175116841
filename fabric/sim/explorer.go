package sim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
)

// An explorer runs one schedule: it takes the place of the clock and the heap
// of events. At each step it lists what can happen (the menu) and has the
// search choose.
type explorer struct {
	c    *Cluster
	cfg  *ExploreConfig
	pool *pool
	// pick chooses from the menu; false ends the run.
	pick func() (int, bool)

	chains  []*chain   // under way, or completed and not yet waited for; in the order of posting
	pairs   []pair     // messages under way
	starts  []*Task    // to begin
	unwinds []*Task    // killed, to unwind
	dead    []*Node    // killed, to be fenced
	calls   []timedAct // of Cluster.At
	actions []action
	news    []uint32 // members, by index, that have yet to hear of the present state: see ExploreConfig.News

	print  footprint  // of what has happened since the last point of choice
	asleep []sleeper  // choices that need not be made; nil: sleep sets are not used
	record *footprint // where print goes at the next point; nil: nowhere

	menu    []choice
	past    *[]choice // all that has happened, or has to happen first since it did in the schedule before; nil: nobody keeps it
	redone  int       // how much of it has happened
	digests []uint64  // of the nodes' memories when all of it has
	ended   bool      // nothing more can happen
	stopped bool      // pick has had enough, or
	slept   bool      // all that can happen sleeps
	actor   uint32    // port that acted last
	resting bool      // only what may happen is left, and it does not: until something else happens
	idle    int       // things that happened because nothing else could, since something else did

	steps, early, ticks, acted, switches int
	withheld                             bool // a bound of the configuration kept choices from the menu

	shared   fabric.CNSet // nodes with several active clients
	clocked  fabric.CNSet // nodes whose clients share only a clock, which may be put on
	solo     [256]*Task   // the active client of each other node
	conflict *Node        // a node that is not in shared, and must be
	taken    []int        // the choices so far
	known    *[]uint64    // what keep was told in the schedule before and in this one; nil: nobody keeps it
	knew     int          // how often it was
	blind    bool         // nobody asks for the state
	tally    tally        // of the present state
	counted  bool         // it is up to date
	learn    func()       // what came of the choice that has just been made; nil: nobody wants to know
	exactly  bool         // state tells states apart by all that clients were ever told
	scratch  []byte
	trace    func(s string) // nil: nobody listens
}

// An action is what Cluster.Sometime was given.
type action struct {
	name  string
	node  *Node // nil: all
	kills bool  // it is SometimeKill
	port  *Port // of SometimeInterrupt
	f     func()
	done  bool
}

type timedAct struct {
	at fabric.Time
	i  uint32 // in Cluster.calls
}

// A pair holds the messages from one client to another, in order.
type pair struct {
	from, to fabric.ClientID
	queue    []uint32 // flights
}

// choiceKind is the kind of something that can happen.
type choiceKind uint8

const (
	chRest    choiceKind = iota // nothing of what may happen, but need not, does
	chResume                    // port a goes on
	chTick                      // ... after its node's clock has ticked
	chStart                     // starts[a] begins
	chEffect                    // the next operation of chains[a] takes effect
	chPiece                     // piece b of it
	chDeliver                   // the next message of pairs[a] arrives
	chFence                     // dead[a] is fenced
	chTimer                     // the deadline of port a passes early
	chAction                    // actions[a]
	chNews                      // member a hears of the present state, and acknowledges it

	// What is no choice.
	chUnwind // a killed task unwinds
	chBegin  // starts[a] begins at once
	chGoOn   // port a goes on at once
	chForce  // what happens when nothing else can
)

type choice struct {
	kind  choiceKind
	piece uint8
	a     uint32
	actor uint32 // port
}

// nobody is the actor of what no client does.
const nobody = ^uint32(0)

var errConflict = errors.New("sim: a second client of a node is active")

// post takes an event that the engine would put into its heap.
func (ex *explorer) post(at fabric.Time, kind eventKind, a uint32, b uint64) {
	c := ex.c
	switch kind {
	case evStart:
		ex.starts = append(ex.starts, c.tasks[a])
	case evUnwind:
		ex.unwinds = append(ex.unwinds, c.tasks[a])
	case evWake:
		if p := c.ports[a]; p.wait != waitNone && p.waitGen == b {
			p.ready = true
		}
	case evDetect:
		ex.dead = append(ex.dead, c.members[a].node)
	case evCall:
		ex.calls = append(ex.calls, timedAct{at, a})
	case evDeliver:
		ex.send(a)
	case evComplete:
		ex.finish(c.chains[a])
	default:
		panic(fmt.Sprintf("sim: %v event in exploration", kind))
	}
}

// meddles notes that the client that runs has done something to another's Port past the fabric.
func (ex *explorer) meddles(p *Port) {
	ex.print.port(p)
	if t := ex.c.cur; t != nil && (t.node != p.node || ex.cfg.Private && t.port != p) {
		ex.touches(t.node)
		ex.touches(p.node)
	}
}

// touches notes that somebody sees when clients of a node go on.
func (ex *explorer) touches(n *Node) {
	if (!ex.cfg.NoEager || ex.cfg.Private) && !ex.shared.Has(n.id) {
		ex.conflict = n
		ex.c.fail(errConflict)
	}
}

// run executes one schedule to its end, a failure, or until pick has had enough.
func (ex *explorer) run() {
	c := ex.c
	defer func() { c.cur = nil }() // for a coroutine that calls runtime.Goexit
	c.begun = true
	ex.markShared()
	for c.err == nil && !ex.ended {
		if ex.redo() {
			continue
		}
		ex.settle()
		if c.err != nil {
			return
		}
		ex.wake()
		ex.list()
		i := 0
		switch len(ex.menu) {
		case 0:
			ex.do(choice{kind: chForce, actor: nobody})
			continue
		case 1:
			if ex.sleeps(ex.menu[0]) {
				ex.stopped, ex.slept = true, true
				return
			}
		default:
			ok := false
			if i, ok = ex.pick(); !ok {
				ex.stopped = true
				return
			}
			ex.taken = append(ex.taken, i)
		}
		ex.do(ex.menu[i])
	}
}

// redo does what the schedule before has done at this point, as long as this one is to be like that: without a
// look at what else could happen.
func (ex *explorer) redo() bool {
	if ex.past == nil || ex.redone == len(*ex.past) {
		return false
	}
	x := (*ex.past)[ex.redone]
	if !ex.possible(x) {
		panic(fmt.Sprintf("%s: event %d of a schedule cannot happen the second time", notDeterministic, ex.redone))
	}
	ex.do(x)
	if ex.redone == len(*ex.past) {
		for i, n := range ex.c.nodes {
			n.digest, n.ran = ex.digests[i], false
		}
	}
	return true
}

// memories returns the hashes of what the clients of each node share.
func (ex *explorer) memories() []uint64 {
	list := make([]uint64, len(ex.c.nodes))
	for i, n := range ex.c.nodes {
		if n.shares != nil {
			list[i] = ex.memoryOf(n)
		}
	}
	return list
}

// possible tells whether there is what is to happen.
func (ex *explorer) possible(x choice) bool {
	i := int(x.a)
	switch x.kind {
	case chBegin, chStart:
		return i < len(ex.starts)
	case chEffect, chPiece:
		return i < len(ex.chains) && ex.chains[i].state == chainFlying
	case chDeliver:
		return i < len(ex.pairs) && len(ex.pairs[i].queue) > 0
	case chFence:
		return i < len(ex.dead)
	case chNews:
		return slices.Contains(ex.news, x.a)
	case chAction:
		return i < len(ex.actions)
	case chGoOn, chResume, chTick, chTimer:
		return i < len(ex.c.ports)
	case chUnwind:
		return len(ex.unwinds) > 0
	}
	return true
}

// markShared finds the nodes that have several clients from the start: they share memory, or at least a clock.
func (ex *explorer) markShared() {
	if ex.cfg.Private && ex.cfg.Ticks == 0 && ex.cfg.Early == 0 {
		return
	}
	count := [256]int{}
	for _, t := range ex.c.tasks {
		if !t.daemon {
			if count[t.node.id]++; count[t.node.id] > 1 {
				if ex.cfg.Private {
					ex.clocked.Add(t.node.id)
				} else {
					ex.shared.Add(t.node.id)
				}
			}
		}
	}
}

// settle does what makes no difference to anybody else, until there is no more of it.
func (ex *explorer) settle() {
	c := ex.c
	for again := true; again && c.err == nil; {
		again = false
		for len(ex.unwinds) > 0 {
			ex.do(choice{kind: chUnwind, actor: nobody})
		}
		for i, t := range ex.starts {
			// An agent that begins looks at nothing that others have.
			if t.daemon || t.killed || ex.eager(t.node) {
				ex.do(choice{kind: chBegin, a: uint32(i), actor: nobody})
				again = true
				break
			}
		}
		if ex.cfg.Ticks > ex.ticks {
			continue // going on is a choice: with or without a tick
		}
		for i := 0; i < len(c.ports) && c.err == nil; i++ {
			if p := c.ports[i]; p.ready && !p.node.paused && ex.eager(p.node) {
				ex.do(choice{kind: chGoOn, a: uint32(i), actor: nobody})
				again = true
			}
		}
	}
}

// eager tells whether the clients of a node go on at once: nobody sees when they do.
func (ex *explorer) eager(n *Node) bool {
	if ex.cfg.NoEager || ex.shared.Has(n.id) || ex.clocked.Has(n.id) || len(ex.dead)+len(ex.news) > 0 {
		return false
	}
	return !ex.mayAct(func(a *action) bool {
		if a.kills {
			return a.node != n // others may see its fence
		}
		return a.port == nil && (a.node == nil || a.node == n)
	})
}

// mayAct tells whether one of certain actions may still happen.
func (ex *explorer) mayAct(which func(*action) bool) bool {
	if ex.acted < ex.cfg.Actions {
		for i := range ex.actions {
			if a := &ex.actions[i]; !a.done && which(a) {
				return true
			}
		}
	}
	return false
}

// fuses tells whether the delivery of a message and its receiver's going on are one: between them, nothing can
// happen that would make a difference to the receiver.
func (ex *explorer) fuses(pr *pair, to *Port) bool {
	from := ex.c.cns[pr.from.CN()] // nil: the fabric
	if from == to.node {
		from = nil // they are fenced together
	}
	if ex.cfg.NoEager || len(ex.news) > 0 || ex.ticks < ex.cfg.Ticks || to.interrupted || to.node.paused || from != nil && (from.dead || from.closed) {
		return false
	}
	return !ex.mayAct(func(a *action) bool {
		switch {
		case a.kills:
			return a.node == from
		case a.port != nil:
			return false
		}
		return a.node == nil || a.node == from || a.node == to.node
	})
}

// arrives tells whether the next message between two clients may be delivered.
func (ex *explorer) arrives(pr *pair) bool {
	to := ex.c.inboxOf(pr.to)
	switch {
	case len(pr.queue) == 0:
		return false
	case to == nil || !ex.fuses(pr, to):
		return true
	case to.wait == waitChain: // a loop that polls memory may wait for a message
		return ex.c.chains[to.waitFor].again
	}
	return (to.wait == waitRecv || to.wait == waitPoll) && !to.ready
}

// list makes the menu. What comes first is of the last actor.
func (ex *explorer) list() {
	c := ex.c
	ex.menu = ex.menu[:0]
	for i, p := range c.ports {
		if !p.node.paused && p.ready && ex.eager(p.node) {
			ex.addResume(uint32(i)) // the choice is only whether it ticks
			return
		}
	}
	for i, p := range c.ports {
		if !p.node.paused && (p.ready || p.wait == waitPoll && !p.stutters()) {
			ex.addResume(uint32(i))
		}
	}
	for i, t := range ex.starts {
		if t.waits(func(t *Task) bool { return t.started }) {
			continue
		}
		ex.add(choice{kind: chStart, a: uint32(i), actor: t.port.index})
	}
	for i, ch := range ex.chains {
		if ex.enabled(i) && !ch.stutters() {
			ex.addEffect(uint32(i))
		}
	}
	for i := range ex.pairs {
		if ex.arrives(&ex.pairs[i]) {
			ex.add(choice{kind: chDeliver, a: uint32(i), actor: ex.receiver(ex.pairs[i].to)})
		}
	}
	for i := range ex.dead {
		ex.add(choice{kind: chFence, a: uint32(i), actor: nobody})
	}
	for _, i := range ex.news {
		ex.add(choice{kind: chNews, a: i, actor: nobody})
	}
	regular := len(ex.menu)
	if !ex.resting && c.live > 0 {
		ex.listOptional()
	}
	if regular == 0 && len(ex.menu) > 0 {
		ex.add(choice{kind: chRest, actor: nobody})
		last := len(ex.menu) - 1
		copy(ex.menu[1:], ex.menu[:last])
		ex.menu[0] = choice{kind: chRest, actor: nobody}
		return
	}
	ex.order()
}

// listOptional lists what may happen, but need not.
func (ex *explorer) listOptional() {
	if ex.early < ex.cfg.Early {
		for i, p := range ex.c.ports {
			if ex.expires(p) && !p.node.paused && !p.ready {
				ex.add(choice{kind: chTimer, a: uint32(i), actor: nobody})
			}
		}
	}
	if ex.acted < ex.cfg.Actions {
		for i := range ex.actions {
			if ex.actions[i].offered(ex.cfg.NoEager) {
				ex.add(choice{kind: chAction, a: uint32(i), actor: nobody})
			}
		}
	}
}

// offered tells whether an action may happen now: who is interrupted notices it in a wait, not before.
func (a *action) offered(always bool) bool {
	p := a.port
	return !a.done && (p == nil || always || !p.closed && !p.ready && (p.wait == waitRecv || p.wait == waitPause))
}

func (ex *explorer) add(x choice) { ex.menu = append(ex.menu, x) }

func (ex *explorer) addResume(port uint32) {
	ex.add(choice{kind: chResume, a: port, actor: port})
	if ex.ticks < ex.cfg.Ticks {
		ex.add(choice{kind: chTick, a: port, actor: port})
	}
}

func (ex *explorer) addEffect(i uint32) {
	ch := ex.chains[i]
	n := ex.pieces(ch)
	if n == 1 {
		ex.add(choice{kind: chEffect, a: i, actor: ch.port.index})
		return
	}
	for b := range uint8(n) {
		if ch.part>>b&1 == 0 {
			ex.add(choice{kind: chPiece, a: i, piece: b, actor: ch.port.index})
		}
	}
}

// receiver returns the port that a client's messages go to.
func (ex *explorer) receiver(id fabric.ClientID) uint32 {
	if p := ex.c.inboxOf(id); p != nil {
		return p.index
	}
	return nobody
}

// enabled tells whether the next operation of chains[i] may take effect: chains
// of one client to one memory node do so in order.
func (ex *explorer) enabled(i int) bool {
	ch := ex.chains[i]
	if ch.state != chainFlying {
		return false
	}
	if t := ch.port.waiter; t != nil && t.waits(func(t *Task) bool { return t.acted }) && t.after.node != t.node {
		return false
	}
	for _, x := range ex.chains[:i] {
		if x.state == chainFlying && x.port == ch.port && x.qp.mn == ch.qp.mn {
			return false
		}
	}
	return true
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

// remember notes that something happens, for the next run and for sleep sets.
func (ex *explorer) remember(x choice) {
	if ex.past != nil {
		if ex.redone == len(*ex.past) {
			*ex.past = append(*ex.past, x)
		}
		ex.redone++
	}
	switch x.kind {
	case chRest, chForce, chTick, chFence, chTimer, chNews:
		ex.print.all = true
	case chAction:
		ex.print.all = ex.print.all || !ex.actions[x.a].kills
	}
}

// do makes something happen.
func (ex *explorer) do(x choice) {
	c := ex.c
	ex.counted = false
	ex.remember(x)
	if x.actor != ex.actor && x.actor != nobody {
		if len(ex.menu) > 0 && ex.menu[0].actor == ex.actor {
			ex.switches++
		}
		ex.actor = x.actor
	}
	if x.kind > chTick && x.kind < chUnwind {
		ex.regular()
	}
	switch x.kind {
	case chRest:
		ex.resting = true
		return
	case chUnwind:
		ex.unwind()
		return
	case chForce:
		ex.ended = !ex.force()
		return
	case chResume, chGoOn:
		ex.resume(c.ports[x.a])
		return
	case chTick:
		ex.ticks++
		p := c.ports[x.a]
		ex.say("clock of %v ticks", p.node)
		ex.putOn(p.node, ex.cfg.Tick)
		ex.resume(p)
		return
	case chStart, chBegin:
		t := ex.starts[x.a]
		ex.starts = append(ex.starts[:x.a], ex.starts[x.a+1:]...)
		ex.start(t)
		return
	case chEffect:
		ex.effect(ex.chains[x.a])
	case chPiece:
		ex.piece(ex.chains[x.a], x.piece)
	case chDeliver:
		ex.deliver(x.a)
	case chFence:
		n := ex.dead[x.a]
		ex.dead = append(ex.dead[:x.a], ex.dead[x.a+1:]...)
		c.Fence(n)
	case chNews:
		ex.news = slices.DeleteFunc(ex.news, func(i uint32) bool { return i == x.a })
		ex.say("member %d hears of revision %d", x.a, c.ledger.Revision)
		c.hears(c.members[x.a])
	case chTimer:
		ex.early++
		p := c.ports[x.a]
		ex.putOn(p.node, p.until-c.now)
		ex.expire(p)
		return
	case chAction:
		ex.acted++
		a := &ex.actions[x.a]
		a.done = true
		ex.say("action: %s", a.name)
		a.f()
	}
	ex.stepped()
}

// regular notes that something happens that need not have waited.
func (ex *explorer) regular() {
	ex.resting = false
	if ex.idle > 0 {
		ex.idle = 0
		for _, p := range ex.c.ports {
			p.tries = 0
		}
	}
}

func (ex *explorer) say(format string, args ...any) {
	if ex.trace != nil {
		ex.trace(fmt.Sprintf(format, args...))
	}
}

// stepped ends a step.
func (ex *explorer) stepped() {
	c := ex.c
	c.count++
	ex.steps++
	for _, f := range c.watch {
		ex.print.all = true
		if err := f(); err != nil {
			c.fail(err)
		}
	}
	if ex.steps >= ex.cfg.MaxSteps {
		c.fail(fmt.Errorf("%w after %d events: %w", ErrLivelock, ex.steps, &DeadlockError{Time: c.now, Blocked: c.blocked()}))
	}
}

// acts notes that a client does something.
func (ex *explorer) acts(t *Task) {
	n := t.node
	t.moves()
	switch {
	case ex.shared.Has(n.id):
	case ex.cfg.Private:
		if t.daemon {
			ex.touches(n) // the agent knows all of the node's clients
		}
	case ex.solo[n.id] == nil:
		ex.solo[n.id] = t
	case ex.solo[n.id] != t:
		ex.touches(n)
	}
}

// unwind ends a killed task.
func (ex *explorer) unwind() {
	t := ex.unwinds[0]
	ex.unwinds = ex.unwinds[1:]
	ex.print.runs(t)
	ex.c.unwind(t)
	for _, p := range ex.c.ports {
		if p.waiter == t {
			p.wait, p.ready = waitNone, false
		}
	}
}

func (ex *explorer) start(t *Task) {
	ex.print.runs(t)
	if !t.daemon && !t.killed {
		ex.acts(t)
		ex.say("%s begins", t.name)
	}
	ex.c.start(t)
	ex.stepped()
}

// resume lets the client of a port go on.
func (ex *explorer) resume(p *Port) {
	p.ready = false
	ex.print.port(p)
	if t := p.waiter; t != nil && !t.done {
		ex.print.runs(t)
		ex.acts(t)
		if ex.c.err != nil {
			return
		}
		if ex.trace != nil {
			ex.say("%v (%s) goes on", p.id, t.name)
		}
	}
	ex.c.wake(p)
	ex.stepped()
}

// tellSoon has a member hear of the present state at some point, unless it is dead.
func (ex *explorer) tellSoon(m *membership) {
	if n := m.node; m.acts == ex.c.ledger.Revision || n != nil && (n.dead || n.closed) || m.mn != nil && m.mn.dead || slices.Contains(ex.news, m.index) {
		return
	}
	ex.news = append(ex.news, m.index)
	slices.Sort(ex.news)
}

// forgetNews drops what a node that has died need not hear.
func (ex *explorer) forgetNews(m *membership) {
	ex.news = slices.DeleteFunc(ex.news, func(i uint32) bool { return i == m.index })
}
