package coordtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// absence is how long a test looks for what must not happen. A slow machine makes it see less, and never fail.
const absence = 50 * time.Millisecond

// join begins to join a compute node.
func (e *env) join(ctx context.Context, addr string) (*node, <-chan error) {
	n, joined := newNode(), make(chan error, 1)
	go func() {
		_, err := e.Service.JoinCN(ctx, addr, n.ready)
		joined <- err
	}()
	return n, joined
}

// joining begins to join a compute node, and returns it when others know it.
func (e *env) joining(seenBy *node, addr string) (*node, <-chan error) {
	e.Helper()
	n, joined := e.join(e.ctx, addr)
	s := e.await(seenBy, addr, func(s *member.State) bool { return hasAddr(s, addr) })
	e.awaitSeen(seenBy, s.Revision)
	e.Cleanup(func() { n.setDeaf(false) })
	return n, joined
}

func hasAddr(s *member.State, addr string) bool {
	return slices.ContainsFunc(s.CNs, func(c member.CN) bool { return c.Addr == addr })
}

// awaitSeen waits until a node that hears acknowledges a revision.
func (e *env) awaitSeen(n *node, revision uint64) {
	e.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		n.mu.Lock()
		seen := len(n.seen) > 0 && n.seen[len(n.seen)-1] >= revision
		n.mu.Unlock()
		switch {
		case seen:
			return
		case time.Now().After(limit):
			e.Fatalf("revision %d is not acknowledged", revision)
		}
	}
}

// refused fails if a join ends.
func (e *env) refused(joined <-chan error, why string) {
	e.Helper()
	select {
	case err := <-joined:
		e.Fatalf("join returned %v: %s", err, why)
	case <-time.After(absence):
	}
}

// A node has gone, and a memory node has not cut it off yet: it may go on with a view that lacks the new one. No node joins
// before the memory node has acknowledged that, whether the node crashed or left, and however many join.
func joinWaitsForGone(e *env) {
	m, c := e.startMN(0), e.startCN()
	for _, gone := range []func(*node){e.kill, e.leave} {
		a := e.startCN()
		a.setDeaf(true)
		b1, joined1 := e.joining(m, "b1")
		b2, joined2 := e.joining(m, "b2")
		m.setDeaf(true)
		gone(a)
		e.await(c, "a fencing", func(s *member.State) bool { return isFencing(s, a.CN().Incarnation) })
		for _, j := range []<-chan error{joined1, joined2} {
			e.refused(j, "a node that has gone may still reach memory, and does not know the new one")
		}
		m.setDeaf(false)
		for i, j := range []<-chan error{joined1, joined2} {
			if err := <-j; err != nil {
				e.Fatalf("join %d: %v", i, err)
			}
		}
		e.await(c, "a forgotten", func(s *member.State) bool { return isForgotten(s, a.CN().Incarnation) })
		e.leave(b1)
		e.leave(b2)
		e.await(c, "b1 and b2 forgotten", func(s *member.State) bool {
			return isForgotten(s, b1.CN().Incarnation) && isForgotten(s, b2.CN().Incarnation)
		})
	}
}

// Nodes that come and go all the time do not keep others from joining: later ones knew of the joiner from the start.
func joinOutlivesLater(e *env) {
	m, a := e.startMN(0), e.startCN()
	a.setDeaf(true)
	b, joined := e.joining(m, "b")
	later, lost := e.joining(m, "later")
	m.setDeaf(true)
	e.kill(later)
	if err := <-lost; !errors.Is(err, fabric.ErrFenced) {
		e.Errorf("join of a crashed node: %v", err)
	}
	e.await(b, "its end", func(s *member.State) bool { return isFencing(s, later.CN().Incarnation) })
	a.setDeaf(false)
	if err := <-joined; err != nil {
		e.Fatal(err)
	}
	if s, _ := b.State(); isForgotten(s, later.CN().Incarnation) {
		e.Errorf("the test shows nothing: %+v", s)
	}
	m.setDeaf(false)
	e.leave(b)
}

func joinAfterDeaths(e *env) {
	m, lost, a := e.startMN(0), e.startMN(1), e.startCN()
	a.setDeaf(true)
	lost.setDeaf(true)
	first, died := e.joining(m, "first")
	b, joined := e.joining(m, "b")
	e.kill(lost)
	e.kill(first)
	if err := <-died; !errors.Is(err, fabric.ErrFenced) {
		e.Errorf("join of a crashed node: %v", err)
	}
	e.await(m, "the ends", func(s *member.State) bool { return len(s.MNs) == 1 && !s.Has(first.CN().Incarnation) })
	e.refused(joined, "a member has not acknowledged")
	a.setDeaf(false)
	if err := <-joined; err != nil {
		e.Fatal(err)
	}
	e.leave(b)
}
