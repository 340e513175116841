package declock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/objstore"
)

// A memory node restarts without its memory, and others make a store in the new memory. A process of before, which has
// a tree and a store open, does nothing there: not in a new session, whose Port is in the new life from the start, not
// if it had not used a lock before, and not when it closes.
func TestLostMemoryOfOthersIsNotTouched(t *testing.T) {
	for _, used := range []bool{true, false} {
		t.Run(fmt.Sprintf("locks used before %v", used), func(t *testing.T) { lostMemory(t, used) })
	}
}

func lostMemory(t *testing.T, used bool) {
	ctx := context.Background()
	o := shm.Options{Name: "lost", Dir: t.TempDir(), Size: 64 << 20, Sparse: true}
	m := serve(t, o)
	old, err := declock.Open(ctx, "shm:lost", declock.WithDir(o.Dir))
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	tree, err := old.Tree(ctx, "t", btree.Config{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := old.Store(ctx, "before", objstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("x"), 60000)
	if used { // the compute node has an extent of large values, and of chunks
		usedBefore(t, old, tree, store, large)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m = serve(t, o)
	defer m.Close()
	others, err := declock.Open(ctx, "shm:lost", declock.WithDir(o.Dir))
	if err != nil {
		t.Fatal(err)
	}
	defer others.Close()
	const objects = 3000
	theirs := fill(t, others, objects)

	s := session(t, old)
	if k, err := tree.Client(s); err == nil {
		for i := range 8 {
			if err := k.Put(fmt.Appendf(nil, "k%d", i), large); !errors.Is(err, cn.ErrMemoryLost) {
				t.Errorf("Put: %v", err)
			}
		}
	} else if !errors.Is(err, cn.ErrMemoryLost) {
		t.Errorf("Client of the tree: %v", err)
	}
	if _, err := store.Client(s); !errors.Is(err, cn.ErrMemoryLost) {
		t.Errorf("Client of the store: %v", err)
	}
	if _, err := old.Tree(ctx, "another", btree.Config{}); !errors.Is(err, cn.ErrMemoryLost) {
		t.Errorf("Tree: %v", err)
	}
	if _, err := old.Locks(ctx, "l", 1); !errors.Is(err, cn.ErrMemoryLost) {
		t.Errorf("Locks: %v", err)
	}
	if err := old.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if r, err := theirs.Check(objstore.CheckOptions{}); err != nil || !r.Sound() {
		t.Errorf("the store of others: %+v, %v", r, err)
	}
	for i := range objects {
		if item, err := theirs.Get(fmt.Appendf(nil, "key%d", i)); err != nil || len(item.Value) != 500 {
			t.Fatalf("key%d of the store of others: %d bytes, %v", i, len(item.Value), err)
		}
	}
}

// usedBefore has a process take memory of a tree and of a store.
func usedBefore(t *testing.T, c *declock.Cluster, tree *declock.Tree, store *declock.Store, value []byte) {
	t.Helper()
	s := session(t, c)
	k, err := tree.Client(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Put([]byte("k"), value); err != nil {
		t.Fatal(err)
	}
	cache, err := store.Client(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := cache.Set([]byte("k"), value, objstore.Options{}); err != nil {
		t.Fatal(err)
	}
}

// fill makes a store with objects.
func fill(t *testing.T, c *declock.Cluster, objects int) *objstore.Client {
	t.Helper()
	st, err := c.Store(context.Background(), "theirs", objstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	k, err := st.Client(session(t, c))
	if err != nil {
		t.Fatal(err)
	}
	for i := range objects {
		if err := k.Set(fmt.Appendf(nil, "key%d", i), bytes.Repeat([]byte("v"), 500), objstore.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	return k
}
