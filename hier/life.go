package hier

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A life is a memory node between two of its restarts. A local lock is of the life
// in which its owner began to acquire it. When the life is over, so is what this node has in
// the remote lock: nobody is let in by it any more, and who holds it learns so at its release.
// The Port that it was acquired with is refused by the memory node until its client
// holds no lock of the old life (Locker.attach): that keeps late operations out.
type life struct {
	epoch   uint32
	over    atomic.Bool
	why     atomic.Pointer[error] // it is over
	told    atomic.Bool           // and those who held locks have been notified
	trusted atomic.Bool           // the node has looked at the memory: what follows is right
	known   bool                  // else, what follows is of the life before
	birth   uint32                // which memory it is
	gen     fabric.Generation     // the same, as addresses have it
	first   uint32                // which the table knew first
	lost    uint32                // the number of the loss with which this memory came, among all that the table has seen; 0: it is the first
}

// An attachment is a client's to a memory node.
type attachment struct {
	life  *life
	holds int    // locks there that the client holds
	told  uint32 // the last loss that the client has been told of
}

// lifeOf is Table.lifeOf. If a life ends, the agent looks after what the node had in that.
func (k *Locker) lifeOf(mn fabric.MemID, epoch uint32) *life {
	before := k.table.present(mn)
	l := k.table.lifeOf(mn, epoch, k.port.Now())
	if before != nil && before != l {
		k.tellTrouble(mn)
	}
	return l
}

// lifeOf returns the life of a memory node with an epoch, and ends the one before.
func (t *Table) lifeOf(mn fabric.MemID, epoch uint32, now fabric.Time) *life {
	t.mu.Lock()
	old := t.lives[mn]
	switch {
	case old != nil && old.epoch >= epoch:
		t.mu.Unlock()
		return old
	case t.lives == nil:
		t.lives = map[fabric.MemID]*life{}
	}
	l := &life{epoch: epoch}
	if t.ended != nil { // nothing begins on a node that is fenced
		l.close(t.ended)
	}
	first, why := false, fmt.Errorf("%w: memory node %v has restarted", lock.ErrLost, mn)
	if old != nil {
		l.known, l.birth, l.gen, l.first, l.lost = old.known, old.birth, old.gen, old.first, old.lost
		first = old.close(&why) // before anybody can be in the new one: nothing is passed on from one to the other
	}
	t.lives[mn] = l
	t.mu.Unlock()
	if old != nil {
		t.suspect(now) // locks that survived may count those who do not know of them any more
		t.tellEnd(old, first, why)
	}
	return l
}

// present returns the life of a memory node that the node knows of last.
func (t *Table) present(mn fabric.MemID) *life {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lives[mn]
}

// end ends a life, and tells of the holds that end with it.
func (t *Table) end(l *life, why error) { t.tellEnd(l, l.close(&why), why) }

// close ends a life, and reports whether it is the first to do so.
func (l *life) close(why *error) (first bool) {
	first = l.why.CompareAndSwap(nil, why)
	l.over.Store(true)
	return first
}

// tellEnd tells of the holds that end with a life, unless another does.
func (t *Table) tellEnd(l *life, first bool, why error) {
	if !first {
		return
	}
	defer l.told.Store(true)
	if t.OnLoss == nil {
		return
	}
	var lost []lock.Loss
	t.each(func(x *local) {
		if x.life == l && x.state == held && x.holders > 0 {
			lost = append(lost, x.loss(why))
		}
	})
	for _, loss := range lost {
		t.OnLoss(loss)
	}
}

// Fenced tells the table that the cluster has given this node up: its holds are lost, and none is passed on to others of this node.
// Who runs the node calls it as soon as the fabric knows: an operation on a memory node would tell, but local
// handovers have none. Any goroutine may call it.
func (t *Table) Fenced() { t.endAll(fmt.Errorf("%w: %w", lock.ErrLost, fabric.ErrFenced)) }

// endAll tells of all holds, when the cluster has given this node up.
func (t *Table) endAll(why error) {
	t.mu.Lock()
	if t.ended == nil {
		t.ended = &why
	}
	var lives []*life
	for _, l := range t.lives {
		lives = append(lives, l)
	}
	t.mu.Unlock()
	for _, l := range lives {
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
	return lock.Loss{Lock: x.place.Lock, Mode: x.mode, Token: x.token(), Err: why}
}

// over tells whether the memory node has restarted since the local lock's owner began.
func (x *local) over() bool { return x.life.over.Load() }

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

// lifeAt returns the life of a memory node that the client is attached to: the present one, as far as the node
// knows; nil: none.
func (k *Locker) lifeAt(mn fabric.MemID) *life {
	if int(mn) < len(k.mems) {
		if l := k.mems[mn].life; l != nil && !l.over.Load() {
			return l
		}
	}
	return nil
}

// Attach implements lock.Attacher.
func (k *Locker) Attach(mn fabric.MemID) error { return k.attach(mn) }

// Ready implements lock.Attacher. A Port that is opened after a restart is in the new life from the start, so that
// it refuses nothing: who uses it without a lock must look first, like who acquires one.
func (k *Locker) Ready(a fabric.Addr) error {
	if l := k.lifeAt(a.MN()); l != nil && l.gen == a.Generation() {
		return nil
	}
	_, err := k.renew(a)
	return err
}

// renew attaches the client to the memory that an address is in, if that is there.
func (k *Locker) renew(a fabric.Addr) (*life, error) {
	if err := k.attach(a.MN()); err != nil {
		return nil, err
	}
	l := k.mems[a.MN()].life
	if l.gen != a.Generation() {
		return nil, fmt.Errorf("%w: %v is in the memory that is gone", lock.ErrMemoryLost, a)
	}
	return l, nil
}

// Knows tells the table that the node knows the memory of a memory node as of an epoch, and which it is: when another
// life follows, it is compared.
func (t *Table) Knows(mn fabric.MemID, epoch, birth uint32, now fabric.Time) {
	if l := t.lifeOf(mn, epoch, now); l.epoch == epoch { // else it has restarted since: who comes next looks at it
		t.born(l, birth)
	}
}

// born notes which memory a memory node has in a life, unless that is known.
func (t *Table) born(l *life, birth uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.trusted.Load() {
		return
	}
	if l.known && l.birth != birth {
		l.lost = t.losses.Add(1)
	}
	if !l.known {
		l.first = birth
	}
	l.known, l.birth, l.gen = true, birth, fabric.Generation(birth)
	l.trusted.Store(true)
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

// compare ends the life of a memory node that the client is attached to, if it has restarted: a lock that stays on this node needs no operation
// there that would tell. No shard is locked.
func (k *Locker) compare(mn fabric.MemID) {
	if int(mn) >= len(k.mems) {
		return
	}
	l := k.mems[mn].life
	if l == nil {
		return
	}
	if epoch := k.node.MemoryEpoch(mn); epoch > l.epoch && !l.over.Load() {
		k.lifeOf(mn, epoch)
	}
}

// notice ends the life of a memory node that has restarted.
func (k *Locker) notice(mn fabric.MemID) {
	if epoch := k.epochOf(mn); epoch != 0 {
		k.lifeOf(mn, epoch)
	}
}

// failed deals with the error of a release, which names the token from then on. The local lock has no holder any more.
func (k *Locker) failed(x *local, place *cql.Place, err error) error {
	k.table.noteLeak(place.Lock)
	k.leaveBehind(place, true, err)
	if place.Unreleased && !unreached(err) && !errors.Is(err, fabric.ErrFenced) { // another goroutine uses the Port, say
		k.table.noteUnreleased(place)
		k.tellTrouble(place.Lock.MN())
	}
	err = fmt.Errorf("token %v of %v: %w", cql.Token(x.life.birth, place.Index, x.seq), place.Lock, err)
	stale := errors.Is(err, fabric.ErrStaleEpoch)
	if stale {
		k.notice(place.Lock.MN())
	}
	if stale || errors.Is(err, fabric.ErrFenced) {
		err = fmt.Errorf("%w: %w", lock.ErrLost, err)
		if k.table.OnLoss != nil {
			k.table.OnLoss(x.loss(err))
		}
	}
	return err
}

// attach attaches the client to a memory node in its present life. If its memory was lost since, the client hears that, once.
func (k *Locker) attach(mn fabric.MemID) error {
	a := k.attached(mn)
	epoch := k.epochOf(mn)
	if epoch == 0 {
		return k.down(mn)
	}
	l := k.lifeOf(mn, epoch)
	if a.life != nil && a.life != l && a.holds > 0 {
		return fmt.Errorf("%w: %w: memory node %v has restarted, and this client holds %d locks of before: release them",
			lock.ErrLost, fabric.ErrStaleEpoch, mn, a.holds)
	}
	if !l.trusted.Load() {
		if err := k.look(mn, l); err != nil {
			return err
		}
	}
	if err := k.port.Reattach(mn, l.epoch); err != nil {
		return err
	}
	renewed := a.life != nil && a.life != l
	a.life = l
	if renewed {
		k.tellTrouble(mn)
	}
	if l.lost > max(a.told, k.since) {
		a.told = l.lost
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

// look finds out which memory a memory node has in a life.
func (k *Locker) look(mn fabric.MemID, l *life) error {
	k.table.mu.Lock() // another client may look, too, and be done before
	birth, known, first := l.birth, l.known, l.first
	k.table.mu.Unlock()
	if k.cfg.Verify != nil {
		var err error
		if birth, err = k.cfg.Verify(mn); err != nil {
			return err
		}
	}
	switch {
	case birth > cql.MaxBirth:
		return fmt.Errorf("%w: memory node %v had been started %d times when it got its memory: give it another number", lock.ErrExhausted, mn, birth)
	case known && birth-first >= gens:
		// Somebody may have kept an address for so long, and would take this memory for that one.
		return fmt.Errorf("%w: memory node %v has been started %d times since this compute node came to know it: leave the cluster, and join again",
			lock.ErrMemoryLost, mn, birth-first)
	}
	k.table.born(l, birth)
	return nil
}

// epochOf returns the epoch of a memory node, or 0 if there is none.
func (k *Locker) epochOf(mn fabric.MemID) uint32 {
	for _, m := range k.node.Memory() {
		if m.ID == mn {
			return m.Epoch
		}
	}
	return 0
}

// Acquire acquires a lock (Fig. 10, lines 1 to 18). If its memory node has restarted
// meanwhile, it begins again: when the memory node refuses it, and when it waits behind a client that has lost the lock.
func (k *Locker) Acquire(h *lock.Hold, r *lock.Request) error {
	err := k.acquire(h, r)
	for again := 0; again < maxAgain && err != nil && errors.Is(err, fabric.ErrStaleEpoch) && !h.Held; again++ {
		if err := k.attach(r.Lock.MN()); err != nil {
			return err
		}
		err = k.acquire(h, r)
	}
	return err
}

// maxAgain is how often an acquisition begins again.
const maxAgain = 2

// releaseLost ends a hold of a life that is over: the memory node knows nothing
// of it. The shard is locked at entry.
func (k *Locker) releaseLost(s *shard, x *local) error {
	err := fmt.Errorf("%w: token %v of %v", *x.life.why.Load(), x.token(), x.place.Lock)
	place := x.place
	k.settleAll(x, err) // nobody can write the value any more
	x.left.clear()
	switch x.holders--; {
	case x.holders > 0:
		k.table.step(x, evLeave)
	case x.state == lost: // the agent has asked for the reset
		k.table.step(x, evForget)
	default:
		return k.vacateLost(s, x, &place, err)
	}
	s.mu.Unlock()
	k.wakeAll(place.Lock)
	return err
}

// vacateLost is vacate for the last holder of a local lock that was lost, and is in the table. It has the lock reset.
func (k *Locker) vacateLost(s *shard, x *local, place *cql.Place, err error) error {
	k.vacate(s, x, k.table.policy.heir(x))
	if l := k.table.present(place.Lock.MN()); k.cfg.Verify == nil || l.trusted.Load() {
		k.askReset(place)
		return err
	}
	// The agent that is asked may be one that knows the new memory only, where no lock may be any more. Ours looks first.
	k.table.noteUnreleased(place)
	k.tellTrouble(place.Lock.MN())
	return err
}

// begins makes the life that the owner is attached to that of the local lock. Clients that wait here since a life before begin again:
// their Ports are of that one, so they could neither use nor release what they are granted. The shard is locked; wakeAll must follow.
func (k *Locker) begins(x *local, l *life) {
	if x.life == l {
		return
	}
	x.life = l
	for w := x.queue.head; w != nil; {
		next := w.next
		if w.life.epoch < l.epoch {
			x.queue.remove(w)
			w.verdict = outlived
			k.wake = append(k.wake, w.client)
		}
		w = next
	}
}

// takeOver makes the caller the owner of an abandoned ticket of a life that is over: its grant comes no more. The shard is locked.
func (k *Locker) takeOver(x *local, mode lock.Mode) (left fabric.ClientID, ok bool) {
	if x.state != abandoned || !x.over() {
		return 0, false
	}
	left = x.owner
	k.table.step(x, evTakeOver)
	x.owner, x.place.Mode = k.port.ID(), mode
	return left, true
}
