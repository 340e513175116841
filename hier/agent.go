package hier

import (
	"errors"
	"fmt"
	"sync"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/timesync"
)

// An Agent is what runs beside the clients of a compute node: it owns the
// node's side of lock resets, takes the grants of waiters that were cancelled, and
// keeps the node's clock synchronised. It uses the node's agent Port.
type Agent struct {
	table  *Table
	node   fabric.Node
	port   fabric.Port
	clock  *timesync.Clock
	resets *cql.Agent
	locker *Locker
	lost   uint64 // of the view seen last
	sync   SyncConfig
	synced fabric.Time // when it last took part in a synchronisation

	unreachable []fabric.MemID // memory nodes that could not be used lately
	lookAt      fabric.Time    // when to look at them again

	countedMu sync.Mutex
	counted   cql.AgentStats // for Counted
}

// msgSync, to agents: From begins a round of clock synchronisation.
const msgSync = fabric.MsgHier + 1

// SyncConfig says how the agent synchronises the node's clock.
type SyncConfig struct {
	// Counter is the word on a memory node that all nodes use; 8 zero bytes at first.
	Counter fabric.Addr
	// IntervalNs between synchronisations; 0 is never. The paper's is 1 s.
	IntervalNs fabric.Time
	// WindowNs is how long to wait for the other nodes. Default 1 ms.
	WindowNs fabric.Time
}

// NewAgent returns the agent of a node. Run must be running while clients of
// the node use locks.
func NewAgent(t *Table, node fabric.Node, clock *timesync.Clock, cfg Config, sync SyncConfig) *Agent {
	if sync.WindowNs <= 0 {
		sync.WindowNs = fabric.Millisecond
	}
	a := &Agent{table: t, node: node, port: node.Agent(), clock: clock, sync: sync, lost: node.View().Lost, lookAt: fabric.Forever}
	a.resets = cql.NewAgent(node, cfg.Layout, a)
	if a.lost > 0 { // a node that crashed before this one joined may have held any lock
		t.suspect(a.port.Now())
	}
	// While the agent passes a lock on, everything else waits: not for long.
	cfg.CQL.RefetchMax = agentRefetchMax
	cfg.CQL.Asking = func() { t.fences.asking.Add(1) }
	a.locker = New(t, a.port, node, clock, cfg)
	a.locker.agent = a
	_ = a.reattach() // to what is there
	return a
}

// Resets returns the counters of resets.
func (a *Agent) Resets() *cql.AgentStats { return a.resets.Stats() }

// Run handles messages until the Port is closed. Errors of single resets, when a
// memory node cannot be reached, go to report (nil: dropped): they end nothing,
// for waiters ask again.
func (a *Agent) Run(report func(error)) error {
	next := fabric.Forever
	if a.sync.IntervalNs > 0 {
		next = a.port.Now()
	}
	for {
		m, err := a.port.Recv(min(next, a.lookAt))
		switch {
		case errors.Is(err, fabric.ErrClosed):
			return nil
		case errors.Is(err, fabric.ErrDeadline) && a.lookAt <= next:
			a.checkUnreachable()
			continue
		case errors.Is(err, fabric.ErrDeadline):
			a.callToSync()
			next = a.synchronise()
			a.look(report)
			continue
		case errors.Is(err, fabric.ErrInterrupted):
			return nil
		case err != nil:
			return err
		}
		a.receive(&m, report)
		if m.Kind == msgSync && a.sync.IntervalNs > 0 && a.port.Now() > a.synced+a.sync.IntervalNs/2 {
			next = a.synchronise()
		}
	}
}

// receive handles a message, of whatever kind but msgSync.
func (a *Agent) receive(m *fabric.Message, report func(error)) {
	if err := a.handle(m); err != nil && report != nil {
		report(err)
	}
	a.count()
	a.table.fences.setResets(a.resets)
	if _, asked := cql.Wished(m); asked && m.From == a.port.ID() {
		a.table.fences.asking.Add(-1) // only now: see recovery.leftoversIn
	}
	switch {
	case m.Kind == msgFence && m.From.CN() == a.node.ID():
		a.onFence(m)
	case m.Kind == fabric.MsgView && m.From == 0:
		a.onView()
	case m.Kind == msgUnreachable && m.From.CN() == a.node.ID():
		a.onUnreachable(fabric.MemID(m.Body[0]))
	}
}

// handle has a message handled that is about a lock.
func (a *Agent) handle(m *fabric.Message) error {
	if a.gone(m) {
		return nil
	}
	err := a.unattached(m)
	if err == nil {
		_, err = a.resets.Handle(m)
	}
	if errors.Is(err, fabric.ErrStaleEpoch) {
		_ = a.reattach() // it may fail at another memory node; if it does at this one, what follows fails again
		if !a.gone(m) {
			_, err = a.resets.Handle(m)
		}
	}
	if err != nil {
		a.retryLater(m, err)
	}
	a.askUnfinished()
	return err
}

// askUnfinished asks again for the resets that this node has led and could not finish, when their memory nodes can be used.
func (a *Agent) askUnfinished() {
	for _, p := range a.resets.Unfinished() {
		a.table.addUnreleased(&p)
		a.onUnreachable(p.Lock.MN())
	}
}

// gone reports whether a message is about a lock in another memory than that to which the agent is attached: then the request must not
// be executed in this memory. An agent that has not attached to the memory node yet does so first: its Port would use whatever memory is there.
func (a *Agent) gone(m *fabric.Message) bool {
	if kind := cql.MessageKind(m); kind < fabric.MsgCQL || kind >= fabric.MsgHier {
		return false
	}
	l, term := fabric.Addr(m.Body[0]), uint32(cql.MessageTerm(m))
	if cql.Answered(m, a.node.ID()) {
		return cql.Signals(m) && term != 0 && term < a.locker.memoryOf(l.MN()).Term // a reset of locks that are gone
	}
	other := func() bool {
		inc := a.locker.attached(l.MN()).incarnation
		return inc == nil || inc.addrGen != l.Generation() || inc.term != term
	}
	if !other() {
		return false
	}
	_ = a.reattach() // it may be of a memory that is newer
	return other() && a.hasAttached(l.MN())
}

// unattached returns an error if a message asks for a reset on a memory node to which the agent could not attach yet.
func (a *Agent) unattached(m *fabric.Message) error {
	p, ok := cql.Wished(m)
	if !ok || a.hasAttached(p.Lock.MN()) {
		return nil
	}
	return fmt.Errorf("%w: %v: the agent could not attach to it, and resets %v later", fabric.ErrNodeDown, p.Lock.MN(), p.Lock)
}

// hasAttached reports whether the agent has ever attached to a memory node. Until then nothing says which memory its Port would use there: it
// begins no reset and releases nothing. Later, the Port is refused if the memory node has restarted.
func (a *Agent) hasAttached(mn fabric.MemID) bool { return a.locker.attached(mn).incarnation != nil }

// callToSync calls the other agents to synchronise the clocks. Without
// that a node that has joined, or was away, would hardly meet the others.
func (a *Agent) callToSync() {
	m := fabric.Message{Kind: msgSync}
	live := a.node.View().Live
	for cn, ok := live.Next(0); ok; cn, ok = live.Next(cn) {
		if cn != a.node.ID() {
			_ = a.port.Send(fabric.AgentOf(cn), &m) // a node that cannot be reached does not take part
		}
	}
}

// synchronise takes part in a round of clock synchronisation, and returns when
// the next one is due. If not all nodes come, the clock goes on as it is.
func (a *Agent) synchronise() fabric.Time {
	live := a.node.View().Live
	err := a.clock.Sync(a.port, a.sync.Counter, live.Len(), a.port.Now()+a.sync.WindowNs)
	if errors.Is(err, fabric.ErrFenced) {
		a.table.endAll(fmt.Errorf("%w: %w", lock.ErrLost, err))
	}
	a.synced = a.port.Now()
	return a.synced + a.sync.IntervalNs
}

// agentRefetchMax bounds the refetching of the agent's own releases.
const agentRefetchMax = 64

// Freeze implements cql.Participants.
func (a *Agent) Freeze(l fabric.Addr, used uint64, waits []cql.Waiting) (busy int, _ []cql.Waiting) {
	if a.locker.compare(l.MN()); a.locker.incarnationAt(l.MN()) == nil {
		a.onUnreachable(l.MN()) // it has restarted: what is held since before is not to keep the reset waiting
	}
	a.table.clear(l, a.port.Now())
	s := a.abortAbandoned(l, func(x *local) bool { return x.ticket.Index < used })
	defer s.mu.Unlock()
	for x := range s.all(l) {
		if x.frozen { // by a signal of a reset before that came late, perhaps: this one goes further
			x.used = max(x.used, used)
			continue
		}
		if x.state == parked || x.state != acquiring && x.ticket.Index >= used {
			continue
		}
		a.table.freeze(x, used)
		busy++
		if x.state.queued() {
			waits = append(waits, cql.Waiting{Client: x.owner, Index: x.ticket.Index, Term: x.ticket.Term})
		}
	}
	return busy, waits
}

// abortAbandoned gives up those abandoned tickets of a lock that are void, and returns the lock's shard, locked, when there is none.
func (a *Agent) abortAbandoned(l fabric.Addr, void func(x *local) bool) *shard {
	s := a.table.shardOf(l)
	for {
		s.mu.Lock()
		x := s.queued(l, func(x *local) bool { return x.state == abandoned && void(x) })
		if x == nil {
			return s
		}
		former := x.owner
		a.locker.vacate(s, x, x.queue.head) // unlocks
		a.node.Retire(former)
	}
}

// queued returns the first local lock at an address that waits for a grant
// and is the wanted one, or nil.
func (s *shard) queued(l fabric.Addr, wanted func(*local) bool) *local {
	for x := range s.all(l) {
		if x.state.queued() && wanted(x) {
			return x
		}
	}
	return nil
}

// Granted implements cql.Participants.
func (a *Agent) Granted(l fabric.Addr, first, end uint64) {
	s := a.table.shardOf(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.all(l) {
		if x.ticket.Mode == lock.Shared && x.state == acquiring {
			x.grantFrom, x.grantTo = first, end
		}
	}
}

// WaitingReaders implements cql.Participants.
func (a *Agent) WaitingReaders(l fabric.Addr, first, end uint64, to []cql.Waiting) []cql.Waiting {
	s := a.table.shardOf(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.all(l) {
		if x.ticket.Mode == lock.Shared && x.state.queued() && x.ticket.Index >= first && x.ticket.Index < end {
			to = append(to, cql.Waiting{Client: x.owner, Index: x.ticket.Index, Term: x.ticket.Term})
		}
	}
	return to
}

// Adopt implements cql.Participants: the lock goes to the next waiter of this
// node, or to the next node, as if the agent had held it for a moment.
func (a *Agent) Adopt(m *fabric.Message) bool {
	l, index := fabric.Addr(m.Body[0]), m.Body[1]
	if a.locker.incarnationAt(l.MN()) == nil {
		_ = a.reattach() // the ticket may be of an incarnation that the agent is not attached to yet: it could not release it
	}
	a.locker.compare(l.MN())
	s := a.table.shardOf(l)
	s.mu.Lock()
	x := s.queued(l, func(x *local) bool { return x.ticket.Index == index })
	if x == nil || x.frozen || x.over() || !x.ticket.Take(m) {
		s.mu.Unlock()
		return false
	}
	x.ticket.Carried, x.ticket.Sent = cql.Carried{}, 0
	if x.state != abandoned {
		a.table.step(x, evArrive)
		s.mu.Unlock()
		return true
	}
	former := x.owner
	ticket := x.ticket
	if a.locker.incarnationAt(l.MN()) == nil {
		s.mu.Unlock()
		a.table.addUnreleased(&ticket)
		a.onUnreachable(l.MN())
		return false
	}
	a.locker.begin(x, &ticket)
	s.mu.Unlock()
	a.node.Retire(former)
	h := lock.Hold{Lock: l, Mode: ticket.Mode}
	a.locker.becomeHolder(&h, x, 0)
	// What can fail is the fabric; then a reset has been asked for.
	_ = a.locker.Release(&h, nil)
	return true
}
