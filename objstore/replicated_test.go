package objstore

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

// All that operations change is at the backups, whatever they are: overflow blocks, evictions, moves, flushes, expiry. What a promotion leaves is what there was.
func TestBackupsHaveAll(t *testing.T) {
	for _, copies := range []int{2, 3} {
		for _, noEvict := range []bool{false, true} {
			w := newReplicated(t, sim.Config{Seed: 1, NIC: sim.Ideal()}, 1, 512<<10, 1, copies)
			cfg := w.config()
			cfg.Objects, cfg.NoEvict, cfg.MaxValue = 20, noEvict, 40000
			s := w.open(0, cfg)
			c := w.client(0, s)
			c.SetNow(10)
			same := func(what string) {
				t.Helper()
				r, err := c.Check(CheckOptions{Backups: true})
				wantErr(t, what, err, nil)
				if !r.Sound() {
					t.Fatalf("%d copies, %s: %v", copies, what, r)
				}
			}
			change := func(round, size int) {
				for i := range 250 {
					key := keyOf(i)
					_ = c.Set(key, make([]byte, size+i*7), Options{TTL: uint32(i % 3)})
					_ = c.Append(key, []byte("x"))
					if i%4 == round%4 {
						_ = c.Delete(key)
					}
					_ = c.Touch(keyOf(i/2), 50)
				}
			}
			for round, size := range []int{100, 6000, 30, 20000, 500} {
				c.SetNow(uint32(10 + 2*round))
				change(round, size)
				same(fmt.Sprint("sizes from ", size))
				if round == 1 {
					n, err := c.Flush()
					if wantErr(t, "flush", err, nil); n == 0 {
						t.Error("nothing was flushed")
					}
					same("flush")
				}
			}
			if st := c.Stats(); st.Overflows == 0 || !noEvict && st.Evictions == 0 || st.Collected == 0 || noEvict && st.Moved == 0 {
				t.Errorf("%d copies: %+v: that is too little", copies, *st)
			}
			have := map[string]string{}
			for i := range 250 {
				if it, err := c.Get(keyOf(i)); err == nil {
					have[string(keyOf(i))] = string(it.Value)
				}
			}
			for range copies - 1 {
				wantErr(t, "promote", w.c.Promote(w.mns[0]), nil)
				d := w.client(0, w.open(0, cfg))
				d.SetNow(c.nowS)
				for key, value := range have {
					wantValue(t, d, key, value)
				}
				c = d
				same("promoted")
				wantErr(t, "set", c.Set(b("new"), b("value"), Options{}), nil)
			}
			n, err := c.Flush()
			if wantErr(t, "flush", err, nil); n < uint64(len(have)) {
				t.Errorf("flush of %d, %d were there", n, len(have))
			}
			same("flush")
		}
	}
}

// What has not been built for replicated memory is refused.
func TestReplicatedReclaim(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 2)
	c, err := w.open(0, w.config()).Client(cas.New(w.port(0), cas.Config{}))
	wantErr(t, "client", err, nil)
	wantErr(t, "reclaim", c.Reclaim(w.cns[0].View), memory.ErrReplicated)
	if busy, err := c.ReclaimStep(w.cns[0].View); busy || err != nil {
		t.Error(busy, err)
	}
}

// Clients of before and after a promotion have uniques of their own, also if one crashed before the backups had its incarnation.
func TestUniquesAfterAPromotion(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, 3)
	seen := map[uint64]bool{}
	for term := range 3 {
		for i := range 4 {
			c := w.client(i%2, w.open(i%2, w.config()))
			if u := c.uniques[0].next; seen[u] {
				t.Errorf("term %d: unique %#x again", term+1, u)
			} else {
				seen[u] = true
			}
		}
		if term < 2 {
			wantErr(t, "promote", w.c.Promote(w.mns[0]), nil)
		}
	}
}

// The memory of a dropped store is not given back while a compute node has it open, though a backup serves by then.
func TestDropAfterAPromotion(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, 2)
	c := w.client(0, w.open(0, w.config()))
	wantErr(t, "set", c.Set(b("k"), b("v"), Options{}), nil)
	wantErr(t, "promote", w.c.Promote(w.mns[0]), nil)
	p := w.port(1)
	r, err := memory.Open(p, w.mns[0])
	wantErr(t, "open", err, nil)
	wantErr(t, "drop", Stores.Drop(p, "test", w.mns, w.cns[1].View), nil)
	if list, err := r.Retired(p); err != nil || len(list) != 1 {
		t.Errorf("%d retired stores have memory, want one: %v", len(list), err)
	}
	w.c.Kill(w.cns[0])
	wantErr(t, "run", w.c.Run(), nil)
	wantErr(t, "free", handle.FreeDropped(p, w.mns, w.cns[1].View), nil)
	if list, err := r.Retired(p); err != nil || len(list) != 0 {
		t.Errorf("%d retired stores have memory, want none: %v", len(list), err)
	}
}
