package reclaim

import (
	"sync"

	"github.com/declock/declock/fabric"
)

// letGoNs is how long a compute node waits, when it has heard that a store or tree was dropped and nothing is under way, before it looks whether
// that is still so: an operation that was about to begin has begun by then.
const letGoNs = fabric.Second

// A Going is how a compute node lets a store or tree go that has been dropped. The memory is given back, to be anything else, when the last has, so
// nothing that this compute node has begun may touch it after that:
//
//   - Clients that begin an operation from now on find that the store is dropped, and begin nothing. Those that were at one have ended it.
//   - An operation of unknown outcome is over when a chain has been executed that was posted later (fabric.ErrUnknownOutcome): one to each memory node is.
//   - The compute node has no ticket in the queues of locks there, and no reset under way or asked for (lock.Leaver).
//
// The zero value is ready. One goroutine uses it at a time.
type Going struct {
	mu      sync.Mutex // of members, and never held across a fabric call
	members []*Member
	since   fabric.Time
	begun   uint64
	left    bool
}

// Leave clears the registration of m. It is done once, whatever comes of it: the memory may be somebody else's as soon as the record may be clear.
func (g *Going) Leave(m *Member, do func([]fabric.Op) error) error {
	if g.left {
		return nil
	}
	g.left = true
	return m.LetGo(do)
}

// Add makes a registration known of which clients may be at work.
func (g *Going) Add(m *Member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = append(g.members, m)
}

// idle reports whether no operation is under way but that of a User.
func (g *Going) idle(but *User) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.members {
		if !m.Idle(but) {
			return false
		}
	}
	return true
}

// Gone reports whether the compute node has nothing more to do with what has been dropped: to be called again until it does. u is the User who asks.
// pages reads who owns the pages of each part, by a chain to its memory node, and returns whether an address is in what was dropped. left is lock.Left.
func (g *Going) Gone(now fabric.Time, u *User, pages func() (func(fabric.Addr) bool, error), left func(*uint64, func(fabric.Addr) bool) bool) (bool, error) {
	switch {
	case g.left:
		return true, nil
	case !g.idle(u):
		g.since = 0
		return false, nil
	case g.since == 0 || now-g.since > 8*letGoNs: // a message may have been lost
		g.since, g.begun = now, 0
		return false, nil
	case now-g.since < letGoNs:
		return false, nil
	}
	mine, err := pages()
	if err != nil {
		return false, err
	}
	return left(&g.begun, mine), nil
}
