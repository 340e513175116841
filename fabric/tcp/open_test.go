package tcp

import (
	"errors"
	"net"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/fabric/member"
)

// settled waits until both memory nodes act on the group as it is, with a primary that serves and a backup in some phase, and returns it.
func (g *group) settled(phase member.ReplicaPhase) (x *member.Group) {
	g.t.Helper()
	peertest.Await(g.t, "both memory nodes act on the group", func() bool {
		x = g.now()
		return x.Serving && len(x.Replicas) == 2 && x.Replicas[1].Phase == phase && g.actsOn(g.p, x) && g.actsOn(g.b, x)
	})
	return x
}

// actsOn reports whether a memory node acts on a group as it is.
func (g *group) actsOn(s *MemoryServer, x *member.Group) bool {
	s.peer.Mu.Lock() // what it has taken over it acts on before this is free
	defer s.peer.Mu.Unlock()
	st, _ := s.peer.State()
	return st.Group(0).Changed == x.Changed
}

// helloTo returns the hello of a lane to a copy on a memory node.
func (g *group) helloTo(s *MemoryServer, to target) hello {
	return hello{role: roleLane, cn: uint8(g.n.Own.ID), index: 9, caps: capMasked | capAtomic16, from: uint64(g.n.Own.Incarnation), to: uint64(s.Member().Incarnation), target: to}
}

// ask connects a lane to a copy on a memory node, and returns why it is not let in.
func (g *group) ask(s *MemoryServer, to target) error {
	own := s.Member()
	st, _, err := dial(g.t.Context(), &g.n.Config, peer.MemoryNode(own.ID, own.Addr), g.helloTo(s, to), false)
	if err == nil {
		st.close()
	}
	return err
}

// Rules 1 and 16. Of all lanes that a compute node may ask for, to the primary or to a replica by its number, in this epoch or in another, each memory node lets in the one to what it has of the group now. So it is
// after a promotion, when each is what the other was.
func TestLaneIsToWhatIsServed(t *testing.T) {
	g := newGroup(t)
	look := func(x *member.Group) {
		t.Helper()
		for _, s := range []*MemoryServer{g.p, g.b} {
			own := s.Member()
			right := target{epoch: x.Epoch}
			if i := x.Find(own.Incarnation); i > 0 {
				right.replica = x.Replicas[i].Number
			}
			for epoch := x.Epoch - 1; epoch <= x.Epoch+1; epoch++ {
				for replica := range x.Made + 2 {
					to := target{replica: replica, epoch: epoch}
					err := g.ask(s, to)
					if to == right && err != nil || to != right && !errors.Is(err, fabric.ErrStaleEpoch) {
						t.Errorf("%v, which has %+v: a lane to %+v: %v", own.ID, right, to, err)
					}
				}
			}
		}
	}
	before := g.settled(member.InSync)
	look(before)
	g.Promote()
	now := g.settled(member.Copying)
	if now.Primary() != g.b.Member().Incarnation || now.Find(g.p.Member().Incarnation) != 1 || now.Epoch <= before.Epoch {
		t.Fatalf("%+v after %+v", *now, *before)
	}
	look(now)
}

// Rule 1. A backup that is promoted lets no lane in, neither to the primary nor to the backup that it was, before the last compute node has acknowledged its epoch: that one may have WRITEs to it under way.
func TestPromotedWaitsForAll(t *testing.T) {
	g := newGroup(t)
	before := g.settled(member.InSync)
	deaf := g.way.of(g.Nodes[1].Own.Incarnation)
	deaf.detach()
	t.Cleanup(deaf.reattach)
	g.wish(member.Promote, before.Replicas[1].Host)
	var x *member.Group
	peertest.Await(t, "the backup knows", func() bool {
		x = g.now()
		return g.actsOn(g.b, x)
	})
	if x.Primary() != before.Replicas[1].Host || x.Serving {
		t.Fatalf("%+v", *x)
	}
	for _, to := range []target{{epoch: x.Epoch}, {epoch: before.Epoch}, {replica: before.Replicas[1].Number, epoch: x.Epoch}, {replica: before.Replicas[1].Number, epoch: before.Epoch}} {
		if err := g.ask(g.b, to); !errors.Is(err, fabric.ErrStaleEpoch) {
			t.Errorf("a lane to %+v: %v", to, err)
		}
	}
	deaf.reattach()
	g.awaitServed(g.b)
	peertest.Await(t, "it serves", func() bool { return g.ask(g.b, target{epoch: x.Epoch}) == nil })
}

// A compute node that acts on a newer state may know of an epoch of which the memory node has not heard: it is told to wait, and not that its epoch is over.
func TestLaneOfAnEpochToCome(t *testing.T) {
	g := newGroup(t)
	x := g.settled(member.InSync)
	for _, s := range []*MemoryServer{g.p, g.b} {
		h := g.helloTo(s, target{epoch: x.Epoch + 1})
		s.peer.Mu.Lock()
		st, _ := s.peer.State()
		h.revision = st.Revision + 1
		_, _, newer := s.enter(&guest{hello: h})
		h.revision = st.Revision
		_, _, same := s.enter(&guest{hello: h})
		s.peer.Mu.Unlock()
		if !errors.Is(newer, peer.ErrBehind) || !errors.Is(same, fabric.ErrStaleEpoch) {
			t.Errorf("%v: from a newer state: %v; from the same: %v", s.ID(), newer, same)
		}
	}
}

// A memory node is not used if it says of itself what the coordinator does not: its number is served in another epoch, or has another size.
func TestMemoryNodeThatSaysOtherwise(t *testing.T) {
	n := oneEach(t).Nodes[0]
	for _, x := range []struct {
		change func(*member.MN)
		want   error
	}{
		{func(*member.MN) {}, nil},
		{func(m *member.MN) { m.Epoch++ }, ErrProtocol},
		{func(m *member.MN) { m.Size++ }, ErrProtocol},
	} {
		r := &remote{n: n, lanes: make([]*lane, 10)}
		r.Remote = peer.Remote{Node: &n.Node, Served: remoteOf(n, 0).Served}
		r.lanes[9] = &lane{} // none of the node's own: that would be cut
		x.change(&r.MN)
		s, _, err := r.dial(t.Context(), 9, 0)
		if err == nil {
			s.close()
		}
		if !errors.Is(err, x.want) {
			t.Errorf("size %d, epoch %d: %v, want %v", r.MN.Size, r.MN.Epoch, err, x.want)
		}
	}
}

// What a backup has executed is asked of a memory node that is a member: one that has ended answers nothing, and operations on the number wait meanwhile. So nobody is asked at its address.
func TestEndedBackupIsNotAsked(t *testing.T) {
	g := newGroup(t)
	r := &remote{n: g.n, lanes: make([]*lane, 10)}
	r.Host, r.MN, r.Backup = g.b.ID(), g.b.Member(), g.now().Replicas[1].Number
	if !r.hosted() {
		t.Error("a member is not asked")
	}
	if err := g.b.Close(); err != nil {
		t.Error(err)
	}
	peertest.Await(t, "the compute node knows of the end", func() bool { return !r.hosted() })

	l := newLane(r, 9)
	r.lanes[9] = l
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.MN.Addr = at.Addr().String()
	asked := make(chan int)
	go func() {
		n := 0
		for c, err := at.Accept(); err == nil; c, err = at.Accept() {
			n++
			c.Close()
		}
		asked <- n
	}()
	l.ring[0].modifies = true
	l.mu.Lock()
	l.posted.Store(1)
	l.written = 1
	if !l.inDoubt() {
		t.Error("a frame that was written and has no answer leaves no doubt")
	}
	if no := l.judge(); no != nil {
		t.Errorf("it has answered %v", no)
	}
	l.mu.Unlock()
	at.Close()
	if n := <-asked; n > 0 {
		t.Errorf("it was asked %d times", n)
	}
}
