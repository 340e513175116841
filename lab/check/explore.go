package check

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lab/explore"
	"github.com/declock/declock/lab/locks/fiss"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/timesync"
)

// slotLeaseNs is the length of a slot in exploration: leases do not end.
const slotLeaseNs = fabric.Forever / 256

// modes are those of clients, by the letter of their word.
var modes = map[byte]lock.Mode{'s': lock.Shared, 'x': lock.Exclusive, 'u': lock.Update, 'g': lock.Update}

// Bounds of an exploration; 0 is none.
type Bounds struct {
	States int
	Wall   time.Duration
}

// Explore tries all schedules, up to bounds.
func Explore(x Exploration, b Bounds) explore.Report {
	cfg := x.config()
	cfg.MaxStates, cfg.MaxWall = b.States, b.Wall
	return explore.Explore(cfg, x.build)
}

// config returns what Explore and a replay of its schedules have in common.
func (x Exploration) config() explore.Config {
	fails := x.Crashes > 0 || x.Restart || x.Cut != Whole
	// Without a crash, waiters need not recheck a lock: a grant that is lost is a deadlock.
	// Agents of baseline locks poll, so their waits do have ends.
	cfg := explore.Config{FairPolls: true, Sleep: true, NoDeadlines: !fails && baselineOf(x.Policy) == nil}
	cfg.Sim.SplitAtomics, cfg.Sim.ShortWay = x.Near > 0, x.Near > 0
	// Without hierarchy, clients of a node share what they are in doubt about, after a cancellation or a failure, and nothing else,
	// until there is a reset.
	fails = fails || x.Failover != Stays
	cfg.Private = x.Policy == "cql" && !x.Cancel && !fails && !x.Reset && !x.wears()
	if x.together() && x.Policy != "cql" && baselineOf(x.Policy) == nil && !x.Cancel && !fails {
		// Policies compare times: one clock ticks once, by more than a shared tenure lasts.
		cfg.Ticks, cfg.Tick = 1, 3*hier.DefaultSharing/2
	}
	cfg.Actions, cfg.News = x.Crashes, x.News
	if x.Cancel {
		cfg.Actions++
	}
	if x.Restart || x.Failover != Stays {
		cfg.Actions++
	}
	if x.Cut != Whole {
		cfg.Actions++
	}
	return cfg
}

// An exploring is one execution of an Exploration.
type exploring struct {
	x      Exploration
	c      *explore.Cluster
	court  *oracle.Court
	cfg    hier.Config
	lock   fabric.Addr
	region *memory.Region // that the lock is in, if that is replicated
	nodes  []*node
	killed fabric.CNSet
	state  uint64        // hash of the court's
	moved  bool          // it may be out of date
	told   int           // objections that were passed to Fail
	last   lastOps       // of a replay; else nil
	drawn  *drawing      // of a replay; else nil
	field  *baselineLock // nil: the lock is DecLock's

	register register
	cohorts  *cohorts // nil: the lock has none
	// private: see explore.Config
	private bool
	// sentBack is how many messages have been sent back.
	sentBack int
}

// Observe implements sim.Observer.
func (g *exploring) Observe(e *sim.Event) {
	g.note(e)
	switch e.Step {
	case sim.StepKill, sim.StepFence:
		kind := oracle.Killed
		if e.Step == sim.StepFence {
			kind = oracle.Fenced
		}
		g.event(oracle.Event{Kind: kind, Client: e.Client})
	case sim.StepDeliver:
		if g.x.SentBack > 0 && fiss.SentBack(e.Msg) {
			g.c.Witness()
			g.moved = true
			if g.sentBack++; g.sentBack > g.x.SentBack {
				g.c.Enough()
			}
		}
	case sim.StepRestart, sim.StepServe:
		g.event(oracle.Event{Kind: oracle.Restarted, Lock: fabric.At(e.Mem, 0)})
	case sim.StepEffect:
		if g.cohorts != nil && g.cohorts.effect(e) {
			g.c.Witness()
			g.moved = true
		}
		if e.Op.Kind.IsAtomic() && e.Op.Addr == g.lock && g.c.Serves(e.Op.Addr.MN(), e.Mem) {
			g.c.Witness()
			g.moved = true
			g.court.Effect(&oracle.Effect{Client: e.Client, Lock: e.Op.Addr, Old: e.Old, New: e.New})
			g.tell()
		}
	}
}

// note keeps what a client did, for a report.
func (g *exploring) note(e *sim.Event) {
	if g.drawn != nil {
		g.drawn.picture.Observe(e)
	}
	if g.last == nil || e.Step == sim.StepPost || e.Step == sim.StepAbandon {
		return
	}
	who, text := e.Client, e.String()
	if e.Step == sim.StepDeliver {
		who = e.To
	}
	if more := describeLock(g.cfg.Layout, g.lock, e); more != "" && g.field == nil {
		text += "   lock" + more
	}
	g.last.keep(who, text)
}

func (g *exploring) event(e oracle.Event) {
	if g.last != nil {
		g.last.keep(e.Client, "* "+e.String())
	}
	if g.drawn != nil {
		g.drawn.picture.Report(&e, "lock")
	}
	if e.Kind != oracle.Requested || g.x.updates() { // else no judge here takes note of it
		g.c.Witness()
	}
	g.moved = true
	g.register.follow(&e)
	g.court.Event(&e)
	if g.cohorts != nil {
		if what := g.cohorts.event(&e); what != "" {
			g.c.Fail(errors.New(what))
		}
	}
	g.tell()
}

// tell fails the execution if a judge objects.
func (g *exploring) tell() {
	if v := g.court.Violations(); len(v) > g.told {
		g.told = len(v)
		if g.drawn != nil {
			g.drawn.picture.Object(v[len(v)-1])
		}
		g.c.Fail(fmt.Errorf("%v", v[len(v)-1]))
	}
}

func (x Exploration) build(c *explore.Cluster) { x.buildWith(c, nil, nil) }

// buildWith builds the program. A replay keeps the last operations of each client, and may be drawn.
func (x Exploration) buildWith(c *explore.Cluster, last lastOps, drawn *drawing) {
	g := &exploring{x: x, c: c, last: last, field: baselineOf(x.Policy), moved: true, private: x.config().Private}
	judges := []oracle.Judge{oracle.NewExclusion(), oracle.NewTokens(), oracle.NewCells()}
	var policy hier.Policy
	if g.field == nil {
		var err error
		if policy, err = hier.ParsePolicy(x.Policy); err != nil {
			panic(err)
		}
		order := oracle.NewQueueOrder(x.Capacity)
		if x.Failover != Stays {
			order.InTerms()
		}
		judges = append(judges, order)
	}
	g.court = oracle.NewCourt(judges...)
	g.cfg = hier.Config{
		Layout: cql.Layout{CapacityBits: x.Capacity, VersionBits: x.Version},
		CQL:    cql.Config{RecheckNs: fabric.Forever / 4, ResetAfterNs: fabric.Forever / 4, RefetchMax: 64},
	}
	if x.Cut != Whole { // a waiter looks when nothing else can happen; what it finds out at three looks needs no longer wait
		g.cfg.CQL.RecheckNs = fabric.Millisecond
	}
	g.addMemory()
	if x.Near > 0 && !x.Cancel {
		g.cohorts = newCohorts(x.Policy, g.lock)
	}
	c.SetObserver(g)
	alike := map[string][]*sim.Task{} // clients of the same node and mode
	for i, who := range strings.Fields(x.Clients) {
		cn := int(who[0] - '0')
		for len(g.nodes) < cn {
			g.addNode(policy)
		}
		mode, n := modes[who[1]], g.nodes[cn-1]
		if who[1] == 'r' {
			c.Go(n.sim, fmt.Sprintf("%d.%d reads", cn, i+1), func(p fabric.Port) { g.reader(n, p) })
			continue
		}
		t := c.Go(n.sim, fmt.Sprintf("%d.%d %v", cn, i+1, mode), func(p fabric.Port) {
			g.client(n, &turn{k: g.locker(n, p), mode: mode, upgrades: who[1] == 'g', leaseNs: g.leaseOf(i), first: i == 0})
		})
		if i >= x.Crashes && (i > 0 || !x.Cancel && !x.Reset) {
			alike[who] = append(alike[who], t)
		}
	}
	if g.field != nil && !strings.Contains(x.Clients, "1") { // a node whose clients have all forgotten what they were told has an agent that remembers nothing
		c.Go(g.nodes[0].sim, "none", func(fabric.Port) {})
	}
	g.use()
	g.format()
	if drawn != nil {
		g.draw(drawn)
	}
	if g.field == nil { // others may draw random numbers by their names
		x.symmetries(c, alike)
	}
	for _, who := range strings.Fields(x.Clients)[:x.Crashes] {
		n := g.nodes[who[0]-'1']
		c.SometimeKill(n.sim, func() { g.killed.Add(n.sim.ID()) })
	}
	if x.Restart {
		c.Sometime("restart of mn0", nil, func() { c.RestartServer(g.lock.MN()) })
	}
	g.cut()
	c.HashWith(g.hash)
	c.AtEnd(g.atEnd)
}

// leaseOf returns for how long a lease the i-th client asks, from 0: of one slot more than the one before, where there are several.
func (g *exploring) leaseOf(i int) fabric.Time {
	if g.field == nil || !g.field.slots {
		return 0
	}
	return fabric.Time(i+1) * slotLeaseNs
}

// cut has any link between two compute nodes be cut at some point.
func (g *exploring) cut() {
	if g.x.Cut == Whole {
		return
	}
	for i, from := range g.nodes {
		for j, to := range g.nodes {
			if both := g.x.Cut == BothWays; i != j && (!both || i < j) {
				g.c.SometimeCut(from.sim, to.sim, both, func() {
					if g.drawn != nil {
						g.drawn.picture.Sever(from.sim, to.sim, both)
					}
				})
			}
		}
	}
}

// use has the lock used before the clients begin.
func (g *exploring) use() {
	if g.x.Used == 0 {
		return
	}
	n := g.nodes[0]
	p, err := n.sim.Open()
	if err != nil {
		panic(err)
	}
	t := &turn{k: g.locker(n, p), mode: lock.Exclusive}
	for t.round = range g.x.Used {
		g.play(t)
	}
	_ = p.Close()
	if g.field == nil {
		g.leaveEntries(p.ID())
	}
}

// leaveEntries leaves entries in the queue, as if a client had waited each time in the first round: they are still there when the versions
// of their cycle are used again, unless the lock has been reset.
func (g *exploring) leaveEntries(by fabric.ClientID) {
	y := g.cfg.Layout
	for i := range min(y.Capacity(), uint64(g.x.Used)) {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(cql.MakeEntry(lock.Exclusive, by, y.Version(i), 0)))
		g.c.Poke(g.lock.Add(8+8*y.Slot(i)), b[:])
	}
}

func (g *exploring) addNode(p hier.Policy) {
	n := &node{sim: g.c.AddCN(), table: newTable(p), clock: new(timesync.Clock)}
	if g.field != nil {
		s := &Scenario{LeaseNs: fabric.Forever / 8, CNs: g.x.cns(), CountMax: g.x.CountMax}
		if g.field.slots {
			s.LeaseNs = slotLeaseNs
		}
		n.field = g.field.join(s)(n.sim)
	} else {
		n.agent = hier.NewAgent(n.table, n.sim, n.clock, g.cfg, hier.SyncConfig{})
		if !g.private {
			g.c.NodeState(n.sim, n.shares, n.agent.AppendState)
		}
	}
	if len(g.nodes) < g.x.Near {
		g.c.Place(n.sim, g.lock.MN())
	}
	g.nodes = append(g.nodes, n)
	if g.field != nil && n.field.Run == nil || g.x.onlyReads(len(g.nodes)) {
		return
	}
	g.c.GoAgent(n.sim, func(fabric.Port) {
		// Errors of crashed and fenced nodes are no news, nor that a memory node is replaced.
		report := func(err error) {
			if !g.killed.Has(n.sim.ID()) && (g.x.Failover == Stays || !ofRestart(err)) {
				g.c.Fail(err)
			}
		}
		if err := n.runAgent(report); err != nil {
			report(err)
		}
	})
}

// shares appends what the clients of a node share in exploration: the table, what others write into their Lockers, and the clock.
func (n *node) shares(dst []byte) []byte {
	dst = n.clock.AppendState(n.table.AppendState(dst))
	for _, k := range n.lockers {
		dst = k.AppendState(dst)
	}
	return dst
}

// A turn is the acquisitions and releases of one client.
type turn struct {
	k        lock.Locker
	mode     lock.Mode
	upgrades bool        // once it holds for update
	leaseNs  fabric.Time // for how long a lease it asks
	first    bool
	round    int

	hold   lock.Hold
	ask    lock.Request
	reads  [1]fabric.Op
	before [1]fabric.Op
	event  oracle.Event
	lost   bool
}

// client is one client: its cell is one word behind the lock.
func (g *exploring) client(n *node, t *turn) {
	p := t.k.Port()
	if t.first && g.x.Cancel {
		g.c.SometimeInterrupt(p)
	}
	if t.first && g.x.Reset {
		cql.NewClient(p, n.sim, g.cfg.Layout, g.cfg.CQL, new(lock.Stats)).AskReset(g.lock, 0, cql.Corruption)
	}
	for t.round = range g.x.Rounds {
		if g.forgets(n) {
			g.c.Forget(uint64(t.round))
		}
		for !g.play(t) { // the memory node has restarted: it asks again
			_ = p.Pause(p.Now() + fabric.Millisecond)
		}
	}
	if g.forgets(n) {
		g.c.Forget(uint64(g.x.Rounds))
	}
	if what := g.field.takesForCrashed(t.k); what != "" {
		g.c.Fail(errors.New(what))
	}
}

// forgets reports whether a client remembers nothing of the acquisitions before, but what NodeState or hash covers.
func (g *exploring) forgets(n *node) bool {
	return g.field == nil && (!g.private || n.table.Len() == 0)
}

// play is one acquisition and release of a client. It returns false if it was in vain, for the memory node has restarted.
func (g *exploring) play(t *turn) bool {
	p, e, cell := t.k.Port(), &t.event, g.cell()
	*e = oracle.Event{Kind: oracle.Requested, Client: p.ID(), Lock: g.lock, Mode: t.mode}
	g.event(*e)
	t.hold, t.reads[0] = lock.Hold{}, fabric.Load(cell)
	t.ask = lock.Request{Lock: g.lock, Mode: t.mode, Reads: t.reads[:], LeaseNs: t.leaseNs}
	if err := t.k.Acquire(&t.hold, &t.ask); err != nil {
		e.Kind, e.Err = oracle.Refused, err
		g.event(*e)
		p.ClearInterrupt()
		switch {
		case g.x.Restart && ofRestart(err):
			return false
		case !t.first || !g.x.Cancel:
			g.c.Fail(fmt.Errorf("acquire: %w", err))
		}
		return true
	}
	e.Kind, e.Token, e.Value = oracle.Granted, t.hold.Token, t.reads[0].Old
	if g.lost(p) {
		e.Kind, e.Err = oracle.Refused, lock.ErrLost
	}
	g.event(*e)
	if t.upgrades && !g.upgrade(t) {
		return true
	}
	e.Kind = oracle.Releasing
	var before []fabric.Op
	if e.Mode == lock.Exclusive {
		e.Value, e.Writes = uint64(e.Client)<<8|uint64(t.round)+1, true
		t.before[0] = fabric.Store(cell, e.Value)
		before = t.before[:]
	}
	t.lost = g.lost(p)
	if !t.lost {
		g.event(*e)
	}
	err := g.mirror(p, before)
	if err != nil {
		before = nil
	}
	rerr := t.k.Release(&t.hold, before)
	e.Kind, e.Err = oracle.Released, errors.Join(err, rerr)
	if !t.lost {
		g.event(*e)
	}
	switch {
	case g.x.Restart && ofRestart(e.Err):
		return false
	case e.Err != nil && (g.x.Failover == Stays || !ofRestart(e.Err)): // else it is not acknowledged
		g.c.Fail(fmt.Errorf("release: %w", e.Err))
	case t.lost && e.Writes && rerr == nil:
		g.c.Fail(fmt.Errorf("[%v]: nobody says that the lock is lost", e))
	}
	return true
}

// upgrade has a holder for update be upgraded, and reports whether it holds then: as before, if it is interrupted.
func (g *exploring) upgrade(t *turn) bool {
	e := &t.event
	e.Kind = oracle.Upgrading
	g.event(*e)
	err := t.k.(lock.Upgrader).Upgrade(&t.hold, &t.ask)
	if e.Kind, e.Mode = oracle.Upgraded, t.hold.Mode; err != nil {
		if e.Kind, e.Err = oracle.Kept, err; !t.first || !g.x.Cancel || !errors.Is(err, lock.ErrCanceled) {
			g.c.Fail(fmt.Errorf("upgrade: %w", err))
			return false
		}
		t.k.Port().ClearInterrupt()
	}
	g.event(*e)
	e.Err = nil
	return true
}

// cell returns where the word is that the lock protects.
func (g *exploring) cell() fabric.Addr { return g.lock.Add(g.field.room(g.cfg.Layout)) }

// lost reports whether what a client holds is of an epoch of the memory node before a restart: see client.lost.
func (g *exploring) lost(p fabric.Port) bool { return p.(*sim.Port).Stale(g.lock.MN()) }

func (g *exploring) locker(n *node, p fabric.Port) (l lock.Locker) {
	if g.field == nil {
		k := hier.New(n.table, p, n.sim, n.clock, g.cfg)
		n.lockers = append(n.lockers, k)
		l = k
	} else {
		l = n.field.Locker(p)
	}
	if g.x.updates() {
		return lock.ForUpdate(l)
	}
	return l
}

// hash is what the judges and the check at the end remember.
func (g *exploring) hash() uint64 {
	if g.moved {
		h := fnv.New64a()
		_, _ = h.Write([]byte(g.court.State()))
		if g.region != nil {
			fmt.Fprint(h, g.register)
		}
		if g.sentBack > 0 {
			fmt.Fprint(h, g.sentBack)
		}
		if g.cohorts != nil {
			fmt.Fprint(h, g.cohorts.state())
		}
		g.state, g.moved = h.Sum64(), false
	}
	if !g.private { // exploration knows tables and agents by NodeState
		return g.state
	}
	h := fnv.New64a()
	fmt.Fprint(h, g.state)
	for _, n := range g.nodes {
		if g.killed.Has(n.sim.ID()) {
			continue
		}
		fmt.Fprintf(h, "n%d", n.table.Len())
		if n.agent != nil {
			_, _ = h.Write(n.agent.AppendState(nil))
		}
	}
	return h.Sum64()
}

func (g *exploring) atEnd() error {
	word := g.c.PeekWord(g.lock)
	what := ""
	switch {
	case g.field != nil, g.x.Restart: // a ticket of an epoch before a restart is reset when another client waits behind it
	case g.killed.Len() > 0:
		what = oracle.CheckHeaderOf(g.x.Capacity, word, g.killed, g.clientsOfCrashed())
	default:
		what = oracle.CheckHeader(g.x.Capacity, word)
	}
	if what != "" {
		return fmt.Errorf("header: %s", what)
	}
	for _, n := range g.nodes {
		if left := n.table.Len(); left != 0 && !g.killed.Has(n.sim.ID()) {
			return fmt.Errorf("residue: %v has %d local locks left", n.sim, left)
		}
	}
	return nil
}

// clientsOfCrashed returns the number of clients of crashed nodes.
func (g *exploring) clientsOfCrashed() int {
	clients := 0
	for _, who := range strings.Fields(g.x.Clients) {
		if g.killed.Has(fabric.CNID(who[0] - '0')) {
			clients++
		}
	}
	return clients
}
