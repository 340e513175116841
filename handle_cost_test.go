package declock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/objstore"
)

// A handle that all goroutines share costs 150 ns more than a session of one's own, at most, also with a context that can end. The quickest of many short runs of both
// are compared, one after the other, since other programs use the processors, too.
func TestHandleCost(t *testing.T) {
	const batch, batches, bound = 500, 300, 150 * time.Nanosecond
	if testing.Short() {
		t.Skip("a figure of the program as it is")
	}
	c, s := open(t)
	l, err := c.Locks(t.Context(), "locks", 1024)
	if err != nil {
		t.Fatal(err)
	}
	st, err := c.Store(t.Context(), "objects", objstore.Config{Objects: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := c.Tree(t.Context(), "tree", btree.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := st.Client(s)
	if err != nil {
		t.Fatal(err)
	}
	tcl, err := tr.Client(s)
	if err != nil {
		t.Fatal(err)
	}
	keys, value, dst := make([][]byte, 1000), make([]byte, 414), make([]byte, 0, 1024)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key-%092d", i)
		if err := errors.Join(cl.Set(keys[i], value, objstore.Options{}), tcl.Put(keys[i], value[:8])); err != nil {
			t.Fatal(err)
		}
	}
	unlock := func(g declock.Guard, err error) error {
		if err == nil {
			err = g.Unlock()
		}
		return err
	}
	quickest := func(f func(i int) error) time.Duration {
		start := time.Now()
		for i := range batch {
			if err := f(i * 7); err != nil {
				t.Fatal(err)
			}
		}
		return time.Since(start) / batch
	}
	for _, ctx := range []context.Context{context.Background(), t.Context()} {
		for _, x := range []struct {
			name            string
			session, handle func(i int) error
		}{
			{"get", func(i int) error { _, err := cl.Get(keys[i%1000]); return err },
				func(i int) error { _, err := st.Get(ctx, keys[i%1000], dst); return err }},
			{"set", func(i int) error { return cl.Set(keys[i%1000], value, objstore.Options{}) },
				func(i int) error { return st.Set(ctx, keys[i%1000], value, declock.SetOptions{}) }},
			{"tree get", func(i int) error { _, err := tcl.Get(keys[i%1000]); return err },
				func(i int) error { _, err := tr.Get(ctx, keys[i%1000], dst); return err }},
			{"lock and unlock", func(i int) error { return unlock(s.Lock(context.Background(), l.At(i&1023))) },
				func(i int) error { return unlock(c.Lock(ctx, l.At(i&1023))) }},
		} {
			session, handle := time.Hour, time.Hour
			for range batches {
				session, handle = min(session, quickest(x.session)), min(handle, quickest(x.handle))
			}
			t.Logf("%s: %v in a session, %v by the handle (a context that can end: %v)", x.name, session, handle, ctx.Done() != nil)
			if handle > session+bound {
				t.Errorf("%s: %v more than in a session, at most %v", x.name, handle-session, bound)
			}
		}
	}
}
