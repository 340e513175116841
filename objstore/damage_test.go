package objstore

import (
	"errors"
	"testing"
)

// fillSlots puts a word into all slots of all buckets.
func fillSlots(w *world, c *Client, v slotWord) {
	for b := range c.s.geo.buckets {
		a := c.s.slotsAddr(c.s.bucket(0, b))
		for i := range c.s.geo.slots {
			w.poke(a.Add(uint64(i)*8), uint64(v))
		}
	}
}

// A slot has a class that there is not.
func TestFlushOfDamagedClass(t *testing.T) {
	w, c := one(t, func(cfg *Config) { cfg.Objects = 10 })
	wantErr(t, "set", c.Set(keyOf(1), b("x"), Options{}), nil)
	off := c.s.h.Parts[0].First / 64
	fillSlots(w, c, makeSlot(1, chunk{off + 3, class(125)}, 64, 1))
	_, err := c.Flush()
	wantErr(t, "flush", err, ErrCorrupt)
}

// A slot leads to the store's own header: that must not get into the free list.
func TestFlushOfDamagedOffset(t *testing.T) {
	w, c := one(t, func(cfg *Config) { cfg.Objects = 10 })
	wantErr(t, "set", c.Set(keyOf(1), b("x"), Options{}), nil)
	a := c.s.slotsAddr(c.s.bucket(0, 0))
	w.poke(a, uint64(makeSlot(1, chunk{c.s.h.Parts[0].Base.Offset() / 64, 0}, 64, 1))) // header of the store itself
	_, err := c.Flush()
	wantErr(t, "flush", err, ErrCorrupt)
	it, ok := c.s.h.Parts[0].Heap.Pop(0)
	for ok {
		if it*64 == c.s.h.Parts[0].Base.Offset() {
			t.Fatalf("the store's header is in the free list: %#x", it*64)
		}
		it, ok = c.s.h.Parts[0].Heap.Pop(0)
	}
}

// A slot leads to where no object can be: a round takes nothing for garbage, since the object that the slot had may be anywhere.
func TestSweepOfDamagedSlot(t *testing.T) {
	w, c := one(t, func(cfg *Config) { cfg.Objects = 10 })
	wantErr(t, "set", c.Set(keyOf(1), b("x"), Options{}), nil)
	n, a := c.s.h.Parts[0], c.s.slotsAddr(c.s.bucket(0, 0))
	for _, v := range []slotWord{
		makeSlot(1, chunk{n.First/64 + 3, class(125)}, 64, 1),
		makeSlot(1, chunk{n.First/64 + 3, overflowClass}, 64, 1),
		makeSlot(1, chunk{n.Base.Offset() / 64, 0}, 64, 1),
		makeSlot(1, chunk{n.Limit / 64, 0}, 64, 1),
	} {
		w.poke(a, uint64(v))
		wantErr(t, "reclaim", c.Reclaim(w.cns[0].View), ErrCorrupt)
	}
	w.poke(a, 0)
	wantErr(t, "reclaim", c.Reclaim(w.cns[0].View), nil)
}

// A full bucket loses an object at random, and all of its slots are damaged.
func TestReplaceOfDamagedClass(t *testing.T) {
	w, c := one(t, func(cfg *Config) { cfg.Objects = 1; cfg.MemoryLimit = 64 << 10 })
	// One bucket; its overflow blocks cannot be had. All slots are damaged: another fingerprint, class 125.
	for i := range 400 {
		if err := c.Set(keyOf(i), make([]byte, 200), Options{}); err != nil {
			t.Fatal(err)
		}
	}
	for b := range c.s.geo.buckets {
		a := c.s.slotsAddr(c.s.bucket(0, b))
		n := c.s.geo.slots
		for {
			for i := range n {
				v := slotWord(w.c.PeekWord(a.Add(uint64(i) * 8)))
				if v != 0 {
					v = v&^(127<<classShift) | 125<<classShift
					w.poke(a.Add(uint64(i)*8), uint64(v))
				}
			}
			ch, ok := linkWord(w.c.PeekWord(a.Add(uint64(n) * 8))).chunk()
			if !ok {
				break
			}
			a, n = c.s.h.Parts[0].At(ch.off64), overflowSlots
		}
	}
	for i := range 2000 {
		err := c.Set(keyOf(10000+i), make([]byte, 200), Options{})
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	}
}
