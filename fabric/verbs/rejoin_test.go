//go:build linux && cgo

package verbs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// back waits until a memory node serves in a later epoch.
func back(t testing.TB, s *MemoryServer, epoch uint32) {
	t.Helper()
	await(t, "the memory node has joined again", func() bool { return s.Away() == nil && s.Epoch() > epoch })
}

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

// A memory node that the cluster has given up joins again with its memory. In the new epoch nothing of before reaches it: the queue pairs
// are gone, and the device refuses the old key.
func TestMemoryNodeJoinsAgainWithItsMemory(t *testing.T) {
	c := cluster(t, 1<<16, 1)
	s, n := c.servers[0], c.nodes[0]
	p, err := n.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Do([]fabric.Op{fabric.FAA(counter, 7)}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		was, old := s.Member(), remoteOf(n, 0)
		guests, _ := s.attached()
		release := c.members.Hold()
		c.members.Now().Kill(was.Incarnation)
		await(t, "it is away", func() bool { return s.Away() != nil })
		if now, _ := s.attached(); len(guests) != 1 || len(now) != 0 || guests[0].lanes != nil {
			t.Error("queue pairs of before are still connected")
		}
		if err := p.Do([]fabric.Op{fabric.FAA(counter, 1000)}); err == nil {
			t.Error("an operation on a memory node that is no member")
		}
		release()
		back(t, s, was.Epoch)
		if s.Epoch() != was.Epoch+1 {
			t.Errorf("epoch %d after %d", s.Epoch(), was.Epoch)
		}
		c.awaitMN(s)
		if err := p.Do([]fabric.Op{fabric.FAA(counter, 1000)}); !errors.Is(err, fabric.ErrStaleEpoch) {
			t.Errorf("a Port of before: %v", err)
		}
		if err := p.Reattach(0, s.Epoch()); err != nil {
			t.Fatal(err)
		}
		r := remoteOf(n, 0)
		keys := r.keys
		r.keys = old.keys
		if err := p.Do([]fabric.Op{fabric.FAA(counter, 1000)}); !errors.Is(err, fabric.ErrBadKey) {
			t.Errorf("the key of before: %v", err)
		}
		r.keys = keys
		if err := p.Do([]fabric.Op{fabric.FAA(counter, 1)}); err != nil {
			t.Errorf("in the new epoch: %v", err)
		}
	}
	if got := s.Word(counter.Offset()).Load(); got != 10 {
		t.Errorf("the word is %d: 7, and once 1 in each epoch, is 10", got)
	}
	select {
	case <-s.Done():
		t.Errorf("it has ended: %v", s.Err())
	default:
	}
}

// The coordinator loses all that it knows: the memory node joins the one that follows, with its memory and a later epoch.
func TestCoordinatorLosesItsStorage(t *testing.T) {
	c := cluster(t, 1<<16, 1)
	s, n := c.servers[0], c.nodes[0]
	if err := n.Agent().Do([]fabric.Op{fabric.FAA(counter, 7)}); err != nil {
		t.Fatal(err)
	}
	was, old := s.Member(), c.members.Now()
	c.members.Replace()
	old.Kill(was.Incarnation)
	old.Kill(n.Own.Incarnation)
	back(t, s, was.Epoch)
	<-n.Fenced()
	c.nodes = nil
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	c.join()
	again := c.nodes[0]
	p := again.Agent()
	if err := p.Do([]fabric.Op{fabric.FAA(counter, 1)}); err != nil {
		t.Fatal(err)
	}
	if got := s.Word(counter.Offset()).Load(); got != 8 || again.Memory()[0].Epoch != was.Epoch+1 {
		t.Errorf("the word is %d, want 8; memory is %+v, was at epoch %d", got, again.Memory(), was.Epoch)
	}
	// What follows is followed: a death, for one.
	c.members.Now().Kill(again.Own.Incarnation)
	await(t, "the fenced node is shut out", func() bool {
		return errors.Is(p.Do([]fabric.Op{fabric.FAA(counter, 1)}), fabric.ErrFenced)
	})
	if guests, _ := s.attached(); len(guests) != 0 {
		t.Error("a dead node is attached")
	}
}

// acknowledge acknowledges all states.
func acknowledge(m member.Member) {
	for {
		st, newer := m.State()
		m.Ack(st.Revision)
		select {
		case <-newer:
		case <-m.Done():
			return
		}
	}
}

// Another process has served the number while the memory node was given up: what that one has, or had, is newer.
func TestMemoryNodeThatWasReplacedEnds(t *testing.T) {
	needDevice(t)
	for _, leaves := range []bool{true, false} {
		c := newTestCluster(t)
		s := c.serve(0, 1<<16)
		release := c.members.Hold()
		c.members.Now().Kill(s.Member().Incarnation)
		await(t, "it is away", func() bool { return s.Away() != nil })
		m, err := c.members.Now().JoinMN(context.Background(), member.MN{Size: 1 << 16}, func(m member.Member) { go acknowledge(m) })
		if err != nil {
			t.Fatal(err)
		}
		want := member.ErrInUse
		if leaves {
			want = ErrSuperseded
			_ = m.Leave(context.Background())
		}
		release()
		select {
		case <-s.Done():
		case <-time.After(20 * time.Second):
			t.Fatal("it does not end")
		}
		if err := s.Err(); !errors.Is(err, want) {
			t.Errorf("it ends with %v, want %v", err, want)
		}
		_ = m.Leave(context.Background())
		c.Close()
	}
}

// One that is closed while it joins again leaves nobody behind.
func TestCloseWhileJoiningAgain(t *testing.T) {
	needDevice(t)
	c := newTestCluster(t)
	for range 10 {
		s := c.serve(0, 1<<16)
		c.members.Now().Kill(s.Member().Incarnation)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		await(t, "nobody is there", func() bool { return len(c.state().MNs) == 0 })
	}
}

// A memory node cannot register its memory again: it ends, and says so.
func TestMemoryThatIsNotRegisteredAgainEndsTheNode(t *testing.T) {
	c := cluster(t, 1<<16, 1)
	s := c.servers[0]
	s.peer.Mu.Lock()
	s.o.Size = 1 << 40 // more than is mapped
	s.peer.Mu.Unlock()
	c.members.Now().Kill(s.Member().Incarnation)
	select {
	case <-s.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	if s.Err() == nil || len(c.state().MNs) != 0 {
		t.Errorf("it ends with %v, members: %+v", s.Err(), c.state().MNs)
	}
}

// A compute node attaches again before the memory node has noticed that it has given its session up: nothing that it posts to the old queue pairs
// is executed any more.
func TestAttachCutsTheSessionBefore(t *testing.T) {
	c := cluster(t, 1<<16, 1)
	s, n := c.servers[0], c.nodes[0]
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
	await(t, "it is attached", func() bool { r := remoteOf(n, 0); return r != old && r.Up.Load() })
	if err := p.Do([]fabric.Op{fabric.FAA(counter, 1)}); err != nil {
		t.Error(err)
	}
	await(t, "one session is left", func() bool { _, lanes := s.attached(); return lanes == n.o.QueuePairs })
	if got := s.Word(counter.Offset()).Load(); got != 2 {
		t.Errorf("the word is %d, want 2", got)
	}
}
