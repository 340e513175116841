package handle

import (
	"errors"
	"fmt"
	"sync"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/reclaim"
)

// letGoNs is how long a compute node waits, when it has learnt that a collection was dropped and nothing is under way, before it looks whether
// that is still so: an operation that was about to begin has begun by then.
const letGoNs = fabric.Second

// A letting is how far a compute node is in letting a dropped collection go. The memory is given back, to be anything else, when the last compute node has let it go, so
// nothing that this one has begun may touch it after that:
//
//   - Clients that begin an operation from now on find that the collection is dropped, and begin nothing. Those that were at one have ended it.
//   - An operation of unknown outcome is over when a chain has been executed that was posted later (fabric.ErrUnknownOutcome): one to each memory node is.
//   - The compute node has no ticket in the queues of locks there, and no reset under way or asked for (lock.Leaver).
//
// One goroutine uses it at a time, but for members.
type letting struct {
	mu      sync.Mutex // of members, and never held across a fabric call
	members []*reclaim.Member
	since   fabric.Time
	begun   uint64 // see lock.Left
	left    bool   // it has begun to end the registration
	closed  bool   // the registration has been ended
}

// add makes a registration known of which clients may be at work.
func (g *letting) add(m *reclaim.Member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = append(g.members, m)
}

// idle reports whether no operation is under way but that of a User.
func (g *letting) idle(but *reclaim.User) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.members {
		if !m.Idle(but) {
			return false
		}
	}
	return true
}

// LetGo lets a store or tree go that has been dropped, on this compute node: to be called again and again until done, when ReclaimStep, Client or MarkDropped has
// made the drop known. Then this compute node has nothing to do with the memory any more, and the last that lets it go gives it back. Clients need not be closed for
// that, but operations must end. No operation of l's client is under way; view returns the live compute nodes. One goroutine calls it at a time.
func (c *Collection) LetGo(l lock.Locker, view func() fabric.View) (done bool, err error) {
	h := c.registered.Load()
	if h == nil || !c.Dropped() {
		return c.Dropped(), nil // without a handle this compute node has nothing of it
	}
	if done, err = h.unused(l); err == nil && done {
		err = h.leaveDropped(l, view)
	}
	if err != nil {
		return false, c.kind.Wrap(fmt.Errorf("let go of %q: %w", c.name, err))
	}
	return done, nil
}

// unused reports whether this compute node has nothing more to do with the memory of a dropped collection.
func (h *Handle) unused(l lock.Locker) (bool, error) {
	switch g, now := &h.of.letting, l.Port().Now(); {
	case g.left:
		return true, nil
	case !g.idle(&reclaim.User{Use: lock.InUseOf(l)}):
		g.since = 0
		return false, nil
	case g.since == 0 || now-g.since > 8*letGoNs: // a message may have been lost
		g.since, g.begun = now, 0
		return false, nil
	case now-g.since < letGoNs:
		return false, nil
	}
	mine, err := h.owned(l)
	if err != nil {
		return false, err
	}
	return lock.Left(l, &h.of.letting.begun, mine), nil
}

// leaveDropped ends the registration with a dropped collection, and gives its memory back if no other compute node has it open.
func (h *Handle) leaveDropped(l lock.Locker, view func() fabric.View) error {
	if !h.Registered() {
		return nil // no other compute node waits for this one
	}
	if g := &h.of.letting; !g.closed {
		g.left = true // whatever comes of it: the memory may be another's as soon as the record may be clear
		err := h.endRegistration(l, h.Member.LetGo)
		if err != nil && !errors.Is(err, lock.ErrMemoryLost) { // else the registration is gone with the memory
			return err
		}
		g.closed = true
	}
	return h.freeDropped(l, view, &h.Parts[0].Entry)
}

// freeDropped is FreeDropped on the memory nodes of a collection, of which mine is a part: of others it gives back what has all of its parts there. It goes over a client, which is attached to what serves now: the addresses by which
// a region is opened do not say of which memory they are, so lock.Do would take it for one that is lost.
func (h *Handle) freeDropped(l lock.Locker, view func() fabric.View, mine *memory.Entry) error {
	for _, mn := range h.of.nodes {
		if err := lock.Renew(l, mn); err != nil && !errors.Is(err, fabric.ErrNodeDown) {
			return err
		}
	}
	return freeRetired(l.Port(), h.of.nodes, mine.Beside, view)
}

// How long a client that closes a collection waits until its compute node has nothing more to do with locks there, and how often it looks.
const (
	leaveNs      = 200 * fabric.Millisecond
	leavePauseNs = 100 * fabric.Microsecond
)

// ErrLocksLeft: a store or tree stays open on the compute node, which gives tickets of its locks up, or takes part in a reset of one: that may be done later, or never, if the compute node leaves the cluster.
var ErrLocksLeft = errors.New("the compute node has something to do yet with locks there")

// awaitLeft returns nil if the compute node has nothing more to do with locks of the collection, as LetGo asks: when its registration has ended a drop, of whichever compute node, finds nobody, and the memory
// is something else. No client of the compute node uses them any more.
func (h *Handle) awaitLeft(l lock.Locker) error {
	if !lock.Leaves(l) {
		return nil // such locks have nothing to do with but what a client does itself
	}
	mine, err := h.owned(l)
	if err != nil {
		return h.of.kind.Wrap(fmt.Errorf("leave %q: %w", h.of.name, err))
	}
	port, begun := l.Port(), uint64(0)
	for until := port.Now() + leaveNs; !lock.Left(l, &begun, mine); {
		if port.Now() >= until {
			return h.of.kind.Wrap(fmt.Errorf("leave %q: %w", h.of.name, ErrLocksLeft))
		}
		if err := port.Pause(port.Now() + leavePauseNs); err != nil {
			return h.of.kind.Wrap(fmt.Errorf("leave %q: %w", h.of.name, err))
		}
	}
	return nil
}

// owned returns what reports whether an address is in memory of the collection.
func (h *Handle) owned(l lock.Locker) (func(fabric.Addr) bool, error) {
	pages := make([]*memory.Pages, len(h.Parts))
	for i, p := range h.Parts {
		if p.Missing() {
			continue // this compute node has had nothing there
		}
		err := lock.Renew(l, p.MN) // l's client may have to hear of a loss before this collection
		if err != nil {
			return nil, err
		}
		if pages[i], err = p.Region.Pages(lock.Path(l)); errors.Is(err, lock.ErrMemoryLost) {
			continue // nothing of it is there any more
		} else if err != nil {
			return nil, err
		}
	}
	return func(a fabric.Addr) bool {
		for i, p := range h.Parts {
			if p.MN == a.MN() && pages[i] != nil {
				if mine, _ := pages[i].Owner(a.Offset(), &p.Entry); mine {
					return true
				}
			}
		}
		return false
	}, nil
}
