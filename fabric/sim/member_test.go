package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/declock/declock/coordinator/coordtest"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// The simulator's own coordinator keeps the contract of all coordinators.
func TestMembership(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			coordtest.Run(t, func(t *testing.T) coordtest.Cluster {
				s := newService(seed)
				return coordtest.Cluster{Service: s, Kill: func(m member.Member) { s.do(func() { s.kill(m.(*joined).m) }) }}
			})
		})
	}
}

// A service is a cluster as a member.Service. Its virtual time goes on whenever somebody
// does something, until nothing is left to happen, but for acknowledgements: a member's is held back until Ack.
type service struct {
	mu      sync.Mutex
	c       *Cluster
	joined  map[*membership]*joined
	ids     []fabric.MemID // what the tests call memory nodes
	held    []event        // acknowledgements
	happens chan struct{}  // closed when something has happened
}

// A joined is a member.Member.
type joined struct {
	s     *service
	m     *membership
	state *member.State
	newer chan struct{} // closed when state is not the newest
	acked uint64
	done  chan struct{}
	err   error
}

func newService(seed uint64) *service {
	s := &service{joined: map[*membership]*joined{}, happens: make(chan struct{})}
	s.c = New(Config{Seed: seed, NewsDelay: fabric.Millisecond, Observer: s})
	s.c.ledger.MaxCN = coordtest.MaxCN
	s.c.begun = true
	return s
}

// Observe is where a node acts on a new state: it is the present one.
func (s *service) Observe(e *Event) {
	for _, m := range s.c.members {
		if j := s.joined[m]; j != nil && e.Step == StepNews && m.acts == s.c.ledger.Revision && j.state.Revision < m.acts {
			j.state = s.state()
			close(j.newer)
			j.newer = make(chan struct{})
		}
	}
}

// state returns the present state, with the tests' names.
func (s *service) state() *member.State {
	st := s.c.ledger.State()
	for _, list := range [][]member.MN{st.MNs, st.Down} {
		for i := range list {
			list[i].ID = s.ids[list[i].ID]
		}
	}
	for i, g := range st.Groups {
		named := *g
		named.ID = s.ids[g.ID]
		st.Groups[i] = &named
	}
	return st
}

// do changes something, and lets all happen that follows.
func (s *service) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.run()
}

func (s *service) run() {
	c := s.c
	for _, e := range s.held {
		c.post(c.now, e.kind, e.a, e.b)
	}
	s.held = nil
	for at, ok := c.events.first(); ok; at, ok = c.events.first() {
		e := c.events.pop(at)
		if e.kind == evAck && s.joined[c.members[e.a]].acked < e.b {
			c.now = at
			s.held = append(s.held, e)
			continue
		}
		c.happen(at, e)
		if t := c.awake(); t != nil {
			c.resume(t)
		}
	}
	for m, j := range s.joined {
		if m.entry.Gone() && (m.mn != nil || m.node.fenced) {
			j.end(fabric.ErrFenced)
		}
	}
	close(s.happens)
	s.happens = make(chan struct{})
}

func (j *joined) end(err error) {
	select {
	case <-j.done:
	default:
		j.err = err
		close(j.done)
	}
}

// kill makes a member die.
func (s *service) kill(m *membership) {
	if m.mn != nil {
		s.c.KillMN(m.mn.id)
	} else {
		s.c.Fence(m.node)
	}
}

func (s *service) JoinCN(ctx context.Context, addr string, ready func(member.Member)) (member.Member, error) {
	return s.join(ctx, ready, func() (*membership, error) {
		if s.c.ledger.FreeCN() == 0 {
			_, err := s.c.ledger.ReserveCN(addr)
			return nil, err
		}
		m := s.c.AddCN().member
		m.entry.CN.Addr = addr
		return m, nil
	})
}

func (s *service) JoinMN(ctx context.Context, mn member.MN, ready func(member.Member)) (member.Member, error) {
	return s.join(ctx, ready, func() (*membership, error) {
		i := slices.Index(s.ids, mn.ID)
		if i < 0 {
			i = len(s.ids)
			s.ids = append(s.ids, mn.ID)
		}
		id, epochs := fabric.MemID(i), s.c.ledger.Epochs
		switch epochs[id] = max(epochs[id], mn.Epoch); { // simulated memory nodes have no epoch to bring along
		case i == len(s.c.mns):
			s.c.addMN(mn.Size, mn.Replicas)
		case s.c.mns[i].member.entry.Phase == member.Joined:
			_, err := s.c.ledger.ReserveMN(member.MN{ID: id, Size: mn.Size, Addr: mn.Addr})
			return nil, err
		default:
			s.c.restart(s.c.mns[i], mn.Was)
		}
		m := s.c.mns[i].member
		m.entry.MN.Addr = mn.Addr
		return m, nil
	})
}

func (s *service) ForgetMN(ctx context.Context, mn fabric.MemID) error {
	for {
		s.mu.Lock()
		id, happens := fabric.MemID(slices.Index(s.ids, mn)), s.happens
		if !s.c.ledger.Leaving(id) {
			err := s.c.ledger.Forget(id)
			s.c.changed()
			s.run()
			s.mu.Unlock()
			return err
		}
		s.mu.Unlock()
		select {
		case <-happens:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *service) Change(_ context.Context, x member.Change) (err error) {
	s.do(func() {
		x.ID = fabric.MemID(slices.Index(s.ids, x.ID))
		err = s.c.Change(x)
	})
	return err
}

func (s *service) join(ctx context.Context, ready func(member.Member), add func() (*membership, error)) (member.Member, error) {
	s.mu.Lock()
	m, err := add()
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	j := &joined{s: s, m: m, state: s.state(), newer: make(chan struct{}), done: make(chan struct{})}
	s.joined[m] = j
	s.mu.Unlock()
	ready(j)
	s.do(func() {
		if ctx.Err() != nil {
			j.leave(ctx.Err())
			if mn := m.entry.MN; m.entry.CN.ID == 0 { // the simulator makes it a member at once: it was none
				s.c.ledger.Served[mn.ID] = mn.Served
			}
		}
	})
	for {
		s.mu.Lock()
		admitted, happens := ctx.Err() == nil && s.c.ledger.Admits(m.since), s.happens // ready may have ended ctx
		if admitted {
			s.c.ledger.Serve(m.entry)
		}
		s.mu.Unlock()
		select {
		case <-j.done:
			return nil, cmp.Or(j.err, fabric.ErrClosed)
		default:
		}
		if admitted {
			return j, nil
		}
		select {
		case <-happens:
		case <-ctx.Done():
			s.do(func() { j.leave(ctx.Err()) })
			return nil, ctx.Err()
		}
	}
}

func (s *service) Watch(context.Context) (member.Watcher, error) { return watcher{s}, nil }

type watcher struct{ s *service }

func (w watcher) State() (*member.State, <-chan struct{}) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.s.state(), w.s.happens
}

func (j *joined) State() (*member.State, <-chan struct{}) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	return j.state, j.newer
}

func (j *joined) CN() member.CN { return j.m.entry.CN }

func (j *joined) MN() member.MN {
	mn := j.m.entry.MN
	if j.m.mn != nil {
		mn.ID = j.s.ids[mn.ID]
	}
	return mn
}

func (j *joined) Ack(revision uint64) { j.s.do(func() { j.acked = max(j.acked, revision) }) }

func (j *joined) Report(dead member.Incarnation) {
	j.s.do(func() {
		for _, m := range j.s.c.members {
			if m.entry.Incarnation() == dead {
				j.s.c.leave(m, member.Died)
			}
		}
	})
}

func (j *joined) Done() <-chan struct{} { return j.done }

func (j *joined) Err() error {
	select {
	case <-j.done:
		return j.err
	default:
		return nil
	}
}

func (j *joined) Leave(context.Context) error {
	j.s.do(func() { j.leave(nil) })
	return nil
}

func (j *joined) Fail(context.Context) error {
	j.s.do(func() {
		_ = j.m.node.Fail()
		j.end(nil)
	})
	return nil
}

func (j *joined) leave(why error) {
	if j.m.node != nil {
		j.m.node.Close()
	} else {
		j.s.c.leave(j.m, member.Left)
	}
	j.end(why)
}
