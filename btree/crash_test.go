package btree

import (
	"bytes"
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/memory"
)

// Compute nodes come, put and delete keys of a tree with values of all sizes, and die in the middle of that, thirty one after the other. What each had is found
// by the one that stays, and used by the next: after the fifth the tree takes no more memory from the region than ever.
func TestMemoryDoesNotGrowOverCrashes(t *testing.T) {
	const cycles, warmup, keys = 30, 5, 60
	w := newWorld(t, sim.Config{NIC: sim.Ideal(), Late: sim.LateDrop}, 1, 16<<20, 1)
	c := w.client(0, w.open(0, w.config()))
	r, err := memory.Open(c.port, w.mns[0])
	wantErr(t, "region", err, nil)
	found, most := uint64(0), uint64(0)
	for cycle := range cycles {
		n := w.c.AddCN()
		w.cns = append(w.cns, n)
		wantErr(t, "pause", c.port.Pause(c.port.Now()+fabric.Second), nil)
		until := 1000 + 37*cycle
		p := &hookPort{w.port(len(w.cns) - 1), func([]fabric.Op) {
			if until--; until == 0 {
				w.c.Kill(n)
			}
		}}
		tree, err := Open(p, w.config())
		wantErr(t, "open", err, nil)
		dying := clientOn(t, tree, p)
		w.c.GoOn(p.Port, "dies", func(fabric.Port) {
			for i := 0; ; i++ {
				err := dying.Put(keyOf(i*7%keys), bytes.Repeat([]byte{byte(i)}, (i*37+cycle*101)%900))
				if i%3 == 2 {
					err = errors.Join(err, ignore(dying.Delete(keyOf(i*5%keys)), ErrNotFound))
				}
				if err != nil {
					t.Errorf("cycle %d, step %d: %v", cycle, i, err)
					return
				}
			}
		})
		wantErr(t, "run", w.c.Run(), nil)
		if until > 0 {
			t.Fatalf("cycle %d: it has not died", cycle)
		}
		wantErr(t, "pause", c.port.Pause(c.port.Now()+fabric.Second), nil) // it is fenced
		clearLocks(w, c)
		before := mustBeSound(t, c).Memory[0].Elsewhere
		tend(t, c, w.cns[0].View)
		m := mustBeSound(t, c).Memory[0]
		found += before - m.Elsewhere
		if m.Elsewhere > 1 { // the shadow of the node that the dead one was writing
			t.Fatalf("cycle %d: memory is missing: %+v", cycle, m)
		}
		used, err := r.Used(c.port)
		wantErr(t, "used", err, nil)
		if cycle < warmup {
			most = max(most, used)
		} else if used > most {
			t.Fatalf("after cycle %d %d B of the region are used, after the first %d it was %d B at most", cycle+1, used, warmup, most)
		}
	}
	t.Logf("%d B of the region are used; %d slots of the dead have been found", most, found)
	if found == 0 {
		t.Error("the dead had nothing")
	}
}

// clearLocks frees the locks of all slots of the first memory node: what resets do after a death.
func clearLocks(w *world, c *Client) {
	for _, a := range lockAddrs(w.t, c) {
		w.c.Poke(a, make([]byte, 8))
	}
}

// lockAddrs returns where the locks of all slots of the first memory node are.
func lockAddrs(t testing.TB, c *Client) []fabric.Addr {
	list := []fabric.Addr{c.t.lockAddr(c.t.first)}
	var m slotMap
	wantErr(t, "slots", m.load(&checker{c: c, r: &Report{}}), nil)
	wantErr(t, "runs", m.slots.EachRun(0, func(cl uint8, from, to uint64) error {
		for ; class(cl) == classNode && from < to; from += c.t.slotSize(classNode) / slotUnit {
			list = append(list, c.t.lockAddr(makePtr(0, from, 0)))
		}
		return nil
	}), nil)
	return list
}

// tend tends a tree until there is nothing to do.
func tend(t *testing.T, c *Client, view func() fabric.View) {
	t.Helper()
	for range 10000 {
		busy, err := c.ReclaimStep(view)
		wantErr(t, "tend", err, nil)
		if !busy {
			return
		}
	}
	t.Fatal("a round does not end")
}
