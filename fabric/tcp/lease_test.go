package tcp

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/internal/boottime"
)

// A detachable coordinator is one from which members can be cut off.
type detachable struct {
	member.Service
	mu      sync.Mutex
	members map[member.Incarnation]*detachableMember
	hung    atomic.Bool // it answers no wish to change a group
}

// Change is member.Service.Change.
func (d *detachable) Change(ctx context.Context, c member.Change) error {
	if d.hung.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return d.Service.Change(ctx, c)
}

func (d *detachable) wrap(m member.Member, incarnation member.Incarnation) *detachableMember {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.members == nil {
		d.members = map[member.Incarnation]*detachableMember{}
	}
	if old := d.members[incarnation]; old == nil || old.Member != m { // a replaced coordinator uses numbers again
		d.members[incarnation] = newDetachableMember(m)
	}
	return d.members[incarnation]
}

func (d *detachable) of(incarnation member.Incarnation) *detachableMember {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.members[incarnation]
}

func (d *detachable) JoinCN(ctx context.Context, addr string, ready func(member.Member)) (member.Member, error) {
	m, err := d.Service.JoinCN(ctx, addr, func(m member.Member) { ready(d.wrap(m, m.CN().Incarnation)) })
	if err != nil {
		return nil, err
	}
	return d.wrap(m, m.CN().Incarnation), nil
}

func (d *detachable) JoinMN(ctx context.Context, mn member.MN, ready func(member.Member)) (member.Member, error) {
	m, err := d.Service.JoinMN(ctx, mn, func(m member.Member) { ready(d.wrap(m, m.MN().Incarnation)) })
	if err != nil {
		return nil, err
	}
	return d.wrap(m, m.MN().Incarnation), nil
}

// A detachableMember hears nothing while it is cut off, not even of its end.
type detachableMember struct {
	member.Member
	mu     sync.Mutex
	last   *member.State // what it has heard, while it is cut off
	newer  chan struct{} // closed when it is so no more
	acked  uint64
	attach *sync.Cond
	done   chan struct{}
	lapsed atomic.Bool  // its lease has run out, as it sees it
	until  atomic.Int64 // when its lease ends, on the clock of boottime; 0: not soon
}

// LeasedUntil is member.Leased.
func (d *detachableMember) LeasedUntil() time.Duration {
	if d.lapsed.Load() {
		return 0
	}
	if until := d.until.Load(); until != 0 {
		return time.Duration(until)
	}
	return boottime.Now() + time.Hour
}

func newDetachableMember(m member.Member) *detachableMember {
	d := &detachableMember{Member: m, done: make(chan struct{})}
	d.attach = sync.NewCond(&d.mu)
	go func() {
		<-m.Done()
		d.mu.Lock()
		defer d.mu.Unlock()
		for d.last != nil {
			d.attach.Wait()
		}
		close(d.done)
	}()
	return d
}

func (d *detachableMember) State() (*member.State, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last != nil {
		return d.last, d.newer
	}
	return d.Member.State()
}

func (d *detachableMember) Ack(revision uint64) {
	d.mu.Lock()
	d.acked = max(d.acked, revision)
	d.mu.Unlock()
	d.Member.Ack(revision)
}

func (d *detachableMember) hasAcked(revision uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.acked >= revision
}

func (d *detachableMember) Done() <-chan struct{} { return d.done }

func (d *detachableMember) Err() error {
	select {
	case <-d.done:
		return d.Member.Err()
	default:
		return nil
	}
}

func (d *detachableMember) detach() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last, _ = d.Member.State()
	d.newer = make(chan struct{})
}

func (d *detachableMember) reattach() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last != nil {
		d.last = nil
		close(d.newer)
		d.attach.Broadcast()
	}
}

// JoinInLease implements fabrictest.Leaser.
func (c *testCluster) JoinInLease(i int, joined func(n fabric.Node)) (release func()) {
	gone := c.way.of(c.Nodes[i].Own.Incarnation)
	gone.detach()
	o := c.options()
	c.Go(nil, func(fabric.Port) { // counted, so that clients it starts are not the first to be waited for
		n, err := Join(context.Background(), o)
		if err != nil {
			c.T.Errorf("join: %v", err)
			return
		}
		c.late = n.(*node)
		joined(n)
	})
	memory := c.way.of(c.Servers[0].peer.Own.Incarnation)
	peertest.Await(c.T, "all others know the new node", func() bool {
		st, _ := memory.State()
		if len(st.CNs) != len(c.Nodes)+1 || !memory.hasAcked(st.Revision) {
			return false
		}
		for k, n := range c.Nodes {
			if k != i && n.View().Live.Len() != len(c.Nodes)+1 {
				return false
			}
		}
		return true
	})
	memory.detach()
	c.Members.Now().Kill(c.Nodes[i].Own.Incarnation)
	return func() {
		memory.reattach()
		gone.reattach()
	}
}
