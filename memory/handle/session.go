package handle

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/reclaim"
	"github.com/declock/declock/memory/slab"
)

// Hooks are what a Session needs of the client of a store or tree that it is of.
type Hooks struct {
	Handle func() *Handle // that the client is at
	// Reopen opens the collection anew, if no other client has (Reopened), and makes the client one of that.
	Reopen func() error
	// Gone returns what a loss has taken of what the client had by an earlier handle.
	Gone func(before *Handle) error
	// Discard frees what the client has of its collection.
	Discard func()
	Open    Opener
	// GiveSpare, if set, gives back the free blocks that the client keeps for itself.
	GiveSpare func()
	// Walk does some of a walk through replicated memory, as WalkOn, and Settled is reclaim.Owner's.
	Walk    func(v fabric.View) (busy bool, err error)
	Settled func() bool
	// Mark marks the blocks that the index leads to, all parts of which are there. Nothing else of the client is under way.
	Mark func(m *reclaim.Map) error
}

// A Session is what a client of a store and a client of a tree do besides their operations, and at the beginning and the end of each.
type Session struct {
	Use    *lock.InUse // of all that is made from the Locker
	Within string      // what is under way while code of the user runs, if something is: no operation begins
	Since  fabric.Time // when the operation under way has begun, if it waits for memory nodes that are being replaced; 0: it is not known
	l      lock.Locker
	user   *reclaim.User
	work   *slab.Worker
	hooks  Hooks
	closed bool
	forced bool // a walk is this client's, whoever's it is
}

// NewSession returns the Session of a client over a Locker. user and work are the client's.
func NewSession(l lock.Locker, user *reclaim.User, work *slab.Worker, hooks Hooks) Session {
	return Session{Use: lock.InUseOf(l), l: l, user: user, work: work, hooks: hooks}
}

// Begin begins an operation of the user.
func (s *Session) Begin() error {
	if s.closed || s.Within != "" {
		return s.refusal()
	}
	s.Use.Begin()
	return nil
}

func (s *Session) refusal() error {
	c, err := s.hooks.Handle().of, fabric.ErrClosed
	if !s.closed {
		err = fmt.Errorf("%w: its %s is under way: use another client", lock.ErrMisuse, s.Within)
	}
	return fmt.Errorf("%s: client of %s %q: %w", c.kind.Package, c.kind.Noun, c.name, err)
}

// End ends an operation of the user.
func (s *Session) End() { s.Use.End() }

// Occupy is Begin after an operation has lent the session to code of the user, which may have ended in the middle of another one.
func (s *Session) Occupy() {
	if !s.Use.Busy() {
		s.Use.Begin()
	}
}

// Closed reports whether the client has been closed.
func (s *Session) Closed() bool { return s.closed }

// Close closes the client. If code of the user calls it while something is under way, that discards what the client has when it ends.
func (s *Session) Close() {
	switch {
	case s.closed:
	case s.Within != "":
		s.closed = true
	default:
		s.Use.Begin()
		s.closed = true
		s.hooks.Discard()
		s.Use.End()
	}
}

// Start makes a new client one of the newest handle, also if that waits.
func (s *Session) Start() (err error) {
	s.Use.Begin()
	defer s.Use.End()
	if !s.hooks.Handle().Lost() {
		err = s.hooks.Reopen()
	}
	if s.hooks.Handle().Lost() {
		err = s.CatchUp()
	}
	if s.hooks.Handle().Waits() && errors.Is(err, fabric.ErrNodeDown) && !errors.Is(err, lock.ErrMemoryLost) {
		return nil
	}
	if err != nil {
		s.hooks.Discard()
	}
	return err
}

// CatchUp is called at the beginning of an operation: it brings the client to the newest handle. After a loss it returns what is gone; while a handle waits, nothing is.
func (s *Session) CatchUp() error {
	h := s.hooks.Handle()
	if !h.Lost() {
		return nil
	}
	err := s.hooks.Reopen()
	if gone := h.Gone(); gone != nil {
		return gone
	}
	k, name := h.of.kind, h.of.name
	switch {
	case err == nil && h.Waits():
		return nil
	case err == nil:
		return s.hooks.Gone(h)
	case !h.Waits():
		return fmt.Errorf("%w: %s %q is not there again yet: %w", lock.ErrMemoryLost, k.Noun, name, err)
	case errors.Is(err, ErrReopening):
		err = fmt.Errorf("%w: %w", fabric.ErrNodeDown, err)
	}
	return fmt.Errorf("%s: %s %q was opened while a memory node of it was down: %w", k.Package, k.Noun, name, err)
}

// Join makes the client known to a handle, whose blocks of memory it takes and gives from now on. From here on, either LetGo sees the client, or the client sees that the
// collection has been dropped.
func (s *Session) Join(h *Handle) error {
	s.work.Open(s.l.Port(), h.Member, func(ops []fabric.Op) error { return lock.Do(s.l, ops) })
	s.user.Use = s.Use
	h.Member.Add(s.user)
	return h.Gone()
}

// Ready is called at the beginning of an operation that needs some of the parts: it opens those that are missing, when it has brought the client to the newest handle. After a
// loss it returns what is gone. If the memory node of a missing part is just being replaced, it waits for that.
func (s *Session) Ready(needs func(part int) bool) error {
	err := s.ready(needs)
	if err != nil && Replaced(err) {
		err = s.await(err, func() error { return s.ready(needs) })
	}
	return err
}

func (s *Session) ready(needs func(part int) bool) error {
	for {
		if err := s.CatchUp(); err != nil {
			return err
		}
		h := s.hooks.Handle()
		i := slices.IndexFunc(h.Parts, func(p *Part) bool { return p.Missing() && needs(p.Index) })
		if i < 0 {
			return nil
		}
		if err := h.takeIn(s.l, i, s.hooks.Open); err != nil && !h.Lost() {
			return err
		}
	}
}

// Outlast is Outlast for the client's operation, which may have begun within another. again is Outlast with all that it needs, for when try has failed.
func (s *Session) Outlast(try func() error, again func(err error) error) error {
	if s.Since == 0 {
		s.Since = s.l.Port().Now()
		defer func() { s.Since = 0 }()
	}
	err := try()
	if err != nil {
		err = again(err)
	}
	return err
}

// await calls try, which has failed with err, again and again while a part is missing of which the memory node is being replaced.
func (s *Session) await(err error, try func() error) error {
	port := s.l.Port()
	first := port.Now()
	for until := cmp.Or(s.Since, port.Now()) + outlastNs; Replaced(err) && port.Now() < until && s.awaited(); {
		if stop := lock.PauseAgain(port, first, until); stop != nil {
			return errors.Join(err, stop)
		}
		err = try()
	}
	return err
}

// awaited reports whether a part is missing that is replicated.
func (s *Session) awaited() bool {
	return slices.ContainsFunc(s.hooks.Handle().Parts, func(p *Part) bool { return p.Missing() && lock.Replicated(s.l, p.MN) })
}

// ReadyAll is Ready for an operation that needs all parts.
func (s *Session) ReadyAll() error { return s.Ready(func(int) bool { return true }) }

// TakeIn opens all missing parts of which the memory nodes are up, in the middle of an operation that needs the i-th. It returns ErrNodeDown, with the reason, if that one stays
// missing. It waits as Ready does.
func (s *Session) TakeIn(i int) error {
	h := s.hooks.Handle()
	err := h.takeIn(s.l, i, s.hooks.Open)
	if err != nil && Replaced(err) && lock.Replicated(s.l, h.Parts[i].MN) {
		err = s.await(err, func() error { return h.takeIn(s.l, i, s.hooks.Open) })
	}
	return err
}

// ReclaimStep does this compute node's part in finding memory that crashed nodes have leaked (package memory/reclaim).
func (s *Session) ReclaimStep(view func() fabric.View) (busy bool, err error) {
	k := &s.hooks
	if err := s.Begin(); err != nil {
		return false, err
	}
	defer s.End()
	if err := s.CatchUp(); err != nil && k.Handle().Waits() && errors.Is(err, fabric.ErrNodeDown) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	k.Handle().takeInBeside(s.l, k.Open)
	if err := k.Handle().answer(s.work, s.user); err != nil {
		return false, err
	}
	if err := s.CatchUp(); err != nil {
		return false, err
	}
	h := k.Handle()
	if !h.Registered() || h.Survivors {
		return false, nil // see Reclaim
	}
	busy, err = h.Member.ReclaimStep(&owner{s, view, false})
	return busy, h.of.kind.Wrap(err)
}

// GraceStep does this compute node's part in counting the epochs of parts (reclaim.Grace), which last so long at least: of those that of returns one for. Those of a part that is missing, here or
// elsewhere, stand still; while the first is, which knows the compute nodes that have the collection open, all do.
func (s *Session) GraceStep(view func() fabric.View, every fabric.Time, of func(part int) *reclaim.Grace) error {
	if err := s.Begin(); err != nil {
		return err
	}
	defer s.End()
	h := s.hooks.Handle()
	if h.Lost() || !h.Registered() || h.Survivors {
		return nil
	}
	var errs []error
	for i, p := range h.Parts {
		if p.Missing() {
			continue
		}
		if g := of(i); g != nil {
			errs = append(errs, h.Member.GraceStep(g, &owner{s, view, false}, every))
		}
	}
	return h.of.kind.Wrap(errors.Join(errs...))
}

// Drain gives the blocks of memory that this compute node keeps free back.
func (s *Session) Drain() error {
	if err := s.Begin(); err != nil {
		return err
	}
	defer s.End()
	return s.drain()
}

func (s *Session) drain() error {
	if err := s.CatchUp(); err != nil {
		return err
	}
	s.user.Enter()
	defer s.user.Exit()
	if s.hooks.GiveSpare != nil {
		s.hooks.GiveSpare()
	}
	return s.hooks.Handle().giveLists(s.work)
}

// Leave is Drain, and ends this compute node's registration, unless Found has Lost: then it stays until the compute node leaves the cluster, or the collection is dropped.
func (s *Session) Leave() error {
	k := &s.hooks
	if err := s.Begin(); err != nil {
		return err
	}
	defer s.End()
	if k.Handle().Waits() {
		err := s.CatchUp()
		if h := k.Handle().of.registered.Load(); err != nil && k.Handle().Waits() && h != nil && h.Registered() {
			return err // by another client, which has opened it
		} else if err != nil && k.Handle().Waits() {
			return nil // this compute node has nothing of it
		}
	}
	dropped := k.Handle().of.Dropped()
	if err := s.drain(); err != nil && !dropped {
		return err
	}
	h := k.Handle()
	if !h.Registered() {
		return nil
	}
	return h.leave(s.work, s.l, dropped)
}

// Reclaim looks for leaked memory, and puts it into free lists.
func (s *Session) Reclaim(view func() fabric.View) error {
	if err := s.Begin(); err != nil {
		return err
	}
	defer s.End()
	return s.ReclaimNow(view)
}

// ReclaimNow is Reclaim in the middle of an operation.
func (s *Session) ReclaimNow(view func() fabric.View) error {
	if err := s.ReadyAll(); err != nil {
		return err
	}
	h := s.hooks.Handle()
	if h.Survivors {
		if others := view().Live.Len() - 1; others > 0 {
			return fmt.Errorf("%w: the first memory node had lost its memory, and %d other compute nodes are alive", reclaim.ErrUnanswered, others)
		}
	}
	return h.of.kind.Wrap(h.Member.Reclaim(&owner{s, view, true}))
}

// OpenOn returns the other compute nodes that have the collection open, or crashed with it open.
func (s *Session) OpenOn() ([]fabric.CNID, error) {
	if err := s.Begin(); err != nil {
		return nil, err
	}
	defer s.End()
	return s.Others()
}

// Others is OpenOn within an operation.
func (s *Session) Others() ([]fabric.CNID, error) {
	if err := s.Ready(func(part int) bool { return part == 0 }); err != nil {
		return nil, err
	}
	h := s.hooks.Handle()
	list, err := h.Member.OpenOn(&owner{s, nil, false})
	return list, h.of.kind.Wrap(err)
}

// Found returns what this compute node has found as the leader of rounds. Lost are also the blocks on missing parts that nothing leads to any more.
func (s *Session) Found() reclaim.Found {
	h := s.hooks.Handle()
	f := h.Member.Found()
	f.Lost += h.forgotten.count(h.Member)
	return f
}

// An owner is the collection as package reclaim sees it, over a client that does nothing else meanwhile.
type owner struct {
	*Session
	live   func() fabric.View // the live compute nodes
	forced bool               // the caller waits for a round
}

// Port implements reclaim.Owner.
func (o *owner) Port() fabric.Port { return o.l.Port() }

// Do implements reclaim.Owner.
func (o *owner) Do(ops []fabric.Op) error { return lock.Do(o.l, ops) }

// View implements reclaim.Owner.
func (o *owner) View() fabric.View { return o.live() }

// Held implements reclaim.Owner. If another client has opened the collection anew since, parts that have come into the place of others count, too, as long as the registration is
// the same.
func (o *owner) Held(add func(part int, from, to uint64)) {
	h := o.hooks.Handle()
	if next := h.of.registered.Load(); next.Member == h.Member {
		h = next
	}
	for i, p := range h.Parts {
		if !p.Missing() {
			p.Heap.EachHeld(func(from, to uint64) { add(i, from, to) })
		}
	}
}

// Mark implements reclaim.Owner.
func (s *Session) Mark() (*reclaim.Map, error) {
	h, m := s.hooks.Handle(), new(reclaim.Map)
	for _, p := range h.Parts {
		if p.Missing() {
			return nil, h.Down(p)
		}
		if err := p.Heap.AddRuns(s.work, m); err != nil {
			return nil, err
		}
	}
	if err := s.hooks.Mark(m); err != nil {
		return nil, err
	}
	for _, p := range h.Parts {
		if err := p.Heap.Mark(s.work, m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Release implements reclaim.Owner.
func (s *Session) Release(list []reclaim.Block) error {
	h := s.hooks.Handle()
	for len(list) > 0 {
		p, k := h.Parts[list[0].Part], 1
		for k < len(list) && list[k].Part == p.Index {
			k++
		}
		if err := p.Heap.Release(s.work, list[:k]); err != nil {
			return err
		}
		list = list[k:]
	}
	return nil
}
