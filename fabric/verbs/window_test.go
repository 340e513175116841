//go:build linux && cgo

package verbs

import (
	"context"
	"errors"
	"testing"
	"unsafe"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// What happens in narrow windows, step by step.

// A newcomer is judged by the state that the node acts on: one that it has heard of and not taken yet lets nobody in, and
// a node that has gone from it is refused.
func TestLinksAreJudgedByTheStateInForce(t *testing.T) {
	n := &node{own: member.CN{ID: 1, Life: 10}}
	st := func(revision uint64, cns ...member.CN) *member.State {
		return &member.State{Revision: revision, CNs: cns}
	}
	older, newer := st(4, n.own), st(5, n.own, member.CN{ID: 2, Life: 20})
	s := &session{}
	ask := func(from, to member.Life, revision uint64) *linkRequest {
		return &linkRequest{caller: caller{ID: 2, From: from, To: to, Revision: revision}}
	}
	for _, x := range []struct {
		name string
		in   *member.State
		ask  *linkRequest
		want error
	}{
		{"a member", newer, ask(20, 10, 5), nil},
		{"who acts on a state that this node has not taken", older, ask(20, 10, 5), peer.ErrBehind},
		{"who is no member, and knows nothing newer", older, ask(20, 10, 4), fabric.ErrFenced},
		{"another life of the number", newer, ask(19, 10, 5), fabric.ErrFenced},
		{"who wants another life of this node", newer, ask(20, 9, 5), fabric.ErrNodeDown},
	} {
		if err := n.judge(x.in, s, x.ask); !errors.Is(err, x.want) || (err == nil) != (x.want == nil) {
			t.Errorf("%s: %v, want %v", x.name, err, x.want)
		}
	}
	// What the coordinator says and the node has not taken counts for nothing.
	n.Take(older)
	if _, err := n.prepare(s, ask(20, 10, 4)); !errors.Is(err, fabric.ErrFenced) {
		t.Errorf("prepared by a state that is not in force: %v", err)
	}
}

// Join waits for the first try of each memory node; there is none if the memory node has gone before.
func TestJoinDoesNotWaitForMemoryThatHasGone(t *testing.T) {
	n := &node{o: Options{Report: func(error) {}}}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.at, n.halt = context.WithCancel(n.ctx)
	defer n.cancel()
	n.Take(&member.State{Revision: 1})
	k := &keeper{tried: make(chan struct{})}
	n.keepers[3] = k
	n.tasks.Go(func() { k.run(n, 3) })
	if err := n.awaitMemory(limited(t)); err != nil {
		t.Error(err)
	}
	n.halt()
	n.tasks.Wait()
}

// The same if the node ends while it joins.
func TestJoinDoesNotWaitWhenTheNodeEnds(t *testing.T) {
	n := &node{}
	n.at, n.halt = context.WithCancel(context.Background())
	n.halt()
	k := &keeper{tried: make(chan struct{})}
	n.keepers[0] = k
	k.run(n, 0)
	if err := n.awaitMemory(limited(t)); err != nil {
		t.Error(err)
	}
}

// limited ends when what should come at once does not come at all.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), childPatience)
	t.Cleanup(cancel)
	return ctx
}

// withoutMemory makes a node take a state in which there are no memory nodes.
func withoutMemory(n *node) {
	st, _ := n.State()
	n.take(&member.State{Revision: st.Revision + 1, CNs: st.CNs})
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
	return r.alive.Load()
}

// A memory node goes while this node attaches to it: whoever takes the state that says so looks before
// the connection is in its place. It is cut as soon as it is there.
func TestMemoryThatGoesWhileItIsAttachedIsCut(t *testing.T) {
	c := cluster(t, 1<<20, 1)
	n := c.nodes[0]
	m := n.remotes[0].Load().mn
	withoutMemory(n)
	r, err := n.attach(n.at, m)
	if err != nil {
		t.Fatal(err)
	}
	if attached(r) {
		t.Error("a memory node that has gone takes operations")
	}
	close(r.verdict) // as its keeper would
	if err := add(n.agent, 0); !errors.Is(err, fabric.ErrNodeDown) {
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
	n := c.nodes[0]
	if err := add(n.agent, 0); err != nil {
		t.Fatal(err)
	}
	r := n.remotes[0].Load()
	l := r.lanes[n.agent.lane%len(r.lanes)]
	stopLane(l)
	pending, err := n.agent.Post([]fabric.Op{fabric.FAA(fabric.At(0, 64), 1)}) // waits for the new queue pair
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
	if err := n.agent.Wait(pending); !errors.Is(err, fabric.ErrNodeDown) {
		t.Errorf("an operation that waited: %v", err)
	}
	if v, _ := load2(t, c.nodes[1].agent); v != 1 {
		t.Errorf("the counter is %d: something was sent", v)
	}
}

// When a lane breaks, its queue pair sends nothing more from then on, whenever it is replaced.
func TestBrokenLanesSendNothing(t *testing.T) {
	c := cluster(t, 1<<20, 2)
	n := c.nodes[0]
	r := n.remotes[0].Load()
	p, err := n.Open()
	if err != nil {
		t.Fatal(err)
	}
	buf := p.Alloc(8)
	buf[0] = 1
	l := r.lanes[0]
	l.mu.Lock() // nobody replaces it meanwhile
	l.breaks()
	var w [1]wrOp
	w[0].set(0, wrWrite, r.base+page.Offset(), r.key(page.Offset()))
	w[0].setLocal(unsafe.Pointer(unsafe.SliceData(buf)), len(buf), p.(*port).arena.Key(buf))
	_, err = l.q.post(w[:]) // it may be refused, or flushed
	t.Logf("posted: %v", err)
	l.mu.Unlock()
	for err := add(p, 0); errors.Is(err, fabric.ErrUnknownOutcome); err = add(p, 0) {
	}
	if _, first := load2(t, c.nodes[1].agent); first != 0 {
		t.Error("a broken lane has written")
	}
}

// A sender dies while its link is let in: whoever takes the state that says so looks before the link is in its place. It is not put there.
func TestLinksOfTheDeadAreNotLetIn(t *testing.T) {
	c := cluster(t, 1<<20, 2)
	n, from := c.nodes[0], c.nodes[1]
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
	l, err := n.prepare(s, &linkRequest{caller{from.own.ID, from.own.Life, n.own.Life, st.Revision}, q.end()})
	if err != nil {
		t.Fatal(err)
	}
	c.members.Now().Kill(from.own.Life)
	awaitView(t, n, from.own.ID)
	if err := n.place(s, l); !errors.Is(err, fabric.ErrFenced) {
		t.Errorf("the link of a dead node: %v", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.inLinks) != 0 {
		t.Error("the link of a dead node is in its place")
	}
	if !l.over {
		t.Error("the queue pair of a dead node's link was left")
	}
}
