package hier_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/timesync"
)

// A rig is a simulated cluster whose clients lock.
type rig struct {
	t      testing.TB
	c      *sim.Cluster
	mn     fabric.MemID
	cfg    hier.Config
	sync   hier.SyncConfig
	nodes  []*sim.Node
	tables []*hier.Table
	clocks []*timesync.Clock
	agents []*hier.Agent

	simcfg sim.Config
	wrap   func(fabric.Port) fabric.Port // of every Port; nil: none
	backup bool                          // the memory node is replicated, and the next has its backup
	uncut  bool                          // the fabric does not cut epochs
	report func(error)                   // of the agents; nil: an error of the test
	left   func(n *sim.Node, clean bool) // of an agent that was interrupted, after Leave; nil: no node leaves
}

// Memory of a rig: the timesync counter, then locks, each with 8 data words.
const (
	counterAt = 64
	locksAt   = 4096
	lockSpan  = 8192
)

// An option changes a rig before its nodes are made.
type option func(*rig)

// waits makes waiters impatient.
func waits(recheck, reset fabric.Time) option {
	return func(r *rig) { r.cfg.CQL = cql.Config{RecheckNs: recheck, ResetAfterNs: reset} }
}

// wrapped puts a wrapper around every Port.
func wrapped(f func(fabric.Port) fabric.Port) option { return func(r *rig) { r.wrap = f } }

// simulated sets the simulator's configuration.
func simulated(c sim.Config) option { return func(r *rig) { r.simcfg = c } }

// unsynced has no clock synchronisation: stamps are of virtual time.
func unsynced(r *rig) { r.sync.IntervalNs = -1 }

// silent makes errors of agents no errors of the test.
func silent(r *rig) { r.report = func(error) {} }

func newRig(t testing.TB, seed uint64, cns int, policy string, y cql.Layout, opts ...option) *rig {
	t.Helper()
	p, err := hier.ParsePolicy(policy)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, cfg: hier.Config{Layout: y}}
	r.report = func(err error) { t.Errorf("agent: %v", err) }
	for _, o := range opts {
		o(r)
	}
	r.simcfg.Seed = seed
	if r.simcfg.MaxEvents == 0 {
		r.simcfg.MaxEvents = 5e6 // no test needs more: a run that does hangs
	}
	r.c = sim.New(r.simcfg)
	before := t.Failed()
	t.Cleanup(func() {
		r.c.Close()
		if t.Failed() && !before {
			t.Logf("seed %d, policy %s", seed, policy)
		}
	})
	if r.backup {
		r.mn = r.c.AddReplicatedMN(64<<20, 2)
		r.c.AddBackup(r.mn, r.c.AddMN(64<<20))
	} else {
		r.mn = r.c.AddMN(64 << 20)
	}
	r.sync.Counter = fabric.At(r.mn, counterAt)
	if r.sync.IntervalNs == 0 {
		r.sync.IntervalNs = fabric.Millisecond
	}
	for range cns {
		r.addNode(p)
	}
	return r
}

// addNode adds a compute node, with its agent.
func (r *rig) addNode(p hier.Policy) {
	n := r.c.AddCN()
	table, clock := hier.NewTable(p), new(timesync.Clock)
	n.OnFenced = table.Fenced
	agent := hier.NewAgent(table, r.node(n), clock, r.cfg, r.sync)
	r.c.GoAgent(n, func(fabric.Port) {
		if err := agent.Run(r.report); err != nil {
			r.report(err)
		}
		if r.left != nil {
			r.left(n, agent.Leave(r.report))
		}
	})
	r.nodes = append(r.nodes, n)
	r.tables = append(r.tables, table)
	r.clocks = append(r.clocks, clock)
	r.agents = append(r.agents, agent)
}

// uncut makes nodes of a fabric on which operations of an epoch that is over may still take effect, so that no hold is set aside.
func uncut(r *rig) { r.uncut = true }

type uncutNode struct{ fabric.Node }

func (n uncutNode) Caps() fabric.Caps {
	c := n.Node.Caps()
	c.CutsEpochs = false
	return c
}

// A wrappedNode is a node whose agent's Port is wrapped.
type wrappedNode struct {
	fabric.Node
	agent fabric.Port
}

func (n *wrappedNode) Agent() fabric.Port { return n.agent }

func (r *rig) node(n *sim.Node) fabric.Node {
	switch {
	case r.uncut:
		return uncutNode{n}
	case r.wrap == nil:
		return n
	}
	return &wrappedNode{n, r.wrap(n.Agent())}
}

func (r *rig) port(p fabric.Port) fabric.Port {
	if r.wrap == nil {
		return p
	}
	return r.wrap(p)
}

func (r *rig) lock(i int) fabric.Addr { return fabric.At(r.mn, locksAt+uint64(i)*lockSpan) }

// data is behind the largest lock.
func (r *rig) data(i int) fabric.Addr { return r.lock(i).Add(lockSpan - 128) }

// locker returns a Locker of a compute node (from 0) over a Port of it.
func (r *rig) locker(cn int, p fabric.Port) *hier.Locker {
	return hier.New(r.tables[cn], r.port(p), r.nodes[cn], r.clocks[cn], r.cfg)
}

func (r *rig) client(cn int, name string, body func(k *hier.Locker)) {
	r.c.Go(r.nodes[cn], name, func(p fabric.Port) { body(r.locker(cn, p)) })
}

func (r *rig) run() {
	r.t.Helper()
	if err := r.c.Run(); err != nil {
		r.t.Fatal(err)
	}
	r.idle()
}

// idle checks that no node has anything of a lock left.
func (r *rig) idle() {
	r.t.Helper()
	for i, t := range r.tables {
		if n := t.Len(); n != 0 {
			r.t.Errorf("cn%d: %d local locks left", i+1, n)
		}
	}
}

// header returns the header of a lock as it is.
func (r *rig) header(i int) (head, size, writers uint64, reset fabric.CNID) {
	h, y := cql.Header(r.c.PeekWord(r.lock(i))), r.cfg.Layout
	return y.Head(h), y.Size(h), y.Writers(h), h.ResetID()
}

// setHeader sets a header, to set a scene.
func (r *rig) setHeader(i int, h cql.Header) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(h))
	r.c.Poke(r.lock(i), b[:])
}

// wantFree checks that a lock is free.
func (r *rig) wantFree(i int) {
	r.t.Helper()
	if head, size, writers, reset := r.header(i); size != 0 || writers != 0 || reset != 0 {
		r.t.Errorf("lock %d is not free: head %d size %d writers %d reset %d", i, head, size, writers, reset)
	}
}

// led returns how many resets were led to the end.
func (r *rig) led() (n uint64) {
	for _, a := range r.agents {
		n += a.Resets().Led
	}
	return n
}

// must is for what cannot fail in a test.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("at %s: %v", t.Name(), err)
	}
}

// acquire acquires without a deadline.
func acquire(t testing.TB, k *hier.Locker, h *lock.Hold, l fabric.Addr, m lock.Mode) {
	t.Helper()
	must(t, k.Acquire(h, &lock.Request{Lock: l, Mode: m}))
}

// sleep waits for a duration.
func sleep(k *hier.Locker, d fabric.Time) { _ = k.Port().Pause(k.Port().Now() + d) }

// at waits for a time.
func at(k *hier.Locker, t fabric.Time) { _ = k.Port().Pause(t) }

// A hookPort lets a test interfere between a client and its Port.
type hookPort struct {
	fabric.Port
	do      func(p fabric.Port, ops []fabric.Op) error // nil: Port.Do
	abandon func(p fabric.Port) error                  // nil: Port.Abandon
	send    func(p fabric.Port, to fabric.ClientID, m *fabric.Message) error
	recv    func(p fabric.Port, deadline fabric.Time) (fabric.Message, error)
}

func (h *hookPort) Do(ops []fabric.Op) error {
	if h.do != nil {
		return h.do(h.Port, ops)
	}
	return h.Port.Do(ops)
}

func (h *hookPort) Abandon() error {
	if h.abandon != nil {
		return h.abandon(h.Port)
	}
	return h.Port.Abandon()
}

func (h *hookPort) Send(to fabric.ClientID, m *fabric.Message) error {
	if h.send != nil {
		return h.send(h.Port, to, m)
	}
	return h.Port.Send(to, m)
}

func (h *hookPort) Recv(deadline fabric.Time) (fabric.Message, error) {
	if h.recv != nil {
		return h.recv(h.Port, deadline)
	}
	return h.Port.Recv(deadline)
}

// hooked returns a Locker whose Port a test interferes with.
func (r *rig) hooked(cn int, p fabric.Port, h *hookPort) *hier.Locker {
	h.Port = r.port(p)
	return hier.New(r.tables[cn], h, r.nodes[cn], r.clocks[cn], r.cfg)
}

// askReset has the agent of a compute node (from 0) told to reset a lock.
func (r *rig) askReset(cn int, p fabric.Port, i int, why cql.Reason) {
	var s lock.Stats
	cql.NewClient(p, r.nodes[cn], r.cfg.Layout, r.cfg.CQL, &s).AskReset(r.lock(i), 0, why)
}

// Kinds of messages that a test looks at (package cql, message.go).
const kindGrant = fabric.MsgCQL

// isRelease reports whether a chain is that of a release without anything before:
// FAA, READ of the queue.
func isRelease(ops []fabric.Op) bool {
	return len(ops) == 2 && ops[0].Kind == fabric.OpFAA && ops[1].Kind == fabric.OpRead && ops[1].Buf != nil
}

// splitRelease executes release chains in two, with between called between
// FAA and READ.
func splitRelease(between func(p fabric.Port)) func(p fabric.Port, ops []fabric.Op) error {
	return func(p fabric.Port, ops []fabric.Op) error {
		if !isRelease(ops) {
			return p.Do(ops)
		}
		if err := p.Do(ops[:1]); err != nil {
			return err
		}
		between(p)
		return p.Do(ops[1:])
	}
}

// witness checks exclusion from outside: the simulator runs one client at a time.
type witness struct {
	readers, writers int
	token            lock.Token
	grants           int
}

func (w *witness) enter(t testing.TB, h *lock.Hold) {
	t.Helper()
	w.grants++
	if h.Mode == lock.Exclusive {
		if w.readers+w.writers != 0 {
			t.Fatalf("writer with %d readers, %d writers", w.readers, w.writers)
		}
		if h.Token <= w.token {
			t.Fatalf("token %#x after %#x", h.Token, w.token)
		}
		w.token = h.Token
		w.writers++
		return
	}
	if w.writers != 0 {
		t.Fatalf("reader with a writer")
	}
	if h.Token < w.token {
		t.Fatalf("reader's token %#x below the last writer's %#x", h.Token, w.token)
	}
	w.readers++
}

func (w *witness) exit(h *lock.Hold) {
	if h.Mode == lock.Exclusive {
		w.writers--
	} else {
		w.readers--
	}
}

func name(cn, i int) string { return fmt.Sprintf("%d.%d", cn+1, i) }
