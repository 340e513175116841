package declock

import (
	"errors"
	"sync"
	"testing"

	"github.com/declock/declock/objstore"
)

// Use lends a client for several operations, without an allocation, and Stats counts what all have done: it never falls, also when clients are closed.
func TestUseAndStats(t *testing.T) {
	c, ctx := openPools(t, WithSessions(3))
	st, err := c.Store(ctx, "s", StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	key, value := []byte("k"), []byte("v")
	work := func(k *objstore.Client) error {
		if err := k.Set(key, value, objstore.Options{}); err != nil {
			return err
		}
		it, err := k.Get(key)
		if err == nil && string(it.Value) != "v" {
			err = errors.New("another value")
		}
		return err
	}
	// Many runs: the reclaimer's rounds allocate meanwhile, and the average is rounded down.
	if n := testing.AllocsPerRun(2000, func() {
		if err := st.Use(ctx, work); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	before := st.Stats()
	if before.Stores != 2001 || before.Gets != 2001 {
		t.Errorf("%+v after 2001 sets and gets", before)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				if err := st.Use(ctx, work); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 100 {
		if now := st.Stats(); now.Gets < before.Gets {
			t.Errorf("from %d gets to %d", before.Gets, now.Gets)
		}
	}
	all.Wait()
	c.changes.Add(1) // has clients closed
	if err := st.Use(ctx, work); err != nil {
		t.Error(err)
	}
	if now := st.Stats(); now.Stores != 2802 {
		t.Errorf("%d sets, want 2802", now.Stores)
	}
	if err := c.DropStore(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	if err := st.Use(ctx, work); !errors.Is(err, objstore.ErrDropped) {
		t.Errorf("the store has been dropped: %v", err)
	}
	if now := st.Stats(); now.Stores != 2802 {
		t.Errorf("%d sets after the drop, want 2802", now.Stores)
	}
}
