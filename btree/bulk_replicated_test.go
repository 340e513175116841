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

// A memory node is replaced while a tree is loaded, by one client or by three, at every operation of that. What is replaced before is waited for at the beginning. Later the load says to load again, and the
// tree is empty, and then it is loaded; or the load was at its end, and then the tree may have all of it.
func TestBulkLoadOverAPromotion(t *testing.T) {
	x, step := promotedLoads{T: t}, 1
	if testing.Short() {
		step = 7
	}
	for _, mns := range []int{1, 2} {
		for _, loaders := range []int{1, 3} {
			for k := 0; x.load(mns, loaders, k) && !t.Failed(); k += step {
			}
		}
	}
	t.Logf("%d were loaded again, %d were loaded with an error, %d without", x.again, x.unknown, x.made)
	if x.again*step < 100 || x.made*step < 10 {
		t.Error("that is too few")
	}
}

// promotedLoads counts what has come of loads.
type promotedLoads struct {
	*testing.T
	again, unknown, made int
}

// load has clients load a tree, and a memory node replaced at the k-th operation. It reports whether there was such.
func (t *promotedLoads) load(mns, loaders, k int) bool {
	w := newReplicated(t, sim.Config{Seed: uint64(k), NIC: sim.CX4(), MaxEvents: 5e6}, mns, 4<<20, 1, 3)
	defer w.c.Close()
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
	var tree *Tree
	var b *Bulk
	var partErr error
	ended, over := false, 0
	part := func(i int, c *Client) error {
		return b.Part(i, c, pairsBetween(loadedPairs*i/loaders, loadedPairs*(i+1)/loaders))
	}
	for i := 1; i < loaders; i++ {
		w.c.Go(w.cns[0], "part", func(p fabric.Port) {
			for tree == nil {
				_ = p.Pause(p.Now() + fabric.Microsecond)
			}
			c, err := tree.Client(locker(p))
			wantErr(t, "client", err, nil)
			for over++; b == nil && !ended; {
				_ = p.Pause(p.Now() + fabric.Microsecond)
			}
			if b != nil {
				partErr = errors.Join(partErr, part(i, c))
			}
			over++
		})
	}
	w.c.Go(w.cns[0], "load", func(p fabric.Port) {
		var err error
		tree, err = Open(p, cfg)
		wantErr(t, "open", err, nil)
		c, err := tree.Client(locker(p))
		wantErr(t, "client", err, nil)
		await := func(n int) {
			for over < n {
				_ = p.Pause(p.Now() + fabric.Microsecond)
			}
		}
		await(loaders - 1)
		loading = true
		err = c.BulkLoadParts(loaders, BulkOptions{}, func(x *Bulk) error {
			b = x
			err := part(0, c)
			await(2 * (loaders - 1))
			return errors.Join(err, partErr)
		})
		loading, ended = false, true
		t.loaded(fmt.Sprintf("%d numbers, %d loaders, operation %d", mns, loaders, k), c, err)
	})
	wantErr(t, "run", w.c.RunUntil(w.c.Now()+fabric.Second), nil)
	return left < 0
}

// loaded judges the tree after a load that has returned err.
func (t *promotedLoads) loaded(what string, c *Client, err error) {
	n := len(all(t, c, Range{}))
	switch {
	case err == nil:
		t.made++
	case !strings.Contains(err.Error(), "load again") || n != 0 && (n != loadedPairs || !c.uncertain):
		t.Errorf("%s: %d keys after %v", what, n, err)
	case n == 0:
		t.again++
		wantErr(t, "load again", c.BulkLoad(pairsTo(loadedPairs), BulkOptions{}), nil)
	default:
		t.unknown++
	}
	if n := len(all(t, c, Range{})); n != loadedPairs {
		t.Errorf("%s: %d keys after %v", what, n, err)
	}
	if r, err := c.Check(CheckOptions{}); err != nil || len(r.Problems) > 0 {
		t.Errorf("%s: %v, %v", what, r, err)
	}
}

const loadedPairs = 30

// pairsTo yields some pairs, of which some have large values.
func pairsTo(n int) iter.Seq2[[]byte, []byte] { return pairsBetween(0, n) }

func pairsBetween(from, to int) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for i := from; i < to; i++ {
			if !yield(fmt.Appendf(nil, "%02d", i), bytes.Repeat([]byte{byte(i)}, 1+i%3*60)) {
				return
			}
		}
	}
}
