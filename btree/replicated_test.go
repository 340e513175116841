package btree

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
)

// All that operations change is at the backups, whatever they are: splits, nodes that are unlinked, large values, a new root, a bulk load, a flush. What a promotion leaves is what there was.
func TestBackupsHaveAll(t *testing.T) {
	for _, copies := range []int{2, 3} {
		for _, mns := range []int{1, 2} {
			w := newReplicated(t, sim.Config{Seed: 1, NIC: sim.Ideal()}, mns, 4<<20, 1, copies)
			c := w.client(0, w.open(0, w.config()))
			same := func(what string) {
				t.Helper()
				r, err := c.Check(CheckOptions{Backups: true})
				wantErr(t, what, err, nil)
				if !r.Clean() {
					t.Fatalf("%d copies, %s: %v", copies, what, r)
				}
			}
			same("nothing")
			for round, size := range []int{10, 200, 16, 3000} {
				for i := range 250 {
					wantErr(t, "put", c.Put(keyOf(i), bytes.Repeat([]byte{byte(round)}, size+i%7)), nil)
					if i%4 == round%4 {
						wantErr(t, "delete", c.Delete(keyOf(i/2)), nil)
					}
				}
				same(fmt.Sprint("sizes from ", size))
				for i := range 250 {
					if round%2 == 0 && i > 20 {
						_ = c.Delete(keyOf(i))
					}
				}
				same("deletions")
			}
			if s := c.Stats(); s.Splits == 0 || s.Unlinked == 0 || s.Completed == 0 || s.Rewrites == 0 {
				t.Errorf("%+v: that is too little", *s)
			}
			have := all(t, c, Range{})
			for range copies - 1 {
				for _, mn := range w.mns {
					wantErr(t, "promote", w.c.Promote(mn), nil)
				}
				c = w.client(0, w.open(0, w.config()))
				if now := all(t, c, Range{}); fmt.Sprint(now) != fmt.Sprint(have) {
					t.Errorf("%d copies: %d keys, there were %d", copies, len(now), len(have))
				}
				same("promoted")
				wantErr(t, "put", c.Put([]byte("new"), bytes.Repeat([]byte("v"), 100)), nil)
				same("put")
				have = all(t, c, Range{})
			}
			_, err := c.Flush()
			wantErr(t, "flush", err, nil)
			same("flush")
		}
	}
}

// A bulk load is at the backups.
func TestBackupsHaveABulkLoad(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 2, 4<<20, 1, 2)
	c := w.client(0, w.open(0, w.config()))
	wantErr(t, "load", c.BulkLoad(func(yield func(k, v []byte) bool) {
		for i := range 500 {
			if !yield(keyOf(i), bytes.Repeat([]byte("v"), i%40)) {
				return
			}
		}
	}, BulkOptions{}), nil)
	r, err := c.Check(CheckOptions{Backups: true})
	if wantErr(t, "check", err, nil); !r.Clean() || r.Keys != 500 {
		t.Fatal(r)
	}
	for _, mn := range w.mns {
		wantErr(t, "promote", w.c.Promote(mn), nil)
	}
	if have := all(t, w.client(0, w.open(0, w.config())), Range{}); len(have) != 500 {
		t.Errorf("%d keys", len(have))
	}
}

// A promotion leaves the free bits behind: what was free is found, without that it is asked for, and no slot that the tree leads to.
func TestReplicatedReclaim(t *testing.T) {
	for _, mns := range []int{1, 2} {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, mns, 1<<20, 1, 2)
		c, err := w.open(0, w.config()).Client(&following{attaching{cas.New(w.port(0), cas.Config{Plain: true}), w.cns[0]}})
		wantErr(t, "client", err, nil)
		for i := range 200 {
			wantErr(t, "put", c.Put(keyOf(i), large(i)), nil)
		}
		for i := range 180 {
			wantErr(t, "delete", c.Delete(keyOf(i)), nil)
		}
		wantErr(t, "drain", c.Drain(), nil)
		walkAll(t, c, w.cns[0].View)
		if n := mustBeSound(t, c).elsewhere(); n > 0 {
			t.Errorf("%d slots are leaked", n)
		}
		for _, mn := range w.mns {
			wantErr(t, "promote", w.c.Promote(mn), nil)
		}
		wantValue(t, c, string(keyOf(190)), string(large(190)))
		if mustBeSound(t, c).elsewhere() == 0 {
			t.Error("the promotion has left nothing behind")
		}
		walkAll(t, c, w.cns[0].View)
		wantErr(t, "drain", c.Drain(), nil)
		if n := mustBeSound(t, c).elsewhere(); n > 0 {
			t.Errorf("%d slots are leaked", n)
		}
		wantErr(t, "reclaim", c.Reclaim(w.cns[0].View), nil)
		for i := 180; i < 200; i++ {
			wantValue(t, c, string(keyOf(i)), string(large(i)))
		}
	}
}
