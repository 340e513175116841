package coordtest

import (
	"context"
	"errors"
	"net"
	"net/rpc"
	"sync"
	"testing"
	"time"

	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A service is a coordinator for other processes. Calls may wait for a while.
type service struct {
	m       *coordinator.Memory
	mu      sync.Mutex
	members map[member.Incarnation]member.Member
	joins   map[uint64]*pendingJoin
}

// A pendingJoin is a join of another process that has its number.
type pendingJoin struct {
	goOn chan struct{} // closed when the process is ready
	over chan error    // has what JoinCN or JoinMN returns
}

// JoinArgs is a request of Reserve.
type JoinArgs struct {
	MN   bool
	Node member.MN // of a memory node
	Addr string    // of a compute node
}

// A MemberReply is the number of a member.
type MemberReply struct {
	CN member.CN
	MN member.MN
}

// Reserve begins to join: it returns when the child is to be ready. Ready ends it.
func (s *service) Reserve(a JoinArgs, r *MemberReply) error {
	got := make(chan member.Member, 1)
	failed := make(chan error, 1)
	goOn := make(chan struct{})
	ready := func(m member.Member) { got <- m; <-goOn }
	go func() {
		var err error
		if a.MN {
			_, err = s.m.JoinMN(context.Background(), a.Node, ready)
		} else {
			_, err = s.m.JoinCN(context.Background(), a.Addr, ready)
		}
		failed <- err
	}()
	select {
	case err := <-failed:
		return err
	case m := <-got:
		r.CN, r.MN = m.CN(), m.MN()
		incarnation := max(r.CN.Incarnation, r.MN.Incarnation)
		s.mu.Lock()
		s.members[incarnation] = m
		s.joins[uint64(incarnation)] = &pendingJoin{goOn, failed}
		s.mu.Unlock()
	}
	return nil
}

func (s *service) member(incarnation uint64) member.Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[member.Incarnation(incarnation)]
}

// Ready lets a join go on, and returns when it is over.
func (s *service) Ready(incarnation uint64, _ *int) error {
	s.mu.Lock()
	j := s.joins[incarnation]
	delete(s.joins, incarnation)
	s.mu.Unlock()
	close(j.goOn)
	return <-j.over
}

// A StateReply is the members.
type StateReply struct {
	State member.State
	Done  bool
	Err   string
}

// State waits for a state with a later revision, for a while.
func (s *service) State(a [2]uint64, r *StateReply) error {
	m := s.member(a[0])
	limit := time.After(time.Second)
	for {
		st, changed := m.State()
		r.State = *st
		select {
		case <-m.Done():
			r.Done = true
			if m.Err() != nil {
				r.Err = m.Err().Error()
			}
			return nil
		default:
		}
		if st.Revision > a[1] {
			return nil
		}
		select {
		case <-changed:
		case <-m.Done():
		case <-limit:
			return nil
		}
	}
}

// Ack is member.Member.Ack.
func (s *service) Ack(a [2]uint64, _ *int) error {
	s.member(a[0]).Ack(a[1])
	return nil
}

// Leave is member.Member.Leave.
func (s *service) Leave(incarnation uint64, _ *int) error {
	return s.member(incarnation).Leave(context.Background())
}

// Fail is member.Member.Fail.
func (s *service) Fail(incarnation uint64, _ *int) error {
	return s.member(incarnation).Fail(context.Background())
}

// Serve lets other processes reach a coordinator until the end of the test: [Dial] takes the address that it returns. Members
// stay alive there, whatever happens to their processes, until Kill declares them dead.
func Serve(t testing.TB, m *coordinator.Memory) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := rpc.NewServer()
	s := &service{m: m, members: map[member.Incarnation]member.Member{}, joins: map[uint64]*pendingJoin{}}
	if err := srv.RegisterName("Coordinator", s); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go srv.ServeConn(c)
		}
	}()
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// A remote is the coordinator as another process sees it.
type remote struct{ c *rpc.Client }

// Dial reaches the coordinator that another process serves.
func Dial(addr string) (member.Service, error) {
	c, err := rpc.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &remote{c}, nil
}

func (r *remote) join(a JoinArgs, ready func(member.Member)) (member.Member, error) {
	m := &remoteMember{c: r.c, done: make(chan struct{}), change: make(chan struct{})}
	var first MemberReply
	if err := r.c.Call("Coordinator.Reserve", a, &first); err != nil {
		return nil, err
	}
	m.MemberReply = first
	m.incarnation = uint64(max(first.CN.Incarnation, first.MN.Incarnation))
	var s StateReply
	if err := r.c.Call("Coordinator.State", [2]uint64{m.incarnation, 0}, &s); err != nil {
		return nil, err
	}
	m.state = &s.State
	ready(m)
	go m.follow()
	var n int
	if err := r.c.Call("Coordinator.Ready", m.incarnation, &n); err != nil {
		return nil, err
	}
	for { // it is admitted: a state that shows it is on its way here
		st, changed := m.State()
		if st.Has(member.Incarnation(m.incarnation)) {
			return m, nil
		}
		<-changed
	}
}

func (r *remote) JoinCN(_ context.Context, addr string, ready func(member.Member)) (member.Member, error) {
	return r.join(JoinArgs{Addr: addr}, ready)
}

func (r *remote) JoinMN(_ context.Context, mn member.MN, ready func(member.Member)) (member.Member, error) {
	return r.join(JoinArgs{MN: true, Node: mn}, ready)
}

func (r *remote) ForgetMN(context.Context, fabric.MemID) error { return errors.New("not here") }

func (r *remote) Change(context.Context, member.Change) error { return errors.New("not here") }

func (r *remote) Watch(context.Context) (member.Watcher, error) {
	return nil, errors.New("not here")
}

type remoteMember struct {
	MemberReply
	c           *rpc.Client
	incarnation uint64
	done        chan struct{}

	mu     sync.Mutex
	state  *member.State
	change chan struct{}
	err    error
}

func (m *remoteMember) follow() {
	for {
		var s StateReply
		m.mu.Lock()
		revision := m.state.Revision
		m.mu.Unlock()
		if m.c.Call("Coordinator.State", [2]uint64{m.incarnation, revision}, &s) != nil {
			return // the parent has gone
		}
		m.mu.Lock()
		if s.State.Revision > revision {
			m.state = &s.State
			close(m.change)
			m.change = make(chan struct{})
		}
		if s.Done {
			if s.Err != "" {
				m.err = fabric.ErrFenced
			}
			close(m.done)
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
	}
}

func (m *remoteMember) State() (*member.State, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state, m.change
}
func (m *remoteMember) CN() member.CN { return m.MemberReply.CN }
func (m *remoteMember) MN() member.MN { return m.MemberReply.MN }
func (m *remoteMember) Ack(revision uint64) {
	m.c.Go("Coordinator.Ack", [2]uint64{m.incarnation, revision}, new(int), nil)
}
func (m *remoteMember) Report(member.Incarnation) {}
func (m *remoteMember) Done() <-chan struct{}     { return m.done }
func (m *remoteMember) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}
func (m *remoteMember) Leave(context.Context) error {
	return m.c.Call("Coordinator.Leave", m.incarnation, new(int))
}
func (m *remoteMember) Fail(context.Context) error {
	return m.c.Call("Coordinator.Fail", m.incarnation, new(int))
}
