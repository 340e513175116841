package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A Memory is a coordinator in this process: for tests, and for clusters of one
// process. Members are alive there until Kill declares them dead. Any goroutine may use it.
type Memory struct {
	mu      sync.Mutex
	ledger  *member.Ledger
	members map[member.Incarnation]*memoryMember
	away    bool
	gone    time.Time // since when it is away
	late    []func()  // changes that take effect when it is back
	state   *member.State
	news    chan struct{} // closed when state is not the newest, or acks have changed
	change  chan struct{} // closed when state is not the newest
}

var _ member.Service = (*Memory)(nil)

// errAway: the coordinator does not answer: see SetAway.
var errAway = fmt.Errorf("%w: it is away", member.ErrUnreachable)

// NewMemory returns a coordinator without members. Compute nodes have the numbers from 1 to maxCN.
func NewMemory(maxCN fabric.CNID) *Memory {
	m := &Memory{ledger: member.NewLedger(maxCN), members: map[member.Incarnation]*memoryMember{}}
	m.state, m.news, m.change = m.ledger.State(), make(chan struct{}), make(chan struct{})
	return m
}

// JoinCN is member.Service.JoinCN.
func (m *Memory) JoinCN(ctx context.Context, addr string, ready func(member.Member)) (member.Member, error) {
	return m.join(ctx, ready, func() (*member.Entry, error) { return m.ledger.ReserveCN(addr) })
}

// JoinMN is member.Service.JoinMN.
func (m *Memory) JoinMN(ctx context.Context, mn member.MN, ready func(member.Member)) (member.Member, error) {
	return m.join(ctx, ready, func() (*member.Entry, error) { return m.ledger.ReserveMN(mn) })
}

// ForgetMN is member.Service.ForgetMN.
func (m *Memory) ForgetMN(ctx context.Context, id fabric.MemID) error {
	for {
		m.mu.Lock()
		if m.away {
			m.mu.Unlock()
			return errAway
		}
		leaving := m.ledger.Leaving(id)
		var err error
		if !leaving {
			err = m.ledger.Forget(id)
			m.publish()
		}
		news := m.news
		m.mu.Unlock()
		if !leaving {
			return err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("coordinator: forget %v: not all members have acknowledged its end: %w", id, ctx.Err())
		}
	}
}

// Change is member.Service.Change.
func (m *Memory) Change(ctx context.Context, c member.Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return errAway
	}
	if err := m.ledger.Change(c); err != nil {
		return err
	}
	m.publish()
	return ctx.Err()
}

func (m *Memory) join(ctx context.Context, ready func(member.Member), reserve func() (*member.Entry, error)) (member.Member, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	if m.away {
		m.mu.Unlock()
		return nil, errAway
	}
	e, err := reserve()
	if err != nil {
		m.mu.Unlock()
		return nil, err
	}
	n := &memoryMember{m: m, e: e, done: make(chan struct{})}
	m.members[e.Incarnation()] = n
	m.mu.Unlock()
	if ready != nil {
		ready(n)
	}
	if err := ctx.Err(); err != nil { // ready may have ended it
		n.end(member.Left, err)
		return nil, fmt.Errorf("coordinator: join: %w", err)
	}
	m.mu.Lock()
	m.ledger.Join(e)
	m.publish()
	m.mu.Unlock()
	if err := n.awaitAdmission(ctx); err != nil {
		n.end(member.Left, err)
		return nil, err
	}
	return n, nil
}

// awaitAdmission waits until the new member may use the cluster.
func (n *memoryMember) awaitAdmission(ctx context.Context) error {
	for {
		n.m.mu.Lock()
		admitted, news := n.m.ledger.Admits(n.e.Entry), n.m.news
		if admitted {
			n.m.ledger.Serve(n.e)
		}
		n.m.mu.Unlock()
		select {
		case <-n.done:
			return fmt.Errorf("coordinator: join: the membership has ended already: %w", cmp.Or(n.err, fabric.ErrClosed))
		default:
		}
		if admitted {
			return nil
		}
		select {
		case <-n.done:
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("coordinator: join: not all members, and those being fenced, have acknowledged: %w", ctx.Err())
		}
	}
}

// Watch is member.Service.Watch.
func (m *Memory) Watch(ctx context.Context) (member.Watcher, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if m.isAway() {
		return nil, errAway
	}
	return m, nil
}

func (m *Memory) isAway() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.away
}

// Kill declares a member dead. Others are ignored.
func (m *Memory) Kill(incarnation member.Incarnation) {
	m.mu.Lock()
	n := m.members[incarnation]
	m.mu.Unlock()
	if n != nil {
		n.end(member.Died, fabric.ErrFenced)
	}
}

// SetAway makes the coordinator unreachable, or reachable again. While it is away
// no node joins, and nothing changes; crashes, leaving and acknowledgements take effect afterwards.
func (m *Memory) SetAway(away bool) {
	m.mu.Lock()
	m.away, m.gone = away, time.Now()
	var late []func()
	if !away {
		late, m.late = m.late, nil
	}
	m.mu.Unlock()
	for _, change := range late {
		change()
	}
}

// publish makes the ledger's state the newest; mu is held.
func (m *Memory) publish() {
	close(m.news)
	m.news = make(chan struct{})
	if m.ledger.Revision == m.state.Revision {
		return
	}
	m.state = m.ledger.State()
	close(m.change)
	m.change = make(chan struct{})
}

// do changes the ledger, now or when the coordinator is back.
func (m *Memory) do(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		m.late = append(m.late, func() { m.do(f) })
		return
	}
	f()
	m.publish()
}

// State is member.Watcher.State.
func (m *Memory) State() (*member.State, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state, m.change
}

// A memoryMember is a member of a Memory.
type memoryMember struct {
	m    *Memory
	e    *member.Entry
	done chan struct{}
	err  error // once done
}

// CN is member.Member.CN.
func (n *memoryMember) CN() member.CN { return n.e.CN }

// MN is member.Member.MN.
func (n *memoryMember) MN() member.MN { return n.e.MN }

// State is member.Watcher.State.
func (n *memoryMember) State() (*member.State, <-chan struct{}) { return n.m.State() }

// Ack is member.Member.Ack.
func (n *memoryMember) Ack(revision uint64) { n.m.do(func() { n.m.ledger.Ack(n.e, revision) }) }

// Report is member.Member.Report.
func (n *memoryMember) Report(dead member.Incarnation) { n.m.Kill(dead) }

// end ends the membership, with what Err is to say.
func (n *memoryMember) end(how member.Phase, err error) {
	n.m.do(func() {
		if n.m.members[n.e.Incarnation()] != n {
			return // has ended already
		}
		delete(n.m.members, n.e.Incarnation())
		n.m.ledger.End(n.e, how)
		n.err = err
		close(n.done)
	})
}

// Done is member.Member.Done.
func (n *memoryMember) Done() <-chan struct{} { return n.done }

// Err is member.Member.Err.
func (n *memoryMember) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// Contact is member.Contact.
func (n *memoryMember) Contact() (silent time.Duration, why error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	if !n.m.away {
		return 0, nil
	}
	return time.Since(n.m.gone), errAway
}

// Leave is member.Member.Leave.
func (n *memoryMember) Leave(ctx context.Context) error { return n.leave(ctx, member.Left) }

// Fail is member.Member.Fail.
func (n *memoryMember) Fail(ctx context.Context) error { return n.leave(ctx, member.Died) }

func (n *memoryMember) leave(ctx context.Context, how member.Phase) error {
	if n.m.isAway() {
		return errAway
	}
	n.end(how, nil)
	return ctx.Err()
}
