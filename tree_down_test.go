package declock_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/tcp"
	"github.com/declock/declock/mn"
)

// A twoMemories is a cluster with two memory nodes that come and go.
type twoMemories interface {
	serve(id fabric.MemID)
	stop(id fabric.MemID)
	open() *declock.Cluster
}

func (x *nodesTwo) open() *declock.Cluster { return opened(x.t, "down", x.dir) }

// A tcpTwo is a twoMemories over TCP.
type tcpTwo struct {
	t     *testing.T
	o     tcp.Options
	dir   string
	keep  bool
	nodes [2]*mn.Node
}

func twoOverTCP(t *testing.T, keep bool) *tcpTwo {
	x := &tcpTwo{t: t, dir: t.TempDir(), keep: keep, o: tcp.Options{Members: coordinator.NewMemory(fabric.MaxCN), Insecure: true, Listen: "127.0.0.1:0"}}
	x.serve(0)
	x.serve(1)
	return x
}

func (x *tcpTwo) serve(id fabric.MemID) {
	x.t.Helper()
	o := x.o
	if o.Mem, o.Size = id, 16<<20; x.keep {
		o.File = filepath.Join(x.dir, fmt.Sprint("mn", id))
	}
	srv, err := tcp.Serve(context.Background(), o)
	if err != nil {
		x.t.Fatal(err)
	}
	m, err := mn.Start(srv, mn.Config{Participants: 8})
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { m.Close() })
	x.nodes[id] = m
}

func (x *tcpTwo) stop(id fabric.MemID) {
	if err := x.nodes[id].Close(); err != nil {
		x.t.Fatal(err)
	}
}

func (x *tcpTwo) open() *declock.Cluster {
	x.t.Helper()
	f, err := tcp.Join(context.Background(), x.o)
	if err != nil {
		x.t.Fatal(err)
	}
	c, err := declock.OpenNode(f)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { c.Close() })
	return c
}

// A tree that lies on two memory nodes, of which one is down, is opened, found by its name. With the first one down, all is ErrNodeDown; with the other, what does not need it
// works. When the node is back with its memory, all works; without it, a client that has worked with the tree is notified of the loss.
func TestOpenATreeWithAMemoryNodeDown(t *testing.T) {
	for down := range fabric.MemID(2) {
		for _, keep := range []bool{true, false} {
			t.Run(fmt.Sprintf("shm, %v down, memory kept %v", down, keep), func(t *testing.T) { treeWithANodeDown(t, twoNodes(t, keep), down, keep) })
			t.Run(fmt.Sprintf("tcp, %v down, memory kept %v", down, keep), func(t *testing.T) { treeWithANodeDown(t, twoOverTCP(t, keep), down, keep) })
		}
	}
}

// small is a tree of several levels with few keys.
var small = declock.TreeConfig{MaxKey: 16, NodeSize: 256}

func treeWithANodeDown(t *testing.T, x twoMemories, down fabric.MemID, keep bool) {
	const keys = 100
	ctx := context.Background()
	first := x.open()
	tree, err := first.Tree(ctx, "t", small)
	if err != nil {
		t.Fatal(err)
	}
	before, err := tree.Client(session(t, first))
	if err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		if err := before.Put(fmt.Appendf(nil, "k%d", i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	x.stop(down)
	c := x.open()
	again, err := c.Tree(ctx, "t", declock.TreeConfig{})
	if err != nil {
		t.Fatalf("%v is down: %v", down, err)
	}
	k, err := again.Client(session(t, c))
	if err != nil {
		t.Fatalf("%v is down: client: %v", down, err)
	}
	want, works := map[string]string{}, 0
	for i := range keys {
		key := fmt.Sprintf("k%d", i)
		want[key] = "v"
		value, gerr := k.Get([]byte(key))
		v := string(value) // the put reuses it
		perr := k.Put([]byte(key), []byte("w"))
		switch {
		case gerr == nil && perr == nil && v == "v":
			want[key] = "w"
			works++
		case !errors.Is(gerr, fabric.ErrNodeDown) || !errors.Is(perr, fabric.ErrNodeDown) || !strings.Contains(gerr.Error(), down.String()):
			t.Fatalf("%v is down: get %s: %q, %v; put: %v", down, key, v, gerr, perr)
		}
	}
	if (works > 0) != (down == 1) || works == keys {
		t.Errorf("%v is down: %d of %d keys can be had", down, works, keys)
	}
	x.serve(down)
	if !keep {
		treeIsGone(t, k, down)
		return
	}
	_, _ = before.Get([]byte("k0")) // a Port of before
	for key, value := range want {
		v, err := k.Get([]byte(key))
		w, berr := before.Get([]byte(key))
		for range 2 { // a Port of before
			if berr != nil {
				w, berr = before.Get([]byte(key))
			}
		}
		if err != nil || berr != nil || string(v) != value || string(w) != value {
			t.Fatalf("%v is back: get %s: %q, %v, by the first process %q, %v; want %q", down, key, v, err, w, berr, value)
		}
	}
	if r, err := k.Check(btree.CheckOptions{}); err != nil || !r.Sound() {
		t.Fatalf("%v, %v", err, r)
	}
}

// treeIsGone checks that a tree is made anew after the memory of a memory node has been lost.
func treeIsGone(t *testing.T, k *btree.Client, down fabric.MemID) {
	t.Helper()
	var err error
	lost := false
	for range 3 {
		if _, err = k.Check(btree.CheckOptions{}); err == nil {
			break
		}
		lost = lost || errors.Is(err, declock.ErrMemoryLost)
	}
	if err != nil || lost != (down == 1) {
		t.Fatalf("%v is back without its memory: %v, reported a loss: %v", down, err, lost)
	}
	if v, err := k.Get([]byte("k1")); !errors.Is(err, btree.ErrNotFound) {
		t.Fatalf("%v is back without its memory: %q, %v", down, v, err)
	}
	if err := k.Put([]byte("k1"), []byte("w")); err != nil {
		t.Fatal(err)
	}
}
