package server

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// Kind is what the server does with a request for a lock that is not free for it.
type Kind uint8

// See the package's comment.
const (
	Retry Kind = iota
	Queue
	ReadersFirst
)

// Config chooses a variant. All clients and the server must have the same.
type Config struct {
	Kind Kind
	// Plain: no fencing tokens.
	Plain bool
	// ServiceNs is how long a worker takes for a request, and Workers how many there are; 0 is 1.
	ServiceNs fabric.Time
	Workers   int
	// Homes, if not 0, has so many compute nodes, from the first one on, be servers of a part of the locks each: by Home, which returns which of them has a lock, or else by a hash
	// of the address (HomeOf).
	Homes int
	Home  func(fabric.Addr) int
	// LocalNs is how long a client takes for a request to the server of its own node, if it executes it itself (Locker.Near). 0: what it takes.
	LocalNs fabric.Time
	// Answered has the server answer a release, too, and the client wait for that, as in ShiftLock's published code.
	Answered bool
	// Passes is how many readers may pass a writer that waits, of ReadersFirst; 0 is 10.
	Passes int
}

// DefaultPasses is the bound of DSLR's evaluation (its section 6.4).
const DefaultPasses = 10

// Layout is that of a lock. Its bytes mean nothing.
var Layout = lock.Layout{Size: 8, Align: 8}

// Kinds of messages. Body: the lock, the number of the client's acquisition; the fourth word of a client's, and the fifth of an answer, is Locker.Incarnation.
const (
	msgAcquire = baseline.MsgServer + iota // and the mode, with the bit now
	msgCancel                              // the acquisition has ended
	msgRelease
	msgGranted // and the token, and 1 after a wait in the queue
	msgRefused
	msgReleased
)

// now is the bit of a request that is not to wait in the queue.
const now = 1 << 8

// A claim is what a client holds or wants.
type claim struct {
	client      fabric.ClientID
	incarnation uint64 // of its node; 0: it is not known
	number      uint64
	mode        lock.Mode
}

// An entry is a lock in the table of the server.
type entry struct {
	lock    fabric.Addr
	holders []claim // all of one mode
	queue   []claim
	passed  int // readers that have passed the first writer of the queue
	token   lock.Token
}

// An Agent is the server, on one of the compute nodes. On the others it has nothing to do. It uses the node's agent Port.
type Agent struct {
	port  fabric.Port
	node  fabric.Node
	cfg   Config
	tasks baseline.Tasks[*request]
	free  []fabric.Time // when each worker is
	// Also, if not nil, handles messages of another lock, of which this server is a part: see Work.
	Also     func(*fabric.Message)
	requests []*request // to be used again

	// What clients of the node that are Near access, too.
	mu    sync.Mutex
	table map[fabric.Addr]*entry
	m     fabric.Message
	spare []*entry
	// own is the answer to the client whose request is being executed by itself.
	own *fabric.Message
}

// A request is a message that a worker has.
type request struct {
	baseline.Task
	fabric.Message
}

// NewAgent returns the agent of a node.
func NewAgent(node fabric.Node, cfg Config) *Agent {
	cfg.Passes = cmp.Or(cfg.Passes, DefaultPasses)
	return &Agent{port: node.Agent(), node: node, cfg: cfg, free: make([]fabric.Time, max(cfg.Workers, 1)), table: map[fabric.Addr]*entry{}}
}

// Run serves until the Port is closed or interrupted. What goes wrong with a single lock goes to report (nil: nowhere).
func (a *Agent) Run(report func(error)) error {
	return a.tasks.Run("server", a.port, a.finish, a.Take, report)
}

// finish serves a request with which a worker is done.
func (a *Agent) finish(r *request) (bool, error) {
	a.do(&r.Message)
	a.requests = append(a.requests, r)
	return true, nil
}

// Next and Serve are for a lock's agent of which this one is a part: when a worker will be done with a request, and what workers are done with by now.
func (a *Agent) Next() fabric.Time { return a.tasks.Next() }

// Serve is described with Next.
func (a *Agent) Serve() error { return a.tasks.Look(a.port.Now(), a.finish) }

// Take handles a message. It leaves those of other locks alone.
func (a *Agent) Take(m *fabric.Message) error {
	switch {
	case m.Kind == fabric.MsgView:
		a.forgetCrashed()
		return nil
	case isRequest(m.Kind):
		a.Work(m)
	}
	return nil
}

// isRequest reports whether a message is a client's to the server.
func isRequest(k fabric.MsgKind) bool { return k >= msgAcquire && k <= msgRelease }

// Work gives a message, a client's or one that is for Also, to the worker that is free first.
func (a *Agent) Work(m *fabric.Message) {
	if a.cfg.ServiceNs == 0 {
		a.do(m)
		return
	}
	first := slices.Index(a.free, slices.Min(a.free))
	a.free[first] = max(a.free[first], a.port.Now()) + a.cfg.ServiceNs
	r := spare(&a.requests)
	*r = request{baseline.Task{Due: a.free[first]}, *m}
	a.tasks = append(a.tasks, r)
}

// do does what a message asks for.
func (a *Agent) do(m *fabric.Message) {
	if isRequest(m.Kind) {
		a.mu.Lock()
		a.serve(a.port, m)
		a.mu.Unlock()
	} else {
		a.Also(m)
	}
}

// spare returns memory that is used again, or new.
func spare[T any](list *[]*T) *T {
	n := len(*list)
	if n == 0 {
		return new(T)
	}
	t := (*list)[n-1]
	*list = (*list)[:n-1]
	return t
}

// near has a client of this node execute its own request. It reports whether the answer is in m now; if not, it comes as a message.
func (a *Agent) near(port fabric.Port, m *fabric.Message) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := m.Kind
	m.From, a.own = port.ID(), m
	a.serve(port, m)
	a.own = nil
	return m.Kind != kind
}

// serve does what a client's message asks for. Answers are sent from a Port: the server's, or that of a client of its node.
func (a *Agent) serve(port fabric.Port, m *fabric.Message) {
	l, c := fabric.Addr(m.Body[0]), claim{client: m.From, incarnation: m.Body[3], number: m.Body[1], mode: lock.Mode(m.Body[2] &^ now)}
	e := a.table[l]
	if e == nil {
		e = spare(&a.spare)
		*e = entry{lock: l, holders: e.holders[:0], queue: e.queue[:0]}
		a.table[l] = e
	}
	switch {
	case a.gone(&c): // meanwhile
	case m.Kind != msgAcquire:
		a.drop(port, e, func(x claim) bool {
			return x.client == c.client && x.incarnation == c.incarnation && x.number == c.number
		})
		if m.Kind == msgRelease && a.cfg.Answered {
			a.answer(port, l, &c, msgReleased, 0, 0)
		}
	case e.admits(c.mode) && len(e.queue) == 0:
		a.grant(port, e, c, 0)
	case a.cfg.Kind == ReadersFirst && a.passes(port, e, c):
	case m.Body[2]&now != 0:
		a.answer(port, l, &c, msgRefused, 0, 0)
	default:
		e.queue = append(e.queue, c)
	}
	a.tidy(e)
}

// admits reports whether a lock is free for a mode.
func (e *entry) admits(m lock.Mode) bool {
	return len(e.holders) == 0 || m == lock.Shared && e.holders[0].mode == lock.Shared
}

// writer returns the first writer of the queue, if there is one.
func (e *entry) writer() (first claim) {
	if i := slices.IndexFunc(e.queue, func(c claim) bool { return c.mode == lock.Exclusive }); i >= 0 {
		first = e.queue[i]
	}
	return first
}

// grant makes a client a holder. waited is 1 if it was in the queue.
func (a *Agent) grant(port fabric.Port, e *entry, c claim, waited uint64) {
	e.holders = append(e.holders, c)
	token := e.token
	if c.mode == lock.Exclusive {
		e.token++
		e.passed, token = 0, e.token
	}
	if a.cfg.Plain {
		token = 0
	}
	a.answer(port, e.lock, &c, msgGranted, uint64(token), waited)
}

// passes grants a reader a lock that readers hold, though a writer waits, and reports whether it has.
func (a *Agent) passes(port fabric.Port, e *entry, c claim) bool {
	if c.mode != lock.Shared || len(e.holders) == 0 || !e.admits(lock.Shared) || e.passed >= a.cfg.Passes {
		return false
	}
	e.passed++
	a.grant(port, e, c, 0)
	return true
}

// drop takes claims out of a lock, and grants what can be granted then.
func (a *Agent) drop(port fabric.Port, e *entry, which func(claim) bool) {
	e.holders = slices.DeleteFunc(e.holders, which)
	before := e.writer()
	if e.queue = slices.DeleteFunc(e.queue, which); e.writer() != before {
		e.passed = 0
	}
	for len(e.queue) > 0 && e.admits(e.queue[0].mode) {
		c := e.queue[0]
		e.queue = slices.Delete(e.queue, 0, 1)
		a.grant(port, e, c, 1)
	}
	if a.cfg.Kind != ReadersFirst {
		return
	}
	for i := 0; i < len(e.queue); i++ { // readers that come behind a writer
		if c := e.queue[i]; a.passes(port, e, c) {
			e.queue = slices.Delete(e.queue, i, i+1)
			i--
		}
	}
}

// tidy forgets a lock that no client holds or wants, but for its token.
func (a *Agent) tidy(e *entry) {
	if len(e.holders)+len(e.queue) == 0 && (a.cfg.Plain || e.token == 0) {
		delete(a.table, e.lock)
		a.spare = append(a.spare, e)
	}
}

// answer sends a client an answer. To a node that has gone, none: its claims are dropped with the next view.
func (a *Agent) answer(port fabric.Port, l fabric.Addr, c *claim, kind fabric.MsgKind, token, waited uint64) {
	a.m = fabric.Message{Kind: kind, Body: [7]uint64{uint64(l), c.number, token, waited, c.incarnation}}
	if a.own != nil && c.client == port.ID() {
		*a.own = a.m
		return
	}
	_ = port.Send(c.client, &a.m)
}

// gone reports whether the node of a client has left the view, or another has its number there.
func (a *Agent) gone(c *claim) bool {
	cn := c.client.CN()
	if c.incarnation != 0 && baseline.Incarnation(a.node, cn) > c.incarnation {
		return true
	}
	return !a.node.View().Live.Has(cn)
}

// forgetCrashed drops the claims of nodes that have left the view.
func (a *Agent) forgetCrashed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	gone := func(c claim) bool { return a.gone(&c) }
	for _, l := range slices.Sorted(maps.Keys(a.table)) {
		e := a.table[l]
		if slices.ContainsFunc(e.holders, gone) || slices.ContainsFunc(e.queue, gone) {
			a.drop(a.port, e, gone)
			a.tidy(e)
		}
	}
}
