package btree

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric/sim"
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
