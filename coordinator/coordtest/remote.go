package coordtest

import (
	"context"
	"encoding/gob"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A member of another process has a connection of its own to the coordinator. The process sends asks, the first of which says what joins,
// and gets news, the first of which says as what.

// An ask is what another process does.
type ask struct {
	Addr  string     // of a compute node that joins
	MN    *member.MN // that joins
	Ready bool       // the join goes on
	Ack   uint64     // a revision
	Leave bool
	Fail  bool
}

// A news is what another process hears.
type news struct {
	CN     member.CN
	MN     member.MN
	State  *member.State // unless it has ended
	Joined bool
	Ended  bool   // the join has failed, or the membership has ended
	Err    string // why, if others have decided that
}

// Serve lets other processes reach a coordinator until the end of the test: [Dial] takes the address that it returns. Members
// stay alive there, whatever happens to their processes, until Kill declares them dead.
func Serve(t testing.TB, m *coordinator.Memory) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(m, c)
		}
	}()
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// serve serves a member of another process.
func serve(m *coordinator.Memory, c net.Conn) {
	in, out := gob.NewDecoder(c), gob.NewEncoder(c)
	var first ask
	if in.Decode(&first) != nil {
		return
	}
	ready := func(n member.Member) {
		st, _ := n.State()
		_ = out.Encode(news{CN: n.CN(), MN: n.MN(), State: st})
		for a := (ask{}); !a.Ready; {
			if a = (ask{}); in.Decode(&a) != nil {
				return
			}
			n.Ack(a.Ack)
		}
		go listen(n, in)
		go tell(n, out)
	}
	var n member.Member
	var err error
	if first.MN != nil {
		n, err = m.JoinMN(context.Background(), *first.MN, ready)
	} else {
		n, err = m.JoinCN(context.Background(), first.Addr, ready)
	}
	if err != nil {
		_ = out.Encode(news{Ended: true, Err: err.Error()})
		return
	}
	st, _ := n.State() // it shows the member
	_ = out.Encode(news{Joined: true, State: st})
}

// listen has a member do what its process asks for, as long as there is one.
func listen(n member.Member, in *gob.Decoder) {
	for {
		var a ask
		switch {
		case in.Decode(&a) != nil:
			return
		case a.Leave:
			_ = n.Leave(context.Background())
		case a.Fail:
			_ = n.Fail(context.Background())
		default:
			n.Ack(a.Ack)
		}
	}
}

// tell tells a member's process the states, and the end.
func tell(n member.Member, out *gob.Encoder) {
	for {
		st, changed := n.State()
		_ = out.Encode(news{State: st})
		select {
		case <-changed:
		case <-n.Done():
			end := news{Ended: true}
			if n.Err() != nil {
				end.Err = n.Err().Error()
			}
			_ = out.Encode(end)
			return
		}
	}
}

// A remote is the coordinator as another process sees it: nodes can join there, and nothing else.
type remote struct {
	member.Service // nil
	addr           string
}

// Dial reaches the coordinator that another process serves.
func Dial(addr string) (member.Service, error) { return &remote{addr: addr}, nil }

// JoinCN is member.Service.JoinCN.
func (r *remote) JoinCN(_ context.Context, addr string, ready func(member.Member)) (member.Member, error) {
	return r.join(ask{Addr: addr}, ready)
}

// JoinMN is member.Service.JoinMN.
func (r *remote) JoinMN(_ context.Context, mn member.MN, ready func(member.Member)) (member.Member, error) {
	return r.join(ask{MN: &mn}, ready)
}

func (r *remote) join(a ask, ready func(member.Member)) (member.Member, error) {
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		return nil, err
	}
	in := gob.NewDecoder(c)
	m := &remoteMember{out: gob.NewEncoder(c), joined: make(chan struct{}), done: make(chan struct{}), change: make(chan struct{})}
	if err := errors.Join(m.out.Encode(a), in.Decode(&m.first)); err != nil {
		return nil, err
	}
	if m.first.Ended {
		return nil, errors.New(m.first.Err)
	}
	m.state = m.first.State
	ready(m)
	go m.follow(in)
	if err := m.out.Encode(ask{Ready: true}); err != nil {
		return nil, err
	}
	select {
	case <-m.joined:
		return m, nil
	case <-m.done:
		return nil, m.err
	}
}

// A remoteMember is a member of this process.
type remoteMember struct {
	first  news
	out    *gob.Encoder
	joined chan struct{}
	done   chan struct{}
	err    error // once done

	mu     sync.Mutex
	state  *member.State
	change chan struct{}
}

// follow takes news, until the membership or the coordinator's process has ended.
func (m *remoteMember) follow(in *gob.Decoder) {
	defer close(m.done)
	for {
		var x news
		err := in.Decode(&x)
		switch {
		case err != nil || x.Ended && x.Err != "":
			m.err = fabric.ErrFenced
			return
		case x.Ended:
			return
		}
		m.mu.Lock()
		if x.State.Revision > m.state.Revision {
			m.state = x.State
			close(m.change)
			m.change = make(chan struct{})
		}
		m.mu.Unlock()
		if x.Joined {
			close(m.joined)
		}
	}
}

func (m *remoteMember) State() (*member.State, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state, m.change
}
func (m *remoteMember) CN() member.CN             { return m.first.CN }
func (m *remoteMember) MN() member.MN             { return m.first.MN }
func (m *remoteMember) Ack(revision uint64)       { _ = m.out.Encode(ask{Ack: revision}) }
func (m *remoteMember) Report(member.Incarnation) {}
func (m *remoteMember) Done() <-chan struct{}     { return m.done }
func (m *remoteMember) Err() error {
	select {
	case <-m.done:
		return m.err
	default:
		return nil
	}
}
func (m *remoteMember) Leave(context.Context) error { return m.end(ask{Leave: true}) }
func (m *remoteMember) Fail(context.Context) error  { return m.end(ask{Fail: true}) }
func (m *remoteMember) end(a ask) error {
	err := m.out.Encode(a)
	<-m.done
	return err
}
