package handle

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// What a client has written to backups, and not to the primary, shows when a backup is promoted, however much later: the client crashed, or the outcome of its operation is
// unknown. So one compute node walks through a collection when another has gone, and compares the backups with the primary. Where they differ they get what the primary has, under the
// lock of that: what readers have seen.
//
// A walk begins when the compute node that has gone is fenced, so nothing that it wrote comes later.

// ErrUnsettled: backups may differ from the primary where an operation of this compute node has failed, and it could not repair that.
var ErrUnsettled = errors.New("backups may differ where an operation has failed")

// A Walk is what a client knows of the walks through its collection.
type Walk struct {
	Missed bool // a backup that did not answer: it may come back as it is
	Wanted bool // this compute node needs a walk of its own, whoever's it is: it is to delete what no primary leads to

	now   round // of the one under way
	under bool
	led   bool        // it is this compute node's to do
	asked uint64      // the epoch of the view in which the walk was another compute node's, or has missed a backup, +1
	look  fabric.Time // then that is looked at anew
}

// A round says what a walk has taken account of.
type round struct {
	begun   bool
	view    fabric.View
	backups []uint32 // the newest in sync of each part
}

// WalkLookNs is after how long a compute node that does not walk looks again whether it should, and one whose walk has missed a backup walks again.
const WalkLookNs = 10 * fabric.Second

// stale reports whether a compute node has gone since a round began, or a backup has come in sync, to which one may have written that had gone before.
func (r *round) stale(v fabric.View, backups []uint32) bool {
	if !r.begun || v.Lost != r.view.Lost || len(backups) != len(r.backups) {
		return true
	}
	for i, number := range backups {
		if number > r.backups[i] {
			return true
		}
	}
	for i, was := range r.view.Live {
		if was&^v.Live[i] != 0 {
			return true
		}
	}
	return false
}

// WalkOn does some of a walk, if one is due and this compute node's to do, and reports whether there is more to do at once. begin is called when one begins, and on to go on with it.
func (s *Session) WalkOn(k *Walk, v fabric.View, begin func(), on func() (busy, over bool, err error)) (busy, over bool, err error) {
	backups, err := s.synced()
	if err != nil {
		return false, false, err
	}
	if k.under && k.now.stale(v, backups) {
		k.under = false
	}
	if !k.under {
		due, mine, err := s.due(k, v, backups)
		if err != nil || !due {
			return false, false, err
		}
		*k = Walk{Wanted: k.Wanted, now: round{true, v, backups}, under: true, led: mine}
		begin()
	}
	if busy, over, err = on(); !over || err != nil {
		return busy, false, err
	}
	k.under = false
	if k.Missed {
		k.asked, k.look = v.Epoch+1, s.l.Port().Now()+WalkLookNs
		return false, false, nil
	}
	s.hooks.Handle().walked.finished(k.now, k.led)
	return false, true, nil
}

// due reports whether a walk is due, and whether it is this compute node's to do. One that is another's is due if it is wanted here.
func (s *Session) due(k *Walk, v fabric.View, backups []uint32) (due, mine bool, err error) {
	stale, led := s.hooks.Handle().walked.stale(v, backups)
	switch {
	case s.forced:
		return stale, true, nil
	case !stale && led, k.Missed && k.asked == v.Epoch+1 && s.l.Port().Now() < k.look:
		return false, false, nil
	}
	mine, err = s.walks(k, v)
	return mine || stale && k.Wanted, mine, err
}

// Walked reports whether this compute node has walked since the last crash in a view, and since a backup came in sync: no backup leads to what its primary does not lead to because of
// a crash.
func (s *Session) Walked(v fabric.View) (bool, error) {
	if !s.hooks.Handle().Replicated() {
		return true, nil
	}
	backups, err := s.synced()
	if err != nil {
		return false, err
	}
	stale, _ := s.hooks.Handle().walked.stale(v, backups)
	return !stale, nil
}

// synced returns the number of the newest backup in sync of each part; 0: there is none.
func (s *Session) synced() (list []uint32, err error) {
	h := s.hooks.Handle()
	list = make([]uint32, len(h.Parts))
	for i, n := range h.Parts {
		if !n.Replicated() {
			continue
		}
		b, err := n.Region.Backups(s.l.Port())
		if err != nil {
			return nil, h.of.kind.Wrap(fmt.Errorf("walk: %w", err))
		}
		list[i] = b.LastSynced()
	}
	return list, nil
}

// LevelAll is LevelPages of all parts. What a backup that did not answer has missed counts for the walk.
func (s *Session) LevelAll(k *Walk) (missed bool, err error) {
	for _, n := range s.hooks.Handle().Parts {
		some, err := s.LevelPages(n)
		missed, k.Missed = missed || some, k.Missed || some
		if err != nil {
			return missed, err
		}
	}
	return missed, nil
}

// walks reports whether a walk is this compute node's: of those that have the collection open, the one with the lowest number walks. If two do, that does no harm.
func (s *Session) walks(k *Walk, v fabric.View) (bool, error) {
	port := s.l.Port()
	if k.asked == v.Epoch+1 && port.Now() < k.look {
		return false, nil
	}
	others, err := s.Others()
	if err != nil {
		return false, s.hooks.Handle().of.kind.Wrap(fmt.Errorf("walk: %w", err))
	}
	own := port.ID().CN()
	if slices.ContainsFunc(others, func(cn fabric.CNID) bool { return cn < own && v.Live.Has(cn) }) {
		k.asked, k.look = v.Epoch+1, port.Now()+WalkLookNs
		return false, nil
	}
	return true, nil
}

// LevelPages levels words of a part that change without a lock: a client that has crashed, or failed, may have changed them at the primary only. missed: a backup did not answer.
func (s *Session) LevelPages(n *Part) (missed bool, err error) {
	if !n.Replicated() {
		return false, nil
	}
	ops := [1]fabric.Op{fabric.Load(n.Region.Stamp())} // the client attaches to what serves now
	if err = lock.Do(s.l, ops[:]); err == nil {
		missed, err = n.Region.LevelPages(lock.Path(s.l))
	}
	if err != nil {
		err = s.hooks.Handle().of.kind.Wrap(fmt.Errorf("page table: %w", err))
	}
	return missed, err
}

// Later reports whether an error of a walk is that of a memory node which is being replaced: the walk goes on later.
func Later(err error) bool {
	return isOf(err, fabric.ErrNodeDown, fabric.ErrStaleEpoch, fabric.ErrUnknownOutcome) && !isOf(err, fabric.ErrFenced, fabric.ErrClosed, lock.ErrMemoryLost)
}
