package tcp

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/fabric/member"
)

const silentAfter = 160 * time.Millisecond

// newSilenceGroup is newGroup with number 1 replicated, too, so that either memory node may be given up; compute nodes suspect what is silent.
func newSilenceGroup(t *testing.T, mn0 ...func(*Options)) *group {
	g := newGroupWith(t, func(o *Options) {
		for _, change := range mn0 {
			change(o)
		}
	}, func(o *Options) { o.Replicas = 2 }, func(o *Options) { o.SilentAfter, o.DeadAfter = silentAfter, 20*time.Second })
	peertest.Await(t, "a backup of number 1", func() bool {
		x := g.State().Group(1)
		if x == nil || !x.Serving || len(x.Replicas) < 2 {
			return false
		}
		if x.Replicas[1].Phase == member.Copying {
			_ = g.Members.Change(context.Background(), member.Change{ID: 1, Kind: member.Synced, Host: x.Replicas[1].Host, Seen: x.Changed})
		}
		return x.Replicas[1].Phase == member.InSync
	})
	g.known()
	g.usable(g.port)
	return g
}

// stop makes a memory node stand still: it executes nothing, and hears of nothing.
func (g *group) stop(s *MemoryServer) {
	g.t.Cleanup(s.stall(0))
	deaf := g.way.of(s.Member().Incarnation)
	deaf.detach()
	g.t.Cleanup(deaf.reattach)
}

// A primary that stands still is replaced when an operation has been without answer for the bound, long before its lease ends. (The coordinator of these tests knows no leases.)
func TestSilentPrimary(t *testing.T) {
	g := newSilenceGroup(t)
	g.stop(g.p)
	time.Sleep(3 * silentAfter)
	if x := g.now(); x.Suspect != 0 || x.Primary() != g.p.Member().Incarnation {
		t.Errorf("no operation is under way, and it is suspected: %+v", *x)
	}
	began := time.Now()
	pending, err := g.port.Post([]fabric.Op{fabric.FAA(peertest.Word, 1)})
	if err != nil {
		t.Fatal(err)
	}
	g.awaitServed(g.b)
	if took := time.Since(began); took < silentAfter/2 || took > silentAfter+2*time.Second {
		t.Errorf("it is replaced after %v", took)
	}
	if err := g.port.Wait(pending); err == nil {
		t.Error("the operation has succeeded")
	}
	g.usable(g.port)
}

// The same for a memory node that has a backup: what waits for it goes on.
func TestSilentBackupHost(t *testing.T) {
	g := newSilenceGroup(t)
	g.backupDo(fabric.Store(peertest.Word, 1)) // there is a lane
	rep := g.port.(fabric.Replicator)
	r, err := rep.Replicas(0)
	if err != nil {
		t.Fatal(err)
	}
	g.stop(g.b)
	pending, err := rep.PostBackup(&r, 0, []fabric.Op{fabric.Store(peertest.Word, 2)})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.port.Wait(pending); err == nil {
		t.Error("the chain has succeeded")
	}
	if err := rep.DropBackup(&r, 0, true); err != nil {
		t.Error(err)
	}
	peertest.Await(t, "its own number is served by another", func() bool {
		x := g.State().Group(1)
		return x.Serving && x.Primary() == g.p.Member().Incarnation
	})
}

// A memory node that one compute node does not reach, and that lives, refutes the suspicion: it stays the primary, others go on, and so does that one when it reaches it again.
func TestSuspicionRefuted(t *testing.T) {
	g := newSilenceGroup(t)
	before := *g.now()
	goOn := g.p.stallNode(g.n.Own.Incarnation)
	t.Cleanup(goOn)
	pending, err := g.port.Post([]fabric.Op{fabric.FAA(peertest.Word, 1)})
	if err != nil {
		t.Fatal(err)
	}
	peertest.Await(t, "a suspicion", func() bool { return g.now().Changed != before.Changed })
	time.Sleep(5 * silentAfter)
	if x := g.now(); x.Suspect != 0 || x.Term != before.Term || x.Primary() != before.Primary() {
		t.Errorf("%+v", *x)
	}
	if n := g.now().Changed - before.Changed; n > 4 { // it is believed for a while
		t.Errorf("the group has changed %d times", n)
	}
	other := peertest.Open(t, g.Nodes[1])
	peertest.Do(t, other, fabric.FAA(peertest.Word, 10))
	goOn()
	if err := g.port.Wait(pending); err != nil {
		t.Error(err)
	}
	if got := g.word(g.p); got != 11 {
		t.Errorf("the word is %d", got)
	}
}

// A memory node that has the last copy of a number is not given up, however silent it is.
func TestLastCopyIsNotSuspected(t *testing.T) {
	g := newSilenceGroup(t)
	if err := g.b.Close(); err != nil {
		t.Error(err)
	}
	peertest.Await(t, "number 1 is served by the other", func() bool {
		x := g.State().Group(1)
		return x.Serving && x.Primary() == g.p.Member().Incarnation
	})
	g.stop(g.p)
	if _, err := g.port.Post([]fabric.Op{fabric.FAA(peertest.Word, 1)}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * silentAfter)
	if st := g.State(); !st.Has(g.p.Member().Incarnation) || st.Group(0).Suspect != 0 {
		t.Errorf("%+v", *st.Group(0))
	}
}

// A memory node that refuses connections though it lives, as behind a firewall that does so, is given up at once: waiting for a refutation would cost each failover that time. What was acknowledged is served by
// the backup, and the memory node joins again, as one without a copy.
func TestRefusedThoughItLives(t *testing.T) {
	way := newProxy(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	way.forward(at)
	g := newGroupWith(t, func(o *Options) { o.Listen, o.Advertise = at, way.addr() }, func(*Options) {}, func(*Options) {})
	g.backupDo(fabric.Store(peertest.Word, 7))
	peertest.Do(t, g.port, fabric.FAA(peertest.Word, 7))
	before, was := g.p.Member().Incarnation, *g.now()
	began := time.Now()
	way.close()
	if err := g.port.Do([]fabric.Op{fabric.FAA(peertest.Word, 1)}); err == nil {
		t.Error("an operation has reached it")
	}
	g.awaitServed(g.b)
	t.Logf("the backup serves after %v", time.Since(began))
	g.usable(g.port)
	if ops := peertest.Do(t, g.port, fabric.Load(peertest.Word)); ops[0].Old != 7 || g.now().Term != was.Term+1 {
		t.Errorf("the word is %d in %+v", ops[0].Old, *g.now())
	}
	peertest.Await(t, "it joins again", func() bool { return g.p.Member().Incarnation != before && g.State().Has(g.p.Member().Incarnation) })
	if x := g.now(); x.Primary() == g.p.Member().Incarnation || x.Replicas[0].Number != was.Replicas[1].Number {
		t.Errorf("%+v", *x)
	}
}
