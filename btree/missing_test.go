package btree

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
)

// pathOf returns on which memory nodes a search for a key meets nodes of the tree, from the root on, and where its large value is.
func pathOf(t *testing.T, c *Client, key []byte) (path, value map[int]bool) {
	t.Helper()
	path, value = map[int]bool{}, map[int]bool{}
	p, err := c.loadRoot()
	wantErr(t, "root", err, nil)
	for {
		path[p.node()] = true
		var n node
		wantErr(t, "node", c.read(&n, c.inner, p), nil)
		if ok, _ := n.covers(key, false); !ok {
			t.Fatalf("%v does not cover %q", p, key)
		}
		if n.level == 0 {
			if r, ok, err := n.find(key); err == nil && ok && r.kind == kindOutOfLine {
				value[decodeOutOfLine(r.value).at.node()] = true
			}
			return path, value
		}
		items, err := n.sorted(nil)
		wantErr(t, "items", err, nil)
		in := newInner(&n, items)
		p = in.children[in.pick(key, false)]
	}
}

// meets reports whether a path leads over one of some memory nodes.
func meets(path map[int]bool, down []int) bool {
	return slices.ContainsFunc(down, func(i int) bool { return path[i] })
}

// A tree is opened with one or two of three memory nodes down: keys whose path leads over the others only can be read, changed and scanned, all else is ErrNodeDown, and names the
// memory node. When the nodes are back, all works, for clients of before, too, nothing is lost, and nothing leaks.
func TestOpenWithoutParts(t *testing.T) {
	for _, down := range [][]int{{0}, {1}, {2}, {0, 1}, {1, 2}} {
		for _, keeps := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v down, memory kept %v", down, keeps), func(t *testing.T) { openWithoutParts(t, down, keeps) })
		}
	}
}

// large is a value that lies besides its leaf.
func large(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 300) }

func openWithoutParts(t *testing.T, down []int, keeps bool) {
	const keys = 60
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 3, 16<<20, 3)
	first := w.open(0, w.config())
	first.turn.Store(2) // so that the root of more than one level is on the first memory node
	before := w.client(0, first)
	want := map[string]string{}
	put := func(c *Client, i, v int) error {
		value := valueOf(i, v)
		if i%2 == 0 {
			value = large(i + v)
		}
		err := c.Put(keyOf(i), value)
		if err == nil {
			want[string(keyOf(i))] = string(value)
		}
		return err
	}
	for i := range keys {
		wantErr(t, "put", put(before, i, 1), nil)
	}
	var paths, values [keys]map[int]bool
	for i := range keys {
		paths[i], values[i] = pathOf(t, before, keyOf(i))
	}
	for _, i := range down {
		w.c.KillMN(w.mns[i])
	}
	given := w.config()
	given.MaxKey, given.NodeSize, given.MaxInline = 0, 0, 0 // as the tree has it
	tree := w.open(1, given)
	if tree.MaxKey() != 16 || tree.Name() != "test" {
		t.Errorf("tree %q has keys to %d B", tree.Name(), tree.MaxKey())
	}
	view := func() fabric.View { return w.cns[1].View() }
	c, full := w.client(1, tree), w.client(0, first)
	works := 0
	for i := range keys {
		// A process that had it open has a new client, and inner nodes in the index cache. It is the first to find out that the memory node is down.
		v, err := full.Get(keyOf(i))
		if away := meets(paths[i], down) || meets(values[i], down); err != nil && !(away && (errors.Is(err, fabric.ErrNodeDown) || errors.Is(err, fabric.ErrUnknownOutcome))) || err == nil && string(v) != want[string(keyOf(i))] {
			t.Fatalf("get %d by a client that had it open: %q, %v", i, v, err)
		}
		v, err = c.Get(keyOf(i))
		reads, writes := !meets(paths[i], down) && down[0] != 0, true
		writes, reads = reads, reads && !meets(values[i], down)
		switch {
		case reads && (err != nil || string(v) != want[string(keyOf(i))]):
			t.Fatalf("get %d: %q, %v, want %q", i, v, err, want[string(keyOf(i))])
		case !reads:
			wantDown(t, fmt.Sprintf("get %d", i), err)
		}
		if err := put(c, i, 2); writes && err != nil {
			t.Fatalf("put %d, whose path is there: %v", i, err)
		} else if !writes {
			wantDown(t, fmt.Sprintf("put %d", i), err)
		} else {
			works++
		}
	}
	if (works > 0) != (down[0] != 0) || works == keys {
		t.Fatalf("%d of %d keys can be written with %v down", works, keys, down)
	}
	scanned := map[string]string{}
	err := c.Each(Range{}, func(k, v []byte) bool { scanned[string(k)] = string(v); return true })
	wantDown(t, "scan", err)
	for k, v := range scanned {
		if want[k] != v {
			t.Errorf("scan: %q is %q, want %q", k, v, want[k])
		}
	}
	_, err = c.Check(CheckOptions{})
	wantDown(t, "check", err)
	wantDown(t, "reclaim", c.Reclaim(view))
	_, err = c.session.Mark()
	wantDown(t, "mark", err)
	_, err = c.ReclaimStep(view)
	wantErr(t, "tend", err, nil)
	if keeps {
		partsComeBack(t, w, first, c, down, want)
		return
	}
	for _, i := range down {
		w.c.RestartMN(w.mns[i])
		wantErr(t, "format", memory.Format(w.port(0), w.mns[i], memory.Params{Size: 16 << 20, CapacityLog2: 3, VersionBits: 16, Generation: 1}), nil)
	}
	later := w.client(1, tree) // with a Port of after the restart
	for err = error(nil); err == nil || errors.Is(err, fabric.ErrNodeDown); {
		if err = later.Put(keyOf(1), valueOf(1, 3)); err == nil && down[0] == 0 {
			break
		}
		if err == nil {
			_, err = later.Check(CheckOptions{})
		}
	}
	if down[0] != 0 { // it had seen the tree
		wantErr(t, "after the loss", err, lock.ErrMemoryLost)
	}
	wantErr(t, "put", later.Put(keyOf(1), valueOf(1, 3)), nil)
	wantMiss(t, later, string(keyOf(2)))
	mustBeSound(t, later)
}

// partsComeBack checks that all is there when the memory nodes are up again, and that nothing is leaked.
func partsComeBack(t *testing.T, w *world, first *Tree, c *Client, down []int, want map[string]string) {
	t.Helper()
	for _, i := range down {
		w.c.RestartServer(w.mns[i])
	}
	view := func() fabric.View { return w.cns[1].View() }
	later := w.client(1, c.t.newest.Load()) // with a Port of after the restart
	got := map[string]string{}
	wantErr(t, "scan", later.Each(Range{}, func(k, v []byte) bool { got[string(k)] = string(v); return true }), nil)
	if !maps.Equal(got, want) {
		t.Fatalf("%d keys, want %d:\n%v", len(got), len(want), got)
	}
	for i := range 200 {
		wantErr(t, "put", later.Put(keyOf(1000+i), large(i)), nil)
	}
	if down[0] == 0 {
		mustBeSound(t, later)
		return
	}
	// Large values that were replaced while their memory node was down are leaked until a round finds them.
	both := []*Client{later, w.client(0, first)}
	for range 40 {
		for _, x := range both {
			_, err := x.ReclaimStep(view)
			wantErr(t, "tend", err, nil)
		}
	}
	if later.Found().Blocks == 0 {
		t.Error("nothing is found of what was replaced while a memory node was down")
	}
	mustBeSound(t, later)
}

// wantDown checks that an error is ErrNodeDown and names a memory node.
func wantDown(t *testing.T, what string, err error) {
	t.Helper()
	if wantErr(t, what, err, fabric.ErrNodeDown); !strings.Contains(err.Error(), "mn") {
		t.Errorf("%s: %v names no memory node", what, err)
	}
}

// A following is a Locker that attaches to what serves a number of replicated memory, as hier's does.
type following struct{ attaching }

func (l *following) Replicated(fabric.MemID) bool { return true }

func (l *following) Ready(a fabric.Addr) error { return l.Attach(a.MN()) }

func (l *following) Attach(mn fabric.MemID) error {
	if l.n.MemoryEpoch(mn) == 0 {
		return fabric.ErrNodeDown
	}
	return l.attaching.Attach(mn)
}

// A part that is missing when a tree on replicated memory is opened is waited for, be it the first, without which the tree waits, or one that an operation meets; for so long, and no
// longer.
func TestMissingReplicatedPartIsAwaited(t *testing.T) {
	for i := range 2 {
		for what, do := range map[string]func(c *Client, key []byte) error{
			"get": func(c *Client, key []byte) error { _, err := c.Get(key); return err },
			"put": func(c *Client, key []byte) error { return c.Put(key, large(1)) },
			"scan": func(c *Client, key []byte) error {
				return c.Each(Range{From: key}, func(k, v []byte) bool { return true })
			},
		} {
			for _, back := range []bool{true, false} {
				w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 2, 1<<20, 2, 2)
				first := w.open(0, w.config())
				before := w.client(0, first)
				for k := range 60 {
					wantErr(t, "put", before.Put(keyOf(k), valueOf(k, 1)), nil)
				}
				key := 0
				for ; ; key++ {
					if path, _ := pathOf(t, before, keyOf(key)); path[i] {
						break
					}
				}
				gone := w.mns[i]
				w.c.KillMN(gone + 1) // its backup
				w.c.KillMN(gone)
				c, err := w.open(1, w.config()).Client(&following{attaching{cas.New(w.port(1), cas.Config{Plain: true}), w.cns[1]}})
				wantErr(t, "client", err, nil)
				begun, late, want := w.c.Now(), 100*fabric.Millisecond, error(nil)
				if back {
					w.c.At(begun+late, func() { w.c.RestartServer(gone) })
				} else {
					late, want = 15*fabric.Second, fabric.ErrNodeDown
				}
				wantErr(t, what, do(c, keyOf(key)), want)
				if d := w.c.Now() - begun; d < late || d > late+fabric.Second {
					t.Errorf("%s, part %d, back %t: after %v", what, i, back, d)
				}
				w.c.Close()
			}
		}
	}
}
