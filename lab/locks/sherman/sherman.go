package sherman

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// msgWake says that the client's waiter has a verdict. The verdict itself is in the waiter: a
// wake of an older wait is harmless.
const msgWake = baseline.MsgSherman

// A Locker is one client's access to hierarchical locks.
type Locker struct {
	baseline.Client
	table  *Table
	remote lock.Locker
	self   waiter
	wake   []fabric.ClientID // collected under a mutex
}

var _ lock.Locker = (*Locker)(nil)

// New returns a client's Locker. remote is the client's own Locker of the remote lock.
func New(t *Table, remote lock.Locker) *Locker {
	return &Locker{Client: baseline.New(remote.Port(), true), table: t, remote: remote}
}

// Acquire implements lock.Locker.
func (k *Locker) Acquire(h *lock.Hold, r *lock.Request) error {
	if err := baseline.Check(h, r); err != nil {
		return err
	}
	r.HandoffLen, r.Deferred = 0, 0
	h.Lock, h.Mode = r.Lock, r.Mode
	s := k.table.shard(r.Lock)
	s.mu.Lock()
	x := s.find(r.Lock)
	switch {
	case x == nil:
		x = s.insert(r.Lock, r.Mode)
		s.mu.Unlock()
		return k.acquireRemote(s, x, h, r)
	case x.admits(r.Mode):
		x.holders++
		token := x.token()
		s.mu.Unlock()
		k.Counters.LocalJoins++
		return k.holds(x, h, r, token)
	case r.Try:
		s.mu.Unlock()
		k.Counters.Busy++
		return fmt.Errorf("%w: a client of this node has it or wants it", lock.ErrBusy)
	}
	w := &k.self
	w.client, w.mode, w.verdict = k.Port().ID(), r.Mode, undecided
	x.queue = append(x.queue, w)
	s.mu.Unlock()
	k.Counters.LocalWaits++
	return k.await(s, x, h, r)
}

// admits reports whether a client may join the holders without waiting.
func (x *local) admits(m lock.Mode) bool {
	return m == lock.Shared && x.state == held && x.mode == lock.Shared && x.holders > 0 && len(x.queue) == 0
}

// await waits in the queue of the local lock.
func (k *Locker) await(s *shard, x *local, h *lock.Hold, r *lock.Request) error {
	deadline := r.Until()
	for {
		s.mu.Lock()
		v, token := k.self.verdict, k.self.token
		if v == granted && r.Mode == lock.Exclusive && len(x.handoff) <= len(r.Handoff) {
			r.HandoffLen = copy(r.Handoff, x.handoff)
		}
		s.mu.Unlock()
		switch v {
		case granted:
			return k.holds(x, h, r, token)
		case chosen:
			return k.acquireRemote(s, x, h, r)
		}
		if _, err := k.Port().Recv(deadline); err != nil {
			return k.leaveQueue(s, x, h, err)
		}
	}
}

// leaveQueue ends a wait that was cut short by err. If the verdict has come
// first, the lock is passed on.
func (k *Locker) leaveQueue(s *shard, x *local, h *lock.Hold, err error) error {
	err = k.GaveUp(err)
	w := &k.self
	s.mu.Lock()
	switch w.verdict {
	case undecided:
		x.remove(w)
		if x.state == held && x.mode == lock.Shared && x.holders > 0 {
			k.share(x) // readers that waited behind this writer
		}
		s.mu.Unlock()
		k.wakeAll(h.Lock)
		return err
	case chosen:
		k.passOn(s, x)
		return err
	}
	s.mu.Unlock()
	h.Aux, h.Token, h.Held = x, w.token, true
	return errors.Join(err, k.Release(h, nil))
}

// acquireRemote acquires the remote lock for the node. The caller is the owner of x.
func (k *Locker) acquireRemote(s *shard, x *local, h *lock.Hold, r *lock.Request) error {
	before := *k.remote.Stats()
	err := k.remote.Acquire(&x.remote, r)
	k.count(&before)
	s.mu.Lock()
	if err != nil {
		k.passOn(s, x)
		return err
	}
	x.state, x.mode, x.holders, x.streak = held, r.Mode, 1, 0
	x.handoff = x.handoff[:0]
	token := x.token()
	if r.Mode == lock.Shared {
		k.share(x)
	}
	s.mu.Unlock()
	h.Aux, h.Token, h.Held = x, token, true
	k.Counters.Acquires++
	k.wakeAll(h.Lock)
	return nil
}

// count adds what the remote lock has counted since before.
func (k *Locker) count(before *lock.Stats) {
	now := k.remote.Stats()
	k.Counters.Immediate += now.Immediate - before.Immediate
	k.Counters.Waits += now.Waits - before.Waits
	k.Counters.AcquireOps += now.AcquireOps - before.AcquireOps
	k.Counters.Retries += now.Retries - before.Retries
	k.Counters.Busy += now.Busy - before.Busy
	k.Counters.Cancels += now.Cancels - before.Cancels
}

// holds makes the caller a holder by a local grant, and executes its READs.
func (k *Locker) holds(x *local, h *lock.Hold, r *lock.Request, token lock.Token) error {
	h.Aux, h.Token, h.Held = x, token, true
	k.Counters.Acquires++
	if len(r.Reads) == 0 || r.HandoffLen > 0 {
		return nil
	}
	if err := k.Port().Do(r.Reads); err != nil {
		return errors.Join(err, k.Release(h, nil))
	}
	return nil
}

// Release implements lock.Locker: the lock goes to other holders of the node, to
// the first waiter of the node while the bound lasts, or to the memory node.
func (k *Locker) Release(h *lock.Hold, before []fabric.Op) error {
	x, ok := h.Aux.(*local)
	if !h.Held || !ok || len(before) > lock.MaxPiggyback {
		return baseline.Misuse(h, before)
	}
	handoff := h.Handoff
	h.Held, h.Aux, h.Handoff = false, nil, nil
	s := k.table.shard(h.Lock)
	var err error
	s.mu.Lock()
	if len(before) > 0 && (x.holders > 1 || x.keeps(k.table.bound)) {
		// The next holder must find what we wrote, and uses another queue pair.
		s.mu.Unlock()
		err, before = k.Port().Do(before), nil
		s.mu.Lock()
	}
	if x.holders > 1 {
		x.holders--
		s.mu.Unlock()
		return err
	}
	if x.keeps(k.table.bound) {
		k.Counters.HandoversLocal++
		x.holders = 0
		x.streak++
		x.handoff = x.handoff[:0]
		if k.table.Handoffs && err == nil && h.Mode == lock.Exclusive && len(handoff) <= lock.MaxHandoff {
			x.handoff = append(x.handoff, handoff...)
		}
		k.admit(x, x.queue[0])
		if x.mode == lock.Shared {
			k.share(x)
		}
		s.mu.Unlock()
		k.wakeAll(h.Lock)
		return err
	}
	x.holders, x.state = 0, releasing
	s.mu.Unlock()
	k.Counters.HandoversRemote++
	err = errors.Join(err, k.remote.Release(&x.remote, before))
	s.mu.Lock()
	k.passOn(s, x)
	return err
}

// keeps reports whether the node keeps the remote lock for its first waiter.
func (x *local) keeps(bound uint32) bool {
	return len(x.queue) > 0 && x.queue[0].mode == x.mode && x.streak < bound
}

// remove takes a waiter out of the queue.
func (x *local) remove(w *waiter) {
	x.queue = slices.DeleteFunc(x.queue, func(other *waiter) bool { return other == w })
}

// admit makes a waiter a holder.
func (k *Locker) admit(x *local, w *waiter) {
	x.remove(w)
	x.holders++
	w.token, w.verdict = x.token(), granted
	k.wake = append(k.wake, w.client)
}

// share admits the readers that are first in the queue.
func (k *Locker) share(x *local) {
	for len(x.queue) > 0 && x.queue[0].mode == lock.Shared {
		k.admit(x, x.queue[0])
	}
}

// passOn passes the task of acquiring the remote lock on to the next waiter, if
// there is one. The shard is locked at entry, and unlocked after.
func (k *Locker) passOn(s *shard, x *local) {
	l := x.lock
	if len(x.queue) > 0 {
		w := x.queue[0]
		x.remove(w)
		x.state = acquiring
		w.verdict = chosen
		k.wake = append(k.wake, w.client)
	} else {
		s.remove(x)
	}
	s.mu.Unlock()
	k.wakeAll(l)
}

// wakeAll wakes clients of this node that have a verdict.
func (k *Locker) wakeAll(l fabric.Addr) {
	for _, c := range k.wake {
		m := fabric.Message{Kind: msgWake, Body: [7]uint64{uint64(l)}}
		// Of our own node, only a closed Port refuses: then no client waits there.
		_ = k.Port().Send(c, &m)
	}
	k.wake = k.wake[:0]
}
