package declock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// freeBytes returns how much of a cluster's only memory node nobody has.
func freeBytes(t *testing.T, c *declock.Cluster, s *declock.Session) uint64 {
	t.Helper()
	p, err := c.Node().Regions()[0].Pages(s.Port())
	if err != nil {
		t.Fatal(err)
	}
	return p.Free()
}

// The memory of a dropped store and tree comes back while all processes that had them open live, and have clients open: none of these, nor an
// iterator in the middle of a tree, touches it afterwards, whoever has it then.
func TestDroppedMemoryComesBackWhileAllLive(t *testing.T) {
	if testing.Short() {
		t.Skip("much memory, and no two goroutines that have anything in common")
	}
	ctx := context.Background()
	o := shm.Options{Name: "let-go", Dir: t.TempDir(), Size: 64 << 20, Sparse: true}
	m := serve(t, o)
	defer m.Close()
	var caches []*objstore.Client
	var trees []*btree.Client
	var scans []*btree.Iterator
	var clusters []*declock.Cluster
	watch := opened(t, o.Name, o.Dir)
	ws := session(t, watch)
	before := freeBytes(t, watch, ws)
	for range 2 {
		c := opened(t, o.Name, o.Dir)
		clusters = append(clusters, c)
		st, err := c.Store(ctx, "s", declock.StoreConfig{Objects: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		tr, err := c.Tree(ctx, "t", declock.TreeConfig{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			cache, err := st.Client(session(t, c))
			if err != nil {
				t.Fatal(err)
			}
			k, err := tr.Client(session(t, c))
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3000 {
				if err := errors.Join(cache.Set(fmt.Append(nil, i), make([]byte, 2000), objstore.Options{}), k.Put(fmt.Append(nil, i), make([]byte, 1000))); err != nil {
					t.Fatal(err)
				}
			}
			it := k.Scan(btree.Range{})
			if !it.Next() {
				t.Fatal(it.Err())
			}
			caches, trees, scans = append(caches, cache), append(trees, k), append(scans, it)
		}
	}
	if used := before - freeBytes(t, watch, ws); used < 8<<20 {
		t.Fatalf("%d bytes are used", used)
	}
	if err := errors.Join(watch.DropStore(ctx, "s"), watch.DropTree(ctx, "t")); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(60 * time.Second); freeBytes(t, watch, ws) != before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d of %d bytes are free", freeBytes(t, watch, ws), before)
		}
	}
	l, err := watch.Locks(ctx, "l", 150_000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range caches {
		if _, err := caches[i].Get([]byte("7")); !errors.Is(err, objstore.ErrDropped) {
			t.Errorf("get: %v", err)
		}
		for scans[i].Next() {
		}
		if err := scans[i].Err(); !errors.Is(err, btree.ErrDropped) {
			t.Errorf("scan: %v", err)
		}
		if err := trees[i].Put([]byte("7"), nil); !errors.Is(err, btree.ErrDropped) {
			t.Errorf("put: %v", err)
		}
		caches[i].Close()
		trees[i].Close()
	}
	for i := 0; i < l.Len(); i += 7 {
		g, err := ws.TryLock(l.At(i))
		if err == nil {
			err = g.Unlock()
		}
		if err != nil {
			t.Fatalf("lock %d: %v", i, err)
		}
	}
	for _, c := range clusters {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A process crashes that has a store and a tree open which have been dropped. Their memory comes back when another joins the cluster, in the number of the crashed one, too.
func TestDroppedMemoryComesBackAfterACrash(t *testing.T) {
	ctx := context.Background()
	o := shm.Options{Name: "crashed", Dir: t.TempDir(), Size: 64 << 20, Sparse: true}
	m := serve(t, o)
	defer m.Close()
	watch := opened(t, o.Name, o.Dir)
	ws := session(t, watch)
	before := freeBytes(t, watch, ws)
	c := opened(t, o.Name, o.Dir)
	if _, err := c.Store(ctx, "s", declock.StoreConfig{Objects: 10_000}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tree(ctx, "t", declock.TreeConfig{}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(watch.DropStore(ctx, "s"), watch.DropTree(ctx, "t")); err != nil {
		t.Fatal(err)
	}
	id := c.Node().Fabric().ID()
	if err := c.Node().Fabric().Close(); err != nil { // it gives nothing back
		t.Fatal(err)
	}
	if freeBytes(t, watch, ws) == before {
		t.Error("memory has come back that a compute node had open")
	}
	if next := opened(t, o.Name, o.Dir); next.Node().Fabric().ID() != id {
		t.Errorf("%v joined after %v", next.Node().Fabric().ID(), id)
	}
	if free := freeBytes(t, watch, ws); free != before {
		t.Errorf("%d of %d bytes are free", free, before)
	}
}

// A compute node has not left locks as long as it holds one, is in the queue of one, or its agent has not come to what it was asked for.
func TestLeftLocks(t *testing.T) {
	ctx := context.Background()
	o := shm.Options{Name: "left", Dir: t.TempDir(), Size: 64 << 20, Sparse: true}
	m := serve(t, o)
	defer m.Close()
	c, d := opened(t, o.Name, o.Dir), opened(t, o.Name, o.Dir)
	s, other, asks := session(t, c), session(t, d), session(t, c)
	l, err := c.Locks(ctx, "l", 2)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := d.Locks(ctx, "l", 2)
	if err != nil {
		t.Fatal(err)
	}
	left := func(i int) bool {
		var begun uint64
		for range 200 {
			if lock.Left(asks.Locker(), &begun, func(a fabric.Addr) bool { return a == l.At(i).Addr() }) {
				return true
			}
			time.Sleep(time.Millisecond)
		}
		return false
	}
	g, err := s.RLock(ctx, l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	if left(0) || !left(1) {
		t.Error("a lock that is held has been left, or the other has not")
	}
	if err := g.Unlock(); err != nil {
		t.Fatal(err)
	}
	if !left(0) {
		t.Error("not left after Unlock")
	}
	// A ticket that its client has given up stays in the queue until the grant has come and is passed on.
	if g, err = other.Lock(ctx, theirs.At(0)); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := s.Lock(short, l.At(0)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if left(0) {
		t.Error("left with a ticket in the queue")
	}
	if err := g.Unlock(); err != nil {
		t.Fatal(err)
	}
	if !left(0) {
		t.Error("not left after the grant")
	}
}
