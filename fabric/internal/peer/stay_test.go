package peer

import (
	"context"
	"errors"
	"testing"

	"github.com/declock/declock/fabric/member"
)

type rejoined struct {
	member.Member
	mn   member.MN
	done chan struct{}
}

func (m *rejoined) MN() member.MN         { return m.mn }
func (m *rejoined) Done() <-chan struct{} { return m.done }
func (m *rejoined) Err() error            { return errors.New("lease") }

type forgetful struct {
	member.Service
	epoch uint32
	tries int
}

// JoinMN is etcd's: the transaction that reserves the number counts the epoch; the first time its answer is lost, and so is the connection.
func (s *forgetful) JoinMN(_ context.Context, mn member.MN, ready func(member.Member)) (member.Member, error) {
	s.epoch = max(s.epoch, mn.Epoch) + 1
	if s.tries++; s.tries == 1 {
		return nil, errors.New("etcd: no answer")
	}
	mn.Epoch = s.epoch
	m := &rejoined{mn: mn, done: make(chan struct{})}
	ready(m)
	return m, nil
}

// State shows no node.
func (m *rejoined) State() (*member.State, <-chan struct{}) { return &member.State{Revision: 1}, nil }
func (m *rejoined) Ack(uint64)                              {}

// A failed attempt to join again has counted the epoch, and no process has served in it: the next one keeps the memory.
func TestAFailedJoinSupersedesNoNode(t *testing.T) {
	own := member.MN{ID: 1, Epoch: 5}
	m := &rejoined{mn: own, done: make(chan struct{})}
	close(m.done)
	renewed := make(chan uint32, 1)
	s := &Server{Own: own, id: own.ID, member: m}
	s.Init(Config{Members: &forgetful{epoch: 5}, Report: func(err error) { t.Log(err) }}, Lender{Renew: func() { renewed <- s.Own.Epoch },
		Evict: func(*member.State) {}, Suspended: func() error { return nil }, Stop: func() {}, Release: func() {}})
	stayed := make(chan error, 1)
	s.Go(func() { stayed <- s.stay(m) })
	select {
	case epoch := <-renewed:
		if epoch != 7 {
			t.Errorf("it serves in epoch %d", epoch)
		}
	case err := <-stayed:
		t.Fatal("given up:", err)
	}
	err := s.Await(t.Context(), func(*member.State) error { return nil })
	if err != nil {
		t.Error("it has joined again, and lets no node in:", err)
	}
	s.End(nil)
	if err := <-stayed; err != nil {
		t.Error(err)
	}
}
