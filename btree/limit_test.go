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
