package objstore

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

// Flush removes everything, also what lies in overflow blocks, and nothing is lost.
func TestFlush(t *testing.T) {
	_, c := one(t, func(cfg *Config) { cfg.Objects = 10 })
	for i := range 60 {
		wantErr(t, "set", c.Set(keyOf(i), valueOf(i, i), Options{}), nil)
	}
	objects := mustBeSound(t, c).Nodes[0].Objects
	if n, err := c.Flush(); err != nil || n != objects || n < 30 {
		t.Fatalf("%d of %d objects, %v", n, objects, err)
	}
	if r := mustBeSound(t, c).Nodes[0]; r.Objects != 0 || r.Elsewhere != 0 {
		t.Fatalf("%+v", r)
	}
	wantErr(t, "set", c.Set(keyOf(1), b("again"), Options{}), nil)
	wantValue(t, c, string(keyOf(1)), "again")
}

// A store is dropped while two compute nodes have it open. Its name is free at once; they work on until they have looked, then they hear of it. The
// memory is given back when both have closed it, whatever became of them, and not before.
func TestDropWhileOthersUseIt(t *testing.T) {
	for _, crashes := range []bool{false, true} {
		w := newWorld(t, sim.Config{NIC: sim.Ideal(), Late: sim.LateDrop}, 2, 4<<20, 3)
		cfg := w.config()
		cfg.NoEvict = true
		c, d, p := w.client(0, w.open(0, cfg)), w.client(1, w.open(1, cfg)), w.port(2)
		free := func() (sum uint64) {
			for _, mn := range w.mns {
				r, err := memory.Open(p, mn)
				wantErr(t, "region", err, nil)
				pages, err := r.Pages(p)
				wantErr(t, "pages", err, nil)
				sum += pages.Free()
			}
			return sum
		}
		for i := range 3000 {
			c.Set(keyOf(i), make([]byte, 1000), Options{})
		}
		before := free()
		drop := func(want error) {
			wantErr(t, "drop", Stores.Drop(p, "test", w.mns, w.cns[2].View), want)
		}
		drop(nil)
		if free() != before {
			t.Fatal("memory is given back while others use it")
		}
		if _, err := c.Get(keyOf(1)); err != nil {
			t.Fatal(err)
		}
		_, err := c.ReclaimStep(w.cns[0].View)
		wantErr(t, "tend", err, ErrDropped)
		_, err = c.Get(keyOf(1))
		wantErr(t, "get", err, ErrDropped)
		wantErr(t, "set", c.Set(keyOf(1), nil, Options{}), ErrDropped)
		_, err = c.s.Client(c.l)
		wantErr(t, "client", err, ErrDropped)
		other := w.client(2, w.open(2, cfg)) // of the same name
		for i := range 10 {
			wantErr(t, "set", other.Set(keyOf(i), b("new"), Options{}), nil)
		}
		with := free()
		wantErr(t, "leave", c.Leave(), nil)
		if free() != with {
			t.Fatal("memory is given back while another uses it")
		}
		if crashes {
			w.c.Kill(w.cns[1])
			wantErr(t, "pause", p.Pause(p.Now()+1e9), nil)
			wantErr(t, "other drop", Stores.Drop(p, "nothing", w.mns, w.cns[2].View), memory.ErrNotFound)
			wantErr(t, "free", handle.FreeDropped(p, w.mns, w.cns[2].View), nil)
		} else {
			_, err = d.ReclaimStep(w.cns[1].View)
			wantErr(t, "tend", err, ErrDropped)
			wantErr(t, "leave", d.Leave(), nil)
		}
		if got := free(); got <= with+3<<20 {
			t.Fatalf("%d bytes are free, %d before", got, with)
		}
		for i := range 10 {
			wantValue(t, other, string(keyOf(i)), "new")
		}
		mustBeSound(t, other)
		w.c.Close()
	}
}

// A store that is full leaves room for others, and does not take what is reserved for them; there may be many.
func TestAFullStoreLeavesRoom(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 32<<20, 1)
	cfg := w.config()
	c := w.client(0, w.open(0, cfg))
	for i := range 40_000 {
		wantErr(t, "set", c.Set(keyOf(i), make([]byte, 1000), Options{}), nil)
	}
	for i := range 5 {
		cfg.Name = fmt.Sprint("other", i)
		w.open(0, cfg)
	}
	r := c.s.h.Parts[0].Region
	for i := range 200 {
		_, _, err := r.Create(c.port, memory.Spec{Name: fmt.Sprint("locks", i), Kind: memory.KindLocks})
		wantErr(t, "create", err, nil)
	}
	_, _, err := r.Create(c.port, memory.Spec{Name: "locks", Kind: memory.KindLocks, Size: 33792})
	wantErr(t, "create", err, nil)
}

// What a store that is full of objects of many sizes leaves is side by side: another finds room for its index, and for objects.
func TestAFullStoreOfManySizesLeavesRoom(t *testing.T) {
	for seed := range uint64(4) {
		w := newWorld(t, sim.Config{Seed: seed, NIC: sim.Ideal()}, 1, 32<<20, 1)
		cfg := w.config()
		c := w.client(0, w.open(0, cfg))
		r := rand.New(rand.NewPCG(seed, 0))
		for i := range 1500 {
			wantErr(t, "set", c.Set(keyOf(i), make([]byte, 100<<r.IntN(13)), Options{}), nil)
		}
		cfg.Name, cfg.Objects = "other", 8000
		other := w.client(0, w.open(0, cfg))
		if size := other.s.geo.tableSize(); size < 200<<10 || size > c.s.h.Parts[0].Region.Reserve() {
			t.Fatalf("an index of %d bytes", size)
		}
		for i := range 1000 {
			wantErr(t, "set in the other", other.Set(keyOf(i), b("value"), Options{}), nil)
		}
		w.c.Close()
	}
}

// A compute node that has not looked since the store was dropped, and needs more memory for it, hears that it has been dropped.
func TestDropThenGrow(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 2)
	c := w.client(0, w.open(0, w.config()))
	wantErr(t, "set", c.Set(keyOf(1), nil, Options{}), nil)
	wantErr(t, "drop", Stores.Drop(w.port(1), "test", w.mns, w.cns[1].View), nil)
	var err error
	for i := 0; err == nil && i < 3000; i++ {
		err = c.Set(keyOf(i), make([]byte, 900), Options{})
	}
	wantErr(t, "set", err, ErrDropped)
	wantErr(t, "next set", c.Set(keyOf(1), nil, Options{}), ErrDropped)
}

// The last who close a dropped store give its memory back, also if they have not looked since it was dropped.
func TestDropAndLeaveWithoutLooking(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal(), Late: sim.LateDrop}, 2, 4<<20, 3)
	p := w.port(2)
	free := func() (sum uint64) {
		for _, mn := range w.mns {
			r, err := memory.Open(p, mn)
			wantErr(t, "region", err, nil)
			pages, err := r.Pages(p)
			wantErr(t, "pages", err, nil)
			sum += pages.Free()
		}
		return sum
	}
	before := free()
	c, d := w.client(0, w.open(0, w.config())), w.client(1, w.open(1, w.config()))
	for i := range 100 {
		wantErr(t, "set", c.Set(keyOf(i), make([]byte, 1000), Options{}), nil)
	}
	wantErr(t, "drop", Stores.Drop(p, "test", w.mns, w.cns[2].View), nil)
	wantErr(t, "leave", c.Leave(), nil)
	wantErr(t, "leave", d.Leave(), nil)
	if got := free(); got != before {
		t.Fatalf("%d bytes are free, %d before the store was made", got, before)
	}
}
