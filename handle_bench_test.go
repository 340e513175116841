package declock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/objstore"
)

// What a handle that all goroutines share costs beside a session of one's own, also with a context that can end. Compare the quickest of several runs: -count 6.
func BenchmarkHandle(b *testing.B) {
	c, s := open(b)
	l, err := c.Locks(b.Context(), "locks", 1024)
	if err != nil {
		b.Fatal(err)
	}
	st, err := c.Store(b.Context(), "objects", declock.StoreConfig{Objects: 10_000})
	if err != nil {
		b.Fatal(err)
	}
	tr, err := c.Tree(b.Context(), "tree", declock.TreeConfig{})
	if err != nil {
		b.Fatal(err)
	}
	cl, err := st.Client(s)
	if err != nil {
		b.Fatal(err)
	}
	tcl, err := tr.Client(s)
	if err != nil {
		b.Fatal(err)
	}
	keys, value, dst := make([][]byte, 1000), make([]byte, 414), make([]byte, 0, 1024)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key-%092d", i)
		if err := errors.Join(cl.Set(keys[i], value, objstore.Options{}), tcl.Put(keys[i], value[:8])); err != nil {
			b.Fatal(err)
		}
	}
	unlock := func(g declock.Guard, err error) error {
		if err == nil {
			err = g.Unlock()
		}
		return err
	}
	for _, ctx := range []context.Context{context.Background(), b.Context()} {
		for _, x := range []struct {
			name            string
			session, handle func(i int) error
		}{
			{"get", func(i int) error { _, err := cl.Get(keys[i%1000]); return err },
				func(i int) error { _, err := st.Get(ctx, keys[i%1000], dst); return err }},
			{"set", func(i int) error { return cl.Set(keys[i%1000], value, objstore.Options{}) },
				func(i int) error { return st.Set(ctx, keys[i%1000], value, declock.SetOptions{}) }},
			{"treeget", func(i int) error { _, err := tcl.Get(keys[i%1000]); return err },
				func(i int) error { _, err := tr.Get(ctx, keys[i%1000], dst); return err }},
			{"lock", func(i int) error { return unlock(s.Lock(context.Background(), l.At(i&1023))) },
				func(i int) error { return unlock(c.Lock(ctx, l.At(i&1023))) }},
		} {
			for _, way := range []struct {
				name string
				f    func(i int) error
			}{{"session", x.session}, {"handle", x.handle}} {
				b.Run(fmt.Sprintf("%s/%s/ends=%v", x.name, way.name, ctx.Done() != nil), func(b *testing.B) {
					for i := 0; b.Loop(); i += 7 {
						if err := way.f(i); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// A lock by name, which is bound to its lock already.
func BenchmarkNames(b *testing.B) {
	c, _ := open(b)
	x, err := c.Names(b.Context(), "names", 0)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		g, err := x.Lock(b.Context(), "orders/17")
		if err == nil {
			err = g.Unlock()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
