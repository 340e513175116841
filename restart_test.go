package declock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/mn"
	"github.com/declock/declock/objstore"
)

// serve starts a memory node of a cluster.
func serve(t *testing.T, o shm.Options) *mn.Node {
	t.Helper()
	srv, err := shm.Serve(o)
	if err != nil {
		t.Fatal(err)
	}
	n, err := mn.Start(srv, mn.Config{Participants: shm.DefaultMaxCN})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A memory node that restarts with its memory: while it is down there are clear errors; then sessions go on by
// themselves, with the data; a lock that was held is lost, its holder is told, and nothing that it does
// reaches the memory.
func TestMemoryNodeRestartsWithItsMemory(t *testing.T) {
	ctx := context.Background()
	o := shm.Options{Name: "restart", Dir: t.TempDir(), Size: 64 << 20, Sparse: true, Keep: true}
	m := serve(t, o)
	losses := make(chan lock.Loss, 10)
	c, err := declock.Open(ctx, "shm:restart", declock.WithDir(o.Dir), declock.WithOnLoss(func(l lock.Loss) { losses <- l }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	st, err := c.Store(ctx, "s", declock.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Locks(ctx, "l", 2)
	if err != nil {
		t.Fatal(err)
	}
	holder, other := session(t, c), session(t, c)
	cache, err := st.Client(other)
	if err != nil {
		t.Fatal(err)
	}
	if err := cache.Set([]byte("k"), []byte("v"), objstore.Options{}); err != nil {
		t.Fatal(err)
	}
	g, err := holder.Lock(ctx, l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := cache.Get([]byte("k")); !errors.Is(err, fabric.ErrNodeDown) {
		t.Errorf("Get while the memory node is down: %v", err)
	}
	m = serve(t, o)
	defer m.Close()
	item, err := cache.Get([]byte("k"))
	if err != nil || string(item.Value) != "v" {
		t.Errorf("Get after the restart: %q, %v", item.Value, err)
	}
	op := []fabric.Op{fabric.Store(l.At(1).Addr(), 1)}
	if err := holder.Port().Do(op); !errors.Is(err, fabric.ErrStaleEpoch) {
		t.Errorf("a WRITE by who held a lock: %v", err)
	}
	select {
	case loss := <-losses:
		if loss.Lock != l.At(0).Addr() || loss.Token != g.Token() || !errors.Is(loss.Err, lock.ErrLost) {
			t.Errorf("%+v; the token was %#x", loss, g.Token())
		}
	case <-time.After(time.Minute):
		t.Error("no session was notified that the lock is lost")
	}
	if err := g.Unlock(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	for _, s := range []*declock.Session{holder, other} {
		g2, err := s.Lock(ctx, l.At(0))
		if err != nil {
			t.Fatal(err)
		}
		if g2.Token() <= g.Token() {
			t.Errorf("token %#x after %#x", g2.Token(), g.Token())
		}
		if err := g2.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// A memory node that joins later is used for locks that are made then.
func TestMemoryNodeJoinsLater(t *testing.T) {
	ctx := context.Background()
	o := shm.Options{Name: "later", Dir: t.TempDir(), Size: 16 << 20, Sparse: true}
	m := serve(t, o)
	defer m.Close()
	c, err := declock.Open(ctx, "shm:later", declock.WithDir(o.Dir))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := session(t, c)
	o.Mem = 1
	m1 := serve(t, o)
	defer m1.Close()
	l, err := c.Locks(ctx, "l", 2)
	if err != nil {
		t.Fatal(err)
	}
	if l.At(0).Addr().MN() == l.At(1).Addr().MN() {
		t.Errorf("both locks are on %v", l.At(0).Addr().MN())
	}
	g, err := s.LockAll(ctx, declock.Want{ID: l.At(1), Mode: declock.Exclusive}, declock.Want{ID: l.At(0), Mode: declock.Exclusive})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
}

// A tree is where it was made: who opens it after another memory node has joined finds it there.
func TestTreeFromBeforeMemoryNodeJoined(t *testing.T) {
	ctx := context.Background()
	o := shm.Options{Name: "grown", Dir: t.TempDir(), Size: 16 << 20, Sparse: true}
	m := serve(t, o)
	defer m.Close()
	put := func(key string) {
		c, err := declock.Open(ctx, "shm:grown", declock.WithDir(o.Dir))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		tr, err := c.Tree(ctx, "t", declock.TreeConfig{})
		if err != nil {
			t.Fatal(err)
		}
		k, err := tr.Client(session(t, c))
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Put([]byte(key), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Get([]byte("first")); err != nil {
			t.Fatal(err)
		}
	}
	put("first")
	o.Mem = 1
	m1 := serve(t, o)
	defer m1.Close()
	put("second")
}

// A memory node formats its memory itself: it starts when all numbers of compute nodes are taken.
func TestMemoryNodeStartsWhenAllNumbersAreTaken(t *testing.T) {
	o := shm.Options{Name: "taken", Dir: t.TempDir(), Size: 16 << 20, Sparse: true, MaxCN: 1}
	m := serve(t, o)
	defer m.Close()
	c := opened(t, "taken", o.Dir)
	if _, err := declock.Open(context.Background(), "shm:taken", declock.WithDir(o.Dir)); !errors.Is(err, shm.ErrFull) {
		t.Fatalf("a second compute node: %v", err)
	}
	o.Mem = 1
	m1 := serve(t, o)
	defer m1.Close()
	l, err := c.Locks(context.Background(), "l", 2)
	if err != nil {
		t.Fatal(err)
	}
	if l.At(0).Addr().MN() == l.At(1).Addr().MN() {
		t.Errorf("locks at %v and %v", l.At(0), l.At(1))
	}
}
