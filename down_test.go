package declock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
		cfg := declock.StoreConfig{Nodes: []fabric.MemID{up}}
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
		st, err := c.Store(ctx, "s", declock.StoreConfig{})
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

// A store that lies on two memory nodes, of which one is down, is opened, found by its name: what is on the other can be read, and written if the store's first part
// is there. When the node is back, with its memory or without, all can, and no session is notified of a loss; another process works on all the time.
func TestOpenAStoreWithAMemoryNodeDown(t *testing.T) {
	ctx := context.Background()
	for down := range fabric.MemID(2) {
		for _, keep := range []bool{true, false} {
			x := twoNodes(t, keep)
			first := opened(t, "down", x.dir)
			st, err := first.Store(ctx, "s", declock.StoreConfig{})
			if err != nil {
				t.Fatal(err)
			}
			before, err := st.Client(session(t, first))
			if err != nil {
				t.Fatal(err)
			}
			keys := keysOn(st)
			for _, k := range keys {
				if err := before.Set(k, []byte("v"), objstore.Options{}); err != nil {
					t.Fatal(err)
				}
			}
			x.stop(down)
			c := opened(t, "down", x.dir)
			again, err := c.Store(ctx, "s", declock.StoreConfig{})
			if err != nil {
				t.Fatalf("%v is down: %v", down, err)
			}
			cache, err := again.Client(session(t, c))
			if err != nil {
				t.Fatalf("%v is down: client: %v", down, err)
			}
			if _, err := cache.Get(keys[down]); !errors.Is(err, fabric.ErrNodeDown) {
				t.Errorf("%v is down: get: %v", down, err)
			}
			if it, err := cache.Get(keys[1-down]); err != nil || string(it.Value) != "v" {
				t.Errorf("%v is down: get of the other: %q, %v", down, it.Value, err)
			}
			if err := cache.Set(keys[1-down], []byte("w"), objstore.Options{}); (err == nil) != (down == 1) || err != nil && !errors.Is(err, fabric.ErrNodeDown) {
				t.Errorf("%v is down: set on the other: %v", down, err)
			}
			x.serve(down)
			if it, err := cache.Get(keys[down]); keep && (err != nil || string(it.Value) != "v") || !keep && !errors.Is(err, objstore.ErrNotFound) {
				t.Errorf("%v is back, with its memory %v: get: %q, %v", down, keep, it.Value, err)
			}
			for _, k := range keys {
				if err := cache.Set(k, []byte("x"), objstore.Options{}); err != nil {
					t.Errorf("%v is back: set: %v", down, err)
				}
				it, err := before.Get(k)
				for range 2 { // a Port of before, and a loss
					if err != nil {
						it, err = before.Get(k)
					}
				}
				if err != nil || string(it.Value) != "x" {
					t.Errorf("%v is back: get by the first process: %q, %v", down, it.Value, err)
				}
			}
		}
	}
}

// A memory node that was down when a store was opened is back, and several clients at a time meet that.
func TestManyClientsMeetAMemoryNodeThatIsBack(t *testing.T) {
	ctx := context.Background()
	for down := range fabric.MemID(2) {
		x := twoNodes(t, true)
		if _, err := opened(t, "down", x.dir).Store(ctx, "s", declock.StoreConfig{}); err != nil {
			t.Fatal(err)
		}
		x.stop(down)
		c := opened(t, "down", x.dir)
		st, err := c.Store(ctx, "s", declock.StoreConfig{})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		begin := make(chan struct{})
		for i := range 4 {
			cache, err := st.Client(session(t, c))
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				<-begin
				for j := range 50 {
					k := fmt.Appendf(nil, "k%d.%d", i, j)
					if err := cache.Set(k, k, objstore.Options{}); err != nil {
						t.Errorf("%v is back: set: %v", down, err)
					}
					if it, err := cache.Get(k); err != nil || string(it.Value) != string(k) {
						t.Errorf("%v is back: get: %q, %v", down, it.Value, err)
					}
				}
			})
		}
		x.serve(down)
		close(begin)
		all.Wait()
	}
}

// A memory node that was down when a store was opened is back, and the other one has restarted since a client used it: with its memory.
func TestBothMemoryNodesHaveRestarted(t *testing.T) {
	ctx := context.Background()
	for down := range fabric.MemID(2) {
		x := twoNodes(t, true)
		st, err := opened(t, "down", x.dir).Store(ctx, "s", declock.StoreConfig{})
		if err != nil {
			t.Fatal(err)
		}
		keys := keysOn(st)
		x.stop(down)
		c := opened(t, "down", x.dir)
		if st, err = c.Store(ctx, "s", declock.StoreConfig{}); err != nil {
			t.Fatal(err)
		}
		cache, err := st.Client(session(t, c))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cache.Get(keys[1-down]); !errors.Is(err, objstore.ErrNotFound) {
			t.Errorf("%v is down: get of the other: %v", down, err)
		}
		x.stop(1 - down)
		x.serve(1 - down)
		x.serve(down)
		for _, k := range keys {
			if err := cache.Set(k, []byte("v"), objstore.Options{}); err != nil {
				t.Errorf("%v was down, and both are back: set: %v", down, err)
			}
		}
	}
}

// keysOn returns a key on each of two memory nodes.
func keysOn(st *declock.Store) (keys [2][]byte) {
	for i := range 20 {
		k := fmt.Appendf(nil, "k%d", i)
		mn, _ := st.Locate(k)
		keys[mn] = k
	}
	return keys
}

// A nodesTwo is a cluster in shared memory with two memory nodes that come and go.
type nodesTwo struct {
	t     *testing.T
	dir   string
	keep  bool
	nodes [2]*mn.Node
}

func twoNodes(t *testing.T, keep bool) *nodesTwo {
	x := &nodesTwo{t: t, dir: t.TempDir(), keep: true}
	x.serve(0)
	x.serve(1)
	x.keep = keep // as of the next start
	return x
}

func (x *nodesTwo) serve(id fabric.MemID) {
	x.t.Helper()
	srv, err := shm.Serve(shm.Options{Name: "down", Dir: x.dir, Mem: id, Size: 16 << 20, Sparse: true, Keep: x.keep})
	if err != nil {
		x.t.Fatal(err)
	}
	m, err := mn.Start(srv, mn.Config{Participants: shm.DefaultMaxCN})
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { m.Close() })
	x.nodes[id] = m
}

func (x *nodesTwo) stop(id fabric.MemID) {
	if err := x.nodes[id].Close(); err != nil {
		x.t.Fatal(err)
	}
}
