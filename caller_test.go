package declock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/objstore"
)

// What callers do in functions and loops of their own, and calls that fail, change nothing for others.

// within ends a test that would wait for ever.
const within = time.Minute

// A loop over a scan may change the keys that it gets: they are its own.
func TestScanKeysAreTheCallers(t *testing.T) {
	const keys = 100 // more than a page
	c, _ := open(t)
	ctx := t.Context()
	tr, err := c.Tree(ctx, "t", declock.TreeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		if err := tr.Put(ctx, fmt.Appendf(nil, "k%03d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []byte{'a', 'z'} {
		for _, descending := range []bool{false, true} {
			s, got := tr.Scan(ctx, btree.Range{Descending: descending}), 0
			for part := range 2 { // the second loop goes on where the first breaks
				for k := range s.All() {
					want := got
					if descending {
						want = keys - 1 - got
					}
					if string(k) != fmt.Sprintf("k%03d", want) {
						t.Fatalf("key %d is %q", got, k)
					}
					k[0] = to
					if got++; part == 0 && got == 50 {
						break
					}
				}
			}
			if got != keys || s.Err() != nil {
				t.Errorf("%d keys, want %d, %v", got, keys, s.Err())
			}
		}
	}
}

// A function that panics in Update leaves the key to others, and the session to the pool.
func TestPanicInUpdate(t *testing.T) {
	c, _ := open(t, declock.WithSessions(1))
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	st, err := c.Store(ctx, "s", declock.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	before := -1
	for range 3 {
		if panicOf(func() {
			_ = st.Update(ctx, []byte("k"), objstore.Update{Apply: func(*objstore.Object) objstore.Change { panic("user") }})
		}) == "" {
			t.Error("the panic is gone")
		}
		if err := st.Set(ctx, []byte("k"), nil, declock.SetOptions{}); err != nil {
			t.Fatalf("after a panic: %v", err)
		}
		if n := c.Node().Observe(0).Sessions; before >= 0 && n != before {
			t.Errorf("%d sessions, %d before", n, before)
		} else {
			before = n
		}
	}
}

// Operations that fail leave no buffers of large values with the sessions of the pool either.
func TestLargeValuesOfFailuresAreNotKept(t *testing.T) {
	const sessions, size = 16, 1 << 20
	c, _ := open(t, declock.WithSessions(sessions))
	ctx := t.Context()
	st, err := c.Store(ctx, "s", declock.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	keys, big := inOwnBuckets(st, sessions), make([]byte, size-1)
	for _, key := range keys {
		if err := st.Set(ctx, key, big, declock.SetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var tooLarge = make([]byte, st.MaxValue()+1)
	// inAll has so many operations under way at a time, each in a session of its own.
	var inAll func(keys [][]byte)
	inAll = func(keys [][]byte) {
		if len(keys) == 0 {
			return
		}
		if err := st.Update(ctx, keys[0], objstore.Update{Read: -1, Apply: func(*objstore.Object) objstore.Change {
			inAll(keys[1:])
			return objstore.Change{Action: objstore.Put, Value: tooLarge}
		}}); !errors.Is(err, objstore.ErrValueSize) {
			t.Error(err)
		}
	}
	before := heapInUse()
	inAll(keys)
	if after := heapInUse(); after > before+4*size {
		t.Errorf("the heap has grown by %d MB", (after-before)>>20)
	}
	runtime.KeepAlive(tooLarge)
	runtime.KeepAlive(big)
}

// heapInUse returns what the heap holds.
func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// inOwnBuckets returns keys that share no bucket.
func inOwnBuckets(st *declock.Store, n int) (keys [][]byte) {
	for i, buckets := 0, map[uint64]bool{}; len(keys) < n; i++ {
		key := fmt.Appendf(nil, "k%d", i)
		if _, b := st.Locate(key); !buckets[b] {
			buckets[b] = true
			keys = append(keys, key)
		}
	}
	return keys
}
