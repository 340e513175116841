package declock

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/mn"
)

// A lapsing node says that its lease has run out.
type lapsing struct {
	fabric.Node
	lapsed atomic.Bool
	full   atomic.Bool // and that it has no room for a client
	asked  atomic.Int32
}

func (n *lapsing) Open() (fabric.Port, error) {
	if n.full.Load() {
		n.asked.Add(1)
		return nil, fabric.ErrTooManyClients
	}
	return n.Node.Open()
}

func (n *lapsing) Leased() bool { return !n.lapsed.Load() }

// cutOffGuard opens a cluster of a node that can lapse, which looks often, and a lock that is held there.
func cutOffGuard(t *testing.T, every time.Duration) (*lapsing, *mn.Node, Guard) {
	t.Helper()
	o := shm.Options{Name: "cut", Dir: t.TempDir(), Size: 64 << 20, Sparse: true}
	srv, err := shm.Serve(o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mn.Start(srv, mn.Config{Queue: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	f, err := shm.Join(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	n := &lapsing{Node: f}
	c, err := OpenNode(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.watches.every = every
	l, err := c.Locks(t.Context(), "l", 1)
	if err != nil {
		t.Fatal(err)
	}
	g, err := c.Lock(t.Context(), l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	return n, m, g
}

// A guard is notified when its process can neither keep its lease nor reach the lock's memory node, and not when it can do one of both.
func TestGuardCutOff(t *testing.T) {
	n, m, g := cutOffGuard(t, 10*time.Millisecond)
	const looks = 60 * time.Millisecond
	lost := g.Lost()
	n.lapsed.Store(true)
	time.Sleep(looks)
	if isClosed(g.Lost()) {
		t.Error("the memory node answers, and the lock is lost")
	}
	n.lapsed.Store(false)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(looks)
	if isClosed(g.Lost()) {
		t.Error("the lease lasts, and the lock is lost")
	}
	n.lapsed.Store(true)
	select {
	case <-lost:
	case <-time.After(10 * time.Second):
		t.Error("the lease has run out, no memory node answers, and the guard is not notified")
	}
}

// A guard is notified when its process cannot keep its lease, and has no room for a client to ask the memory node with; not while it has its lease.
func TestGuardCutOffWithoutRoom(t *testing.T) {
	n, _, g := cutOffGuard(t, 100*time.Millisecond)
	lost := g.Lost()
	n.full.Store(true)
	time.Sleep(300 * time.Millisecond)
	if isClosed(lost) || n.asked.Load() > 0 {
		t.Errorf("the lease lasts: lost is %v, %d clients were opened", isClosed(lost), n.asked.Load())
	}
	n.lapsed.Store(true)
	select {
	case <-lost:
	case <-time.After(10 * time.Second):
		t.Fatal("the lease has run out, there is no room to ask, and the guard is not notified")
	}
	if n.asked.Load() < 2 {
		t.Error("room was looked for once only")
	}
}
