package tcp

import (
	"context"
	"errors"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/mn"
)

// A memory node that is down is no member any more, and belongs to the cluster all the same: a store that lies on it is not made a second time
// elsewhere, a store with a part on it is opened, and so are locks that lie on both.
func TestMemoryNodeThatIsDownBelongsToTheCluster(t *testing.T) {
	ctx := context.Background()
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	for i := range fabric.MemID(2) {
		if _, err := mn.Start(c.Serve(i, 32<<20), mn.Config{Participants: 8}); err != nil {
			t.Fatal(err)
		}
	}
	open := func(n fabric.Node) *declock.Cluster {
		t.Helper()
		x, err := declock.OpenNode(n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { x.Close() })
		return x
	}
	a := open(c.Join())
	for name, nodes := range map[string][]fabric.MemID{"lost": {1}, "half": {0, 1}} {
		if _, err := a.Store(ctx, name, declock.StoreConfig{Nodes: nodes}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Locks(ctx, "l", 4); err != nil {
		t.Fatal(err)
	}
	c.KillMN(1)
	n := c.Join()
	peertest.Await(t, "mn1 down", func() bool { return len(n.Memory()) == 1 })
	b := open(n)
	if _, err := b.Store(ctx, "lost", declock.StoreConfig{}); !errors.Is(err, fabric.ErrNodeDown) {
		t.Errorf("a store on mn1 alone: %v", err)
	}
	if _, err := b.Store(ctx, "half", declock.StoreConfig{}); err != nil {
		t.Errorf("a store on both: %v", err)
	}
	l, err := b.Locks(ctx, "l", 4)
	if err != nil {
		t.Fatalf("locks on both: %v", err)
	}
	s, err := b.Session()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	g, err := s.Lock(ctx, l.At(0))
	if err != nil {
		t.Fatalf("lock on mn0: %v", err)
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
	if _, err := s.Lock(ctx, l.At(1)); !errors.Is(err, fabric.ErrNodeDown) {
		t.Errorf("lock on mn1: %v", err)
	}
}
