package check

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lab/locks/fiss"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
	"github.com/declock/declock/timesync"
)

// A world is the simulated cluster of a scenario, with its clients and judges.
//
// The last compute node that is there from the start is the witness: no fault hits it. It
// starts the phases and takes part in resets.
type world struct {
	s     Scenario
	c     *sim.Cluster
	cfg   hier.Config
	court *oracle.Court
	over  *oracle.Overtaking
	tap   *tap
	mns   []fabric.MemID
	nodes []*node // by number; behind the witness, those that have joined later
	began fabric.Time

	policy hier.Policy
	sync   hier.SyncConfig

	theSwitch *sim.Node // nil: there is none
	program   *fiss.Program

	locks   []fabric.Addr
	working int              // clients that are at work
	looking bool             // the witness is looking for garbage
	latency [2][]fabric.Time // of acquisitions by mode, if SpanNs is set
	// lastGrant is when each client was granted last, if SpanNs is set.
	lastGrant   map[fabric.ClientID]fabric.Time
	counts      Counts // what the world itself counts
	store       *oracle.StoreHistory
	deferred    uint64   // repairs of the tree that its clients left to the next visitor
	unknown     int      // operations of the store that have failed
	playing     bool     // the scene is set
	generations []uint32 // of the memories that there are, if they may be lost

	formatted map[fabric.MemID][]byte // the beginning of each number's memory, if new backups are made
	copying   bool                    // copiers go on though no client works

	names  []*sideName    // of what is beside the main store or tree
	made   []*incarnation // all that has been there
	siding bool           // keepers look after it though no client works
}

// A node is a compute node.
type node struct {
	sim   *sim.Node
	table *hier.Table
	clock *timesync.Clock
	agent *hier.Agent
	field *locks.Node // instead of table, clock and agent
	store *objstore.Store
	tree  *btree.Tree

	creating memory.Creating // root entries

	sides   []*side         // what it has open beside the main store or tree
	opening bool            // a client opens or drops one
	failed  map[string]bool // names of what it has failed to open, or to close

	generations []uint32 // of the memories that it knows, if they may be lost

	dead   bool // killed, fenced or gone
	fenced bool

	clients  []*client
	active   int    // clients that are at work
	leaving  bool   // its clients begin nothing any more
	whenLeft func() // of a node that leaves

	lockers []*hier.Locker // of an exploration
}

// dead reports whether the node has been killed or fenced, or has left.
func (w *world) dead(cn int) bool { return w.nodes[cn-1].dead }

// Memory of a world without object store: the word of timesync, then locks,
// each with its cell behind it.
const (
	counterAt = 64
	locksAt   = 4096
	cellSize  = 64
	storeSize = 4 << 20
	maxValue  = 4096
)

// syncWindow is how long an agent waits for the others to synchronise their clocks.
const syncWindow = 100 * fabric.Microsecond

func newWorld(s Scenario, trace bool) (*world, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	policy, err := s.policy()
	if err != nil {
		return nil, err
	}
	cfg, err := s.simConfig()
	if err != nil {
		return nil, err
	}
	w := &world{s: s, policy: policy, lastGrant: map[fabric.ClientID]fabric.Time{}}
	w.tap = &tap{w: w, trace: trace, watched: map[fabric.Addr]bool{}, last: lastOps{}}
	w.judges(policy)
	cfg.Observer = w.tap
	if s.Repair > 0 {
		cfg.FormatCopy = w.formatCopy
	}
	w.c = sim.New(cfg)
	w.cfg = hier.Config{Layout: s.layout(), CQL: cql.Config{RecheckNs: s.RecheckNs, ResetAfterNs: s.ResetNs}}
	if s.RecheckNs == 0 {
		w.cfg.CQL.RecheckNs = fabric.Forever / 4
	}
	if s.ResetNs == 0 {
		w.cfg.CQL.ResetAfterNs = fabric.Forever / 4
	}
	if err := w.build(); err != nil {
		w.c.Close()
		return nil, err
	}
	if s.Keys > 0 {
		if err := w.openStore(); err != nil {
			w.c.Close()
			return nil, err
		}
	}
	w.began = w.c.Now()
	return w, nil
}

// judges makes the court. Overtaking is bounded where a policy bounds it: see bounds.
func (w *world) judges(p hier.Policy) {
	w.over = oracle.NewOvertaking(w.s.bound(p))
	list := []oracle.Judge{oracle.NewExclusion(), oracle.NewTokens(), oracle.NewCells(), oracle.NewLostGrants(), w.over}
	if w.s.Lock == "" {
		order, trains := oracle.NewQueueOrder(w.s.Capacity), oracle.NewTrainOrder(w.s.Capacity)
		if w.s.Copies > 0 {
			order.InTerms()
			trains.InTerms()
			w.tap.failed = func(c fabric.ClientID) { order.Failed(c); trains.Failed(c) }
		}
		list = append(list, order, trains, oracle.NewResets(w.s.Capacity, w.s.resetBound()))
	}
	if p.Kind == hier.ByTime && !p.PhaseFair && !w.s.restarts() { // a client that waited for a memory node begins anew
		list = append(list, oracle.NewLocalOrder())
	}
	w.court = oracle.NewCourt(list...)
	w.store = new(oracle.StoreHistory)
}

// unbounded is more than any run has grants.
const unbounded = 1 << 40

// bound returns how many later requests may pass one: policies that prefer the
// own node promise nothing. Otherwise a request can be passed by requests of others in the
// time of its own way to the queue, by readers that share a tenure, and, by clocks that differ, by
// those of its node that wait.
//
// Without hierarchy the bound is derived: only on the way to the queue. That takes at most what is left of the client's last
// chain (a fence) and half a round trip, and each other client needs two round trips from one place to the next; so it passes
// twice at most. The others are smoke alarms, about the double of what was seen: the most that 3000 seeds of class Fair showed, for each client of
// the cluster, was 2.0 with hierarchy where all write, else 13 (remote-prefer, where any reader joins: 45); without, 1.2. What
// the protocols promise exactly, QueueOrder and LocalOrder judge.
func (s *Scenario) bound(p hier.Policy) int {
	if f := baselineOf(s.Lock); f != nil && s.Class == FieldFair && f.fair > 0 {
		return f.fair * s.CNs * s.Clients
	}
	if s.Class != Fair || s.Keys > 0 {
		return unbounded
	}
	per := 0
	switch fair := p.Kind == hier.ByTime && p.SharingNs > 0; {
	case p.Kind == hier.Flat:
		per = 3 // a reader whose granted READ tears is seen to hold the lock when other readers have been there twice
	case p.Kind == hier.RemotePrefer:
		per = 90
	case fair && s.Writers == 0 && s.Reads == 0:
		per = 4
	case fair:
		per = 26
	default:
		return unbounded
	}
	return per * s.CNs * s.Clients
}

// build makes the nodes and their agents.
func (w *world) build() error {
	for range w.s.MNs {
		if w.s.Copies > 0 {
			w.mns = append(w.mns, w.c.AddReplicatedMN(w.size(), w.s.Copies))
		} else {
			w.mns = append(w.mns, w.c.AddMN(w.size()))
		}
	}
	if w.s.Copies > 0 {
		w.replicas()
	}
	if w.s.loses() {
		w.generations = make([]uint32, w.s.MNs)
		for i := range w.mns {
			w.format(i)
		}
	}
	for i := range w.s.Locks {
		a := fabric.At(w.mns[i%w.s.MNs], locksAt+uint64(i/w.s.MNs)*w.span())
		w.locks = append(w.locks, a)
		w.tap.watched[a] = true
	}
	counter := fabric.At(w.mns[0], counterAt)
	if w.s.Keys > 0 {
		counter = fabric.At(w.mns[0], memory.TimesyncOffset)
	}
	w.sync = hier.SyncConfig{Counter: counter, IntervalNs: w.s.SyncNs, WindowNs: syncWindow}
	if w.sync.IntervalNs == 0 {
		w.sync.IntervalNs = -1
	}
	if w.s.Switch > 0 {
		if err := w.makeSwitch(); err != nil {
			return err
		}
	}
	for range w.s.CNs + 1 {
		w.addNode()
	}
	return nil
}

// size returns the bytes of a memory node.
func (w *world) size() uint64 {
	if w.s.Keys > 0 {
		return storeSize
	}
	return locksAt + w.span()*uint64(w.s.Locks)
}

// onTransition, if not nil, is called at each step of a local lock's state machine, in scenarios and in exploration. For a test.
var onTransition func(hier.Transition)

// newTable makes the table of a compute node.
func newTable(p hier.Policy) *hier.Table {
	t := hier.NewTable(p)
	t.OnTransition = onTransition
	return t
}

// addNode makes a compute node.
func (w *world) addNode() {
	policy := w.policy
	if w.s.Plain > 0 && (len(w.nodes)+1)%w.s.Plain == 0 {
		policy.Train, policy.Phased = false, false
	}
	n := &node{sim: w.c.AddCN(), table: newTable(policy), clock: new(timesync.Clock), generations: slices.Clone(w.generations), failed: map[string]bool{}}
	if f := baselineOf(w.s.Lock); f != nil {
		n.field = f.join(&w.s)(n.sim)
	} else {
		n.sim.OnFenced = n.table.Fenced
		n.agent = hier.NewAgent(n.table, n.sim, n.clock, w.configOf(n), w.sync)
	}
	if i := len(w.nodes); i < w.s.Near {
		w.c.Place(n.sim, w.mns[i%w.s.MNs])
	}
	w.nodes = append(w.nodes, n)
}

// nodeOf returns the compute node that has a number now.
func (w *world) nodeOf(id fabric.CNID) *node {
	for _, n := range slices.Backward(w.nodes) {
		if n.sim.ID() == id {
			return n
		}
	}
	panic(fmt.Sprintf("check: there is no %v", id))
}

// runAgent runs the node's agent, if it has one.
func (n *node) runAgent(report func(error)) error {
	switch {
	case n.field == nil:
		return n.agent.Run(report)
	case n.field.Run != nil:
		return n.field.Run(report)
	}
	return nil
}

// startAgents starts the agents; the memory has been set up.
func (w *world) startAgents() {
	for i := range w.nodes {
		w.startAgent(i + 1)
	}
}

func (w *world) startAgent(cn int) {
	n := w.nodes[cn-1]
	w.c.GoAgent(n.sim, func(fabric.Port) {
		err := n.runAgent(func(err error) { w.agentError(cn, err) })
		if err != nil {
			w.agentError(cn, err)
		}
		if n.leaving {
			w.left(cn)
		}
	})
}

func (w *world) agentError(cn int, err error) {
	if !w.excused(cn, err) && !(w.s.restarts() && w.ofRestart(err)) {
		w.object("errors", fmt.Sprintf("agent of node %d: %v", cn, err))
	}
}

// excused reports whether an error is what the fault plan makes of a node.
func (w *world) excused(cn int, err error) bool {
	if w.ofInterrupt(err) || w.s.BreakNs > 0 && errors.Is(err, fabric.ErrUnknownOutcome) || w.s.BrokenLateNs > 0 && errors.Is(err, fabric.ErrNodeDown) {
		return true
	}
	if cn > w.s.CNs || !w.s.deadly(cn) {
		return false
	}
	return isAny(err, fabric.ErrFenced, fabric.ErrUnknownOutcome, fabric.ErrClosed)
}

// ofInterrupt reports whether an error is what an interrupted client makes of an operation, of its own or one that was left to it.
func (w *world) ofInterrupt(err error) bool {
	return w.s.leavesBehind() && isAny(err, fabric.ErrInterrupted, lock.ErrCanceled, fabric.ErrUnknownOutcome, fabric.ErrNodeDown)
}

// ofRestart reports whether an error is what the restart of a memory node makes of an operation.
func ofRestart(err error) bool {
	return isAny(err, fabric.ErrNodeDown, fabric.ErrStaleEpoch, fabric.ErrUnknownOutcome, lock.ErrLost)
}

// ofRestart reports whether an error is what the restart of a memory node makes of an operation in this world.
func (w *world) ofRestart(err error) bool {
	return ofRestart(err) || w.s.loses() && errors.Is(err, lock.ErrMemoryLost)
}

// restarting reports whether the restart of a memory node explains an error of what began at a time: an operation that begins when
// all are back meets none.
func (w *world) restarting(err error, began fabric.Time) bool {
	back := w.began + w.s.restarted()
	return w.ofRestart(err) && began < back
}

// span returns the bytes from a lock to the next. The cell does not begin at a
// multiple of 64, so that it tears wherever NICs tear.
func (w *world) span() uint64 { return w.cellOffset() + cellSize + 32 }

func (w *world) cellOffset() uint64 { return (baselineOf(w.s.Lock).room(w.s.layout())+63)&^63 + 32 }

func (w *world) cell(lock int) fabric.Addr { return w.locks[lock].Add(w.cellOffset()) }

// locker returns a Locker of a node.
func (w *world) locker(n *node, p fabric.Port) lock.Locker {
	if n.field != nil {
		return n.field.Locker(p)
	}
	k := hier.New(n.table, p, n.sim, n.clock, w.configOf(n))
	if w.tap.trace && w.s.Keys > 0 {
		return &noting{k, w.tap}
	}
	return k
}

// regionSize returns the size of the regions of a store or tree.
func (w *world) regionSize() uint64 {
	if w.s.Tree > 0 && w.s.Room > 0 {
		return w.s.small()
	}
	return storeSize
}

// openStore formats the memory nodes and opens the store, or the tree, on each compute node.
func (w *world) openStore() error {
	for _, n := range w.nodes {
		p, err := n.sim.Open()
		if err != nil {
			return err
		}
		for _, mn := range w.mns {
			prm := memory.Params{Size: w.regionSize(), CapacityLog2: w.s.Capacity, VersionBits: min(w.s.Version, 32), Factor: uint8(w.s.Copies)}
			if err := memory.Format(p, mn, prm); err != nil {
				return err
			}
		}
		if err := w.openOn(n, p); err != nil {
			return err
		}
		p.Close()
	}
	if w.s.Repair > 0 {
		w.lend()
	}
	return nil
}

// openOn opens the store or tree on a compute node.
func (w *world) openOn(n *node, p fabric.Port) (err error) {
	if w.s.Tree > 0 {
		n.tree, err = btree.Open(p, btree.Config{
			Name: "check", Nodes: w.mns, Lock: w.cfg.Layout.Lock(), MaxKey: treeKey, MaxInline: treeInline, NodeSize: treeNode, Creating: &n.creating,
		})
		return err
	}
	objects := min(w.s.Keys, 4)
	if w.s.Segment > 0 {
		objects = largeObjects
	}
	n.store, err = objstore.Open(p, objstore.Config{
		Name: "check", Nodes: w.mns, Lock: w.cfg.Layout.Lock(), Objects: uint64(objects), MaxValue: maxValue, Segment: uint32(w.s.Segment),
		NoEvict: w.s.Room == 0 || w.s.NoEvict != 0, MemoryLimit: uint64(w.s.Room), Paper: w.s.Paper != 0, AccessRefreshS: 1, Creating: &n.creating,
		OpenSlots: w.s.Open != 0, EpochNs: 1,
	})
	return err
}

// object has the court write down what no judge of it objects to.
func (w *world) object(judge, what string) {
	w.court.Now(w.c.Now())
	w.court.Object(judge, what)
	w.tap.drawObjections()
}

// event tells the court what a client reports.
func (w *world) event(e oracle.Event) {
	e.Time = w.c.Now()
	w.tap.noteEvent(&e)
	w.court.Event(&e)
	w.tap.drawObjections()
}

// A tap is what hears the simulator: it passes to the court what it must know,
// and keeps the last operations of each client for a report.
type tap struct {
	w       *world
	trace   bool
	watched map[fabric.Addr]bool
	last    lastOps
	each    func(e *sim.Event)    // for tests; else nil
	failed  func(fabric.ClientID) // hears of each operation that fails; nil: nothing does
	drawing
}

func (t *tap) noteEvent(e *oracle.Event) {
	if t.trace {
		t.last.keep(e.Client, "* "+e.String())
	}
	t.drawEvent(e)
}

// noteStore notes what an operation of the object store came to.
func (t *tap) noteStore(c fabric.ClientID, o *oracle.StoreOp, err error) {
	switch {
	case !t.trace:
	case err != nil:
		t.last.keep(c, fmt.Sprintf("* %d %v: %v", t.w.c.Now(), o, err))
	default:
		t.last.keep(c, fmt.Sprintf("* %d %v", t.w.c.Now(), o))
	}
}

// Observe implements sim.Observer.
func (t *tap) Observe(e *sim.Event) {
	if t.each != nil {
		t.each(e)
	}
	if t.picture != nil {
		t.picture.Observe(e)
	}
	if t.failed != nil && e.Step == sim.StepComplete && e.Err != nil {
		t.failed(e.Client)
	}
	switch e.Step {
	case sim.StepKill, sim.StepFence:
		if t.w.s.Switch > 0 && e.Client.CN() == 1 {
			return
		}
		kind := oracle.Killed
		if e.Step == sim.StepFence {
			kind = oracle.Fenced
		}
		n := t.w.nodeOf(e.Client.CN())
		n.dead, n.fenced = true, n.fenced || kind == oracle.Fenced
		if n.fenced {
			t.w.store.Fence(func(client int) bool { return fabric.ClientID(client).CN() == n.sim.ID() })
		}
		t.w.event(oracle.Event{Kind: kind, Client: e.Client})
		return
	case sim.StepServe:
		t.w.serves(e)
		return
	case sim.StepRestart:
		if t.w.s.Copies > 0 {
			return // StepServe says when another epoch begins
		}
		t.w.event(oracle.Event{Kind: oracle.Restarted, Lock: fabric.At(e.Mem, 0)})
		return
	case sim.StepEffect:
		if e.Op.Kind.IsAtomic() && t.watched[e.Op.Addr.In(0)] && t.w.c.Serves(e.Op.Addr.MN(), e.Mem) {
			t.w.court.Effect(&oracle.Effect{Time: e.Time, Client: e.Client, Lock: e.Op.Addr.In(0), Old: e.Old, New: e.New})
			t.drawObjections()
		}
	case sim.StepPost, sim.StepAbandon:
		return
	}
	if !t.trace {
		return
	}
	who := e.Client
	if e.Step == sim.StepDeliver {
		who = e.To
	}
	t.last.keep(who, t.w.describe(e))
}

// describe tells an event with headers and entries of the world's locks taken apart.
func (w *world) describe(e *sim.Event) string {
	for i, l := range w.locks {
		if w.s.Lock != "" {
			break
		}
		if text := describeLock(w.s.layout(), l, e); text != "" {
			return fmt.Sprintf("%v   lock %d%s", e, i, text)
		}
	}
	for l, name := range w.tap.found {
		if text := describeLock(w.s.layout(), l, e); text != "" {
			return fmt.Sprintf("%v   lock of %s%s", e, name, text)
		}
	}
	return e.String()
}

var _ lock.Locker = (*hier.Locker)(nil)
