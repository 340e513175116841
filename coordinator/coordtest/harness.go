package coordtest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// MaxCN is how many compute nodes the clusters of a Harness may have.
const MaxCN = 4

// A Cluster is an empty cluster to be tested.
type Cluster struct {
	Service member.Service
	// Kill makes a member crash. The coordinator notices in its time.
	Kill func(member.Member)
	// SetAway makes the coordinator unreachable, and reachable again. nil: cannot be tested.
	SetAway func(away bool)
}

// A Harness starts a cluster for each test, and ends it with the test.
type Harness func(t *testing.T) Cluster

// patience bounds every wait of the suite: a test that runs into it has failed.
const patience = 60 * time.Second

type env struct {
	*testing.T
	Cluster
	ctx context.Context
}

// A node is a member that acknowledges what it sees, while it is not deaf.
type node struct {
	member.Member
	mu   sync.Mutex
	cond *sync.Cond
	deaf bool
	seen []uint64 // revisions
}

func newNode() *node {
	n := &node{}
	n.cond = sync.NewCond(&n.mu)
	return n
}

// ready is what a fabric's would be: it begins to acknowledge.
func (n *node) ready(m member.Member) {
	n.mu.Lock()
	n.Member = m
	n.mu.Unlock()
	go n.run(m)
}

func (n *node) run(m member.Member) {
	for {
		s, changed := m.State()
		n.mu.Lock()
		for n.deaf {
			n.cond.Wait()
		}
		n.seen = append(n.seen, s.Revision)
		n.mu.Unlock()
		m.Ack(s.Revision)
		select {
		case <-changed:
		case <-m.Done():
			return
		}
	}
}

func (n *node) setDeaf(deaf bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deaf = deaf
	n.cond.Broadcast()
}

// startCN joins a compute node, and leaves with the test.
func (e *env) startCN() *node {
	e.Helper()
	n := newNode()
	m, err := e.Service.JoinCN(e.ctx, "cn.example:1", n.ready)
	return e.started(n, m, err)
}

func (e *env) startMN(id fabric.MemID) *node {
	e.Helper()
	return e.startAgain(id, 0)
}

// startAgain joins a memory node that had an epoch before.
func (e *env) startAgain(id fabric.MemID, epoch uint32) *node {
	e.Helper()
	n := newNode()
	m, err := e.Service.JoinMN(e.ctx, member.MN{ID: id, Size: 1 << 20, Addr: "mn.example:1", Epoch: epoch}, n.ready)
	return e.started(n, m, err)
}

func (e *env) started(n *node, m member.Member, err error) *node {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
	if m != n.Member {
		e.Fatal("ready got another member than Join returned")
	}
	e.Cleanup(func() {
		n.setDeaf(false)
		_ = m.Leave(context.Background()) // it may have ended
	})
	return n
}

func (e *env) leave(n *node) {
	e.Helper()
	if err := n.Leave(e.ctx); err != nil {
		e.Fatalf("leave: %v", err)
	}
}

func (e *env) watch() member.Watcher {
	e.Helper()
	w, err := e.Service.Watch(e.ctx)
	if err != nil {
		e.Fatal(err)
	}
	return w
}

func (e *env) kill(n *node) { e.Kill(n.Member) }

// await waits for a state.
func (e *env) await(w member.Watcher, what string, ok func(*member.State) bool) *member.State {
	e.Helper()
	for {
		s, changed := w.State()
		if ok(s) {
			return s
		}
		select {
		case <-changed:
		case <-e.ctx.Done():
			e.Fatalf("waiting for %s; the state is %+v", what, *s)
		}
	}
}

// awaitContact waits until a member says that it reaches the coordinator, or that it does not.
func (e *env) awaitContact(n *node, reached bool) {
	e.Helper()
	c, ok := n.Member.(member.Contact)
	for ok {
		if _, why := c.Contact(); (why == nil) == reached {
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-e.ctx.Done():
			silent, why := c.Contact()
			e.Fatalf("reached %v: silent for %v, %v", reached, silent, why)
		}
	}
}

func (e *env) awaitDone(m member.Member) {
	e.Helper()
	select {
	case <-m.Done():
	case <-e.ctx.Done():
		e.Fatal("the membership does not end")
	}
}

func isFencing(s *member.State, l member.Incarnation) bool {
	return slices.ContainsFunc(s.Fencing, func(c member.CN) bool { return c.Incarnation == l })
}

func isForgotten(s *member.State, l member.Incarnation) bool {
	return !s.Has(l) && !isFencing(s, l)
}
