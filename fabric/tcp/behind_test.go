package tcp

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/lock"
	layout "github.com/declock/declock/memory"
	"github.com/declock/declock/mn"
)

// A client releases a lock while its context has ended and another client of its node has left an operation behind on another lane: the release is
// refused, and the agent has the lock reset as soon as the memory node answers.
func TestInterruptedReleaseBehindAnUnknownOutcome(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.change = func(o *Options) {
		o.Heartbeat, o.DeadAfter, o.Lanes, o.Workers = 100*time.Millisecond, 20*time.Second, 2, 2
	}
	s := c.Serve(0, 8<<20)
	if _, err := mn.Start(s, mn.Config{Participants: 8}); err != nil {
		t.Fatal(err)
	}
	n := startNode(t, c.Join())
	var ss [2]*cn.Session
	for ss[0] == nil || ss[1] == nil {
		x := openSession(t, n)
		ss[x.Port().(*port).Lane%2] = x
	}
	other := openSession(t, startNode(t, c.Join()))
	e, _, err := n.Regions()[0].Create(ss[0].Port(), layout.Spec{Name: "l", Kind: layout.KindLocks, Size: 4096, Align: 64})
	if err != nil {
		t.Fatal(err)
	}
	var h lock.Hold
	if err := ss[1].Locker().Acquire(&h, &lock.Request{Lock: e.Addr, Mode: lock.Exclusive}); err != nil {
		t.Fatal(err)
	}
	goOn := s.stallNode(ss[0].Port().(*port).n.Own.Incarnation)
	ss[0].Port().Interrupt()
	if err := ss[0].Port().Do([]fabric.Op{fabric.FAA(e.Addr.Add(2048), 1)}); !errors.Is(err, fabric.ErrUnknownOutcome) {
		t.Errorf("the other client's FAA: %v", err)
	}
	ss[1].Port().Interrupt()
	if err := ss[1].Locker().Release(&h, nil); !errors.Is(err, fabric.ErrInterrupted) || errors.Is(err, fabric.ErrUnknownOutcome) {
		t.Errorf("release: %v", err)
	}
	goOn()
	ss[0].Port().ClearInterrupt()
	ss[1].Port().ClearInterrupt()
	peertest.Await(t, "the lock is free", func() bool {
		err := other.Locker().Acquire(&h, &lock.Request{Lock: e.Addr, Mode: lock.Exclusive, Try: true})
		return err == nil
	})
	if err := other.Locker().Release(&h, nil); err != nil {
		t.Error(err)
	}
}

func startNode(t *testing.T, n fabric.Node) *cn.Node {
	t.Helper()
	started, err := cn.Start(n, cn.Config{SyncIntervalNs: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { started.Close() })
	return started
}

func openSession(t *testing.T, n *cn.Node) *cn.Session {
	t.Helper()
	s, err := n.Session()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stallNode is stall for all the lanes of one compute node.
func (s *MemoryServer) stallNode(life member.Incarnation) (goOn func()) {
	s.peer.Mu.Lock()
	defer s.peer.Mu.Unlock()
	var held []*laneConn
	for k, l := range s.lanes {
		if c := l.conn.Load(); c != nil && k.incarnation == life {
			c.exec.Lock()
			held = append(held, c)
		}
	}
	return sync.OnceFunc(func() {
		for _, c := range held {
			c.exec.Unlock()
		}
	})
}
