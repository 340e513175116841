package objstore

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
)

// exercise does everything on some keys, and demands that nothing but sane errors come.
func exercise(t testing.TB, c *Client) {
	t.Helper()
	for i := range 12 {
		k := keyOf(i)
		errs := make([]error, 0, 8)
		_, err := c.Get(k)
		errs = append(errs, err, c.Append(k, b("x")), c.Set(k, valueOf(i, i), Options{}), c.Touch(k, 9), c.Delete(k))
		_, err = c.Incr(k, 1)
		for _, err := range append(errs, err) {
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrNoSpace) &&
				!errors.Is(err, ErrNotNumber) && !errors.Is(err, lock.ErrCorrupt) && !errors.Is(err, lock.ErrTimeout) &&
				!errors.Is(err, lock.ErrLost) && !errors.Is(err, memory.ErrCorrupt) && !errors.Is(err, ErrValueSize) {
				t.Errorf("key %q: %v", k, err)
			}
		}
	}
	c.Check(CheckOptions{})
	for i := range c.s.geo.buckets {
		c.Inspect(c.s.h.Parts[0].MN, i)
	}
	c.Skim(0, 64<<10, func(*Brief) bool { return true })
}

// small is a store of a few buckets that is nearly full.
func small(t testing.TB, seed uint64) (*world, *Client) {
	w := newWorld(t, sim.Config{Seed: seed, NIC: sim.Ideal()}, 1, 1<<20, 1)
	cfg := w.config()
	cfg.Objects, cfg.MemoryLimit, cfg.LockTimeoutNs = 8, 32<<10, 10*fabric.Microsecond
	c := w.client(0, w.open(0, cfg))
	for i := range 60 {
		c.Set(keyOf(i), valueOf(i, i), Options{})
	}
	return w, c
}

// Random bytes anywhere in the memory of a store: no panic, no endless loop,
// and Check never panics either.
func TestCorruptMemory(t *testing.T) {
	for seed := range uint64(300) {
		w, c := small(t, seed)
		r := rand.New(rand.NewPCG(seed, 1))
		base, used := c.s.h.Parts[0].Base.Offset(), uint64(0)
		if seed%2 == 0 {
			used = c.s.geo.tableSize() // header and buckets
		} else {
			used = 64 << 10 // and objects
		}
		for range 1 + r.IntN(60) {
			var word [8]byte
			binary.LittleEndian.PutUint64(word[:], r.Uint64()>>r.IntN(64))
			w.c.Poke(fabric.At(0, base+r.Uint64N(used-8)), word[:1+r.IntN(8)])
		}
		exercise(t, c)
		w.c.Close()
	}
}

// Each kind of damage is found by Check, and named.
func TestCheckFinds(t *testing.T) {
	for _, x := range []struct {
		name   string
		damage func(w *world, c *Client, slot, object fabric.Addr)
	}{
		{"bit of a slot", func(w *world, c *Client, slot, _ fabric.Addr) { w.poke(slot, w.c.PeekWord(slot)^1<<20) }},
		{"fingerprint", func(w *world, c *Client, slot, _ fabric.Addr) { w.poke(slot, w.c.PeekWord(slot)^1<<55) }},
		{"slot twice", func(w *world, c *Client, slot, _ fabric.Addr) { w.poke(slot.Add(8*8), w.c.PeekWord(slot)) }},
		{"key", func(w *world, c *Client, _, object fabric.Addr) { w.c.Poke(object.Add(headerSize), b("K")) }},
		{"value length", func(w *world, c *Client, _, object fabric.Addr) { w.c.Poke(object.Add(20), []byte{0xff, 0xff}) }},
		{"flags", func(w *world, c *Client, _, object fabric.Addr) { w.c.Poke(object.Add(16), []byte{0xff}) }},
		{"link", func(w *world, c *Client, slot, _ fabric.Addr) { w.poke(slot.Add(uint64(c.s.geo.slots)*8), 0xdead) }},
		{"free and live", func(w *world, c *Client, slot, _ fabric.Addr) {
			ch := slotWord(w.c.PeekWord(slot)).chunk()
			c.free(c.s.h.Parts[0], ch)
		}},
		{"run", func(w *world, c *Client, _, _ fabric.Addr) {
			p, err := c.s.h.Parts[0].Region.Pages(c.port)
			wantErr(w.t, "pages", err, nil)
			p.Runs(&c.s.h.Parts[0].Entry, func(x memory.Run) { w.poke(c.s.h.Parts[0].Region.Head(&x), 0) })
		}},
		{"free bit", func(w *world, c *Client, slot, _ fabric.Addr) {
			a, bit := c.s.h.Parts[0].Region.FreeBits(slotWord(w.c.PeekWord(slot)).chunk().off64)
			w.poke(a, w.c.PeekWord(a)|1<<bit)
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			w, c := one(t, nil)
			wantErr(t, "set", c.Set(b("k"), b("v"), Options{}), nil)
			mustBeSound(t, c)
			k := work{look: look{head: true}}
			wantErr(t, "start", c.start(&k, b("k")), nil)
			wantErr(t, "lookup", c.lookup(&k, lock.Shared), nil)
			wantErr(t, "unlock", c.unlock(nil), nil)
			x.damage(w, c, k.slot, k.n.At(k.word.chunk().off64))
			r, err := c.Check(CheckOptions{})
			wantErr(t, "check", err, nil)
			if r.Sound() {
				t.Fatalf("check found nothing:\n%v", r)
			}
			t.Log(r.Problems[0])
		})
	}
}

func (w *world) poke(a fabric.Addr, v uint64) {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], v)
	w.c.Poke(a, word[:])
}

func FuzzMemory(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8}, uint16(tableOffset))
	f.Fuzz(func(t *testing.T, junk []byte, at uint16) {
		w, c := small(t, 1)
		w.c.Poke(c.s.h.Parts[0].Base.Add(uint64(at)), junk[:min(len(junk), 4096)])
		exercise(t, c)
		w.c.Close()
	})
}
