package objstore

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/memory/reclaim"
)

// A compute node crashes at each operation of a script. As long as none has walked, rounds give back nothing that a backup leads to.
func TestNoRoundBeforeTheWalk(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 5
	}
	ahead := 0
	for k, hit := 0, true; hit; k += step {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 3, 2)
		cfg := w.config()
		cfg.Objects = 1
		s := w.open(0, cfg)
		first, second, last := w.client(0, s), w.client(1, w.open(1, cfg)), w.client(2, w.open(2, cfg))
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
		w.c.Go(w.cns[2], "script", func(fabric.Port) { w.script(last) })
		wantErr(t, "run", w.c.RunUntil(w.c.Now()+fabric.Second), nil)
		w.c.SetObserver(nil)
		if hit = left < 0; !hit {
			break
		}
		clearLocks(w, s)
		for range 50 {
			_, err := first.session.ReclaimStep(w.cns[0].View)
			wantErr(t, "answer", err, nil)
			_, err = second.ReclaimStep(w.cns[1].View)
			wantErr(t, "step", err, nil)
			_ = second.port.Pause(second.port.Now() + 10*fabric.Millisecond)
		}
		ahead += w.backupAhead(second)
		w.c.Close()
	}
	if ahead < 3 {
		t.Errorf("a backup led to %d blocks that the primary did not lead to: that is too few", ahead)
	}
}

// backupAhead returns how many blocks the backup's buckets lead to, and the primary's do not, and complains if one of them is free.
func (w *world) backupAhead(c *Client) (ahead int) {
	n := c.s.h.Parts[0]
	free, m := map[uint64]bool{}, new(reclaim.Map)
	wantErr(w.t, "runs", n.Heap.AddRuns(&c.work, m), nil)
	wantErr(w.t, "free bits", n.Heap.EachFree(&c.work, m, func(_ uint8, off64 uint64) { free[off64] = true }), nil)
	b, err := n.Region.Backups(c.port)
	wantErr(w.t, "backups", err, nil)
	size := int(c.s.geo.bucketSize)
	for i := range c.s.geo.buckets {
		here, there := c.port.Alloc(size), c.port.Alloc(size)
		wantErr(w.t, "read", c.port.Do([]fabric.Op{fabric.Read(c.s.bucket(0, i), here)}), nil)
		wantErr(w.t, "read", b.Read(0, fabric.Read(c.s.bucket(0, i), there)), nil)
		for j := range c.s.geo.slots {
			at := int(c.s.geo.lockSize/slotSize) + j
			x := slotWord(wordAt(there, at))
			if x == 0 || x == slotWord(wordAt(here, at)) {
				continue
			}
			ahead++
			if free[x.chunk().off64] {
				w.t.Errorf("%v is free, and a backup leads to it", x.chunk())
			}
		}
	}
	return ahead
}
