package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// behindTimeout is how long a newcomer waits for a node to hear of it.
const behindTimeout = 2 * time.Second

// judgeAgain is how often a newcomer is judged meanwhile, if there is no newer state.
const judgeAgain = 50 * time.Millisecond

// A Standing is the state of the cluster that a node acts on. Any goroutine may use it; the zero value
// has no state yet.
type Standing struct {
	mu     sync.Mutex
	state  *member.State
	latest atomic.Pointer[member.State] // the same, for those that do not wait for a newer one
	newer  chan struct{}                // closed when there is a newer one
	shut   bool                         // no node is let in
	epochs [fabric.MaxMem + 1]atomic.Uint32
}

// State returns the state, nil before the first, and a channel that is closed when there is a newer one.
func (s *Standing) State() (*member.State, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newer == nil {
		s.newer = make(chan struct{})
	}
	return s.state, s.newer
}

// Latest returns the state, nil before the first: State at a lower price.
func (s *Standing) Latest() *member.State { return s.latest.Load() }

// Take takes over a state, and returns the one before. It is for one goroutine at a time. If st is not newer,
// nothing changes, and ok is false.
func (s *Standing) Take(st *member.State) (old *member.State, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old = s.state
	if old != nil && st.Revision <= old.Revision {
		return old, false
	}
	s.state = st
	s.latest.Store(st)
	for _, m := range st.Memory() {
		if e := &s.epochs[m.ID&fabric.MaxMem]; e.Load() < m.Epoch {
			e.Store(m.Epoch)
		}
	}
	s.wake()
	return old, true
}

// wake wakes the waiters for a newer state; mu is held.
func (s *Standing) wake() {
	if s.newer != nil {
		close(s.newer)
	}
	s.newer = make(chan struct{})
}

// Reset forgets the state of a memory node: those of another membership follow, whose revisions may be lower. No node is let in until Admit.
func (s *Standing) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.shut = nil, true
	s.latest.Store(nil)
	s.wake()
}

// Admit lets others in from now on: the coordinator has admitted the memory node, so all compute nodes that may still act have acknowledged its new
// epoch. Each of them knows by then that its locks of the epoch before are lost ([Standing.MemoryEpoch]), and hands none on: if
// one compute node could use the memory earlier, it could acquire a lock that another still hands from client to client.
func (s *Standing) Admit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = false
	s.wake()
}

// errShut: this memory node is not admitted yet.
var errShut = fmt.Errorf("%w: not all compute nodes have acknowledged its epoch yet", ErrBehind)

// entrance returns the state by which nodes are let in.
func (s *Standing) entrance() (st *member.State, newer <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newer == nil {
		s.newer = make(chan struct{})
	}
	switch {
	case s.shut:
		err = errShut
	case s.state == nil:
		err = ErrBehind
	}
	return s.state, s.newer, err
}

// MemoryEpoch is fabric.Node.MemoryEpoch: the epoch of the newest state that is known here. A memory node executes nothing in an epoch
// before all compute nodes know of it (Admit).
func (s *Standing) MemoryEpoch(id fabric.MemID) uint32 {
	if id > fabric.MaxMem {
		return 0
	}
	return s.epochs[id].Load()
}

// Await judges a newcomer by the state: as long as judge returns ErrBehind, or no node is let in, it is asked again with the next
// state, and now and then, for a while.
func (s *Standing) Await(ctx context.Context, judge func(st *member.State) error) error {
	ctx, cancel := context.WithTimeout(ctx, behindTimeout)
	defer cancel()
	for {
		st, newer, err := s.entrance()
		if err == nil {
			err = judge(st)
		}
		if !errors.Is(err, ErrBehind) {
			return err
		}
		select {
		case <-newer:
		case <-time.After(judgeAgain): // a lease may have been renewed
		case <-ctx.Done():
			return err
		}
	}
}

// View is fabric.Node.View.
func (s *Standing) View() fabric.View {
	st, _ := s.State()
	return st.View()
}

// Memory is fabric.Node.Memory.
func (s *Standing) Memory() []fabric.Memory {
	st, _ := s.State()
	return st.Memory()
}

// Down is member.Follower.Down.
func (s *Standing) Down() (list []fabric.Memory) {
	st, _ := s.State()
	for _, m := range st.Down {
		x := fabric.Memory{ID: m.ID, Epoch: m.Epoch}
		if g := st.Group(m.ID); g != nil {
			x.Term = g.Term
		}
		list = append(list, x)
	}
	return list
}

// Reach returns how a member reaches the coordinator. A member that does not know it is taken to reach it.
func Reach(m member.Member) (silent time.Duration, why error) {
	if c, ok := m.(member.Contact); ok {
		return c.Contact()
	}
	return 0, nil
}

// Find finds a compute node that may still run: one of the members, or of those that are being fenced.
func Find(st *member.State, id fabric.CNID) (member.CN, bool) {
	for _, list := range [][]member.CN{st.CNs, st.Fencing} {
		for _, c := range list {
			if c.ID == id {
				return c, true
			}
		}
	}
	return member.CN{}, false
}

// Present reports whether a compute node may still send and receive, in that incarnation.
func Present(st *member.State, c member.CN) bool {
	now, ok := Find(st, c.ID)
	return ok && now.Incarnation == c.Incarnation
}
