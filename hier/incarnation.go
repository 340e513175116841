package hier

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// An incarnation is a memory node between two of its restarts. A local lock is of the incarnation
// in which its owner began to acquire it. When the incarnation is over, this node has lost
// its holds and tickets in the remote lock: the local lock admits no client any more, and holders get lock.ErrLost from their release.
// The Port that it was acquired with is refused by the memory node until its client
// holds no lock of the old incarnation (Locker.Attach): that keeps late operations out.
//
// The atomics may be read by anybody. The plain fields behind verified are written under Table.mu (incarnationOf, learnGeneration), and not
// any more once verified is set. A client reads them without the mutex, for it only comes to have verified incarnations: Attach
// verifies one before it makes it the client's.
type incarnation struct {
	epoch      uint32
	over       atomic.Bool
	why        atomic.Pointer[error] // it is over
	notified   atomic.Bool           // and the holders have been notified
	verified   atomic.Bool           // the node has looked at the memory: what follows is right
	known      bool                  // what follows is of this incarnation if it is verified, else of the one before; false: of none
	generation uint32                // which memory it is
	term       uint32                // of its locks; 0: the memory node is not replicated
	addrGen    fabric.Generation     // the same, as addresses have it
	first      uint32                // which the table knew first
	lost       uint32                // the number of the loss with which this memory came, among all that the table has seen; 0: it is the first
}

// An attachment is a client's to a memory node.
type attachment struct {
	incarnation *incarnation
	holds       int    // locks there that the client holds
	notified    uint32 // the last loss that the client has been notified of
}

// incarnationOf is Table.incarnationOf. If an incarnation ends, the agent reclaims what the node had in that.
func (k *Locker) incarnationOf(mn fabric.MemID, epoch uint32) *incarnation {
	before := k.table.present(mn)
	l := k.table.incarnationOf(mn, epoch, k.port.Now())
	if before != nil && before != l {
		k.reportUnreachable(mn)
	}
	return l
}

// incarnationOf returns the incarnation of a memory node with an epoch, and ends the one before.
func (t *Table) incarnationOf(mn fabric.MemID, epoch uint32, now fabric.Time) *incarnation {
	t.mu.Lock()
	old := t.incarnations[mn]
	switch {
	case old != nil && old.epoch >= epoch:
		t.mu.Unlock()
		return old
	case t.incarnations == nil:
		t.incarnations = map[fabric.MemID]*incarnation{}
	}
	l := &incarnation{epoch: epoch}
	if t.ended != nil { // nothing begins on a node that is fenced
		l.close(t.ended)
	}
	first, why := false, fmt.Errorf("%w: %w: memory node %v has restarted", lock.ErrLost, fabric.ErrStaleEpoch, mn)
	if old != nil {
		l.known, l.generation, l.addrGen, l.first, l.lost = old.known, old.generation, old.addrGen, old.first, old.lost
		first = old.close(&why) // before any client is in the new one: no lock is handed over from one to the other
	}
	t.incarnations[mn] = l
	t.mu.Unlock()
	if old != nil {
		t.suspect(now) // locks that survived may count clients that do not know of them any more
		t.notifyEnd(old, first, why)
	}
	return l
}

// present returns the incarnation of a memory node that the node knows of last.
func (t *Table) present(mn fabric.MemID) *incarnation {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.incarnations[mn]
}

// end ends an incarnation, and reports the holds that end with it.
func (t *Table) end(l *incarnation, why error) { t.notifyEnd(l, l.close(&why), why) }

// close ends an incarnation, and reports whether it is the first to do so.
func (l *incarnation) close(why *error) (first bool) {
	first = l.why.CompareAndSwap(nil, why)
	l.over.Store(true)
	return first
}

// notifyEnd reports the holds that end with an incarnation to OnLoss, unless another caller does.
func (t *Table) notifyEnd(l *incarnation, first bool, why error) {
	if !first {
		return
	}
	defer l.notified.Store(true)
	if t.OnLoss == nil {
		return
	}
	var lost []lock.Loss
	t.each(func(x *local) {
		if x.incarnation == l && x.state == held && x.holders > 0 {
			lost = append(lost, x.loss(why))
		}
	})
	for _, loss := range lost {
		t.OnLoss(loss)
	}
}

// Fenced is called when the cluster has given this node up: its holds are lost, and none is passed on to others of this node.
// The owner of the node calls it as soon as the fabric knows: an operation on a memory node would show it, but local
// handovers have none. Any goroutine may call it.
func (t *Table) Fenced() { t.endAll(fmt.Errorf("%w: %w", lock.ErrLost, fabric.ErrFenced)) }

// endAll ends all holds, when the cluster has given this node up.
func (t *Table) endAll(why error) {
	t.mu.Lock()
	if t.ended == nil {
		t.ended = &why
	}
	var list []*incarnation
	for _, l := range t.incarnations {
		list = append(list, l)
	}
	t.mu.Unlock()
	for _, l := range list {
		t.end(l, why)
	}
}

// each calls f with each local lock. Its shard is locked.
func (t *Table) each(f func(*local)) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for _, x := range s.buckets {
			for ; s.count > 0 && x != nil; x = x.next {
				f(x)
			}
		}
		s.mu.Unlock()
	}
}

func (x *local) loss(why error) lock.Loss {
	return lock.Loss{Lock: x.ticket.Lock, Mode: x.mode, Token: x.token(), Err: why}
}

// over reports whether the memory node has restarted since the local lock's owner began.
func (x *local) over() bool { return x.incarnation.over.Load() }

// Lost reports whether what a Hold holds has been lost: Table.OnLoss has been called, or is going to be. Any goroutine may ask while the Hold is held.
func (k *Locker) Lost(h *lock.Hold) bool {
	x, ok := h.Aux.(*local)
	return ok && (x.over() || k.lapsed(x.incarnation))
}

// attached returns the client's attachment to a memory node.
func (k *Locker) attached(mn fabric.MemID) *attachment {
	if int(mn) < len(k.mems) {
		return &k.mems[mn]
	}
	return k.firstOf(mn)
}

func (k *Locker) firstOf(mn fabric.MemID) *attachment {
	for int(mn) >= len(k.mems) {
		k.mems = append(k.mems, attachment{})
	}
	return &k.mems[mn]
}

// incarnationAt returns the incarnation of a memory node that the client is attached to: the present one, as far as the node
// knows; nil: none.
func (k *Locker) incarnationAt(mn fabric.MemID) *incarnation {
	if int(mn) < len(k.mems) {
		if l := k.mems[mn].incarnation; l != nil && !l.over.Load() {
			return l
		}
	}
	return nil
}

// Ready implements lock.Attacher. A Port that is opened after a restart is in the new incarnation from the start, so that
// it refuses nothing: a client that uses it without a lock must attach first, like one that acquires a lock.
func (k *Locker) Ready(a fabric.Addr) error {
	if l := k.incarnationAt(a.MN()); l != nil && l.addrGen == a.Generation() {
		return nil
	}
	_, err := k.renew(a)
	return err
}

// renew attaches the client to the memory that an address is in, if that is there.
func (k *Locker) renew(a fabric.Addr) (*incarnation, error) {
	if err := k.Attach(a.MN()); err != nil {
		return nil, err
	}
	l := k.mems[a.MN()].incarnation
	if l.addrGen != a.Generation() {
		return nil, fmt.Errorf("%w: %v is in the memory that is gone", lock.ErrMemoryLost, a)
	}
	return l, nil
}

// Knows records which memory a memory node has as of an epoch. When another incarnation follows, its memory is compared with that.
func (t *Table) Knows(m fabric.Memory, generation uint32, now fabric.Time) {
	if l := t.incarnationOf(m.ID, m.Epoch, now); l.epoch == m.Epoch { // else it has restarted since: the next client looks at it
		t.learnGeneration(l, generation, m.Term)
	}
}

// learnGeneration records which memory a memory node has in an incarnation, and the term of its locks, unless that is known.
func (t *Table) learnGeneration(l *incarnation, generation, term uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.verified.Load() {
		return
	}
	if l.known && l.generation != generation {
		l.lost = t.losses.Add(1)
	}
	if !l.known {
		l.first = generation
	}
	l.known, l.generation, l.addrGen, l.term = true, generation, fabric.Generation(generation), term
	l.verified.Store(true)
}

// do executes a chain for a holder. If the memory node refuses it because it has restarted, the node knows
// from now on that its locks there are lost. No shard is locked.
func (k *Locker) do(ops []fabric.Op) error {
	err := k.port.Do(ops)
	if err != nil && errors.Is(err, fabric.ErrStaleEpoch) {
		k.notice(ops[0].Addr.MN())
	}
	return err
}

// compare ends the incarnation of a memory node that the client is attached to, if it has restarted: a lock that stays on this node needs no operation
// there that would show it. No shard is locked.
func (k *Locker) compare(mn fabric.MemID) {
	if int(mn) >= len(k.mems) {
		return
	}
	if l := k.mems[mn].incarnation; l != nil {
		if epoch := k.node.MemoryEpoch(mn); epoch > l.epoch && !l.over.Load() {
			k.incarnationOf(mn, epoch)
		}
	}
}

// lapsed ends all holds of the node if its lease has run out, and reports whether it has. A lock of a replicated memory node that stays on this node, or that
// messages bring or take, needs no operation that would show it, and a node that stood still acts before any news can end its holds. No shard is locked.
func (k *Locker) lapsed(l *incarnation) bool {
	if l.term == 0 || k.node.Leased() {
		return false
	}
	k.table.Fenced()
	return true
}

// notice ends the incarnation of a memory node that has restarted.
func (k *Locker) notice(mn fabric.MemID) {
	if epoch := k.epochOf(mn); epoch != 0 {
		k.incarnationOf(mn, epoch)
	}
}

// failed deals with the error of a release, which names the token from then on. The local lock has no holder any more.
func (k *Locker) failed(x *local, ticket *cql.Ticket, err error) error {
	k.table.addLeak(ticket.Lock)
	k.recordLeftover(ticket, true, err)
	if ticket.Unreleased && !unreached(err) && !errors.Is(err, fabric.ErrFenced) { // another goroutine uses the Port, say
		k.table.addUnreleased(ticket)
		k.reportUnreachable(ticket.Lock.MN())
	}
	err = fmt.Errorf("token %v of %v: %w", ticket.Token(x.incarnation.generation, x.seq), ticket.Lock, err)
	stale := errors.Is(err, fabric.ErrStaleEpoch)
	if stale {
		k.notice(ticket.Lock.MN())
	}
	if stale || errors.Is(err, fabric.ErrFenced) {
		err = fmt.Errorf("%w: %w", lock.ErrLost, err)
		if k.table.OnLoss != nil {
			k.table.OnLoss(x.loss(err))
		}
	}
	return err
}

// Attach implements lock.Attacher: it attaches the client to a memory node in its present incarnation. If its memory was lost since, the client gets ErrMemoryLost, once.
func (k *Locker) Attach(mn fabric.MemID) error {
	a := k.attached(mn)
	m := k.memoryOf(mn)
	if m.Epoch == 0 {
		return k.down(mn)
	}
	l := k.incarnationOf(mn, m.Epoch)
	if a.incarnation != nil && a.incarnation != l && a.holds > 0 {
		return fmt.Errorf("%w: %w: memory node %v has restarted, and this client holds %d locks of before: release them",
			lock.ErrLost, fabric.ErrStaleEpoch, mn, a.holds)
	}
	if !l.verified.Load() {
		if l.epoch != m.Epoch { // another client has heard of a later one
			m = k.memoryOf(mn)
		}
		if err := k.verify(m, l); err != nil {
			return err
		}
	}
	if err := k.port.Reattach(mn, l.epoch); err != nil {
		return err
	}
	renewed := a.incarnation != nil && a.incarnation != l
	a.incarnation = l
	k.remote.Attached(mn, uint16(l.term))
	if k.agent != nil {
		k.agent.resets.Attached(mn, uint16(l.term))
	}
	if renewed {
		k.reportUnreachable(mn)
	}
	if l.lost > max(a.notified, k.since) {
		a.notified = l.lost
		return fmt.Errorf("%w: memory node %v: what was there is gone", lock.ErrMemoryLost, mn)
	}
	return nil
}

// down returns the error of an operation on a memory node that is no member: a node that has been fenced or closed may know of none.
func (k *Locker) down(mn fabric.MemID) error {
	// There is no epoch 0, so this attaches nothing: it only asks whether the Port is closed.
	if err := k.port.Reattach(mn, 0); errors.Is(err, fabric.ErrClosed) {
		return err
	}
	if n, ok := k.node.(interface{ Err() error }); ok { // the fabric knows why
		if err := n.Err(); errors.Is(err, fabric.ErrFenced) {
			return fmt.Errorf("memory node %v: %w", mn, err)
		}
	}
	k.table.mu.Lock()
	ended := k.table.ended
	k.table.mu.Unlock()
	if ended != nil {
		return fmt.Errorf("memory node %v: %w", mn, fabric.ErrFenced)
	}
	return fmt.Errorf("%w: %v", fabric.ErrNodeDown, mn)
}

// gens is how many memories of a memory node addresses tell apart.
const gens = 1 << 8

// verify finds out which memory a memory node has in an incarnation, that of m.
func (k *Locker) verify(m fabric.Memory, l *incarnation) error {
	mn := m.ID
	k.table.mu.Lock() // another client may look, too, and be done before
	generation, known, first := l.generation, l.known, l.first
	k.table.mu.Unlock()
	if k.cfg.Verify != nil {
		var err error
		if generation, err = k.cfg.Verify(mn); err != nil {
			return err
		}
	}
	switch {
	case m.Term != 0 && m.Epoch != l.epoch:
		return fmt.Errorf("%w: memory node %v: its epoch is %d, and %d is known here", fabric.ErrStaleEpoch, mn, m.Epoch, l.epoch)
	case m.Term > cql.MaxTerm:
		return fmt.Errorf("%w: memory node %v has been promoted %d times: move what it has to another number", lock.ErrExhausted, mn, m.Term)
	case m.Term == 0 && generation > cql.MaxGeneration:
		return fmt.Errorf("%w: memory node %v had been started %d times when it got its memory: give it another number", lock.ErrExhausted, mn, generation)
	case known && generation-first >= gens:
		// A client may have kept an address for so long, and would take this memory for that one.
		return fmt.Errorf("%w: memory node %v has been started %d times since this compute node came to know it: leave the cluster, and join again",
			lock.ErrMemoryLost, mn, generation-first)
	}
	k.table.learnGeneration(l, generation, m.Term)
	return nil
}

// memoryOf returns a memory node as the fabric knows it. Its epoch is 0 if there is none.
func (k *Locker) memoryOf(mn fabric.MemID) fabric.Memory {
	for _, m := range k.node.Memory() {
		if m.ID == mn {
			return m
		}
	}
	return fabric.Memory{ID: mn}
}

// Replicated reports whether the memory of a memory node is replicated: see lock.Replicated.
func (k *Locker) Replicated(mn fabric.MemID) bool {
	if l := k.attached(mn).incarnation; l != nil {
		return l.term != 0
	}
	if f, ok := k.node.(interface{ Down() []fabric.Memory }); ok && slices.ContainsFunc(f.Down(), func(m fabric.Memory) bool { return m.ID == mn && m.Term != 0 }) {
		return true
	}
	return k.memoryOf(mn).Term != 0
}

// epochOf returns the epoch of a memory node, or 0 if there is none.
func (k *Locker) epochOf(mn fabric.MemID) uint32 { return k.memoryOf(mn).Epoch }

// releaseLost ends a hold of an incarnation that has ended: the memory node knows nothing
// of it. The shard is locked at entry, and unlocked after.
func (k *Locker) releaseLost(s *shard, x *local) error {
	err := fmt.Errorf("%w: token %v of %v", *x.incarnation.why.Load(), x.token(), x.ticket.Lock)
	ticket := x.ticket
	k.completeAll(x, err) // no holder can write the value any more
	x.handoff.clear()
	switch x.holders--; {
	case x.holders > 0:
		k.table.step(x, evUnshare)
	case x.state == lost: // the agent has asked for the reset
		k.table.step(x, evForget)
	default:
		return k.vacateLost(s, x, &ticket, err)
	}
	s.mu.Unlock()
	k.wakeAll(ticket.Lock)
	return err
}

// vacateLost is vacate for the last holder of a local lock that was lost, and is in the table. It has the lock reset.
// The shard is locked at entry, and unlocked after.
func (k *Locker) vacateLost(s *shard, x *local, ticket *cql.Ticket, err error) error {
	k.table.fences.asking.Add(1) // before it forgets the local lock
	defer k.table.fences.asking.Add(-1)
	k.vacate(s, x, k.table.policy.nextOwner(x))
	if l := k.table.present(ticket.Lock.MN()); k.cfg.Verify == nil || l.verified.Load() {
		k.askReset(ticket)
		return err
	}
	// The agent that is asked may be one that knows the new memory only, where no lock may be any more. Ours looks first.
	k.table.addUnreleased(ticket)
	k.reportUnreachable(ticket.Lock.MN())
	return err
}

// enterIncarnation makes the incarnation that the owner is attached to that of the local lock. Clients that wait here since an incarnation before begin again:
// their Ports are of that one, so they could neither use nor release what they are granted. The shard is locked; wakeAll must follow.
func (k *Locker) enterIncarnation(x *local, l *incarnation) {
	if x.incarnation == l {
		return
	}
	if x.incarnation.term != l.term { // what was granted, and what a reset has voided, is of tickets that are gone
		x.grantFrom, x.grantTo, x.used = 0, 0, 0
	}
	x.incarnation = l
	k.dismiss(x, l.epoch)
}

// dismiss has clients that wait here since an epoch before the given one begin again. The shard is locked; wakeAll must follow.
func (k *Locker) dismiss(x *local, epoch uint32) {
	for w := x.queue.head; w != nil; {
		next := w.next
		if w.incarnation.epoch < epoch {
			x.queue.remove(w)
			w.verdict = outlived
			k.wake = append(k.wake, w.client)
		}
		w = next
	}
}

// takeOver makes the caller the owner of an abandoned ticket of an incarnation that has ended: its grant comes no more. The shard is locked.
func (k *Locker) takeOver(x *local, mode lock.Mode) (former fabric.ClientID, ok bool) {
	if x.state != abandoned || !x.over() {
		return 0, false
	}
	former = x.owner
	k.table.step(x, evTakeOver)
	x.owner, x.ticket.Mode = k.port.ID(), mode
	return former, true
}
