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
}

func (n *lapsing) Leased() bool { return !n.lapsed.Load() }

// A guard is notified when its process can neither keep its lease nor reach the lock's memory node, and not when it can do one of both.
func TestGuardCutOff(t *testing.T) {
	o := shm.Options{Name: "cut", Dir: t.TempDir(), Size: 64 << 20, Sparse: true}
	srv, err := shm.Serve(o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mn.Start(srv, mn.Config{Queue: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	f, err := shm.Join(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	n := &lapsing{Node: f}
	c, err := OpenNode(n)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.watches.every = 10 * time.Millisecond
	const looks = 60 * time.Millisecond
	l, err := c.Locks(t.Context(), "l", 1)
	if err != nil {
		t.Fatal(err)
	}
	g, err := c.Lock(t.Context(), l.At(0))
	if err != nil {
		t.Fatal(err)
	}
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
