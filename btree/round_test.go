package btree

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/memory/reclaim"
)

// A compute node crashes at each operation of a script. As long as none has walked, rounds give back nothing that a backup leads to.
func TestNoRoundBeforeTheWalk(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 7
	}
	ahead := 0
	for k, hit := 0, true; hit; k += step {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal(), Seed: uint64(k)}, 1, 1<<20, 3, 2)
		first, second, last := w.client(0, w.open(0, w.tiny())), w.client(1, w.open(1, w.tiny())), w.client(2, w.open(2, w.tiny()))
		for !walkAll(t, first, w.cns[0].View) {
			t.Fatal("no walk")
		}
		left := k
		w.c.SetObserver(observer(func(e *sim.Event) {
			if e.Step == sim.StepEffect {
				if left--; left == -1 {
					w.c.At(w.c.Now(), func() { w.c.Kill(w.cns[2]) })
				}
			}
		}))
		w.c.Go(w.cns[2], "script", func(fabric.Port) { script(last) })
		wantErr(t, "run", w.c.RunUntil(w.c.Now()+fabric.Second), nil)
		w.c.SetObserver(nil)
		if hit = left < 0; !hit {
			break
		}
		clearAllLocks(w, second)
		for range 50 {
			_, err := first.session.ReclaimStep(w.cns[0].View)
			wantErr(t, "answer", err, nil)
			_, err = second.ReclaimStep(w.cns[1].View)
			wantErr(t, "step", err, nil)
			_ = second.port.Pause(second.port.Now() + 10*fabric.Millisecond)
		}
		free, m := map[uint64]bool{}, new(reclaim.Map)
		heap := second.t.h.Parts[0].Heap
		wantErr(t, "runs", heap.AddRuns(&second.work, m), nil)
		wantErr(t, "free bits", heap.EachFree(&second.work, m, func(_ uint8, off64 uint64) { free[off64] = true }), nil)
		here := marked(t, second)
		wantErr(t, "promote", w.c.Promote(w.mns[0]), nil)
		for off64, what := range marked(t, w.client(1, w.open(1, w.tiny()))) {
			if here[off64] != "" {
				continue
			}
			if ahead++; free[off64] {
				t.Errorf("effect %d: %s at %#x is free, and a backup leads to it", k, what, off64)
			}
		}
		w.c.Close()
	}
	if ahead < 3 {
		t.Errorf("a backup led to %d slots that the primary did not lead to: that is too few", ahead)
	}
}

// marked returns the slots to which a tree of one part leads, and what they are.
func marked(t *testing.T, c *Client) map[uint64]string {
	t.Helper()
	list := map[uint64]string{}
	edge := place{}
	root, err := c.loadRoot()
	wantErr(t, "root", err, nil)
	wantErr(t, "root", c.read(&c.n, c.leaf, root), nil)
	for edge.level = c.n.level; ; {
		c.search.begin(edge.level, edge.edge, false, false)
		wantErr(t, "seek", c.seek(&c.search, &c.n, c.leaf), nil)
		list[c.n.self.off64()] = fmt.Sprintf("a node of level %d", edge.level)
		items, err := c.sorted(&c.n)
		wantErr(t, "items", err, nil)
		for i := range items {
			if items[i].kind == kindOutOfLine && c.n.level == 0 {
				v, err := c.t.outOfLine(items[i].value)
				wantErr(t, "value", err, nil)
				list[v.at.off64()] = "a large value"
			}
		}
		if edge.next(&c.n) {
			return list
		}
	}
}
