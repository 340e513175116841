package hier

// Acquire and Release of a Locker, and the waiting of a node's clients for each other. The rest of an acquisition: remote.go (the remote
// lock), handoff.go (what the holder before handed on), machine.go (legal steps), policy.go (which waiter is next), incarnation.go (restarts).

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/timesync"
)

// msgWake, to a client: its waiter has a verdict. Body[0] is the lock.
// The verdict itself is in the waiter; a wake for an older wait is harmless.
const msgWake = fabric.MsgHier

// A Locker is one client's access to hierarchical locks. It implements lock.Locker.
type Locker struct {
	table   *Table
	remote  *cql.Client
	port    fabric.Port
	node    fabric.Node
	clock   *timesync.Clock
	stats   lock.Stats
	self    waiter
	wake    []fabric.ClientID // whom to wake, collected under a mutex
	holding []fabric.Addr     // locks that the client holds
	mems    []attachment      // by memory node
	cfg     Config
	since   uint32 // the memories that had been lost when it was made
	unknown uint64 // of the Port's chains of unknown outcome: how many have been recorded where they matter (recordUnknown)
	agent   *Agent // nil: of a client

	// Of the acquisition under way, if it wants a value:
	value  *lock.Value
	valued bool // it has it
	reads  [lock.MaxPiggyback]fabric.Op

	own   *pendingRelease // of the release under way
	image []byte          // registered memory to write values back from
	one   [1]fabric.Op    // scratch
	last  [lock.MaxPiggyback + 1]fabric.Op
}

var _ lock.Keeper = (*Locker)(nil)

// Config of a node's Lockers.
type Config struct {
	Layout cql.Layout
	CQL    cql.Config
	// Verify looks, when a memory node has restarted, at its memory, and returns which it is (memory.Params.Generation): that of
	// before, or a later one. It is called before a client of the node uses it; until it returns without error, none does. nil:
	// the memory is always that of before.
	Verify func(fabric.MemID) (generation uint32, err error)
	// Lowest is the offset below which a memory node has no locks, but what its other locks and all its contents need.
	Lowest uint64
	// LeaseNs is how long a lock may be held before the agent reports it. 0: for ever.
	LeaseNs fabric.Time
}

// New returns a Locker over a client's Port, for locks whose local state is in
// the node's table. clock is the node's.
func New(t *Table, p fabric.Port, node fabric.Node, clock *timesync.Clock, cfg Config) *Locker {
	k := &Locker{table: t, port: p, node: node, clock: clock, cfg: cfg, since: t.losses.Load(), own: new(pendingRelease)}
	cfg.CQL.Suspect = t.suspects
	cfg.CQL.Phased = t.policy.Phased
	cfg.CQL.Trains = t.policy.Train && t.policy.Kind != Flat // of clients there may be more than the view says
	cfg.CQL.Clock = func(t fabric.Time) uint16 { return uint16(clock.Stamp(t)) }
	k.remote = cql.NewClient(p, node, cfg.Layout, cfg.CQL, &k.stats)
	return k
}

// Port returns the client's Port.
func (k *Locker) Port() fabric.Port { return k.port }

// Stats returns the client's counters.
func (k *Locker) Stats() *lock.Stats { return &k.stats }

// Holding returns the locks that the client holds. The slice is the client's own.
func (k *Locker) Holding() []fabric.Addr { return k.holding }

// Trim implements lock.Trimmer.
func (k *Locker) Trim() {
	clear(k.last[:])
	clear(k.reads[:])
	k.remote.Trim()
}

func (k *Locker) now() cql.Stamp {
	return cql.KnownStamp(uint16(k.clock.Stamp(k.port.Now())))
}

// Acquire acquires a lock (Fig. 10, lines 1 to 18). If its memory node has restarted
// meanwhile, it begins again: when the memory node refuses it, and when it waits behind a client that has lost the lock.
// The order of calls: acquire, acquireLocal for a lock that the node has, acquireRemote (remote.go) for one that it has not.
func (k *Locker) Acquire(h *lock.Hold, r *lock.Request) error {
	err := k.acquire(h, r)
	for again := 0; again < maxAgain && err != nil && errors.Is(err, fabric.ErrStaleEpoch) && !h.Held; again++ {
		if err = k.Attach(r.Lock.MN()); err != nil {
			break
		}
		err = k.acquire(h, r)
	}
	if err != nil && !h.Held {
		return k.outlast(h, r, err)
	}
	return err
}

// maxAgain is how often an acquisition begins again.
const maxAgain = 2

// Release releases a lock (Fig. 10, lines 19 to 33): to other holders of the
// node, to a waiter of the node, or to the memory node.
func (k *Locker) Release(h *lock.Hold, before []fabric.Op) error {
	return k.release(h, nil, before)
}

func (k *Locker) acquire(h *lock.Hold, r *lock.Request) error {
	r.HandoffLen, r.Deferred, k.valued = 0, 0, false // also when it begins again
	if h.Held {
		return fmt.Errorf("%w: Acquire with a Hold that holds %v", lock.ErrMisuse, h.Lock)
	}
	if r.Mode > lock.Exclusive || r.Lock%8 != 0 || r.Lock.Offset() < k.cfg.Lowest || len(r.Reads) > lock.MaxPiggyback {
		return fmt.Errorf("%w: %v lock (must be shared or exclusive) at %v (8-byte aligned, and not below %#x) with %d READs (at most %d)",
			lock.ErrMisuse, r.Mode, r.Lock, k.cfg.Lowest, len(r.Reads), lock.MaxPiggyback)
	}
	k.compare(r.Lock.MN())
	inc := k.incarnationAt(r.Lock.MN())
	if inc == nil || inc.addrGen != r.Lock.Generation() {
		var err error
		if inc, err = k.renew(r.Lock); err != nil {
			return err
		}
	}
	h.Lock, h.Mode = r.Lock, r.Mode
	sum := hash(r.Lock)
	s := k.table.shard(sum)
	s.mu.Lock()
	var x *local
	if k.table.policy.Kind != Flat {
		x = s.find(r.Lock, sum)
	}
	if len(k.holding) > 0 && k.deadlock(s, r, sum) {
		s.mu.Unlock()
		return fmt.Errorf("%w: %v, now %v: it would wait for itself; unlock it first", lock.ErrDeadlock, r.Lock, r.Mode)
	}
	switch {
	case x != nil && inc.epoch < x.incarnation.epoch: // the memory node has restarted since we looked
		s.mu.Unlock()
		return fabric.ErrStaleEpoch
	case x == nil:
		x = s.insert(r.Lock, sum, r.Mode, k.port.ID())
		x.incarnation = inc
		if !k.table.ordinary(x, evBegin) {
			k.table.stepWith(x, evBegin)
		}
		s.mu.Unlock()
		return k.acquireRemote(s, x, h, r, 0)
	case x.over():
		ticket := x.ticket
		former, ok := k.takeOver(x, r.Mode)
		if ok {
			k.enterIncarnation(x, inc)
			s.mu.Unlock()
			k.table.addUnreleased(&ticket) // the header counts it yet: a Try that is refused would not give it up
			k.reportUnreachable(r.Lock.MN())
			k.wakeAll(r.Lock)
			k.node.Retire(former)
			return k.acquireRemote(s, x, h, r, 0)
		}
	case k.table.policy.admits(x, r.Mode, k.port):
		k.table.step(x, evShare)
		x.holders++
		x.streak++
		token := x.token()
		k.takeValue(x)
		s.mu.Unlock()
		k.stats.LocalJoins++
		return k.hold(s, x, h, r, token)
	}
	if r.Try {
		s.mu.Unlock()
		k.stats.Busy++
		return lock.ErrBusy
	}
	return k.acquireLocal(s, x, h, r, inc)
}

// deadlock reports whether the client is about to acquire a lock that it holds. It would wait for itself, if one of the two is exclusive, or
// another client's writer came in between: so it is refused in all cases, but for Try, which does not wait. The shard is locked.
func (k *Locker) deadlock(s *shard, r *lock.Request, sum uint64) bool {
	return !r.Try && s.find(r.Lock, sum) != nil && slices.Contains(k.holding, r.Lock)
}

// hold makes the caller a holder of a lock that the node has, and executes its READs if that has not been done.
func (k *Locker) hold(s *shard, x *local, h *lock.Hold, r *lock.Request, token lock.Token) error {
	k.becomeHolder(h, x, token)
	if k.lapsed(x.incarnation) {
		r.HandoffLen, r.Deferred = 0, 0
		return errors.Join(fabric.ErrFenced, k.Release(h, nil))
	}
	k.stats.Acquires++
	if len(r.Reads) == 0 && k.value == nil {
		return nil
	}
	if err := k.read(s, x, r); err != nil {
		return errors.Join(err, k.Release(h, nil))
	}
	return nil
}

// acquireLocal waits in the queue of the local lock (Fig. 10, lines 7 to 10).
// The shard is locked at entry.
func (k *Locker) acquireLocal(s *shard, x *local, h *lock.Hold, r *lock.Request, inc *incarnation) error {
	w := &k.self
	w.client, w.mode, w.verdict, w.room = k.port.ID(), r.Mode, undecided, k.roomFor(r)
	w.stamp, w.incarnation, w.same = k.now(), inc, r.Same
	w.arrival = x.arrived
	x.arrived++
	x.queue.push(w)
	if r.Mode == lock.Exclusive {
		x.wanted()
	}
	look := k.table.policy.Kind == ByTime && x.state == held && !x.stamp.Known()
	ticket, gen := x.ticket, x.gen
	s.mu.Unlock()
	k.stats.LocalWaits++
	if look {
		if err := k.prefetch(s, x, &ticket, gen); err != nil {
			return k.cancelWait(s, x, h, r, err)
		}
	}
	deadline := r.Until()
	recheck := k.remote.RecheckNs()
	began := k.port.Now()
	next := began + recheck
	for {
		s.mu.Lock()
		v, stamp := w.verdict, w.stamp
		switch v {
		case granted:
			k.takeValue(x)
			k.inherit(x, r)
		case chosen:
			k.enterIncarnation(x, inc)
		}
		s.mu.Unlock()
		switch v {
		case outlived:
			return fabric.ErrStaleEpoch
		case granted:
			// It may have restarted after the holder compared, and others may hold the lock in its new epoch.
			if k.compare(r.Lock.MN()); x.over() {
				r.HandoffLen, r.Deferred = 0, 0
				k.becomeHolder(h, x, w.token)
				return k.tooLate(h)
			}
			return k.hold(s, x, h, r, w.token)
		case chosen:
			k.wakeAll(r.Lock)
			return k.acquireRemote(s, x, h, r, stamp)
		}
		m, err := k.port.Recv(min(deadline, next))
		if err == nil {
			k.remote.Hear(&m)
		}
		if errors.Is(err, fabric.ErrDeadline) && next < deadline {
			err = k.recheckAbandoned(s, x, next-began)
			next += recheck
		}
		if err != nil {
			return k.cancelWait(s, x, h, r, err)
		}
	}
}

// recheckAbandoned looks at the remote lock for the node's ticket in its queue, if that is
// abandoned: its grant may be lost. The caller is in the queue of x: while clients of the node wait for each other, no operation
// shows that the memory node has restarted.
func (k *Locker) recheckAbandoned(s *shard, x *local, waitedNs fabric.Time) error {
	s.mu.Lock()
	ticket, owner, quit := x.ticket, x.owner, x.state == abandoned
	s.mu.Unlock()
	k.compare(ticket.Lock.MN())
	if !quit {
		return nil
	}
	granted, err := k.remote.Recheck(&ticket, owner, waitedNs)
	if granted {
		err = k.remote.Regrant(&ticket)
	}
	return err
}

// prefetch reads the remote queue for a client that begins to wait, so that
// the holder knows at its release which waiter was first (section 5.3). The lock may
// have changed hands meanwhile: then the generation differs.
func (k *Locker) prefetch(s *shard, x *local, ticket *cql.Ticket, gen uint32) error {
	stamp, err := k.remote.Earliest(ticket)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if k.self.verdict == undecided && x.gen == gen && x.state == held {
		x.stamp = cql.Earliest(x.stamp, stamp)
		if !x.stamp.Known() && x.mode == lock.Shared && !x.frozen {
			// No other node waits: readers may go on joining.
			x.sharing = k.port.Now()
			k.share(x, false)
		}
	}
	s.mu.Unlock()
	k.wakeAll(ticket.Lock)
	return nil
}

// cancelWait ends a wait that was cut short by err. If the verdict has come
// first, the lock is passed on: a client whose wait failed does not hold, unless something has been deferred
// to it to do: then it has been granted the lock in time, whatever became of its wait; its own operations will show.
// With a closed Port there are none: then the releases that deferred it end with that error.
func (k *Locker) cancelWait(s *shard, x *local, h *lock.Hold, r *lock.Request, err error) error {
	w := &k.self
	k.compare(r.Lock.MN())
	s.mu.Lock()
	if w.verdict == granted && x.handoff.deferred != 0 && !errors.Is(err, fabric.ErrClosed) {
		k.inherit(x, r)
		s.mu.Unlock()
		return k.hold(s, x, h, r, w.token)
	}
	err = k.waitError(err)
	switch w.verdict {
	case undecided:
		x.queue.remove(w)
		if w.mode == lock.Exclusive && x.state == held && x.holders > 0 && x.mode == lock.Shared && !x.stamp.Known() && !x.frozen {
			k.share(x, false) // readers that waited behind this writer
		}
		s.mu.Unlock()
		k.wakeAll(r.Lock)
		return err
	case chosen:
		k.vacate(s, x, x.queue.head)
		return err
	case outlived:
		s.mu.Unlock()
		return err
	}
	k.completeDeferred(x, false, err)
	s.mu.Unlock()
	k.becomeHolder(h, x, w.token)
	return errors.Join(err, k.Release(h, nil))
}

// waitError translates what a Port's wait returns.
func (k *Locker) waitError(err error) error {
	switch {
	case errors.Is(err, fabric.ErrDeadline):
		k.stats.Cancels++
		return lock.ErrTimeout
	case errors.Is(err, fabric.ErrInterrupted):
		k.stats.Cancels++
		return lock.ErrCanceled
	}
	return err
}
