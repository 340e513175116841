package peer

import (
	"context"
	"errors"
	"testing"
	"time"

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

// A failed attempt to join again has counted the epoch, and nobody has served in it: the next one keeps the memory.
func TestAFailedJoinSupersedesNobody(t *testing.T) {
	own := member.MN{ID: 1, Epoch: 5}
	m := &rejoined{mn: own, done: make(chan struct{})}
	close(m.done)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	admitted := 0
	k := Keeper{Members: &forgetful{epoch: 5}, Own: func() member.MN { return own }, Suspend: func(error) {},
		Ready: func(m member.Member) bool { own = m.MN(); return true }, Admit: func() { admitted++ }, Report: func(err error) { t.Log(err) }}
	if err := k.Stay(ctx, m); err != nil {
		t.Error("given up:", err)
	}
	if admitted == 0 {
		t.Error("it has joined again, and admits nobody")
	}
}
