package btree

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// endsIn returns a sequence of n pairs, of which some are large, that calls f after them.
func endsIn(n int, f func()) func(func(k, v []byte) bool) {
	return func(yield func(k, v []byte) bool) {
		for i := range n {
			v := valueOf(i, 0)
			if i%5 == 0 {
				v = make([]byte, 300)
			}
			if !yield(keyOf(i), v) {
				return
			}
		}
		f()
	}
}

// apart calls f in a goroutine of its own, and returns what it panicked with when that has ended.
func apart(f func()) (v any) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { v = recover() }()
		f()
	}()
	<-done
	return v
}

// The sequence of a bulk load panics, or ends its goroutine, after nothing, some, or several levels of the tree: the lock of the first leaf is
// free, the tree is as it was, and the same client and others go on.
func TestBulkLoadOfASequenceThatDoesNotComeBack(t *testing.T) {
	for what, f := range map[string]func(){"panic": func() { panic("sequence") }, "exit": runtime.Goexit} {
		for _, n := range []int{0, 1, 10, 2000} {
			w, c := one(t, 2, func(cfg *Config) { cfg.LockTimeoutNs = fabric.Millisecond })
			other := w.client(0, c.t)
			for range 3 {
				v := apart(func() { _ = c.BulkLoad(endsIn(n, f), BulkOptions{}) })
				if (v == "sequence") != (what == "panic") {
					t.Fatalf("%s after %d: panic %v", what, n, v)
				}
				wantMiss(t, c, string(keyOf(0)))
				wantErr(t, "put of another client", other.Put([]byte("a"), []byte("b")), nil)
				mustBeSound(t, other)
				wantErr(t, "delete", c.Delete([]byte("a")), nil)
			}
			wantErr(t, "load", c.BulkLoad(endsIn(n, func() {}), BulkOptions{}), nil)
			if r := mustBeSound(t, other); r.Keys != uint64(n) {
				t.Errorf("%s after %d: %d keys", what, n, r.Keys)
			}
		}
	}
}

// The sequence of a bulk load may use other clients. The client that loads is refused, and closing it ends the load.
func TestBulkLoadOfASequenceThatUsesClients(t *testing.T) {
	w, c := one(t, 1, nil)
	cfg := w.config()
	cfg.Name = "other"
	source := w.client(0, w.open(0, cfg))
	for i := range 500 {
		wantErr(t, "put", source.Put(keyOf(i), valueOf(i, 0)), nil)
	}
	wantErr(t, "load", c.BulkLoad(func(yield func(k, v []byte) bool) {
		wantErr(t, "each", source.Each(Range{}, func(k, v []byte) bool {
			_, err := c.Get(k)
			wantErr(t, "get of the client that loads", err, lock.ErrMisuse)
			wantErr(t, "put of the client that loads", c.Put(k, v), lock.ErrMisuse)
			return yield(k, v)
		}), nil)
	}, BulkOptions{}), nil)
	if r := mustBeSound(t, c); r.Keys != 500 {
		t.Errorf("%d keys", r.Keys)
	}
	_, d := one(t, 1, nil)
	wantErr(t, "load that closes its client", d.BulkLoad(endsIn(100, d.Close), BulkOptions{}), ErrClosed)
	wantErr(t, "put", d.Put([]byte("a"), nil), ErrClosed)
	again := clientOn(t, d.t, d.port)
	wantErr(t, "put of another client", again.Put([]byte("a"), nil), nil)
	mustBeSound(t, again)
}

// A panic in the function of Each, or in the loop of an iterator, leaves nothing behind.
func TestEachOfAPanic(t *testing.T) {
	_, c := one(t, 1, nil)
	for i := range 300 {
		wantErr(t, "put", c.Put(keyOf(i), valueOf(i, 0)), nil)
	}
	for i := range 5 {
		if v := apart(func() {
			_ = c.Each(Range{}, func(k, v []byte) bool {
				if string(k) == string(keyOf(i*50)) {
					panic(fmt.Sprint(i))
				}
				return true
			})
		}); v != fmt.Sprint(i) {
			t.Fatalf("panic %v", v)
		}
		wantErr(t, "put", c.Put(keyOf(i), valueOf(i, 1)), nil)
	}
	if n := len(all(t, c, Range{})); n != 300 {
		t.Errorf("%d keys", n)
	}
}
