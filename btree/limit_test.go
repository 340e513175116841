package btree

import (
	"bytes"
	"testing"

	"github.com/declock/declock/memory"
)

// A tree takes no more of a memory node than its limit, and the limit stays what it was made with.
func TestMemoryLimit(t *testing.T) {
	const limit = 1 << 20
	w, c := one(t, 2, func(cfg *Config) { cfg.MemoryLimit = limit })
	var err error
	for i := 0; err == nil; i++ {
		err = c.Put(keyOf(i), bytes.Repeat([]byte{byte(i)}, 1+i%3*300))
		if i > 100_000 {
			t.Fatal("there is no limit")
		}
	}
	wantErr(t, "put", err, ErrNoSpace)
	for i := range c.t.h.Parts {
		m := c.t.h.Parts[i]
		p, err := m.Region.Pages(w.port(0))
		wantErr(t, "pages", err, nil)
		if took := p.Owned(&m.Entry) - m.Entry.Length; took > limit+m.Region.PageSize() || took < limit*3/4 {
			t.Errorf("%v: %d bytes are taken, the limit is %d", m.MN, took, limit)
		}
		e, err := m.Region.Lookup(w.port(0), "test", memory.KindTree)
		if wantErr(t, "lookup", err, nil); Trees.LimitOf(&e) != limit {
			t.Errorf("%v: the root entry has a limit of %d", m.MN, Trees.LimitOf(&e))
		}
	}
	if again := w.open(0, w.config()); again.MemoryLimit() != limit {
		t.Errorf("the limit is %d when it is opened without", again.MemoryLimit())
	}
	if _, err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "put", c.Put(keyOf(1), []byte("v")), nil)
	mustBeSound(t, c)
}

// A leaf that cannot be unlinked for want of memory is left to the next writer that comes by.
func TestUnlinkWithoutMemory(t *testing.T) {
	w, c := one(t, 1, func(cfg *Config) { cfg.MemoryLimit = 1 << 20 })
	n := 0
	for ; c.stats.Splits == 0; n++ {
		wantErr(t, "put", c.Put(keyOf(n), []byte("v")), nil)
	}
	s := search{}
	s.begin(0, keyOf(n-1), false, false)
	wantErr(t, "seek", c.seek(&s, &c.n, c.leaf), nil)
	low := bytes.Clone(c.n.low)
	for i := range n - 1 {
		if bytes.Compare(keyOf(i), low) >= 0 {
			wantErr(t, "delete", c.Delete(keyOf(i)), nil)
		}
	}
	var taken []ptr
	for {
		p, err := c.alloc(0, classNode)
		if err != nil {
			wantErr(t, "alloc", err, ErrNoSpace)
			break
		}
		taken = append(taken, p)
	}

	poor := w.client(0, c.t) // it has no block for shadows
	wantErr(t, "delete", poor.Delete(keyOf(n-1)), nil)
	if r := mustBeSound(t, c); poor.stats.Emptied != 1 || poor.stats.Deferred != 1 || r.Clean() {
		t.Fatalf("%+v, %v; want a leaf that is empty and not unlinked", poor.stats, r)
	}
	for _, p := range taken {
		c.free(p, classNode)
	}
	wantErr(t, "put", poor.Put(keyOf(n-1), []byte("again")), nil)
	if r := mustBeSound(t, c); poor.stats.Unlinked != 1 || !r.Clean() {
		t.Fatalf("%+v, %v; want that the next writer unlinks it", poor.stats, r)
	}
}
