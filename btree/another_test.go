package btree

import (
	"fmt"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/memory"
)

// anew are the memory nodes on which a tree may be made that has the name of one that was dropped: nil, it is not made.
func anew(mns []fabric.MemID) map[string][]fabric.MemID {
	reversed := slices.Clone(mns)
	slices.Reverse(reversed)
	return map[string][]fabric.MemID{"nothing": nil, "the same": mns, "another order": reversed, "the first": mns[:1], "the last": mns[1:]}
}

// made makes a tree on some memory nodes, and returns a client that has put a key.
func (w *world) made(cn int, mns []fabric.MemID) *Client {
	w.t.Helper()
	cfg := w.config()
	cfg.Nodes = mns
	c := w.client(cn, w.open(cn, cfg))
	wantErr(w.t, "put", c.Put(keyOf(2), []byte("new")), nil)
	return c
}

// A tree was opened while one of its memory nodes was down. When that is back the tree is dropped, and made anew on whatever memory nodes. A client of before hears of the drop, makes nothing, and
// takes no part of what has the name now, which works, also for a client of the same compute node.
func TestDroppedAndMadeAnewWhileAPartIsMissing(t *testing.T) {
	for down := range 2 {
		for what := range anew(make([]fabric.MemID, 2)) {
			t.Run(fmt.Sprintf("mn%d, %s", down, what), func(t *testing.T) {
				w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 4<<20, 3)
				wantErr(t, "put", w.client(0, w.open(0, w.config())).Put(keyOf(1), nil), nil)
				w.c.KillMN(w.mns[down])
				tree := w.open(1, w.config())
				before := w.client(1, tree)
				w.c.RestartServer(w.mns[down])
				wantErr(t, "drop", Trees.Drop(w.port(2), "test", w.mns, w.cns[2].View), nil)
				mns := anew(w.mns)[what]
				if mns != nil {
					w.made(2, mns)
				}
				if down == 0 { // it waits, and cannot know yet what has become of it
					w.c.KillMN(w.mns[0])
					_, err := w.client(1, tree).Get(keyOf(1))
					wantErr(t, "get while it is down again", err, fabric.ErrNodeDown)
					w.c.RestartServer(w.mns[0])
				}
				later, err := tree.Client(cas.New(w.port(1), cas.Config{Plain: true})) // with a Port of after the restart
				if err == nil {
					err = later.Reclaim(w.cns[1].View) // which needs all parts
				}
				wantErr(t, "reclaim", err, ErrDropped)
				if !tree.Dropped() {
					t.Error("the tree is not marked")
				}
				_, err = before.Get(keyOf(1))
				wantErr(t, "get by a client of before", err, ErrDropped)
				for _, mn := range w.mns {
					r, err := memory.Open(w.port(1), mn)
					wantErr(t, "region", err, nil)
					if _, err = r.Lookup(w.port(1), "test", memory.KindTree); (err == nil) != slices.Contains(mns, mn) {
						t.Errorf("look for the name on %v, made anew on %v: %v", mn, mns, err)
					}
				}
				if mns != nil {
					cfg := w.config()
					cfg.Nodes = mns
					c := w.client(1, w.open(1, cfg))
					wantValue(t, c, string(keyOf(2)), "new")
					wantMiss(t, c, string(keyOf(1)))
				}
			})
		}
	}
}

// A memory node loses its memory, and before a compute node looks that had the tree open there, the name is that of a tree on other memory nodes, or in another order: whoever had the one of before
// hears that it is gone for good.
func TestLostAndMadeAnewElsewhere(t *testing.T) {
	for _, what := range []string{"another order", "the last"} {
		w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 4<<20, 2)
		tree := w.open(1, w.config())
		wantErr(t, "put", w.client(1, tree).Put(keyOf(1), nil), nil)
		w.c.RestartMN(w.mns[0])
		wantErr(t, "format", memory.Format(w.port(0), w.mns[0], memory.Params{Size: 4 << 20, CapacityLog2: 3, VersionBits: 16, Generation: 1}), nil)
		if what == "the last" { // the rest of what is lost
			wantErr(t, "drop", Trees.Drop(w.port(0), "test", w.mns, w.cns[0].View), nil)
		}
		w.made(0, anew(w.mns)[what])
		tree.MemoryLost(w.mns[0])
		_, err := tree.Client(cas.New(w.port(1), cas.Config{Plain: true}))
		wantErr(t, "client, made anew in "+what, err, ErrDropped)
	}
}
