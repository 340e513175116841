//go:build cgo && !shmonly

package verbs

import (
	"context"
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// What happens in narrow windows, step by step.

// A newcomer is judged by the state that the node acts on: one that it has heard of and not taken yet lets no node in, and
// a node that has gone from it is refused.
func TestLinksAreJudgedByTheStateInForce(t *testing.T) {
	n := &node{Node: peer.Node{Own: member.CN{ID: 1, Incarnation: 10}}}
	st := func(revision uint64, cns ...member.CN) *member.State {
		return &member.State{Revision: revision, CNs: cns}
	}
	older := st(4, n.Own)
	s := &session{}
	ask := func(from, to member.Incarnation, revision uint64) *linkRequest {
		return &linkRequest{Caller: peer.Caller{ID: 2, From: from, To: to, Revision: revision}}
	}
	// What the coordinator says and the node has not taken counts for nothing.
	n.Take(older)
	if _, err := n.prepare(s, ask(20, 10, 4)); !errors.Is(err, fabric.ErrFenced) {
		t.Errorf("prepared by a state that is not in force: %v", err)
	}
}

// Join waits for the first try of each memory node; there is none if the memory node has gone before.
func TestJoinDoesNotWaitForMemoryThatHasGone(t *testing.T) {
	n := &node{}
	n.Init(peer.Config{Report: func(error) {}}, n)
	n.Take(&member.State{Revision: 1})
	k := &attachment{tried: make(chan struct{})}
	n.attachments[3] = k
	n.Go(func() { k.run(n, 3) })
	if err := n.awaitMemory(limited(t)); err != nil {
		t.Error(err)
	}
	n.Vanish()
}

// The same if the node ends while it joins.
func TestJoinDoesNotWaitWhenTheNodeEnds(t *testing.T) {
	n := &node{}
	n.Init(peer.Config{}, n)
	n.Vanish()
	k := &attachment{tried: make(chan struct{})}
	n.attachments[0] = k
	k.run(n, 0)
	if err := n.awaitMemory(limited(t)); err != nil {
		t.Error(err)
	}
}

// limited ends when what should come at once does not come at all.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// withoutMemory makes a node take a state in which there are no memory nodes.
func withoutMemory(n *node) {
	st, _ := n.State()
	n.Act(&member.State{Revision: st.Revision + 1, CNs: st.CNs})
}

// attached says whether anything can go to a memory node.
func attached(r *remote) bool {
	for _, l := range r.lanes {
		l.mu.Lock()
		up := l.state == laneUp
		l.mu.Unlock()
		if up {
			return true
		}
	}
	return r.Up.Load()
}

// A memory node goes while this node attaches to it: Act, with the state that says so, runs before
// the connection is in its place. It is cut as soon as it is there.
func TestMemoryThatGoesWhileItIsAttachedIsCut(t *testing.T) {
	c := cluster(t, 1<<20, 1)
	n := c.Nodes[0]
	m := remoteOf(n, 0).MN
	withoutMemory(n)
	r, err := n.reach(n.Work, m)
	if err != nil {
		t.Fatal(err)
	}
	if attached(r) {
		t.Error("a memory node that has gone takes operations")
	}
	close(r.Verdict) // as its keeper would
	if err := add(n.Agent(), 0); !errors.Is(err, fabric.ErrNodeDown) {
		t.Errorf("an operation: %v", err)
	}
}

// stopLane takes a lane's queue pair away, as repair begins, and leaves the rest to the test.
func stopLane(l *lane) {
	l.mu.Lock()
	l.q.fail()
	l.state = laneBroken
	l.mu.Unlock()
	l.drain()
	l.q.close()
	l.q = nil
}

// A memory node goes while a lane to it gets a new queue pair: that queue pair sends nothing.
func TestMemoryThatGoesWhileALaneIsReplacedIsCut(t *testing.T) {
	c := cluster(t, 1<<20, 2)
	n := c.Nodes[0]
	if err := add(n.Agent(), 0); err != nil {
		t.Fatal(err)
	}
	r := remoteOf(n, 0)
	l := r.lanes[n.Agent().(*port).Lane%len(r.lanes)]
	stopLane(l)
	pending, err := n.Agent().Post([]fabric.Op{fabric.FAA(fabric.At(0, 64), 1)}) // waits for the new queue pair
	if err != nil {
		t.Fatal(err)
	}
	if err := l.replace(); err != nil {
		t.Fatal(err)
	}
	withoutMemory(n)
	l.resume(nil)
	if attached(r) {
		t.Error("a memory node that has gone takes operations")
	}
	if err := n.Agent().Wait(pending); !errors.Is(err, fabric.ErrNodeDown) {
		t.Errorf("an operation that waited: %v", err)
	}
	if v, _ := load2(t, c.Nodes[1].Agent()); v != 1 {
		t.Errorf("the counter is %d: something was sent", v)
	}
}

// When a lane breaks, its queue pair sends nothing more from then on, whenever it is replaced.
func TestBrokenLanesSendNothing(t *testing.T) {
	c := cluster(t, 1<<20, 2)
	n := c.Nodes[0]
	r := remoteOf(n, 0)
	p, err := n.Open()
	if err != nil {
		t.Fatal(err)
	}
	buf := p.Alloc(8)
	buf[0] = 1
	l := r.lanes[0]
	l.mu.Lock() // it is not replaced meanwhile
	l.breaks()
	var w [1]wrOp
	w[0].kind, w[0].remote, w[0].rkey = wrWrite, r.base+page.Offset(), r.key(page.Offset())
	w[0].setLocal(unsafe.Pointer(unsafe.SliceData(buf)), len(buf), p.(*port).Arena.Key(buf))
	_, err = l.q.post(w[:]) // it may be refused, or flushed
	t.Logf("posted: %v", err)
	l.mu.Unlock()
	for err := add(p, 0); errors.Is(err, fabric.ErrUnknownOutcome); err = add(p, 0) {
	}
	if _, first := load2(t, c.Nodes[1].Agent()); first != 0 {
		t.Error("a broken lane has written")
	}
}

// A sender crashes while its link is let in: Shut, with the state that says so, runs before the link is in its place. It is not put there.
func TestLinksOfCrashedNodesAreNotLetIn(t *testing.T) {
	c := cluster(t, 1<<20, 2)
	n, from := c.Nodes[0], c.Nodes[1]
	cq, err := from.pump.messages.reserve(from.dev, outEntries)
	if err != nil {
		t.Fatal(err)
	}
	defer cq.give(outEntries)
	q, err := from.dev.newQP(cq.q, cq.q, linkRing+1, creditSlots, fabric.MaxMessage, false)
	if err != nil {
		t.Fatal(err)
	}
	defer q.close()
	s := &session{}
	st, _ := n.State()
	n.linkMu.Lock()
	defer n.linkMu.Unlock()
	l, err := n.prepare(s, &linkRequest{peer.Caller{ID: from.Own.ID, From: from.Own.Incarnation, To: n.Own.Incarnation, Revision: st.Revision}, q.end()})
	if err != nil {
		t.Fatal(err)
	}
	c.Members.Now().Kill(from.Own.Incarnation)
	awaitView(t, n, from.Own.ID)
	if err := n.place(s, l); !errors.Is(err, fabric.ErrFenced) {
		t.Errorf("the link of a dead node: %v", err)
	}
	n.Mu.Lock()
	defer n.Mu.Unlock()
	if len(n.inLinks) != 0 {
		t.Error("the link of a dead node is in its place")
	}
	if !l.over {
		t.Error("the queue pair of a dead node's link was left")
	}
}
