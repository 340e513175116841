package tcp

import (
	"context"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/fabric/member"
)

// lose puts a coordinator that knows nothing in the place of the present one. No incarnation is used again. Members of before do not hear of it.
func (g *group) lose() {
	g.t.Helper()
	g.Members.Replace()
	for range 100 {
		ctx, cancel := context.WithCancel(g.t.Context())
		if _, err := g.Members.Now().JoinCN(ctx, "", func(member.Member) { cancel() }); err == nil {
			g.t.Fatal("it has joined")
		}
	}
}

// reads checks what a compute node that joins now reads in number 0.
func (g *group) reads(want uint64) {
	g.t.Helper()
	p := peertest.Open(g.t, g.Join())
	if ops := peertest.Do(g.t, p, fabric.Load(peertest.Word)); ops[0].Old != want {
		g.t.Errorf("the word is %d, want %d", ops[0].Old, want)
	}
}

// The coordinator loses its data after a failover: the memory node that has been promoted serves on, and not the one before.
func TestCoordinatorLosesGroups(t *testing.T) {
	g := newGroup(t)
	g.Members.Now().Kill(g.p.Member().Incarnation)
	g.awaitServed(g.b)
	g.usable(g.port)
	peertest.Do(t, g.port, fabric.Store(peertest.Word, 9))
	before := *g.now()
	peertest.Await(t, "the primary of before has joined again", func() bool { return g.p.Away() == nil })
	release, old := g.Members.Hold(), g.Members.Now()
	g.lose()
	for _, m := range []member.Incarnation{g.p.Member().Incarnation, g.b.Member().Incarnation, g.Nodes[0].Own.Incarnation, g.Nodes[1].Own.Incarnation} {
		old.Kill(m)
	}
	release()
	peertest.Await(t, "number 0 is served", func() bool { x := g.now(); return x != nil && x.Serving })
	if x := g.now(); x.Primary() != g.b.Member().Incarnation || x.Term != before.Term || x.Origin != before.Origin {
		t.Errorf("%+v after %+v", *x, before)
	}
	g.reads(9)
}

// The same, and an empty memory node with the number has joined before: the copy is kept, and served if the operator says so.
func TestCoordinatorLosesGroupsToEmpty(t *testing.T) {
	g := newGroup(t)
	if err := g.p.Close(); err != nil {
		t.Error(err)
	}
	g.awaitServed(g.b)
	g.usable(g.port)
	peertest.Do(t, g.port, fabric.Store(peertest.Word, 9))
	old := g.Members.Now()
	g.lose()
	change := g.change
	g.change = func(o *Options) { change(o); o.Replicas, o.Room = 2, 1<<20 }
	g.p = g.Serve(0, 1<<16)
	g.change = change
	t.Cleanup(func() { _ = g.p.Close() })
	for _, m := range []member.Incarnation{g.b.Member().Incarnation, g.Nodes[0].Own.Incarnation, g.Nodes[1].Own.Incarnation} {
		old.Kill(m)
	}
	peertest.Await(t, "number 0 waits", func() bool {
		return len(g.State().Waiting) == 1 && g.b.Away() == nil
	})
	if got := g.word(g.b); got != 9 {
		t.Errorf("the word is %d in the copy that waits", got)
	}
	g.wish(member.Adopt, g.b.Member().Incarnation)
	peertest.Await(t, "number 0 is served", func() bool { x := g.now(); return x.Serving && x.Primary() == g.b.Member().Incarnation })
	g.reads(9)
}
