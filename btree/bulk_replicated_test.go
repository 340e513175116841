package btree

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/timesync"
)

// declocks returns the layout of DecLock's locks in a simulated world, and a function that makes a Locker on the first compute node.
func (w *world) declocks() (lock.Layout, func(p fabric.Port) lock.Locker) {
	w.t.Helper()
	policy, err := hier.ParsePolicy(hier.DefaultPolicy)
	wantErr(w.t, "policy", err, nil)
	y, err := cql.LayoutFor(len(w.cns))
	wantErr(w.t, "layout", err, nil)
	n, table, clock, cfg := w.cns[0], hier.NewTable(policy), new(timesync.Clock), hier.Config{Layout: y}
	agent := hier.NewAgent(table, n, clock, cfg, hier.SyncConfig{})
	report := func(err error) {
		if err != nil && !errors.Is(err, fabric.ErrStaleEpoch) && !errors.Is(err, fabric.ErrNodeDown) {
			w.t.Errorf("agent: %v", err)
		}
	}
	w.c.GoAgent(n, func(fabric.Port) { report(agent.Run(report)) })
	return y.Lock(), func(p fabric.Port) lock.Locker { return hier.New(table, p, n, clock, cfg) }
}

// A memory node is replaced while a tree is loaded, at every operation of that. What is replaced before is waited for at the beginning. Later the load says to load again, and the tree is empty, and then
// it is loaded; or the load was at its end, and then the tree may have all of it.
func TestBulkLoadOverAPromotion(t *testing.T) {
	again, unknown, made, step := 0, 0, 0, 1
	if testing.Short() {
		step = 7
	}
	for _, mns := range []int{1, 2} {
		for k, hit := 0, true; hit; k += step {
			w := newReplicated(t, sim.Config{Seed: uint64(k), NIC: sim.CX4(), MaxEvents: 5e6}, mns, 4<<20, 1, 3)
			layout, locker := w.declocks()
			cfg := w.tiny()
			cfg.Lock = layout
			left, loading := k, false
			w.c.SetObserver(observer(func(e *sim.Event) {
				if loading && e.Step == sim.StepEffect {
					if left--; left == -1 {
						w.c.At(w.c.Now(), func() { wantErr(t, "promote", w.c.Promote(w.mns[k%mns]), nil) })
					}
				}
			}))
			w.c.Go(w.cns[0], "load", func(p fabric.Port) {
				tree, err := Open(p, cfg)
				wantErr(t, "open", err, nil)
				c, err := tree.Client(locker(p))
				wantErr(t, "client", err, nil)
				loading = true
				err = c.BulkLoad(pairsTo(loadedPairs), BulkOptions{})
				loading = false
				n := len(all(t, c, Range{}))
				switch {
				case err == nil:
					made++
				case !strings.Contains(err.Error(), "load again") || n != 0 && (n != loadedPairs || !c.uncertain):
					t.Errorf("%d numbers, operation %d: %d keys after %v", mns, k, n, err)
				case n == 0:
					again++
					wantErr(t, "load again", c.BulkLoad(pairsTo(loadedPairs), BulkOptions{}), nil)
				default:
					unknown++
				}
				if n := len(all(t, c, Range{})); n != loadedPairs {
					t.Errorf("%d numbers, operation %d: %d keys after %v", mns, k, n, err)
				}
				if r, err := c.Check(CheckOptions{}); err != nil || len(r.Problems) > 0 {
					t.Errorf("%d numbers, operation %d: %v, %v", mns, k, r, err)
				}
			})
			wantErr(t, "run", w.c.RunUntil(w.c.Now()+fabric.Second), nil)
			w.c.Close()
			if hit = left < 0; t.Failed() {
				return
			}
		}
	}
	t.Logf("%d were loaded again, %d were loaded with an error, %d without", again, unknown, made)
	if again*step < 50 || made*step < 5 {
		t.Error("that is too few")
	}
}

const loadedPairs = 30

// pairsTo yields some pairs, of which some have large values.
func pairsTo(n int) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for i := range n {
			if !yield(fmt.Appendf(nil, "%02d", i), bytes.Repeat([]byte{byte(i)}, 1+i%3*60)) {
				return
			}
		}
	}
}
