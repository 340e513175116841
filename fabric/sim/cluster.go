package sim

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// Errors of Run.
var (
	// ErrBudget: Config.MaxEvents was reached.
	ErrBudget = errors.New("sim: event budget exhausted")
	// ErrSwallowed: a client recovered the panic that was to stop it, and went on.
	ErrSwallowed = errors.New("sim: client swallowed the panic that stops it")
)

// A Cluster is a simulated cluster: memory nodes, compute nodes, and the
// clients' code. It is used by one goroutine; clients are coroutines of it.
type Cluster struct {
	cfg Config
	nic *NIC // &cfg.NIC

	now    fabric.Time
	events queue
	count  uint64 // events executed
	hash   uint64
	err    error // the first failure; ends the run
	closed bool
	begun  bool        // an event has been executed: nodes that join are news
	acking fabric.Time // until when the coordinator works on acknowledgements

	timing Rand // of the NIC model
	faults Rand // of tearing and the like
	event  Event

	mns   []*memNode
	cns   [int(fabric.MaxCN) + 1]*Node
	nodes []*Node // in the order of AddCN
	// switches are the numbers of switches, and away those of them that no node may get until there is another switch.
	switches fabric.CNSet
	away     []*member.Entry

	ledger  *member.Ledger                 // of the coordinator
	served  map[fabric.MemID]*member.Group // numbers that are replicated, as they were served last
	members []*membership                  // all that ever were
	news    Rand                           // when they hear of it

	tasks []*Task
	cur   *Task // the coroutine that runs, nil: the loop
	woken *Task // the one that is to run when the present event has been dispatched, or nil
	live  int   // tasks that are not done and no daemons
	ports []*Port

	qps       []*queuePair
	chains    []*Chain
	freeChain uint32
	flights   []flight
	freeMsg   uint32
	calls     []func()
	streams   uint64 // random streams given out

	minMessage, spanMessage fabric.Time
	between                 *device // the last switch whose faults messages between other machines have, too

	links      []linkFault                        // what is wrong with the network
	lastOfPair map[[2]fabric.ClientID]fabric.Time // arrival of the last message, with Config.Stray
	faultStats FaultStats

	untimed *Untimed // nil: time goes by
}

// New returns an empty cluster. It panics if the configuration is not valid:
// see Config.Validate.
func New(cfg Config) *Cluster {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	c := &Cluster{cfg: cfg.withDefaults(), events: newQueue(), freeChain: none, freeMsg: none}
	c.nic = &c.cfg.NIC
	c.timing = NewRand(c.cfg.Seed, 1)
	c.faults = NewRand(c.cfg.Seed, 2)
	c.news = NewRand(c.cfg.Seed, 3)
	c.ledger = member.NewLedger(fabric.MaxCN)
	c.streams = 16
	n := c.nic
	c.minMessage = fabric.Time(float64(n.MessageMin) * n.MessageScale)
	c.spanMessage = fabric.Time(float64(n.MessageMax-n.MessageMin)*n.MessageScale) + 1
	return c
}

// none ends the lists of numbered things.
const none = ^uint32(0)

// Config returns the configuration, with its defaults filled in.
func (c *Cluster) Config() Config { return c.cfg }

// Now returns the virtual time.
func (c *Cluster) Now() fabric.Time { return c.now }

// Events returns how many events have been executed.
func (c *Cluster) Events() uint64 { return c.count }

// Go starts a client: body runs as a coroutine from the present virtual time
// on, with a Port of its own, which is closed when it returns.
func (c *Cluster) Go(n *Node, name string, body func(fabric.Port)) *Task {
	p, err := n.Open()
	if err != nil {
		panic(fmt.Sprintf("sim: Go %s on %v: %v", name, n.id, err))
	}
	return c.GoOn(p, name, func(p fabric.Port) {
		body(p)
		p.Close()
	})
}

// GoAgent starts the code of a node's agent: body runs with Node.Agent. It is
// a daemon: a run does not wait for it.
func (c *Cluster) GoAgent(n *Node, body func(fabric.Port)) *Task {
	t := c.GoOn(n.agent, fmt.Sprintf("agent of %v", n.id), body)
	t.daemon = true
	c.live--
	return t
}

// GoOn starts a client with a Port that is there already, and leaves it open.
func (c *Cluster) GoOn(p fabric.Port, name string, body func(fabric.Port)) *Task {
	port := p.(*Port)
	t := &Task{c: c, index: uint32(len(c.tasks)), name: name, node: port.node, port: port, body: body}
	c.tasks = append(c.tasks, t)
	c.meddled()
	c.live++
	if port.node.dead {
		t.killed = true
	}
	c.post(c.now, evStart, t.index, 0)
	return t
}

// At calls f at a virtual time, from the event loop: to hurt the cluster at a
// chosen moment. f must not wait in a Port.
func (c *Cluster) At(t fabric.Time, f func()) {
	c.calls = append(c.calls, f)
	c.post(max(t, c.now), evCall, uint32(len(c.calls)-1), 0)
}

// Run runs until all clients that are no daemons are done, or if there are
// none until nothing is left to happen. It returns the first failure: a client's panic
// (*PanicError), clients that wait for ever (*DeadlockError), ErrBudget.
func (c *Cluster) Run() error {
	if !c.runTo(fabric.Forever, c.live > 0) && c.err == nil && c.live > 0 {
		c.Fail(&DeadlockError{Time: c.now, Blocked: c.Blocked()})
	}
	return c.err
}

// RunUntil executes all that happens up to a virtual time, at which the clock stands
// afterwards, whether clients are done before that or not. Clients that wait
// for ever are no error: the caller may still help them.
func (c *Cluster) RunUntil(t fabric.Time) error {
	c.runTo(t, false)
	if c.err == nil {
		c.now = max(c.now, t)
	}
	return c.err
}

// runTo executes events up to a time, or if clients until all clients are done; it returns whether that was so.
func (c *Cluster) runTo(until fabric.Time, clients bool) (done bool) {
	if c.cur != nil {
		panic(fmt.Sprintf("sim: Run called by client %s", c.cur.name))
	}
	if c.untimed != nil {
		panic("sim: Run of an untimed cluster")
	}
	if c.closed {
		c.Fail(fmt.Errorf("sim: cluster: %w", fabric.ErrClosed))
	}
	defer func() {
		// For a coroutine that calls runtime.Goexit (t.FailNow): that ends this goroutine too.
		c.cur = nil
	}()
	for c.err == nil {
		if clients && c.live == 0 {
			return true
		}
		at, ok := c.events.first()
		if !ok || at > until {
			return false
		}
		c.step(at)
	}
	return false
}

// step executes the next event, which is at a time.
func (c *Cluster) step(at fabric.Time) {
	c.happen(at, c.events.pop(at))
	if t := c.awake(); t != nil {
		c.resume(t)
	}
}

// happen executes an event at its time, up to the client that it wakes.
func (c *Cluster) happen(at fabric.Time, e event) {
	c.now = at
	c.begun = true
	c.count++
	if c.count == c.cfg.MaxEvents {
		c.Fail(fmt.Errorf("%w: %d events, %d ns", ErrBudget, c.count, c.now))
	}
	c.dispatch(e)
}

func (c *Cluster) dispatch(e event) {
	switch e.kind {
	case evStart:
		c.start(c.tasks[e.a])
	case evArrive:
		c.arrive(c.chains[e.a])
	case evEffect:
		c.effect(c.chains[e.a])
	case evTear:
		c.tearPart(c.chains[e.a])
	case evComplete:
		c.complete(c.chains[e.a], e.b != 0)
	case evKick:
		c.qps[e.a].kicking = false
		c.kick(c.qps[e.a])
	case evDeliver:
		c.deliver(e.a)
	case evWake:
		if p := c.ports[e.a]; p.wait != WaitNone && p.waitGen == e.b {
			c.wake(p)
		}
	case evTimer:
		c.ports[e.a].timerFired(e.b)
	case evUnwind:
		c.unwind(c.tasks[e.a])
	case evDetect:
		c.leave(c.members[e.a], member.Died)
	case evLapse:
		c.members[e.a].node.notices()
	case evNews:
		c.hears(c.members[e.a])
	case evAck:
		if c.cfg.AckTime == 0 {
			c.acks(c.members[e.a], e.b)
			break
		}
		c.acking = max(c.acking, c.now) + c.cfg.AckTime
		c.post(c.acking, evAcked, e.a, e.b)
	case evAcked:
		c.acks(c.members[e.a], e.b)
	case evLocal:
		c.effectLocal(c.chains[e.a])
	case evCall:
		f := c.calls[e.a]
		c.calls[e.a] = nil
		f()
	default:
		panic(fmt.Sprintf("sim: event of kind %v", e.kind))
	}
}

// post puts an event into the future.
func (c *Cluster) post(at fabric.Time, kind eventKind, a uint32, b uint64) {
	if c.untimed != nil {
		c.untimed.post(at, kind, a, b)
		return
	}
	if at < c.now {
		panic(fmt.Sprintf("sim: %v event for %d ns at %d ns", kind, at, c.now))
	}
	c.events.push(at, event{kind: kind, a: a, b: b})
}

func (c *Cluster) start(t *Task) {
	if (t.node.paused || t.node.waits) && !t.killed {
		t.node.held = append(t.node.held, t)
		return
	}
	if t.killed {
		t.end()
		return
	}
	t.begin()
	c.resume(t)
}

// unwind ends a killed task that waits.
func (c *Cluster) unwind(t *Task) {
	if !t.done && t.started {
		c.resume(t)
	}
}

// resume runs a coroutine until it waits or ends.
func (c *Cluster) resume(t *Task) {
	if t.done {
		return // killed while something was on its way to it
	}
	before := c.cur
	c.cur = t
	t.next()
	c.cur = before
}

// Blocked lists the tasks that wait, in the order of their making.
func (c *Cluster) Blocked() []Blocked {
	var list []Blocked
	for _, t := range c.tasks {
		if t.done {
			continue
		}
		b := Blocked{Client: t.name, ID: t.port.id, For: "its start", Daemon: t.daemon}
		for _, p := range c.ports {
			if p.wait != WaitNone && p.waiter == t {
				b.ID, b.For, b.Since = p.id, p.waitsFor(), p.since
				break
			}
		}
		if t.node.paused {
			b.For += ", on a paused compute node"
		}
		list = append(list, b)
	}
	return list
}

// Close stops all clients, wherever they wait, and returns when the last
// coroutine has unwound. The first failure of that is the error.
func (c *Cluster) Close() error {
	if c.closed {
		return nil
	}
	if c.cur != nil {
		panic(fmt.Sprintf("sim: Close called by client %s", c.cur.name))
	}
	failed := c.err
	c.err = nil
	c.closed = true
	for _, t := range c.tasks {
		t.killed = true
	}
	for _, t := range c.tasks {
		if t.started && !t.done {
			c.cur = t
			t.stop()
			c.cur = nil
		}
		t.end()
	}
	for _, p := range c.ports {
		p.closed = true
	}
	c.events = newQueue()
	err := c.err
	c.err = errors.Join(failed, fmt.Errorf("sim: cluster: %w", fabric.ErrClosed))
	return err
}
