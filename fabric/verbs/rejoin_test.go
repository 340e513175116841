//go:build cgo && !shmonly

package verbs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
)

// attached returns the guests of a memory node and their number of queue pairs.
func (s *MemoryServer) attached() (guests []*guest, lanes int) {
	s.peer.Mu.Lock()
	defer s.peer.Mu.Unlock()
	for _, g := range s.guests {
		guests = append(guests, g)
		lanes += len(g.lanes)
	}
	return guests, lanes
}

// Besides, the queue pairs are gone in the new epoch, and the device refuses the old key.
func TestMemoryNodeJoinsAgainWithItsMemory(t *testing.T) {
	peertest.JoinsAgain(t, &cluster(t, 1<<16, 1).Cluster, func(n *node, s *MemoryServer) (func(), func(fabric.Port)) {
		guests, _ := s.attached()
		old := remoteOf(n, 0).keys
		return func() {
				if now, _ := s.attached(); len(guests) != 1 || len(now) != 0 || guests[0].lanes != nil {
					t.Error("queue pairs of before are still connected")
				}
			}, func(p fabric.Port) {
				r := remoteOf(n, 0)
				keys := r.keys
				r.keys = old
				if err := p.Do([]fabric.Op{fabric.FAA(counter, 1000)}); !errors.Is(err, fabric.ErrBadKey) {
					t.Errorf("the key of before: %v", err)
				}
				r.keys = keys
			}
	})
}

func TestCoordinatorLosesItsStorage(t *testing.T) {
	c := cluster(t, 1<<16, 1)
	peertest.LosesStorage(t, &c.Cluster)
	peertest.Await(t, "no crashed node is attached", func() bool { // the node itself may have learnt first that it is fenced
		guests, _ := c.Servers[0].attached()
		return len(guests) == 0
	})
}

func TestMemoryNodeThatWasReplacedEnds(t *testing.T) {
	needDevice(t)
	peertest.Replaced(t, func() *peertest.Cluster[*node, *MemoryServer] {
		c := newTestCluster(t)
		c.Serve(0, 1<<16)
		return &c.Cluster
	})
}

func TestCloseWhileJoiningAgain(t *testing.T) {
	needDevice(t)
	peertest.ClosesWhileJoining(t, &newTestCluster(t).Cluster)
}

// A memory node cannot register its memory again: it ends, and says so.
func TestMemoryThatIsNotRegisteredAgainEndsTheNode(t *testing.T) {
	c := cluster(t, 1<<16, 1)
	s := c.Servers[0]
	s.peer.Mu.Lock()
	s.o.Size = 1 << 40 // more than is mapped
	s.peer.Mu.Unlock()
	c.Members.Now().Kill(s.Member().Incarnation)
	select {
	case <-s.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	if s.Err() == nil || len(c.State().MNs) != 0 {
		t.Errorf("it ends with %v, members: %+v", s.Err(), c.State().MNs)
	}
}

// A compute node attaches again before the memory node has noticed that it has given its session up: nothing that it posts to the old queue pairs
// is executed any more.
func TestAttachCutsTheSessionBefore(t *testing.T) {
	c := cluster(t, 1<<16, 1)
	s, n := c.Servers[0], c.Nodes[0]
	p, err := n.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Do([]fabric.Op{fabric.FAA(counter, 1)}); err != nil {
		t.Fatal(err)
	}
	before, lanes := s.attached()
	old := remoteOf(n, 0)
	second := newRemote(n, old.MN)
	if err := second.open(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(before) != 1 || lanes != n.o.QueuePairs || before[0].lanes != nil {
		t.Errorf("the memory node still has the queue pairs of the session before: %d guests", len(before))
	}
	second.End()
	close(second.Verdict)
	// The node finds out that its session has ended, and attaches again.
	peertest.Await(t, "it is attached", func() bool { r := remoteOf(n, 0); return r != old && r.Up.Load() })
	if err := p.Do([]fabric.Op{fabric.FAA(counter, 1)}); err != nil {
		t.Error(err)
	}
	peertest.Await(t, "one session is left", func() bool { _, lanes := s.attached(); return lanes == n.o.QueuePairs })
	if got := s.Word(counter.Offset()).Load(); got != 2 {
		t.Errorf("the word is %d, want 2", got)
	}
}
