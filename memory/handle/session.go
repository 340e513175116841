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

// A Session is what a client of a store and a client of a tree have in common besides their operations. Both embed it.
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

// ReclaimStep does this compute node's part in finding the memory that crashed nodes have leaked (package memory/reclaim), and reports whether
// there is more to do: then it is to be called again soon, else after a second, or when a compute node has crashed. view returns the live compute nodes. One
// client of each compute node does it, beside the others' work, with nothing under way of its own. It does not wait for anybody, and takes no locks.
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

// Drain gives the blocks of memory that this compute node keeps free back to the memory nodes, for others. See Leave.
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

// Leave gives the blocks of memory that this compute node keeps free back to the memory nodes, and closes the store or tree on it: its last client
// calls it, and uses it no more.
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

// Reclaim looks for leaked memory, and puts it into free lists: after a failed operation of a compute node that has closed the store or tree,
// say. Others may be at work, if they ReclaimStep. ErrUnanswered: they do not. Where the memory of the first of several memory nodes of a store has been
// lost, ReclaimStep does nothing, and a compute node that has not noticed that has memory that no other knows of: then ErrUnanswered, unless no other compute node is alive.
func (s *Session) Reclaim(view func() fabric.View) error {
	if err := s.hooks.Begin(); err != nil {
		return err
	}
	defer s.hooks.End()
	return Reclaim(s, view)
}

// Reclaim is Session.Reclaim within an operation.
func Reclaim(s *Session, view func() fabric.View) error {
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

// OpenOn returns the compute nodes, besides this one, that have the store or tree open, or crashed with it open. What Check finds while one of those
// is alive may be a change that is half done.
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
			return nil, err
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
