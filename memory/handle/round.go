package handle

import (
	"fmt"
	"slices"
	"sync"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A promotion leaves the free bits of the old primary behind, so what was free there is found by a round (package memory/reclaim), as what a crashed compute node had. A round may give
// back only what no backup leads to, either: a client that crashed may have written there what leads to a block, and not at the primary. So whose compute node leads a round has walked
// through the collection since a compute node went, and a round ends when another goes, or a backup comes in sync. What a failed operation of a living client has left at a backup leads
// to blocks that its compute node keeps (reclaim.Tracker.Lose).

// walked is what a compute node knows of its walks through a collection.
type walked struct {
	mu     sync.Mutex
	done   round    // of the last walk
	led    bool     // that was this compute node's to do, and so is what follows from it
	count  uint64   // of walks
	sought uint64   // after how many of them, and in which epochs of the parts, a round was asked for
	within []uint32 // the same
}

// finished notes that a walk is over.
func (x *walked) finished(r round, led bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.done, x.led, x.count = r, led, x.count+1
}

// stale reports whether the last walk does not count any more, and whether it was this compute node's to do.
func (x *walked) stale(v fabric.View, backups []uint32) (stale, led bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.done.stale(v, backups), x.led
}

// due reports, once, whether a round is to be asked for: after each walk, and each promotion.
func (x *walked) due(v fabric.View, backups, epochs []uint32) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.led || x.done.stale(v, backups) || x.sought == x.count && slices.Equal(x.within, epochs) {
		return false
	}
	x.sought, x.within = x.count, epochs
	return true
}

// A walk that is forced, and leaves something since others have the lock of it, or misses a backup, is tried again so often, for so long.
const (
	walkAgainNs = 10 * fabric.Millisecond
	leadWaitNs  = 2 * fabric.Second
)

// Lead implements reclaim.Owner.
func (o *owner) Lead(begins bool) (bool, error) {
	s := o.Session
	if !s.hooks.Handle().Replicated() {
		return true, nil
	}
	v := o.live()
	for until := s.l.Port().Now() + leadWaitNs; ; {
		if begins && o.forced {
			if err := s.walkNow(v); err != nil {
				return false, err
			}
		}
		if _, err := s.epochs(); err != nil { // it attaches
			return false, err
		}
		ok, err := s.Walked(v)
		if err != nil {
			return false, err
		}
		if ok || !begins || !o.forced || s.l.Port().Now() > until {
			return ok, nil
		}
		if err := s.l.Port().Pause(s.l.Port().Now() + walkAgainNs); err != nil {
			return false, err
		}
	}
}

// Settled implements reclaim.Owner.
func (o *owner) Settled() bool { return o.hooks.Settled == nil || o.hooks.Settled() }

// walkNow walks through the whole collection, if a walk is due, whoever's it is.
func (s *Session) walkNow(v fabric.View) error {
	s.forced = true
	defer func() { s.forced = false }()
	for {
		if busy, err := s.hooks.Walk(v); err != nil || !busy {
			return err
		}
	}
}

// epochs returns the epochs in which the parts are served; 0: it is not replicated. The client is attached to what serves then.
func (s *Session) epochs() (list []uint32, err error) {
	h := s.hooks.Handle()
	list = make([]uint32, len(h.Parts))
	for i, n := range h.Parts {
		if !n.Replicated() {
			continue
		}
		ops := [1]fabric.Op{fabric.Load(n.Region.Stamp())}
		if err := lock.Do(s.l, ops[:]); err != nil {
			return nil, h.of.kind.Wrap(fmt.Errorf("round: %w", err))
		}
		b, err := n.Region.Backups(s.l.Port())
		if err != nil {
			return nil, h.of.kind.Wrap(fmt.Errorf("round: %w", err))
		}
		list[i] = b.Epoch()
	}
	return list, nil
}

// SeekRound asks for a round if one is due: after a walk of this compute node, and after a promotion. It reports whether it has.
func (s *Session) SeekRound(v fabric.View) (bool, error) {
	epochs, err := s.epochs()
	if err != nil {
		return false, err
	}
	backups, err := s.synced()
	if err != nil {
		return false, err
	}
	h := s.hooks.Handle()
	if !h.walked.due(v, backups, epochs) {
		return false, nil
	}
	h.Member.Force()
	return true, nil
}
