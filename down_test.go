package declock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/mn"
	"github.com/declock/declock/objstore"
)

// With one of two memory nodes down, whichever, a process opens the cluster, the locks, and a store that lies on the other. Only the locks on that node
// fail; when it is back, all work, also by LockIDs of before.
func TestOpenWithAMemoryNodeDown(t *testing.T) {
	ctx := context.Background()
	for down := range fabric.MemID(2) {
		up := 1 - down
		dir := t.TempDir()
		serve := func(id fabric.MemID) *mn.Node {
			t.Helper()
			srv, err := shm.Serve(shm.Options{Name: "down", Dir: dir, Mem: id, Size: 16 << 20, Sparse: true, Keep: true})
			if err != nil {
				t.Fatal(err)
			}
			m, err := mn.Start(srv, mn.Config{Participants: shm.DefaultMaxCN})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { m.Close() })
			return m
		}
		nodes := []*mn.Node{serve(0), serve(1)}
		first := opened(t, "down", dir)
		l, err := first.Locks(ctx, "l", 4)
		if err != nil {
			t.Fatal(err)
		}
		on := func(mn fabric.MemID) int { // a lock there
			if l.At(0).Addr().MN() == mn {
				return 0
			}
			return 1
		}
		cfg := objstore.Config{Nodes: []fabric.MemID{up}}
		if _, err := first.Store(ctx, "s", cfg); err != nil {
			t.Fatal(err)
		}
		if err := nodes[down].Close(); err != nil {
			t.Fatal(err)
		}
		c := opened(t, "down", dir)
		s := session(t, c)
		again, err := c.Locks(ctx, "l", 4)
		if err != nil {
			t.Fatalf("%v is down: locks: %v", down, err)
		}
		missing, there := again.At(on(down)), again.At(on(up))
		if _, err := s.Lock(ctx, missing); !errors.Is(err, fabric.ErrNodeDown) {
			t.Errorf("%v is down: its lock: %v", down, err)
		}
		if _, err := s.LockAll(ctx, declock.Want{ID: there, Mode: declock.Exclusive}, declock.Want{ID: missing, Mode: declock.Exclusive}); !errors.Is(err, fabric.ErrNodeDown) {
			t.Errorf("%v is down: a lock of each: %v", down, err)
		}
		g, err := s.Lock(ctx, there)
		if err != nil || there != again.At(on(up)) || there.Addr() != l.At(on(up)).Addr() {
			t.Fatalf("%v is down: the other's lock: %v", down, err)
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		st, err := c.Store(ctx, "s", objstore.Config{})
		if err != nil {
			t.Fatalf("%v is down: a store on the other: %v", down, err)
		}
		cache, err := st.Client(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := cache.Set([]byte("k"), []byte("v"), objstore.Options{}); err != nil {
			t.Errorf("%v is down: set: %v", down, err)
		}
		serve(down)
		all, err := s.LockAll(ctx, declock.Want{ID: missing, Mode: declock.Exclusive}, declock.Want{ID: there, Mode: declock.Shared})
		if err != nil {
			t.Fatalf("%v is back: %v", down, err)
		}
		if all.Token(missing) == 0 || again.At(on(down)).Addr() != l.At(on(down)).Addr() {
			t.Errorf("%v is back: its lock is at %v, and was at %v", down, again.At(on(down)), l.At(on(down)))
		}
		if err := all.Unlock(); err != nil {
			t.Error(err)
		}
	}
}
