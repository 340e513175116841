package declock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
)

// Trees and stores that were made before a memory node joined are opened by processes that join later, with the nodes
// that they have; and whoever wants other nodes makes nothing on them.
func TestNewcomersOpenWhatWasThereBeforeAMemoryNodeJoined(t *testing.T) {
	ctx := context.Background()
	o := shm.Options{Name: "joined", Dir: t.TempDir(), Size: 64 << 20, Sparse: true}
	m := serve(t, o)
	defer m.Close()
	before := opened(t, "joined", o.Dir)
	tree, err := before.Tree(ctx, "t", declock.TreeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	k, err := tree.Client(session(t, before))
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Put([]byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	if _, err := before.Store(ctx, "s", declock.StoreConfig{}); err != nil {
		t.Fatal(err)
	}
	o.Mem = 1
	m1 := serve(t, o)
	defer m1.Close()

	after := opened(t, "joined", o.Dir)
	both := []fabric.MemID{0, 1}
	if _, err := after.Tree(ctx, "t", declock.TreeConfig{Nodes: both}); !errors.Is(err, btree.ErrGeometry) {
		t.Errorf("the tree, on two memory nodes: %v", err)
	}
	if _, err := after.Store(ctx, "s", declock.StoreConfig{Nodes: both}); !errors.Is(err, objstore.ErrGeometry) {
		t.Errorf("the store, on two memory nodes: %v", err)
	}
	s := session(t, after)
	r, err := memory.Open(s.Port(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := r.List(s.Port()); err != nil || len(list) > 0 {
		t.Errorf("on the memory node that has joined: %v, %v", list, err)
	}
	if tree, err = after.Tree(ctx, "t", declock.TreeConfig{}); err != nil {
		t.Fatal(err)
	}
	if k, err = tree.Client(s); err != nil {
		t.Fatal(err)
	}
	if v, err := k.Get([]byte("k")); err != nil || string(v) != "v" {
		t.Errorf("Get: %q, %v", v, err)
	}
	if _, err := after.Store(ctx, "s", declock.StoreConfig{}); err != nil {
		t.Error(err)
	}
	st, err := after.Store(ctx, "new", declock.StoreConfig{})
	if err != nil || len(st.Nodes()) != 2 {
		t.Errorf("a new store: %v", err)
	}
}

func opened(t *testing.T, name, dir string) *declock.Cluster {
	t.Helper()
	c, err := declock.Open(context.Background(), "shm:"+name, declock.WithDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
