package hier

import (
	"errors"
	"math"
	"slices"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
)

// What the agent does about failures: it looks at memory nodes that could not be used until they can, has locks reset in which
// the node, or one that has crashed, has a leftover, and takes the node out of all locks before that leaves the cluster.

// unreachableNs is how often the agent looks at a memory node that is unreachable.
const unreachableNs = 5 * fabric.Millisecond

// onView has locks reset for which clients of this node wait, when another node has crashed:
// it may have held them.
func (a *Agent) onView() {
	a.compareTerms()
	view := a.node.View()
	if view.Lost == a.lost {
		return
	}
	a.lost = view.Lost
	a.table.suspect(a.port.Now())
	for _, p := range a.table.waitingTickets() {
		a.locker.remote.AskReset(p.Lock, p.Index, cql.NodeFailure)
	}
}

// compareTerms looks at replicated memory nodes that are served in another epoch than the agent is attached in: clients that wait there are to begin again.
func (a *Agent) compareTerms() {
	for i := range a.locker.mems {
		mn := fabric.MemID(i)
		if inc := a.locker.mems[i].incarnation; inc != nil && inc.term != 0 && a.node.MemoryEpoch(mn) != inc.epoch {
			a.onUnreachable(mn)
			a.lookAt = a.port.Now()
		}
	}
}

// waitingTickets returns the tickets that this node has in remote queues.
func (t *Table) waitingTickets() (tickets []cql.Ticket) {
	t.each(func(x *local) {
		if x.state.queued() {
			tickets = append(tickets, x.ticket)
		}
	})
	return tickets
}

// reattach attaches the agent to memory nodes that have joined or restarted. Resets of
// locks there that it was leading are void, and are asked for again.
func (a *Agent) reattach() error {
	var errs []error
	for _, m := range a.node.Memory() {
		if inc := a.locker.attached(m.ID).incarnation; inc != nil { // else it has joined lately
			if inc.epoch == m.Epoch && !inc.over.Load() {
				continue
			}
			a.onUnreachable(m.ID)
		}
		a.resets.Forget(m.ID)
		errs = append(errs, a.locker.Attach(m.ID))
	}
	a.askUnfinished()
	return errors.Join(errs...)
}

// look finds memory nodes that have restarted, and locks that are held for too long.
func (a *Agent) look(report func(error)) {
	if err := a.reattach(); err != nil && report != nil {
		report(err)
	}
	a.resets.SignalAgain()
	a.lookAfterUnreleased() // a client that was closed while it waited has not notified the agent
	if a.locker.cfg.LeaseNs <= 0 {
		return
	}
	now := a.port.Now()
	for _, loss := range a.table.overdue(now, a.locker.cfg.LeaseNs) {
		if report != nil {
			report(loss.Err)
		}
	}
}

// onUnreachable records that a memory node is to be looked at.
func (a *Agent) onUnreachable(mn fabric.MemID) {
	if !slices.Contains(a.unreachable, mn) {
		a.unreachable = append(a.unreachable, mn)
		a.lookAt = a.port.Now()
	}
}

// checkUnreachable looks whether unreachable memory nodes can be used again. While it does, others may turn out to be unreachable.
func (a *Agent) checkUnreachable() {
	a.lookAt = fabric.Forever
	for _, mn := range slices.Clone(a.unreachable) {
		marks := a.table.marked()
		switch reachable, done := a.reachable(mn); {
		case done:
			a.unreachable = slices.DeleteFunc(a.unreachable, func(other fabric.MemID) bool { return other == mn })
		case reachable && a.table.marked() != marks: // locks were marked meanwhile: resets wait for the next look
			a.lookAt = a.port.Now()
		default:
			a.lookAt = min(a.lookAt, a.port.Now()+unreachableNs)
		}
	}
}

// reachable reports whether a memory node can be used again, and whether it need not be looked at any more. If it can, locks are reset that
// participants of this node could not give up.
func (a *Agent) reachable(mn fabric.MemID) (reachable, done bool) {
	marks := a.table.marked() // before the READ is posted
	err := a.port.Do([]fabric.Op{fabric.Load(fabric.At(mn, 0))})
	if errors.Is(err, fabric.ErrStaleEpoch) || err == nil && !a.hasAttached(mn) {
		if err = a.reattach(); a.locker.incarnationAt(mn) != nil {
			err = nil // the error is about lost memory, or other memory nodes
		}
	}
	if err != nil || !a.hasAttached(mn) {
		return false, errors.Is(err, fabric.ErrFenced) // nothing of this node counts any more
	}
	a.table.settle(mn, marks)
	a.resets.Settled(mn)
	a.abortLost(mn)
	a.abortTerms(mn)
	a.table.fences.asking.Add(1) // before it forgets tickets
	all := a.setAside(mn)
	for _, p := range a.table.toReset(mn) {
		a.locker.askReset(&p)
	}
	a.table.fences.asking.Add(-1)
	return true, all && a.table.marked() == marks
}

// toReset returns the unreleased tickets on a memory node, which are forgotten, and those of earlier incarnations that this node still has.
func (t *Table) toReset(mn fabric.MemID) []cql.Ticket {
	list := t.takeUnreleased(mn)
	t.each(func(x *local) {
		if x.ticket.Lock.MN() == mn && x.over() && (x.state == held || x.state.queued() || x.state == releasing) {
			list = append(list, x.ticket)
		}
	})
	term := uint16(0)
	if l := t.present(mn); l != nil && l.verified.Load() {
		term = uint16(l.term)
	}
	list = slices.DeleteFunc(list, func(p cql.Ticket) bool { return p.Term != 0 && p.Term < term }) // locks of another term know nothing of them
	slices.SortFunc(list, byLock)                                                                   // a map has no order
	return list
}

// abortTerms has clients of this node begin again that wait in the queue of a lock in a term that is over: no grant comes for them.
func (a *Agent) abortTerms(mn fabric.MemID) {
	l := a.table.present(mn)
	if l == nil || !l.verified.Load() || l.term == 0 {
		return
	}
	var list []cql.Waiting
	var locks []fabric.Addr
	a.table.each(func(x *local) {
		if p := &x.ticket; p.Lock.MN() == mn && x.state == waiting && x.incarnation.term < l.term {
			list, locks = append(list, cql.Waiting{Client: x.owner, Index: p.Index, Term: p.Term}), append(locks, p.Lock)
		}
	})
	for i, w := range list {
		a.resets.Abort(locks[i], w)
	}
}

// retryLater records the lock of a reset that the agent could not begin, because it did not reach the memory node: it is asked for again
// when that answers. A waiter would ask, but perhaps there is none.
func (a *Agent) retryLater(m *fabric.Message, err error) {
	p, ok := cql.Wished(m)
	if !ok || !unreached(err) && !errors.Is(err, fabric.ErrUnknownOutcome) {
		return
	}
	a.table.addUnreleased(&p)
	a.onUnreachable(p.Lock.MN())
}

// abortLost ends the waits that clients of this node have given up for locks in memory that is gone, or in a term that is over: no grants come for them, and
// no reset in the present term is about them.
func (a *Agent) abortLost(mn fabric.MemID) {
	l := a.table.present(mn)
	if l == nil || !l.verified.Load() {
		return
	}
	void := func(x *local) bool { return x.ticket.Lock.Generation() != l.addrGen || x.incarnation.term != l.term }
	var gone []fabric.Addr
	a.table.each(func(x *local) {
		if at := x.ticket.Lock; at.MN() == mn && x.state == abandoned && void(x) {
			gone = append(gone, at)
		}
	})
	for _, at := range gone {
		a.abortAbandoned(at, void).mu.Unlock()
	}
}

// setAside takes local locks out of the table that clients hold since an incarnation of a memory node that has ended, and has the locks
// reset: others get them, on this node and elsewhere, before the clients that have lost them release them. That is safe where nothing that was posted in
// an epoch that is over changes memory (fabric.Caps.CutsEpochs): the Port of a client that holds such a lock stays in that epoch
// (Locker.Attach). The holders have been notified (OnLoss); else setAside returns false, and is called again.
func (a *Agent) setAside(mn fabric.MemID) (all bool) {
	if !a.node.Caps().CutsEpochs {
		return true
	}
	all = true
	for i := range a.table.shards {
		s := &a.table.shards[i]
		for {
			s.mu.Lock()
			x := s.lost(mn)
			if x == nil {
				s.mu.Unlock()
				break
			}
			if !x.incarnation.notified.Load() {
				s.mu.Unlock()
				all = false
				break
			}
			ticket, thawed := x.ticket, a.locker.unlinkLost(s, x)
			s.mu.Unlock()
			if thawed {
				a.locker.remote.Quiesced(ticket.Lock)
			}
			a.locker.wakeAll(ticket.Lock)
			if l := a.locker.attached(mn).incarnation; ticket.Term == 0 || l == nil || uint32(ticket.Term) == l.term {
				a.locker.askReset(&ticket)
			}
		}
	}
	return all
}

// lost returns a local lock on a memory node that is held since an incarnation that has ended, or nil. The shard is locked.
func (s *shard) lost(mn fabric.MemID) *local {
	for _, x := range s.buckets {
		for ; x != nil; x = x.next {
			if x.ticket.Lock.MN() == mn && x.state == held && x.over() {
				return x
			}
		}
	}
	return nil
}

// unlinkLost takes a lost local lock out of the table. Clients that wait for it begin again, and releases that have deferred something to its holder learn
// that it is lost. It reports whether a reset has waited for that. The shard is locked; wakeAll must follow.
func (k *Locker) unlinkLost(s *shard, x *local) (thawed bool) {
	s.unlink(x)
	k.dismiss(x, math.MaxUint32)
	k.completeAll(x, *x.incarnation.why.Load())
	return k.table.step(x, evSetAside)
}

// Settled implements cql.Participants.
func (a *Agent) Settled(l fabric.Addr) bool {
	if a.table.settled(l) {
		return true
	}
	a.onUnreachable(l.MN())
	return false
}

// LeaveNs is for how long Agent.Leave tries.
const LeaveNs = 100 * fabric.Millisecond

// Leave takes the node's tickets out of the queues of all locks before the node leaves the cluster. A ticket stays in a queue after a client that
// stopped waiting, or that could not give it up because the memory node did not answer. When its grant comes, no client is there to take it. So the
// agent has these locks reset. A reset that has begun removes the tickets, whichever agent ends it.
//
// Leave returns when all of them are reset, or after LeaveNs, and reports whether all are. If not, the node must leave by fabric.Node.Fail, so that
// the others look at once for locks that are not released. An operation on a memory node that does not answer takes longer: the caller interrupts
// the agent's Port after LeaveNs.
//
// It is called when Run has returned, by the same goroutine, and when no client of the node is at work.
func (a *Agent) Leave(report func(error)) bool {
	a.port.ClearInterrupt()
	until := a.port.Now() + LeaveNs
	asked, fence := false, a.fence() // behind what clients have asked for
	for !a.table.isEnded() {
		rests := !a.table.unfinished() && a.resets.Idle()
		switch passed := fence != 0 && a.table.fences.passed.Load() >= fence; {
		case passed && !asked:
			asked, fence = true, 0
			a.giveBack(until)
			continue
		case passed && rests: // as when the fence was sent: nothing was under way then
			return true
		case passed:
			fence = 0
		case fence == 0 && rests:
			fence = a.fence()
		}
		m, err := a.port.Recv(min(until, a.lookAt))
		switch {
		case err == nil:
			a.receive(&m, report)
		case errors.Is(err, fabric.ErrDeadline) && a.port.Now() < until:
			a.checkUnreachable()
		default: // the others take over the resets that this node leads
			return asked && !a.table.unfinished()
		}
	}
	return true // the others know already
}

// fence sends a fence through the agent's inbox, and returns its number.
func (a *Agent) fence() uint64 {
	n := a.table.fences.asked.Add(1)
	m := fabric.Message{Kind: msgFence, Body: [7]uint64{n}}
	_ = a.port.Send(a.port.ID(), &m) // only a closed Port refuses
	return n
}

// giveBack has the locks reset in which the node has tickets. At until it stops: the table has the remaining ones.
func (a *Agent) giveBack(until fabric.Time) {
	for _, p := range a.table.waitingTickets() {
		if a.port.Now() >= until {
			return
		}
		a.locker.askReset(&p)
	}
	a.lookAfterUnreleased()
}

// lookAfterUnreleased looks at the memory nodes of tickets that could not be given up.
func (a *Agent) lookAfterUnreleased() {
	for _, mn := range a.table.unreleasedOn() {
		a.onUnreachable(mn)
	}
}

// unfinished reports whether the node has local locks, or tickets that it could not give up, or whether its agent has asked itself for a reset:
// when it has left, no node knows of these.
func (t *Table) unfinished() bool {
	return len(t.unreleasedOn()) > 0 || t.Len() > 0 || t.fences.asking.Load() > 0
}

// onFence passes a fence, when it comes the second time.
func (a *Agent) onFence(m *fabric.Message) {
	if m.Body[1] == 0 {
		again := fabric.Message{Kind: msgFence, Body: [7]uint64{m.Body[0], 1}}
		_ = a.port.Send(a.port.ID(), &again) // else the client asks anew
		return
	}
	f := &a.table.fences
	f.passed.Store(max(f.passed.Load(), m.Body[0]))
}
