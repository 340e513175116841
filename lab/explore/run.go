package explore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// An explorer runs one schedule. At each step it lists what can happen (the menu) and has the search choose.
type explorer struct {
	u   *sim.Untimed
	c   *Cluster // the program's view
	cfg *Config
	// pick chooses from the menu; false ends the run.
	pick  func() (int, bool)
	trace func(s string) // may be nil

	menu  []choice
	taken []int // the choices so far

	knowledge
	progress
	assumption
	beginning
	watch
	hashing
}

// A knowledge is what is known of tasks, compute nodes, Ports and chains, by their numbers.
type knowledge struct {
	clients []*client
	nodes   []*node
	ports   []*port
	again   []bool // the chain is what its client has just done, in a loop
}

// A progress is how far a run has come.
type progress struct {
	steps, ticks, acted, switches int    // so many have been, of those that are bounded
	idle                          int    // things that happened because nothing else could, since something else did
	actor                         uint32 // port that acted last
	resting                       bool   // only what may happen is left, and it does not: until something else happens
	withheld                      bool   // a bound of the configuration kept choices from the menu
	ended                         bool   // nothing more can happen
	stopped                       bool   // pick has had enough, or
	slept                         bool   // all that can happen sleeps, or
	enough                        bool   // the program has had enough
}

// An assumption is which nodes have one active client only.
type assumption struct {
	shared   fabric.CNSet   // nodes with several active clients
	clocked  fabric.CNSet   // nodes whose clients share only a clock, which may be put on
	solo     [256]*sim.Task // the active client of each other node
	conflict *sim.Node      // a node that is not in shared, and must be
}

// A watch is what the search wants to know at the next point of choice.
type watch struct {
	asleep []sleeper      // choices that need not be made; nil: sleep sets are not used
	record *sim.Footprint // where the footprint of the step goes; nil: nowhere
	learn  func()         // called with what came of the choice; may be nil
}

// A hashing is what the hash of the state needs.
type hashing struct {
	tally   tally // of the present state
	counted bool  // it is up to date
	blind   bool  // the state is not asked for
	exactly bool  // state tells states apart by all that clients were ever told
	scratch []byte
}

// A beginning is how a schedule begins: like the one before it.
type beginning struct {
	past    *[]choice // all that has happened, or has to happen first since it did in the schedule before; nil: it is not kept
	redone  int       // how much of it has happened
	digests []uint64  // of the nodes' memories when all of it has
	known   *[]uint64 // the values of keep in the schedule before and in this one; nil: they are not kept
	knew    int       // how often it was
}

// choiceKind is the kind of something that can happen.
type choiceKind uint8

const (
	chRest    choiceKind = iota // nothing of what may happen, but need not, does
	chResume                    // port a goes on
	chTick                      // ... after its node's clock has ticked
	chStart                     // Starts[a] begins
	chEffect                    // the next operation of Chains[a] takes effect
	chPart                      // part b of it
	chDeliver                   // the next message of Pairs[a] arrives
	chFence                     // Doomed[a] is fenced
	chAction                    // actions[a]
	chNews                      // member a hears of the present state, and acknowledges it

	// What is no choice.
	chBegin // Starts[a] begins at once
	chGoOn  // port a goes on at once
	chForce // what happens when nothing else can
)

type choice struct {
	kind  choiceKind
	part  uint8
	a     uint32
	actor uint32 // port
}

// nobody is the actor of events that no client causes.
const nobody = ^uint32(0)

var errConflict = errors.New("explore: a second client of a node is active")

// touches notes that others see when clients of a node go on.
func (ex *explorer) touches(n *sim.Node) {
	if (!ex.cfg.NoEager || ex.cfg.Private) && !ex.shared.Has(n.ID()) {
		ex.conflict = n
		ex.u.Fail(errConflict)
	}
}

// run executes one schedule to its end, a failure, or until pick has had enough.
func (ex *explorer) run() {
	ex.u.Start()
	ex.markShared()
	for ex.u.Err() == nil && !ex.ended {
		if ex.redo() {
			continue
		}
		ex.settle()
		if ex.stopped = ex.enough; ex.stopped || ex.u.Err() != nil {
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
		for i, n := range ex.u.Nodes() {
			x := ex.node(n)
			x.digest, x.ran = ex.digests[i], false
		}
	}
	return true
}

// memories returns the hashes of what the clients of each node share.
func (ex *explorer) memories() []uint64 {
	list := make([]uint64, len(ex.u.Nodes()))
	for i, n := range ex.u.Nodes() {
		if x := ex.node(n); x.shares != nil {
			list[i] = ex.memoryOf(x)
		}
	}
	return list
}

// possible reports whether there is what is to happen.
func (ex *explorer) possible(x choice) bool {
	u, i := ex.u, int(x.a)
	switch x.kind {
	case chBegin, chStart:
		return i < len(u.Starts)
	case chEffect, chPart:
		return i < len(u.Chains) && u.Chains[i].Flying()
	case chDeliver:
		return i < len(u.Pairs) && u.Pairs[i].Len() > 0
	case chFence:
		return i < len(u.Doomed)
	case chNews:
		return slices.Contains(u.News, x.a)
	case chAction:
		return i < len(ex.c.actions)
	case chGoOn, chResume, chTick:
		return i < len(u.Ports())
	}
	return true
}

// markShared finds the nodes that have several clients from the start: they share memory, or at least a clock.
func (ex *explorer) markShared() {
	if ex.cfg.Private && ex.cfg.Ticks == 0 {
		return
	}
	count := [256]int{}
	for _, t := range ex.u.Tasks() {
		id := t.Node().ID()
		if t.Agent() {
			continue
		}
		if count[id]++; count[id] == 1 {
			continue
		}
		if ex.cfg.Private {
			ex.clocked.Add(id)
		} else {
			ex.shared.Add(id)
		}
	}
}

// settle does what makes no difference to anybody else, until there is no more of it.
func (ex *explorer) settle() {
	u := ex.u
	for again := true; again && u.Err() == nil; {
		again = false
		for i, t := range u.Starts {
			// An agent that begins looks at nothing that others have.
			if t.Agent() || t.Killed() || ex.eager(t.Node()) {
				ex.do(choice{kind: chBegin, a: uint32(i), actor: nobody})
				again = true
				break
			}
		}
		if ex.cfg.Ticks > ex.ticks {
			continue // going on is a choice: with or without a tick
		}
		for i, ch := range u.Chains { // no node hears of another primary any more
			if ch.Flying() && ch.Answered() && ex.eager(ch.Port().Node()) {
				ex.do(choice{kind: chEffect, a: uint32(i), actor: ch.Port().Index()})
				again = true
				break
			}
		}
		for i := 0; i < len(u.Ports()) && u.Err() == nil; i++ {
			if p := u.Ports()[i]; p.Waiting().Ready && !p.Node().Paused() && ex.eager(p.Node()) {
				ex.do(choice{kind: chGoOn, a: uint32(i), actor: nobody})
				again = true
			}
		}
	}
}

// eager reports whether the clients of a node go on at once: no other node sees when they do.
func (ex *explorer) eager(n *sim.Node) bool {
	if ex.cfg.NoEager || ex.shared.Has(n.ID()) || ex.clocked.Has(n.ID()) || len(ex.u.Doomed)+len(ex.u.News) > 0 {
		return false
	}
	return !ex.mayAct(func(a *action) bool {
		if a.kills {
			return a.node != n // others may see its fence
		}
		return a.port == nil && a.link == nil && (a.node == nil || a.node == n)
	})
}

// mayAct reports whether one of certain actions may still happen.
func (ex *explorer) mayAct(which func(*action) bool) bool {
	if ex.acted < ex.cfg.Actions {
		for i := range ex.c.actions {
			if a := &ex.c.actions[i]; !a.done && which(a) {
				return true
			}
		}
	}
	return false
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
	case chRest, chForce, chTick, chFence, chNews:
		ex.u.Touched.All = true
	case chAction:
		ex.u.Touched.All = ex.u.Touched.All || !ex.c.actions[x.a].kills
	}
}

// do makes something happen.
func (ex *explorer) do(x choice) {
	u := ex.u
	ex.counted = false
	ex.remember(x)
	if x.actor != ex.actor && x.actor != nobody {
		if len(ex.menu) > 0 && ex.menu[0].actor == ex.actor {
			ex.switches++
		}
		ex.actor = x.actor
	}
	if x.kind > chTick && x.kind < chBegin {
		ex.regular()
	}
	switch x.kind {
	case chRest:
		ex.resting = true
		return
	case chForce:
		ex.ended = !ex.force()
		return
	case chResume, chGoOn:
		ex.resume(u.Ports()[x.a])
		return
	case chTick:
		ex.ticks++
		p := u.Ports()[x.a]
		ex.say("clock of %v ticks", p.Node())
		u.PutOn(p.Node(), ex.cfg.Tick)
		ex.resume(p)
		return
	case chStart, chBegin:
		ex.start(u.Starts[x.a])
		return
	case chEffect:
		ex.effect(u.Chains[x.a], u.Effect)
	case chPart:
		ex.effect(u.Chains[x.a], func(ch *sim.Chain) error { return u.EffectPart(ch, x.part) })
	case chDeliver:
		ex.deliver(int(x.a))
	case chFence:
		u.FenceNext(int(x.a))
	case chNews:
		ex.say("member %d hears of revision %d", x.a, u.Revision())
		u.Hear(x.a)
	case chAction:
		ex.act(&ex.c.actions[x.a])
	}
	ex.stepped()
}

// effect makes the next operation of a chain happen, or a part of it.
func (ex *explorer) effect(ch *sim.Chain, how func(*sim.Chain) error) {
	if ex.isAgain(ch) && ex.polls(ch) {
		ex.u.Touched.Node(ch.Port().Node()) // whether it stutters depends on which clients went on there
	}
	id := ch.Port().ID()
	if ch.Answered() {
		ex.say("%v: an answer arrives", id)
		_ = how(ch) // no operation
		return
	}
	op := ch.Ops()[ch.Done()]
	if err := how(ch); err != nil {
		ex.say("%v %v: %v", id, op, err)
	}
}

func (ex *explorer) deliver(k int) {
	p := &ex.u.Pairs[k]
	to := ex.u.Inbox(p.To)
	fuses := to != nil && to.Waiting().Kind == sim.WaitRecv && ex.fuses(p, to)
	ex.u.Deliver(k)
	if fuses {
		ex.stepped()
		ex.resume(to)
	}
}

func (ex *explorer) act(a *action) {
	ex.acted++
	a.done = true
	ex.say("action: %s", a.name)
	a.f()
	for _, n := range ex.nodes {
		n.ran = n.shares != nil // by code of killed clients, or f
	}
}

// regular notes that something happens that need not have waited.
func (ex *explorer) regular() {
	ex.resting = false
	if ex.idle > 0 {
		ex.idle = 0
		for _, p := range ex.ports {
			p.tries = 0
		}
	}
}

func (ex *explorer) say(format string, args ...any) {
	if ex.trace != nil {
		ex.trace(fmt.Sprintf(format, args...))
	}
}

// A livelockError has the clients that go on, or wait, for ever: oracles take it for a deadlock.
type livelockError struct {
	events  int
	blocked *sim.DeadlockError
}

func (e *livelockError) Error() string {
	s := fmt.Sprintf("%v after %d events, at %d ns:", ErrLivelock, e.events, e.blocked.Time)
	for _, b := range e.blocked.Blocked {
		s += fmt.Sprintf("\n\t%v", b)
	}
	return s
}

func (e *livelockError) Unwrap() []error { return []error{ErrLivelock, e.blocked} }

// stepped ends a step.
func (ex *explorer) stepped() {
	u := ex.u
	ex.steps++
	u.Settle()
	if ex.steps >= ex.cfg.MaxSteps {
		u.Fail(&livelockError{ex.steps, &sim.DeadlockError{Time: u.Now(), Blocked: u.Blocked()}})
	}
}

// acts notes that a client does something.
func (ex *explorer) acts(t *sim.Task) {
	n := t.Node()
	ex.moves(t)
	switch {
	case ex.shared.Has(n.ID()):
	case ex.cfg.Private:
		if t.Agent() {
			ex.touches(n) // the agent knows all of the node's clients
		}
	case ex.solo[n.ID()] == nil:
		ex.solo[n.ID()] = t
	case ex.solo[n.ID()] != t:
		ex.touches(n)
	}
}

// runs notes that the code of a client runs.
func (ex *explorer) runs(t *sim.Task) {
	n, f := ex.node(t.Node()), &ex.u.Touched
	f.Port(t.Port())
	switch {
	case n.shares != nil:
		f.Ran(t.Node())
		n.ran = true
	case !ex.cfg.Private || ex.shared.Has(t.Node().ID()):
		f.Node(t.Node())
	}
}

func (ex *explorer) start(t *sim.Task) {
	if !t.Agent() && !t.Killed() {
		ex.acts(t)
		ex.say("%s begins", t.Name())
	}
	ex.runs(t)
	ex.u.Begin(t)
	ex.stepped()
}

// resume lets the client of a port go on.
func (ex *explorer) resume(p *sim.Port) {
	ex.u.Touched.Port(p)
	if t := p.Waiting().By; t != nil && !t.Done() {
		ex.acts(t)
		ex.runs(t)
		if ex.u.Err() != nil {
			return
		}
		if ex.trace != nil {
			ex.say("%v (%s) goes on", p.ID(), t.Name())
		}
	}
	ex.u.GoOn(p)
	ex.stepped()
}

// expires reports whether a port waits for a time.
func (ex *explorer) expires(p *sim.Port) bool {
	w := p.Waiting()
	return w.Until != fabric.Forever && (w.Kind == sim.WaitPause || w.Kind == sim.WaitRecv && !ex.cfg.NoDeadlines)
}

// expire lets the time pass that a port waits for.
func (ex *explorer) expire(p *sim.Port) {
	until := p.Waiting().Until
	ex.u.PassTo(until)
	ex.say("%v: deadline %d passes", p.ID(), until)
	ex.resume(p)
}

// force makes happen what happens only when nothing else can: the passing of
// the next deadline, or another round of a client that polls. It returns false if
// there is nothing left to happen.
func (ex *explorer) force() bool {
	u := ex.u
	var what func()
	due := fabric.Forever
	consider := func(at fabric.Time, f func()) {
		if at < due {
			due, what = at, f
		}
	}
	// A client that polls in vain asks again after a time, and when that does not help after a longer one.
	round := u.Now() + fabric.Microsecond*fabric.Time(1+ex.idle)
	for _, p := range u.Ports() {
		switch w := p.Waiting(); {
		case p.Node().Paused() || u.Live() == 0 && w.Kind != sim.WaitPause:
		case ex.expires(p):
			consider(max(w.Until, u.Now()), func() { ex.expire(p) })
		case w.Kind == sim.WaitPoll:
			consider(round, func() { ex.resume(p) })
		}
	}
	for i, ch := range u.Chains {
		if p := ch.Port(); ex.enabled(i) && !p.Node().Paused() {
			consider(round+ex.port(p).tries, func() { ex.askAgain(ch) })
		}
	}
	for i := range u.Calls {
		if u.Live() > 0 {
			consider(max(u.Calls[i].At, u.Now()), func() { ex.call(i) })
		}
	}
	if what == nil {
		if u.Live() > 0 {
			u.Fail(&sim.DeadlockError{Time: u.Now(), Blocked: u.Blocked()})
		}
		return false
	}
	ex.idle++
	u.PassTo(due)
	what()
	return true
}

// askAgain executes a chain of a client that polls, in vain as far as is known.
func (ex *explorer) askAgain(ch *sim.Chain) {
	ex.port(ch.Port()).tries++ // the others first, next time
	for ch.Flying() {
		ex.effect(ch, ex.u.Effect)
	}
	ex.stepped()
}

// call calls a function of Cluster.At.
func (ex *explorer) call(i int) {
	ex.say("a call of Cluster.At")
	ex.u.Call(i)
	ex.regular()
	ex.stepped()
}
