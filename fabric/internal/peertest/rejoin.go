package peertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// Word is where the tests have something in memory node 0.
var Word = fabric.At(0, 64)

// Do executes operations that must not fail.
func Do(t testing.TB, p fabric.Port, ops ...fabric.Op) []fabric.Op {
	t.Helper()
	if err := p.Do(ops); err != nil {
		t.Fatal(err)
	}
	return ops
}

// Open opens a Port.
func Open(t testing.TB, n fabric.Node) fabric.Port {
	t.Helper()
	p, err := n.Open()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ended waits for the end of a memory node.
func ended(t *testing.T, s member.MemoryServer) {
	t.Helper()
	select {
	case <-s.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
}

// JoinsAgain checks that a memory node that the cluster has given up, as one that was stopped for longer than its lease, joins again with its
// memory, and executes nothing of before in the new epoch. The cluster has a node of each kind. In each round, before is called first; what
// it returns is called while the memory node is away, and with a Port that is attached in the new epoch.
func JoinsAgain[N fabric.Node, S member.MemoryServer](t *testing.T, c *Cluster[N, S], before func(n N, s S) (away func(), back func(p fabric.Port))) {
	s, n := c.Servers[0], c.Nodes[0]
	p := Open(t, n)
	Do(t, p, fabric.FAA(Word, 7))
	for range 3 {
		was := s.Member()
		away, back := before(n, s)
		release := c.Members.Hold()
		c.Members.Now().Kill(was.Incarnation)
		Await(t, "it is away", func() bool { return s.Away() != nil })
		away()
		if err := p.Do([]fabric.Op{fabric.FAA(Word, 1000)}); err == nil {
			t.Error("an operation on a memory node that is no member")
		}
		release()
		Await(t, "the memory node has joined again", func() bool { return s.Away() == nil && s.Epoch() > was.Epoch })
		if s.Epoch() != was.Epoch+1 {
			t.Errorf("epoch %d after %d", s.Epoch(), was.Epoch)
		}
		c.AwaitMN(s)
		if err := p.Do([]fabric.Op{fabric.FAA(Word, 1000)}); !errors.Is(err, fabric.ErrStaleEpoch) {
			t.Errorf("a Port of before: %v", err)
		}
		if err := p.Reattach(0, s.Epoch()); err != nil {
			t.Fatal(err)
		}
		back(p)
		Do(t, p, fabric.FAA(Word, 1))
	}
	if got := s.Word(Word.Offset()).Load(); got != 10 {
		t.Errorf("the word is %d: 7, and once 1 in each epoch, is 10", got)
	}
	select {
	case <-s.Done():
		t.Errorf("it has ended: %v", s.Err())
	default:
	}
}

// LosesStorage checks that a memory node joins a coordinator that has lost its storage, with its memory and a later epoch. The cluster has a node
// of each kind.
func LosesStorage[N fabric.Node, S member.MemoryServer](t *testing.T, c *Cluster[N, S]) {
	s, n := c.Servers[0], c.Fabric.Core(c.Nodes[0])
	Do(t, c.Nodes[0].Agent(), fabric.FAA(Word, 7))
	for range 10 { // so that the revisions of the new one are lower
		if err := c.Join().Close(); err != nil {
			t.Error(err)
		}
	}
	was, old := s.Member(), c.Members.Now()
	c.Members.Replace()
	old.Kill(was.Incarnation)
	old.Kill(n.Own.Incarnation)
	Await(t, "the memory node has joined again", func() bool { return s.Away() == nil && s.Epoch() > was.Epoch })
	<-n.Fenced()
	again := c.Join()
	p := again.Agent()
	Do(t, p, fabric.FAA(Word, 1))
	if got := s.Word(Word.Offset()).Load(); got != 8 || again.Memory()[0].Epoch != was.Epoch+1 {
		t.Errorf("the word is %d, want 8; memory is %+v, was at epoch %d", got, again.Memory(), was.Epoch)
	}
	// Later states are followed: a crash, for one.
	c.Members.Now().Kill(c.Fabric.Core(again).Own.Incarnation)
	Await(t, "the fenced node is shut out", func() bool {
		return errors.Is(p.Do([]fabric.Op{fabric.FAA(Word, 1)}), fabric.ErrFenced)
	})
}

// Replaced checks that a memory node ends if another process has served its number while it was given up, and may have left since: the memory
// of that process is newer. start starts a cluster with one memory node.
func Replaced[N fabric.Node, S member.MemoryServer](t *testing.T, start func() *Cluster[N, S]) {
	for _, leaves := range []bool{true, false} {
		c := start()
		s := c.Servers[0]
		release := c.Members.Hold()
		c.Members.Now().Kill(s.Member().Incarnation)
		Await(t, "it is away", func() bool { return s.Away() != nil })
		m, err := c.Members.Now().JoinMN(context.Background(), member.MN{Size: s.Size()}, func(m member.Member) {
			go func() { _ = peer.Follow(context.Background(), m, func(*member.State) {}) }()
		})
		if err != nil {
			t.Fatal(err)
		}
		want := member.ErrInUse
		if leaves {
			want = peer.ErrSuperseded
			_ = m.Leave(context.Background())
		}
		release()
		ended(t, s)
		if err := s.Err(); !errors.Is(err, want) {
			t.Errorf("it ends with %v, want %v", err, want)
		}
		_ = m.Leave(context.Background())
		c.Close()
	}
}

// ClosesWhileJoining checks that a memory node that is closed while it joins again is no member.
func ClosesWhileJoining[N fabric.Node, S member.MemoryServer](t *testing.T, c *Cluster[N, S]) {
	for range 20 {
		s := c.Serve(0, 1<<16)
		c.Members.Now().Kill(s.Member().Incarnation)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		Await(t, "it is no member", func() bool { return len(c.State().MNs) == 0 })
	}
}
