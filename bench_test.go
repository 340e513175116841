package declock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// storeAndTree makes a store and a tree, or opens them.
func storeAndTree(tb testing.TB, c *declock.Cluster) (*declock.Store, *declock.Tree) {
	tb.Helper()
	st, err1 := c.Store(tb.Context(), "s", declock.StoreConfig{})
	tr, err2 := c.Tree(tb.Context(), "t", declock.TreeConfig{})
	if err := errors.Join(err1, err2); err != nil {
		tb.Fatal(err)
	}
	return st, tr
}

func open(tb testing.TB, opts ...declock.Option) (*declock.Cluster, *declock.Session) {
	tb.Helper()
	c, err := declock.Open(context.Background(), "shm:", append(opts, declock.WithReport(func(err error) { tb.Error(err) }))...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	s, err := c.Session()
	if err != nil {
		tb.Fatal(err)
	}
	return c, s
}

// Uncontended acquire and release: the target is 300 ns, 0 allocations.
func BenchmarkLockUnlock(b *testing.B) {
	for _, policy := range []string{"cql", "declock-tf", "declock-pf", "declock"} {
		for _, mode := range []lock.Mode{lock.Exclusive, lock.Shared} {
			b.Run(fmt.Sprintf("%s/%v", policy, mode), func(b *testing.B) {
				c, s := open(b, declock.WithPolicy(policy))
				l, err := c.Locks(context.Background(), "bench", 1024)
				if err != nil {
					b.Fatal(err)
				}
				ctx := context.Background()
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					i++
					acquire := s.Lock
					if mode == lock.Shared {
						acquire = s.RLock
					}
					g, err := acquire(ctx, l.At(i&1023))
					if err != nil {
						b.Fatal(err)
					}
					if err := g.Unlock(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// Get and set of a 414-byte object, the mean of the paper's first trace: the target is 1 us for a get.
func BenchmarkStore414(b *testing.B) {
	const keys = 10_000
	c, s := open(b)
	st, err := c.Store(context.Background(), "bench", declock.StoreConfig{Objects: keys})
	if err != nil {
		b.Fatal(err)
	}
	cl, err := st.Client(s)
	if err != nil {
		b.Fatal(err)
	}
	value := make([]byte, 414)
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%092d", i%keys) }
	names := make([][]byte, keys)
	for i := range names {
		names[i] = key(i)
		if err := cl.Set(names[i], value, objstore.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i += 7919
			if _, err := cl.Get(names[i%keys]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("set", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i += 7919
			if err := cl.Set(names[i%keys], value, objstore.Options{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
