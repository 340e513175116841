package hier

import (
	"errors"
	"fmt"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// acquireRemote acquires the remote lock for the node (Fig. 10, lines 12 to
// 17). The caller is the owner of x, in state acquiring. stamp is when it began to
// wait, absent if it has not waited.
func (k *Locker) acquireRemote(s *shard, x *local, h *lock.Hold, r *lock.Request, stamp cql.Stamp) error {
	deadline := r.Until()
	ticket := cql.Ticket{Lock: r.Lock, Mode: r.Mode}
	for {
		reads := r.Reads
		if k.value != nil || r.HandoffLen > 0 {
			reads = k.readsOf(r)
		}
		var ok bool
		var err error
		// What enqueue does, in line for the common case: no Try, and no leak on this node.
		if r.Try || k.table.leaky.Load() != 0 {
			ok, err = k.enqueue(&ticket, stamp, r, reads, deadline)
		} else if ok, err = k.remote.Enqueue(&ticket, stamp, reads); err != nil {
			ok, err = k.enqueued(&ticket, ok, err)
		}
		if ok {
			k.remoteGranted(s, x, h, &ticket)
			if k.value != nil {
				k.haveRead(s, x, r, reads)
			}
			if x.over() {
				return k.tooLate(h)
			}
			return nil
		}
		if err == nil {
			var quit bool
			if err, quit = k.await(s, x, &ticket, deadline); quit {
				return k.waitError(err)
			}
		}
		if err == nil {
			if ticket.InTrain() || ticket.Term != 0 { // no operation on the memory node shows that it has restarted
				k.compare(r.Lock.MN())
				k.lapsed(x.incarnation)
			}
			k.remoteGranted(s, x, h, &ticket)
			if err = k.read(s, x, r); err != nil {
				return errors.Join(err, k.Release(h, nil))
			}
			if x.over() {
				return k.tooLate(h)
			}
			return nil
		}
		if errors.Is(err, cql.ErrAborted) {
			k.park(s, x)
			if err = k.remote.AwaitReset(&ticket, deadline); err == nil {
				s.mu.Lock()
				k.table.step(x, evResume)
				s.mu.Unlock()
				continue
			}
			k.table.addLeak(ticket.Lock)
		}
		k.recordLeftover(&ticket, ticket.Index > 0, err)
		s.mu.Lock()
		k.vacate(s, x, x.queue.head)
		return k.waitError(err)
	}
}

// tooLate gives a grant back that came when the memory node had restarted.
func (k *Locker) tooLate(h *lock.Hold) error {
	return errors.Join(fabric.ErrStaleEpoch, k.Release(h, nil))
}

// enqueue acquires the remote lock, or enters its queue. With Try, a lock that
// is not free is lock.ErrBusy.
func (k *Locker) enqueue(ticket *cql.Ticket, stamp cql.Stamp, r *lock.Request, reads []fabric.Op, deadline fabric.Time) (granted bool, err error) {
	if !r.Try {
		leak := k.table.leak(ticket.Lock)
		if leak == 0 {
			granted, err = k.remote.Enqueue(ticket, stamp, reads)
			return k.enqueued(ticket, granted, err)
		}
		granted, err = k.remote.EnqueueCautious(ticket, stamp, reads, deadline)
		if err == nil {
			k.table.endLeak(ticket.Lock, leak)
		}
		return k.enqueued(ticket, granted, err)
	}
	granted, err = k.remote.TryEnqueue(ticket, reads)
	if err == nil && !granted || errors.Is(err, cql.ErrAborted) {
		k.stats.Busy++
		return false, lock.ErrBusy
	}
	return k.enqueued(ticket, granted, err)
}

// enqueued passes the end of enqueue on. After an error of the fabric, the header may count a ticket.
func (k *Locker) enqueued(ticket *cql.Ticket, granted bool, err error) (bool, error) {
	if err != nil && !errors.Is(err, cql.ErrAborted) {
		k.table.addLeak(ticket.Lock)
	}
	return granted, err
}

// await waits for the grant of a ticket in the remote queue. If the caller gives up, the
// ticket stays in the queue and is abandoned: the node's agent
// takes its grant and passes it on, and the caller is done. If the fabric fails,
// the ticket is given to a reset, and waiters here find out for themselves.
func (k *Locker) await(s *shard, x *local, ticket *cql.Ticket, deadline fabric.Time) (_ error, quit bool) {
	s.mu.Lock()
	x.ticket = *ticket
	if x.frozen && ticket.Index < x.used {
		s.mu.Unlock()
		return cql.ErrAborted, false
	}
	if ticket.Mode == lock.Shared && x.grantFrom <= ticket.Index && ticket.Index < x.grantTo {
		s.mu.Unlock()
		return nil, false // granted before our entry was written
	}
	late := k.table.step(x, evEnqueue) // it was frozen by the signal of a reset that is over
	s.mu.Unlock()
	if late {
		k.remote.Quiesced(ticket.Lock)
	}
	err := k.remote.Await(ticket, deadline)
	if err == nil || errors.Is(err, cql.ErrAborted) {
		return err, false
	}
	id := k.port.ID()
	gaveUp := errors.Is(err, fabric.ErrDeadline) || errors.Is(err, fabric.ErrInterrupted)
	if !gaveUp || k.port.Abandon() != nil {
		k.remote.AskReset(ticket.Lock, ticket.Index, cql.UnknownOutcome)
		k.table.addLeak(ticket.Lock)
		s.mu.Lock()
		k.table.step(x, evFail)
		s.mu.Unlock()
		return err, false
	}
	if k.table.policy.Kind == Flat {
		k.table.addLeak(ticket.Lock) // we may come again beside our old ticket
	}
	s.mu.Lock()
	if x.frozen {
		// A reset has aborted us already: the ticket is void, and its grant.
		k.table.step(x, evFail)
		s.mu.Unlock()
		k.node.Retire(id)
		return err, false
	}
	came := x.ticket.Merge(ticket) || x.state == early
	granted, over := x.ticket, x.over()
	k.table.step(x, evQuit)
	s.mu.Unlock()
	if over {
		k.reportUnreachable(granted.Lock.MN()) // the agent may have looked already after the tickets that the restart has made void
	}
	switch {
	case came:
		// The grant came between our giving up and this: let the agent see it again.
		if closed := k.remote.Regrant(&granted); closed != nil {
			k.recordLeftover(&granted, true, closed)
		}
	case k.table.suspects(granted.Lock, k.port.Now()):
		// A crashed node's ticket may be before ours since before we came: then no grant comes, and if no other client wants the lock, no waiter finds out.
		k.remote.AskReset(granted.Lock, granted.Index, cql.NodeFailure)
	}
	return err, true
}

// remoteGranted makes the caller a holder, when the node has got the remote
// lock in place: with other readers of the node, if it is one (lines 14 to 17).
func (k *Locker) remoteGranted(s *shard, x *local, h *lock.Hold, ticket *cql.Ticket) {
	if ticket.Sent.Known() {
		k.table.measure(ticket.Sent, k.now())
	}
	s.mu.Lock()
	k.table.policy.prolong(&x.pace)
	k.begin(x, ticket)
	k.takeValue(x)
	if ticket.Mode == lock.Shared && x.queue.head != nil && !x.frozen {
		k.share(x, k.table.policy.PhaseFair)
	}
	s.mu.Unlock()
	k.becomeHolder(h, x, ticket.Token(x.incarnation.generation, 0))
	k.stats.Acquires++
	k.wakeAll(ticket.Lock)
}

// begin begins a tenure: the node holds the remote lock, for one holder.
func (k *Locker) begin(x *local, ticket *cql.Ticket) {
	if !k.table.ordinary(x, evGrant) {
		k.table.stepWith(x, evGrant)
	}
	x.ticket = *ticket
	x.gen++
	x.tenure = tenure{mode: ticket.Mode, holders: 1, stamp: ticket.Behind, gate: x.arrived}
	if k.table.policy.remembers() {
		x.hot = k.table.hot.has(ticket.Lock)
	}
	x.handoff.clear()
	if ticket.Carried.Words > 0 {
		x.handoff.arrive(ticket)
	}
}

// share gives the lock to waiting readers along with the holders. pass:
// also to readers behind a writer. The shard is locked; wakeAll must follow.
func (k *Locker) share(x *local, pass bool) {
	slack := k.table.slackUs()
	if x.over() {
		return
	}
	for w := x.queue.head; w != nil; {
		next := w.next
		switch {
		case k.table.policy.shares(x, w, slack):
			k.table.step(x, evShare)
			x.holders++
			k.grantLocal(x, w)
		case !pass:
			return
		}
		w = next
	}
}

// grantLocal makes a waiter a holder.
func (k *Locker) grantLocal(x *local, w *waiter) {
	x.queue.remove(w)
	x.streak++
	w.token, w.verdict = x.token(), granted
	k.wake = append(k.wake, w.client)
}

// wakeAll wakes clients of this node that have a verdict.
func (k *Locker) wakeAll(l fabric.Addr) {
	if len(k.wake) > 0 {
		k.sendWakes(l)
	}
}

func (k *Locker) sendWakes(l fabric.Addr) {
	for _, c := range k.wake {
		if c == k.port.ID() {
			continue
		}
		m := fabric.Message{Kind: msgWake, Body: [7]uint64{uint64(l)}}
		// Of our own node, only a closed Port refuses: then no client waits there.
		_ = k.port.Send(c, &m)
	}
	k.wake = k.wake[:0]
}

// release is Release, and ReleaseValue with v.
func (k *Locker) release(h *lock.Hold, v *lock.Value, before []fabric.Op) error {
	x, ok := h.Aux.(*local)
	if !h.Held || !ok {
		return fmt.Errorf("%w: %v", lock.ErrMisuse, h.Lock)
	}
	if len(before) > lock.MaxPiggyback {
		return fmt.Errorf("%w: Release of %v with %d operations before, at most %d", lock.ErrMisuse, h.Lock, len(before), lock.MaxPiggyback)
	}
	data := h.Handoff
	h.Held, h.Aux, h.Handoff, h.Left = false, nil, nil, false
	k.gave(h.Lock)
	s := k.table.shardOf(h.Lock)
	slack := k.table.slackUs()
	k.compare(h.Lock.MN())
	s.mu.Lock()
	if x.incarnation.term != 0 && (!x.alone() || x.ticket.InTrain()) && !k.node.Leased() { // alone, an operation shows it
		s.mu.Unlock()
		k.table.Fenced()
		s.mu.Lock()
	}
	if x.over() {
		return k.releaseLost(s, x)
	}
	if v != nil && v.Dirty {
		x.handoff.setValue(v)
		x.handoff.dirty = true
	}
	if x.ticket.InTrain() {
		k.recordUnknown(x)
	}
	if x.alone() {
		return k.giveUp(s, x, before, nil)
	}
	wait, rest, done, err := k.work(s, x, h, data, before, slack)
	if x.over() { // since we looked: clients of the new incarnation may wait here
		return partly(done, errors.Join(err, k.releaseLost(s, x)))
	}
	if x.ticket.InTrain() {
		k.recordUnknown(x)
	}
	w := k.table.policy.successor(x, slack)
	switch {
	case x.holders > 1:
		k.table.step(x, evUnshare)
		x.holders--
	case w != nil:
		x.handoff.keep(h, data, wait != nil, err)
		k.handOver(x, w)
	default:
		return partly(done, errors.Join(err, k.giveUp(s, x, rest, err)))
	}
	s.mu.Unlock()
	k.wakeAll(h.Lock)
	if wait != nil {
		err = errors.Join(err, k.awaitWork(s, wait))
	}
	return partly(done, err)
}

// recordUnknown records that the client, which is about to release, has had an operation of unknown outcome, by itself or by this Locker, since it
// held no lock. In a train no FAA shows the next node that it is over. The shard is locked.
func (k *Locker) recordUnknown(x *local) {
	n := k.port.Stats().Unknown
	if n == k.unknown {
		return
	}
	x.unsettled = true
	if len(k.holding) == 0 { // else it may concern those locks, too
		k.unknown = n
	}
}

// stays reports whether the lock stays with this node after a release by one holder.
func (k *Locker) stays(x *local, slackUs int16) bool {
	if x.holders > 1 {
		return true
	}
	return k.table.policy.successor(x, slackUs) != nil
}

// alone reports whether the release of a local lock concerns no other client of the node.
func (x *local) alone() bool { return x.holders == 1 && x.queue.head == nil && x.handoff.deferred == 0 }

// handOver passes the lock from its last holder to a waiter of the node that
// wants it in the same mode (lines 32 and 33), and to readers beside that.
func (k *Locker) handOver(x *local, w *waiter) {
	k.stats.HandoversLocal++
	k.table.step(x, evHandOver)
	x.mode = w.mode
	if w.mode == lock.Exclusive {
		x.seq++
	}
	k.grantLocal(x, w)
	if w.mode == lock.Shared {
		k.share(x, k.table.policy.PhaseFair)
	}
}

// giveUp gives the remote lock up, for its last holder (lines 26 to 31). A waiter of this node
// begins to acquire it only when that is done. failed is what has become of operations that came before these. The shard is locked at entry, and unlocked after.
func (k *Locker) giveUp(s *shard, x *local, before []fabric.Op, failed error) error {
	if !k.table.ordinary(x, evRelease) {
		k.table.stepWith(x, evRelease)
	}
	x.holders = 0
	hold := x.ticket
	s.mu.Unlock()
	ticket := &hold
	if x.handoff.dirty { // no other client touches the local lock now
		n := copy(k.last[:], before)
		k.last[n] = k.writeBack(x)
		before = k.last[:n+1]
	}
	if ticket.Carried.Words = 0; ticket.Train != nil {
		ticket.Unsettled = x.unsettled
	}
	if k.table.policy.Carry {
		x.handoff.carry(ticket)
	}
	hot := x.hot
	if k.table.policy.Lean {
		ticket.Lean = !hot && !x.stamp.Known()
	}
	err := k.remote.Release(ticket, before)
	if failed == nil && !ticket.Without { // else the lock may be another's, which has not seen them
		err = k.awaitVerdict(x, ticket.Lock, err)
	}
	if err != nil {
		err = partly(ticket.Done > 0, k.failed(x, ticket, err))
	}
	if k.table.policy.remembers() {
		k.table.hot.update(ticket.Lock, hot, ticket.Contended)
	}
	s.mu.Lock()
	if x.handoff.deferred != 0 {
		k.completeAll(x, swapped(before, err))
	}
	k.completeAll(x, err)
	k.vacate(s, x, k.table.policy.nextOwner(x))
	return err
}

// partly returns the error of a release. done: operations before it have been executed all the same. An error that did not say so would say that they have changed nothing.
func partly(done bool, err error) error {
	if !done || err == nil || errors.Is(err, fabric.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w: what was to be done before the lock was released has been done, at least in part: %w", fabric.ErrUnknownOutcome, err)
}

// vacate ends this node's part in a remote lock: a waiter of the node acquires it anew, or there is none, and the local lock
// is forgotten. The shard is locked at entry, and unlocked after.
func (k *Locker) vacate(s *shard, x *local, next *waiter) {
	at, thawed := x.ticket.Lock, false
	if next != nil {
		x.queue.remove(next)
		thawed = k.table.step(x, evChoose)
		x.owner, x.ticket.Mode = next.client, next.mode
		next.verdict = chosen
		k.wake = append(k.wake, next.client)
	} else {
		if !k.table.ordinary(x, evForget) {
			thawed = k.table.stepWith(x, evForget)
		}
		s.remove(x)
	}
	s.mu.Unlock()
	if thawed {
		k.remote.Quiesced(at)
	}
	k.wakeAll(at)
}

// becomeHolder makes the client a holder.
func (k *Locker) becomeHolder(h *lock.Hold, x *local, token lock.Token) {
	h.Aux, h.Token, h.Held = x, token, true
	k.holding = append(k.holding, h.Lock)
	k.attached(h.Lock.MN()).holds++
}

// gave records that the client has released a lock: mostly the one that it acquired last.
func (k *Locker) gave(l fabric.Addr) {
	last := len(k.holding) - 1
	for i := last; i >= 0; i-- {
		if k.holding[i] == l {
			k.holding[i] = k.holding[last]
			k.holding = k.holding[:last]
			break
		}
	}
	k.attached(l.MN()).holds--
}

// token returns the fencing token of the present holders.
func (x *local) token() lock.Token { return x.ticket.Token(x.incarnation.generation, x.seq) }

// park gives the lock to a reset: the owner is no participant until that ends.
func (k *Locker) park(s *shard, x *local) {
	s.mu.Lock()
	l, thawed := x.ticket.Lock, k.table.step(x, evAbort)
	s.mu.Unlock()
	if thawed {
		k.remote.Quiesced(l)
	}
}
