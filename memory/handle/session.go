package handle

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/reclaim"
	"github.com/declock/declock/memory/slab"
)

// Hooks are what a Session needs of the client of a store or tree that it is of.
type Hooks struct {
	Handle func() *Handle // that the client is at
	// Begin begins an operation of the user, and End ends it.
	Begin func() error
	End   func()
	// CatchUp brings the client to the newest handle. After a loss it returns what is gone.
	CatchUp func() error
	Open    Opener
	// GiveSpare, if set, gives back the free blocks that the client keeps for itself.
	GiveSpare func()
	// Mark and Release: see reclaim.Owner. Nothing else of the client is under way.
	Mark    func() (*reclaim.Map, error)
	Release func(list []reclaim.Block) error
}

// A Session is what a client of a store and a client of a tree do besides their operations: the exported methods are those of both.
type Session struct {
	l     lock.Locker
	user  *reclaim.User
	work  *slab.Worker
	hooks Hooks
}

// NewSession returns the Session of a client over a Locker. user and work are the client's.
func NewSession(l lock.Locker, user *reclaim.User, work *slab.Worker, hooks Hooks) Session {
	return Session{l, user, work, hooks}
}

// ReclaimStep does this compute node's part in finding memory that crashed nodes have leaked (package memory/reclaim).
func (s *Session) ReclaimStep(view func() fabric.View) (busy bool, err error) {
	k := &s.hooks
	if err := k.Begin(); err != nil {
		return false, err
	}
	defer k.End()
	if err := k.CatchUp(); err != nil && k.Handle().Waits() && errors.Is(err, fabric.ErrNodeDown) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	k.Handle().TakeInBeside(s.l, k.Open)
	if err := k.Handle().answer(s.work, s.user); err != nil {
		return false, err
	}
	if err := k.CatchUp(); err != nil {
		return false, err
	}
	h := k.Handle()
	if !h.Registered() || h.Survivors {
		return false, nil // see Reclaim
	}
	busy, err = h.Member.ReclaimStep(&owner{s, view})
	return busy, h.of.kind.Wrap(err)
}

// Drain gives the blocks of memory that this compute node keeps free back.
func (s *Session) Drain() error {
	if err := s.hooks.Begin(); err != nil {
		return err
	}
	defer s.hooks.End()
	return s.drain()
}

func (s *Session) drain() error {
	if err := s.hooks.CatchUp(); err != nil {
		return err
	}
	s.user.Enter()
	defer s.user.Leave()
	if s.hooks.GiveSpare != nil {
		s.hooks.GiveSpare()
	}
	return s.hooks.Handle().giveLists(s.work)
}

// Leave is Drain, and ends this compute node's registration.
func (s *Session) Leave() error {
	k := &s.hooks
	if err := k.Begin(); err != nil {
		return err
	}
	defer k.End()
	if k.Handle().Waits() && k.CatchUp() != nil && k.Handle().Waits() {
		return nil // this compute node has nothing of it
	}
	dropped := k.Handle().of.Dropped()
	if err := s.drain(); err != nil && !dropped {
		return err
	}
	h := k.Handle()
	if !h.Registered() || !dropped && h.forgotten.Load() { // what is forgotten, others look for when this compute node has left the cluster
		return nil
	}
	return h.leave(s.work, s.l, dropped)
}

// Reclaim looks for leaked memory, and puts it into free lists.
func (s *Session) Reclaim(view func() fabric.View) error {
	if err := s.hooks.Begin(); err != nil {
		return err
	}
	defer s.hooks.End()
	return s.ReclaimNow(view)
}

// ReclaimNow is Reclaim in the middle of an operation.
func (s *Session) ReclaimNow(view func() fabric.View) error {
	if err := s.hooks.CatchUp(); err != nil {
		return err
	}
	h := s.hooks.Handle()
	if err := h.TakeInAll(s.l, s.hooks.Open); err != nil {
		return h.of.kind.Wrap(err)
	}
	if h.Survivors {
		if others := view().Live.Len() - 1; others > 0 {
			return fmt.Errorf("%w: the first memory node had lost its memory, and %d other compute nodes are alive", reclaim.ErrUnanswered, others)
		}
	}
	return h.of.kind.Wrap(h.Member.Reclaim(&owner{s, view}))
}

// OpenOn returns the other compute nodes that have the collection open, or crashed with it open.
func (s *Session) OpenOn() ([]fabric.CNID, error) {
	if err := s.hooks.Begin(); err != nil {
		return nil, err
	}
	defer s.hooks.End()
	if err := s.hooks.CatchUp(); err != nil {
		return nil, err
	}
	h := s.hooks.Handle()
	if !h.Registered() {
		if err := h.TakeIn(s.l, 0, s.hooks.Open); err != nil {
			return nil, h.of.kind.Wrap(err)
		}
	}
	list, err := h.Member.OpenOn(&owner{s, nil})
	return list, h.of.kind.Wrap(err)
}

// Found returns what this compute node has found as the leader of rounds.
func (s *Session) Found() reclaim.Found { return s.hooks.Handle().Member.Found() }

// An owner is the collection as package reclaim sees it, over a client that does nothing else meanwhile.
type owner struct {
	*Session
	live func() fabric.View // the live compute nodes
}

// Port implements reclaim.Owner.
func (o *owner) Port() fabric.Port { return o.l.Port() }

// Do implements reclaim.Owner.
func (o *owner) Do(ops []fabric.Op) error { return lock.Do(o.l, ops) }

// View implements reclaim.Owner.
func (o *owner) View() fabric.View { return o.live() }

// Held implements reclaim.Owner, also for blocks of parts that another client has opened anew since.
func (o *owner) Held(add func(part int, from, to uint64)) {
	for i, p := range o.hooks.Handle().of.newest.Load().Parts {
		if !p.Missing() {
			p.Heap.EachHeld(func(from, to uint64) { add(i, from, to) })
		}
	}
}

// Mark implements reclaim.Owner.
func (o *owner) Mark() (*reclaim.Map, error) { return o.hooks.Mark() }

// Release implements reclaim.Owner.
func (o *owner) Release(list []reclaim.Block) error { return o.hooks.Release(list) }
