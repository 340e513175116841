package tcp

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/fabric/member"
)

// A late is a membership of which no state comes after the first: what becomes of groups then is not heard.
type late struct {
	member.Member
	st *member.State
}

// State implements member.Member.
func (m late) State() (*member.State, <-chan struct{}) { return m.st, nil }

// LeasedUntil implements member.Leased.
func (m late) LeasedUntil() time.Duration { return m.Member.(member.Leased).LeasedUntil() }

// A lateNews is a coordinator by which the next join is late.
type lateNews struct {
	member.Service
	joins atomic.Int32
}

// JoinMN implements member.Service.
func (s *lateNews) JoinMN(ctx context.Context, mn member.MN, ready func(member.Member)) (member.Member, error) {
	if s.joins.Add(1) != 1 {
		return s.Service.JoinMN(ctx, mn, ready)
	}
	return s.Service.JoinMN(ctx, mn, func(m member.Member) {
		st, _ := m.State()
		ready(late{m, st})
	})
}

// Rule 13. A primary that was given up joins again, and is given up once more before it hears that it serves: it joins again with its memory, and serves.
func TestGivenUpBeforeItHasHeard(t *testing.T) {
	g := newGroup(t)
	peertest.Do(t, g.port, fabric.Store(peertest.Word, 7))
	g.p.peer.Mu.Lock()
	g.p.peer.Config.Members = &lateNews{Service: g.p.o.Members}
	g.p.peer.Mu.Unlock()
	before := g.now().Primary()
	release := g.Members.Hold() // the coordinator is away for a lease
	g.Members.Now().Kill(g.b.Member().Incarnation)
	g.Members.Now().Kill(before)
	_ = g.b.Close()
	peertest.Await(t, "it is away", func() bool { return g.p.Away() != nil })
	release()
	peertest.Await(t, "it is in the group again", func() bool { return g.now().Primary() != before })
	g.Members.Now().Kill(g.now().Primary())
	g.awaitServed(g.p)
	g.usable(g.port)
	if got := g.word(g.p); got != 7 {
		t.Errorf("the word is %d", got)
	}
}
