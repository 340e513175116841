package tcp

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/fabric/member"
)

// oneEach starts a cluster with a memory node and a compute node.
func oneEach(t *testing.T) *testCluster {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.Start(fabrictest.Config{Mem: []uint64{1 << 16}, CNs: 1})
	return c
}

func TestMemoryNodeJoinsAgainWithItsMemory(t *testing.T) {
	peertest.JoinsAgain(t, &oneEach(t).Cluster, func(n *node, s *MemoryServer) (func(), func(fabric.Port)) {
		conn := s.connOf(t, laneKey{n.Own.Incarnation, 0, target{}})
		return func() {
			if !conn.isCut() {
				t.Error("a connection of before is still served")
			}
		}, func(fabric.Port) {}
	})
}

// A compute node has not heard that the memory node was given up, and goes on using the connections that it has: nothing of that is executed.
func TestGivenUpMemoryNodeExecutesNothingOfBefore(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.change = func(o *Options) { o.Heartbeat, o.DeadAfter = 100*time.Millisecond, time.Second }
	s, n := c.Serve(0, 1<<16), c.Join()
	p := peertest.Open(t, n)
	peertest.Do(t, p, fabric.FAA(peertest.Word, 7))
	deaf := c.way.of(n.Own.Incarnation)
	deaf.detach()
	t.Cleanup(deaf.reattach)
	was := s.Member()
	c.Members.Now().Kill(was.Incarnation)
	peertest.Await(t, "it serves in a new epoch", func() bool { return s.Epoch() > was.Epoch && s.Away() == nil })
	if err := p.Do([]fabric.Op{fabric.FAA(peertest.Word, 1000)}); err == nil {
		t.Error("an operation of the epoch before")
	}
	if got := s.Word(64).Load(); got != 7 {
		t.Errorf("the word is %d", got)
	}
}

func TestCoordinatorLosesItsStorage(t *testing.T) { peertest.LosesStorage(t, &oneEach(t).Cluster) }

// A file of memory brings its epoch along, too: the coordinator may have lost its storage while no process served it.
func TestFileBringsItsEpoch(t *testing.T) {
	c := newTestCluster(t)
	file := filepath.Join(t.TempDir(), "memory")
	c.change = func(o *Options) { o.File = file }
	for want := uint32(1); want < 4; want++ {
		s := c.Serve(0, 1<<16)
		if s.Epoch() != want {
			t.Errorf("epoch %d, want %d", s.Epoch(), want)
		}
		c.KillMN(0)
	}
	c.Members.Replace()
	if s := c.Serve(0, 1<<16); s.Epoch() != 4 {
		t.Errorf("epoch %d of a coordinator that knows nothing, want 4", s.Epoch())
	}
	c.Close()
}

func TestMemoryNodeThatWasReplacedEnds(t *testing.T) {
	peertest.Replaced(t, func() *peertest.Cluster[*node, *MemoryServer] {
		c := newTestCluster(t)
		c.Serve(0, 1<<16)
		return &c.Cluster
	})
}

func TestCloseWhileJoiningAgain(t *testing.T) {
	peertest.ClosesWhileJoining(t, &newTestCluster(t).Cluster)
}

// A memory node, or a compute node, that has joined acts on a state from before its own publication until a later one comes. By that it lets no node in: a node that is
// in it may have been given up before the node was published, and the node was not asked to shut it out.
func TestOldStatesLetNoNodeIn(t *testing.T) {
	c := oneEach(t)
	s, n, other := c.Servers[0], c.Nodes[0], c.Join()
	cn := func(n *node) []member.CN { return []member.CN{n.Own} }
	for _, x := range []struct {
		what     string
		standing *peer.Standing
		enter    func(*guest) error
		to       member.Incarnation
		after    *member.State // with the one that joined, and without the guest
	}{
		{"memory node", &s.peer.Standing, func(g *guest) error {
			s.peer.Mu.Lock()
			defer s.peer.Mu.Unlock()
			_, _, err := s.enter(g)
			return err
		}, s.peer.Own.Incarnation, &member.State{Revision: 101, MNs: []member.MN{s.peer.Own}}},
		{"compute node", &other.Standing, func(g *guest) error {
			other.Mu.Lock()
			defer other.Mu.Unlock()
			_, _, err := other.enter(g)
			return err
		}, other.Own.Incarnation, &member.State{Revision: 101, CNs: cn(other)}},
	} {
		g := &guest{hello: hello{from: uint64(n.Own.Incarnation), to: uint64(x.to), cn: uint8(n.Own.ID), index: 9, revision: 101}}
		x.standing.Take(&member.State{Revision: 100, CNs: cn(n)})
		if err := x.enter(g); !errors.Is(err, peer.ErrBehind) {
			t.Errorf("%s, by a state of before: %v", x.what, err)
		}
		x.standing.Take(x.after)
		if err := x.enter(g); !errors.Is(err, fabric.ErrFenced) {
			t.Errorf("%s, by the state with which it joined: %v", x.what, err)
		}
	}
}
