package locktest

import (
	"errors"
	"flag"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
)

// A Mechanism is the locks under test.
type Mechanism struct {
	Layout lock.Layout

	// Start prepares a new cluster: tables of local locks, agents. The session
	// makes the clients' Lockers.
	Start func(t testing.TB, cl fabrictest.Cluster, nodes int) Session

	// NoTokens: Hold.Token means nothing.
	NoTokens bool
	// ExclusiveOnly: shared requests are granted one at a time.
	ExclusiveOnly bool
	// Handoffs: holders leave something to the next of their node (lock.Hold.Handoff), and with Deferred their operations, too.
	Handoffs, Deferred bool
	// Atomic16: the mechanism needs 16-byte atomics; the suite is skipped where there are none.
	Atomic16 bool
	// FreeOps, if not 0, is how many operations it takes to acquire a free lock, and to release it, in a chain each.
	FreeOps [2]uint64
	// StaleHolds: a release by a copy of a Hold that has been released is ErrMisuse. A mechanism whose Hold.Aux is the state of that
	// one hold notices it; one whose Aux is the Locker cannot.
	StaleHolds bool
	// Corrupt, if not nil, is a lock whose bytes make no sense.
	Corrupt []byte
	// LeaseNs, if not 0, is for how long a lock may be held in virtual time.
	LeaseNs fabric.Time
	// Lasts: readers have leases that are not given back. So a lock refuses writers after the release of its last reader, and readers when
	// a lease is about to end, for long where time is real: clients do little there.
	Lasts bool
}

// A Session is a mechanism at work on a cluster.
type Session interface {
	// Locker returns the Locker of a new client on a node.
	Locker(node int, p fabric.Port) lock.Locker
	// Stop is called by the last client before it ends: agents that were
	// started with Cluster.Go end too.
	Stop()
}

// An Agent is what a mechanism runs on each node.
type Agent interface {
	Run(report func(error)) error
}

// A Join sets a mechanism up on a node of a cluster: it returns what makes the Lockers of the node's clients, and the
// node's agent, nil if there is none.
type Join[L lock.Locker] func(n fabric.Node) (locker func(fabric.Port) L, agent Agent)

// Start is Mechanism.Start: it joins each node, and starts the agents.
func (join Join[L]) Start(t testing.TB, cl fabrictest.Cluster, nodes int) Session {
	s := new(session[L])
	for i := range nodes {
		locker, agent := join(cl.Node(i))
		s.lockers = append(s.lockers, locker)
		if agent == nil {
			continue
		}
		port := cl.Node(i).Agent()
		s.agents = append(s.agents, port)
		cl.Go(port, func(fabric.Port) {
			if err := agent.Run(func(err error) { t.Error(err) }); err != nil {
				t.Errorf("agent of node %d: %v", i, err)
			}
		})
	}
	return s
}

type session[L lock.Locker] struct {
	lockers []func(fabric.Port) L
	agents  []fabric.Port
}

// Locker implements Session.
func (s *session[L]) Locker(node int, p fabric.Port) lock.Locker { return s.lockers[node](p) }

// Stop implements Session.
func (s *session[L]) Stop() {
	for _, p := range s.agents {
		p.Interrupt()
	}
}

// Sim is a Harness of simulated clusters in which large READs and WRITEs tear.
func Sim(seed uint64) fabrictest.Harness {
	return simHarness{Seed: seed, Tear: sim.Tear{Prob: 0.5, Grain: 8}}
}

// SimUnordered is Sim on a fabric that exchanges READs of a chain (fabric.Caps.ReadsInOrder).
func SimUnordered(seed uint64) fabrictest.Harness {
	return simHarness{Seed: seed, Tear: sim.Tear{Prob: 0.5, Grain: 8}, ExchangeReads: 0.5}
}

// SimNear is Sim with every other node on the machine of the memory node, and atomics of the NIC that are none to its CPU (fabric.Local).
func SimNear(seed uint64) fabrictest.Harness {
	return nearHarness{simHarness{Seed: seed, Tear: sim.Tear{Prob: 0.5, Grain: 8}, SplitAtomics: true}}
}

type nearHarness struct{ simHarness }

func (h nearHarness) Start(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	t.Helper()
	s := h.simHarness.Start(t, cfg).(*simCluster)
	for i, n := range s.nodes {
		if i%2 == 0 {
			s.c.Place(n, 0)
		}
	}
	return s
}

// SimSwitch is Sim with a programmable switch on the path, which runs a program of each cluster's own, and has the lowest number.
func SimSwitch(seed uint64, program func() pswitch.Program, model sim.SwitchModel) fabrictest.Harness {
	return switchHarness{Sim(seed).(simHarness), program, model}
}

type switchHarness struct {
	simHarness
	program func() pswitch.Program
	model   sim.SwitchModel
}

func (h switchHarness) Start(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	t.Helper()
	return h.start(t, cfg, func(c *sim.Cluster) { c.AddSwitch(h.program(), h.model) })
}

type simHarness sim.Config

func (h simHarness) Start(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	t.Helper()
	return h.start(t, cfg, func(*sim.Cluster) {})
}

// start makes a cluster, to which before adds something.
func (h simHarness) start(t testing.TB, cfg fabrictest.Config, before func(*sim.Cluster)) fabrictest.Cluster {
	t.Helper()
	fabrictest.SkipInVirtualTime(t)
	s := &simCluster{t: t, c: sim.New(sim.Config(h))}
	before(s.c)
	for _, size := range cfg.Mem {
		s.c.AddMN(size)
	}
	for range cfg.CNs {
		s.nodes = append(s.nodes, s.c.AddCN())
	}
	return s
}

type simCluster struct {
	t     testing.TB
	c     *sim.Cluster
	nodes []*sim.Node
}

func (s *simCluster) Node(i int) fabric.Node { return s.nodes[i] }

func (s *simCluster) Go(p fabric.Port, body func(p fabric.Port)) {
	s.c.GoOn(p, fmt.Sprint(p.ID()), body)
}

func (s *simCluster) Wait() {
	if err := s.c.Run(); err != nil {
		s.t.Errorf("simulation: %v", err)
	}
}

func (s *simCluster) Close() { s.c.Close() }

const (
	memory   = 1 << 20
	lockBase = 4096
	dataBase = memory / 2
	dataSize = 256 // of each lock: several pieces that can tear
	dataStep = 4096
	maxLocks = 16
	// patience is how long a client waits for what must come, unless the
	// cluster is Patient.
	patience = 5 * fabric.Second
)

// A Patient cluster says itself how long a client waits for what must come.
type Patient interface{ Patience() fabric.Time }

// Patience implements Patient: in virtual time nothing else takes time.
func (s *simCluster) Patience() fabric.Time { return 50 * fabric.Millisecond }

// An env is one test's cluster.
type env struct {
	t     testing.TB
	m     *Mechanism
	cl    fabrictest.Cluster
	ses   Session
	nodes int
	// patience is how long a client waits for what must come.
	patience fabric.Time
	ran      bool
}

// A client is a Locker and its Port, with helpers that fail the test.
type client struct {
	e *env
	lock.Locker
	fabric.Port
	t       testing.TB
	buf     []byte
	aborted bool
}

// Stats returns the Locker's counters: a Port has some, too.
func (c *client) Stats() *lock.Stats { return c.Locker.Stats() }

// lockAt returns the address of a lock.
func (e *env) lockAt(i int) fabric.Addr {
	step := (e.m.Layout.Size + 63) &^ 63
	return fabric.At(0, lockBase+uint64(i)*step)
}

// dataAt returns the address of a lock's data.
func (e *env) dataAt(i int) fabric.Addr { return fabric.At(0, dataBase+uint64(i)*dataStep) }

// flag returns the address of a word for tests to meet by.
func (e *env) flag(i int) fabric.Addr { return fabric.At(0, memory-4096+uint64(i)*64) }

// full asks for as many rounds on a Slow cluster as on others, and for all forms of a lock everywhere.
var full = flag.Bool("locktest.full", false, "as many rounds over TCP as on shared memory, and all forms of a lock everywhere")

// A Slow cluster goes through the kernel with each operation: what repetitions see of a lock, they see on the others, too.
type Slow interface{ Slow() }

// rounds returns how often a client does something: n times, and with -short or on a Slow cluster about a fifth of that, a
// multiple of 3.
func (e *env) rounds(n int) int {
	if e.lapses() {
		return 3
	}
	if _, slow := e.cl.(Slow); !testing.Short() && (!slow || *full) {
		return n
	}
	return max(n/15*3, 3)
}

// lapses reports whether a reader's lease may end while it still holds: where time is real, a machine stops a client for as long as it likes.
func (e *env) lapses() bool {
	_, virtual := e.cl.(*simCluster)
	return e.m.Lasts && !virtual
}

// client opens a Port and a Locker on a node.
func (e *env) client(node int) *client {
	e.t.Helper()
	p, err := e.cl.Node(node).Open()
	if err != nil {
		e.t.Fatalf("Open on node %d: %v", node, err)
	}
	return &client{e: e, Port: p, Locker: e.ses.Locker(node, p), t: e.t, buf: p.Alloc(dataSize)}
}

// run runs all bodies at once and returns when they are over. A test calls it
// once.
func (e *env) run(clients []*client, body func(i int, c *client)) {
	e.ran = true
	total := uint64(len(clients))
	for i, c := range clients {
		e.cl.Go(c.Port, func(fabric.Port) {
			defer func() {
				// No other panic is recovered: the simulator stops clients by one.
				if c.aborted {
					recover()
				}
				op := []fabric.Op{fabric.FAA(e.flag(63), 1)}
				if err := c.Do(op); err == nil && op[0].Old+1 == total {
					e.ses.Stop()
				}
			}()
			body(i, c)
		})
	}
	e.cl.Wait()
}

// stopUnused stops the agents if no client has run, as in a test that is skipped: the next test may have the same cluster.
func (e *env) stopUnused() {
	if !e.ran {
		e.ses.Stop()
		e.cl.Wait()
	}
}

// fatal ends the body, in whatever goroutine or coroutine it runs.
func (c *client) fatal(format string, args ...any) {
	c.t.Helper()
	c.t.Errorf("%v: %s", c.ID(), fmt.Sprintf(format, args...))
	c.aborted = true
	panic(fmt.Sprintf("locktest: %v gives up", c.ID()))
}

func (c *client) must(err error, format string, args ...any) {
	c.t.Helper()
	if err != nil {
		c.fatal("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

func (c *client) want(err, target error, format string, args ...any) {
	c.t.Helper()
	if !errors.Is(err, target) || (err == nil) != (target == nil) {
		c.fatal("%s: error %v, want %v", fmt.Sprintf(format, args...), err, target)
	}
}

// fails is want for a call after which a Hold must not hold.
func (c *client) fails(h *lock.Hold, err, target error, format string, args ...any) {
	c.t.Helper()
	c.want(err, target, format, args...)
	if h.Held {
		c.fatal("%s: it holds all the same: %+v", fmt.Sprintf(format, args...), h)
	}
}

// acquire acquires a lock, which must succeed within patience.
func (c *client) acquire(h *lock.Hold, i int, mode lock.Mode, reads ...fabric.Op) {
	c.t.Helper()
	r := lock.Request{Lock: c.e.lockAt(i), Mode: mode, Deadline: c.Now() + c.e.patience, Reads: reads}
	c.must(c.Acquire(h, &r), "acquire lock %d %v", i, mode)
	if !h.Held || h.Lock != r.Lock || h.Mode != mode {
		c.fatal("Hold after acquire of lock %d %v: %+v", i, mode, h)
	}
}

// release releases a lock, and reports whether it was held until then: a reader's lease may have ended, see lapses.
func (c *client) release(h *lock.Hold, before ...fabric.Op) bool {
	c.t.Helper()
	err := c.Release(h, before)
	lapsed := c.lapsed(h, err)
	if !lapsed {
		c.must(err, "release")
	}
	if h.Held {
		c.fatal("Hold after release: %+v", h)
	}
	return !lapsed
}

// lapsed reports whether a release has failed because a reader's lease ended before it.
func (c *client) lapsed(h *lock.Hold, err error) bool {
	return err != nil && h.Mode == lock.Shared && c.e.lapses() && errors.Is(err, lock.ErrLost)
}

func (c *client) load(a fabric.Addr) uint64 {
	c.t.Helper()
	op := []fabric.Op{fabric.Load(a)}
	c.must(c.Do(op), "load")
	return op[0].Old
}

func (c *client) add(a fabric.Addr, n uint64) {
	c.t.Helper()
	c.must(c.Do([]fabric.Op{fabric.FAA(a, n)}), "FAA")
}

// until polls a flag until it has at least a value.
func (c *client) until(a fabric.Addr, v uint64) {
	c.t.Helper()
	for limit := c.Now() + c.e.patience; c.load(a) < v; {
		if c.Now() > limit {
			c.fatal("%v does not become %d", a, v)
		}
		c.pause(5 * fabric.Microsecond)
	}
}

func (c *client) pause(d fabric.Time) {
	c.t.Helper()
	c.must(c.Pause(c.Now()+d), "Pause")
}
