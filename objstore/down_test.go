package objstore

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/memory"
)

// keyOn returns a key that lives on the i-th memory node.
func keyOn(s *Store, i int) string {
	for k := 0; ; k++ {
		if s.locate(keyOf(k)).node == i {
			return string(keyOf(k))
		}
	}
}

// downWorld is a store on three memory nodes, of which one, or two, are stopped when the second compute node opens it.
func downWorld(t *testing.T, down ...int) (w *world, keys [3]string, before *Client, s *Store) {
	t.Helper()
	w = newWorld(t, sim.Config{NIC: sim.Ideal()}, 3, 16<<20, 3)
	before = w.client(0, w.open(0, w.config()))
	for i := range keys {
		keys[i] = keyOn(before.s, i)
		wantErr(t, "set", before.Set([]byte(keys[i]), []byte("old"), Options{}), nil)
	}
	for _, i := range down {
		w.c.KillMN(w.mns[i])
	}
	return w, keys, before, w.open(1, w.config())
}

func isDown(i int, down []int) bool {
	for _, d := range down {
		if i == d {
			return true
		}
	}
	return false
}

// A store is opened with any one or two of three memory nodes down: their keys are ErrNodeDown, the others are there. When they are back, with or without their
// memory, all goes on, for clients of before as for new ones; and both compute nodes have what they took.
func TestOpenWithNodesDown(t *testing.T) {
	for _, down := range [][]int{{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}} {
		for _, keeps := range []bool{true, false} {
			openedWithNodesDown(t, down, keeps)
		}
	}
}

func openedWithNodesDown(t *testing.T, down []int, keeps bool) {
	w, keys, _, s := downWorld(t, down...)
	c := w.client(1, s)
	first := isDown(0, down)
	for i, key := range keys {
		if isDown(i, down) {
			_, err := c.Get([]byte(key))
			wantErr(t, "get of what is down", err, fabric.ErrNodeDown)
			wantErr(t, "set of what is down", c.Set([]byte(key), []byte("new"), Options{}), fabric.ErrNodeDown)
			continue
		}
		wantValue(t, c, key, "old")
		var want error
		if first {
			want = fabric.ErrNodeDown
		}
		wantErr(t, "set", c.Set([]byte(key), []byte("new"), Options{}), want)
		wantErr(t, "touch", c.Touch([]byte(key), 0), want)
	}
	if _, err := c.Check(CheckOptions{}); !errors.Is(err, fabric.ErrNodeDown) {
		t.Fatalf("check: %v", err)
	}
	view := func() fabric.View { return w.cns[1].View() }
	if _, err := c.ReclaimStep(view); err != nil && !errors.Is(err, fabric.ErrNodeDown) {
		t.Fatalf("tend: %v", err)
	}
	for _, i := range down {
		if keeps {
			w.c.RestartServer(w.mns[i])
			continue
		}
		w.c.RestartMN(w.mns[i])
		wantErr(t, "format", memory.Format(w.port(0), w.mns[i], memory.Params{Size: 16 << 20, CapacityLog2: 3, VersionBits: 16, Generation: 1}), nil)
	}
	again := w.client(1, s) // with a Port of after the restart
	for i, key := range keys {
		want := "new"
		if first || isDown(i, down) {
			want = "old"
		}
		if isDown(i, down) && !keeps {
			wantMiss(t, again, key)
		} else {
			wantValue(t, again, key, want)
		}
		wantErr(t, "set", again.Set([]byte(key), []byte("newest"), Options{}), nil)
		wantValue(t, again, key, "newest")
		if !isDown(i, down) {
			wantValue(t, c, key, "newest")
		}
	}
	if keeps {
		mustBeSound(t, again)
	}
	wantErr(t, "leave", again.Leave(), nil)
}

// A value that a get returned is stored again by the operation that finds the memory node back.
func TestCompleteWithAValueOfAGet(t *testing.T) {
	w, keys, _, s := downWorld(t, 1)
	w.c.RestartServer(w.mns[1])
	c := w.client(1, s)
	it := wantValue(t, c, keys[0], "old")
	wantErr(t, "set", c.Set([]byte(keys[1]), it.Value, Options{}), nil)
	wantValue(t, c, keys[1], "old")
}

// A compute node that opened the store without its first part is registered as soon as it has that: before it changes anything.
func TestRegisteredWithTheFirstPart(t *testing.T) {
	w, keys, before, s := downWorld(t, 0)
	w.client(1, s)
	w.c.RestartServer(w.mns[0])
	c := w.client(1, s) // with a Port of after the restart
	wantErr(t, "set", c.Set([]byte(keys[1]), []byte("new"), Options{}), nil)
	again := w.client(0, before.s)
	list, err := again.OpenOn()
	if wantErr(t, "open on", err, nil); len(list) != 1 || list[0] != w.cns[1].ID() {
		t.Errorf("open on %v, want %v", list, w.cns[1].ID())
	}
	wantErr(t, "leave", c.Leave(), nil)
	list, err = again.OpenOn()
	if wantErr(t, "open on", err, nil); len(list) != 0 {
		t.Errorf("open on %v after it has left", list)
	}
}

// A store is not made, and no part of it, while one of its memory nodes is down.
func TestMakeWithANodeDown(t *testing.T) {
	for i := range 2 {
		w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 16<<20, 1)
		w.c.KillMN(w.mns[i])
		_, err := Open(w.port(0), w.config())
		wantErr(t, "open", err, fabric.ErrNodeDown)
		r, err := memory.Open(w.port(0), w.mns[1-i])
		wantErr(t, "region", err, nil)
		list, err := r.List(w.port(0))
		if wantErr(t, "list", err, nil); len(list) > 0 {
			t.Errorf("there is %v", list)
		}
	}
}

// A following is a Locker that attaches to what serves a number of replicated memory, as hier's does.
type following struct {
	*cas.Locker
	node *sim.Node
}

func (l *following) Replicated(fabric.MemID) bool { return true }

func (l *following) Attach(mn fabric.MemID) error {
	for _, m := range l.node.Memory() {
		if m.ID == mn && m.Epoch != 0 {
			return l.Port().Reattach(mn, m.Epoch)
		}
	}
	return fabric.ErrNodeDown
}

func (l *following) Ready(a fabric.Addr) error { return l.Attach(a.MN()) }

// A part that is missing when a store on replicated memory is opened is waited for, by each kind of operation that needs it; for so long, and no longer. The first part is one of
// these, which changes everywhere need.
func TestMissingReplicatedPartIsAwaited(t *testing.T) {
	for first := range 2 {
		for what, do := range map[string]func(c *Client, key []byte) error{
			"get":   func(c *Client, key []byte) error { _, err := c.Get(key); return err },
			"set":   func(c *Client, key []byte) error { return c.Set(key, b("new"), Options{}) },
			"check": func(c *Client, _ []byte) error { _, err := c.Check(CheckOptions{}); return err },
		} {
			for _, back := range []bool{true, false} {
				if what == "check" && !back {
					continue
				}
				w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 2, 1<<20, 2, 2)
				before := w.client(0, w.open(0, w.config()))
				key := []byte(keyOn(before.s, first))
				wantErr(t, "set", before.Set(key, b("old"), Options{}), nil)
				gone := w.mns[first]
				w.c.KillMN(gone + 1) // its backup
				w.c.KillMN(gone)
				s := w.open(1, w.config())
				c, err := s.Client(&following{cas.New(w.port(1), cas.Config{}), w.cns[1]})
				wantErr(t, "client", err, nil)
				begun, late, want := w.c.Now(), 100*fabric.Millisecond, error(nil)
				if back {
					w.c.At(begun+late, func() { w.c.RestartServer(gone) })
				} else {
					late, want = 15*fabric.Second, fabric.ErrNodeDown
				}
				wantErr(t, what, do(c, key), want)
				if d := w.c.Now() - begun; d < late || d > late+fabric.Second {
					t.Errorf("%s, part %d, back %t: after %v", what, first, back, d)
				}
				w.c.Close()
			}
		}
	}
}
