package declock_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/cn"
	"github.com/declock/declock/lock"
)

// numbers yields keys of 8 bytes from one number to another, each with itself as its value.
func numbers(from, to int) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		b := make([]byte, 8)
		for i := from; i < to; i++ {
			binary.BigEndian.PutUint64(b, uint64(i))
			if !yield(b, b) {
				return
			}
		}
	}
}

// partsOf returns numbers below n in parts.
func partsOf(n, parts int) (list []iter.Seq2[[]byte, []byte]) {
	for i := range parts {
		list = append(list, numbers(n*i/parts, n*(i+1)/parts))
	}
	return list
}

// Trees are loaded in parts, several at a time, however few sessions there are: each has all keys.
func TestTreeBulkLoad(t *testing.T) {
	const n, trees = 30_000, 3
	for _, sessions := range []int{1, 2, 128} {
		c, _ := open(t, declock.WithSessions(sessions))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for i := range trees {
			all.Go(func() {
				tr, err := c.Tree(ctx, fmt.Sprint("t", i), declock.TreeConfig{MaxKey: 8, MaxInline: 8})
				if err == nil {
					err = tr.BulkLoad(ctx, btree.BulkOptions{}, partsOf(n, 1+7*i)...)
				}
				if err != nil {
					t.Errorf("%d sessions, tree %d: %v", sessions, i, err)
					return
				}
				at := 0
				for k, v := range tr.Scan(ctx, btree.Range{}).All() {
					if binary.BigEndian.Uint64(k) != uint64(at) || string(k) != string(v) {
						t.Errorf("%d sessions, tree %d: %x, %x where %d is to be", sessions, i, k, v, at)
						return
					}
					at++
				}
				if at != n {
					t.Errorf("%d sessions, tree %d: %d keys", sessions, i, at)
				}
			})
		}
		all.Wait()
	}
}

// Parts are loaded beside each other: each begins before any of them ends.
func TestTreeBulkLoadBeside(t *testing.T) {
	const parts = 4
	c, _ := open(t)
	tr, err := c.Tree(t.Context(), "t", declock.TreeConfig{MaxKey: 8, MaxInline: 8})
	if err != nil {
		t.Fatal(err)
	}
	var begun sync.WaitGroup
	begun.Add(parts)
	all := make(chan struct{})
	go func() {
		begun.Wait()
		close(all)
	}()
	list := partsOf(1000, parts)
	for i, part := range list {
		list[i] = func(yield func(k, v []byte) bool) {
			begun.Done()
			select {
			case <-all:
			case <-time.After(5 * time.Second):
				t.Errorf("part %d waits for the others", i)
			}
			part(yield)
		}
	}
	if err := tr.BulkLoad(t.Context(), btree.BulkOptions{}, list...); err != nil {
		t.Error(err)
	}
}

// A load that fails leaves the tree empty, whichever part it was, and the others end: so does one whose first sequence panics.
func TestTreeBulkLoadFails(t *testing.T) {
	c, _ := open(t)
	ctx := t.Context()
	tr, err := c.Tree(ctx, "t", declock.TreeConfig{MaxKey: 8, MaxInline: 8})
	if err != nil {
		t.Fatal(err)
	}
	empty := func(what string) {
		t.Helper()
		if _, _, err := tr.First(ctx, btree.Range{}); !errors.Is(err, btree.ErrNotFound) {
			t.Errorf("%s: the tree has a key, %v", what, err)
		}
	}
	begun, ended := make(chan struct{}), false
	long := func(yield func(k, v []byte) bool) {
		close(begun)
		for k, v := range numbers(0, 10_000) {
			if !yield(k, v) {
				return
			}
			time.Sleep(time.Microsecond)
		}
		ended = true
	}
	wrong := func(yield func(k, v []byte) bool) {
		<-begun
		yield(make([]byte, 9), nil)
	}
	if err := tr.BulkLoad(ctx, btree.BulkOptions{}, long, wrong); !errors.Is(err, btree.ErrKeySize) || ended {
		t.Errorf("a key that is too long: %v; the other part has been read to its end: %v", err, ended)
	}
	empty("a key that is too long")
	if err := tr.BulkLoad(ctx, btree.BulkOptions{}, numbers(0, 500), numbers(499, 1000)); !errors.Is(err, btree.ErrOrder) {
		t.Errorf("parts that overlap: %v", err)
	}
	empty("parts that overlap")
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := tr.BulkLoad(over, btree.BulkOptions{}, numbers(0, 500)); !errors.Is(err, lock.ErrCanceled) {
		t.Errorf("the context has ended: %v", err)
	}
	if text := panicOf(func() {
		_ = tr.BulkLoad(ctx, btree.BulkOptions{}, func(func(k, v []byte) bool) { panic("sequence") })
	}); text != "sequence" {
		t.Errorf("panic %q", text)
	}
	if err := errors.Join(tr.BulkLoad(ctx, btree.BulkOptions{}), tr.BulkLoad(ctx, btree.BulkOptions{}, partsOf(1000, 4)...)); err != nil {
		t.Error(err)
	}
	if err := tr.BulkLoad(ctx, btree.BulkOptions{}, numbers(0, 1)); !errors.Is(err, btree.ErrNotEmpty) {
		t.Errorf("a tree with keys: %v", err)
	}
}

// A sequence that ends its goroutine, in the caller's or in another, leaves the tree empty, and the others end.
func TestTreeBulkLoadOfASequenceThatEnds(t *testing.T) {
	c, _ := open(t)
	ctx := t.Context()
	tr, err := c.Tree(ctx, "t", declock.TreeConfig{MaxKey: 8, MaxInline: 8})
	if err != nil {
		t.Fatal(err)
	}
	ends := map[bool]int{} // of goroutines of others, or the caller's
	for which := 0; ends[false] == 0 || ends[true] == 0; which = (which + 1) % 4 {
		parts := partsOf(200, 4)
		part := parts[which]
		parts[which] = func(yield func(k, v []byte) bool) {
			for k, v := range part {
				if !yield(k, v) || binary.BigEndian.Uint64(k)%50 == 20 {
					runtime.Goexit()
				}
			}
		}
		err, callers := error(nil), true
		over := make(chan struct{})
		go func() {
			defer close(over)
			err = tr.BulkLoad(ctx, btree.BulkOptions{}, parts...)
			callers = false
		}()
		<-over
		ends[callers]++
		if !callers && err == nil {
			t.Errorf("part %d: no error", which)
		}
		if k, _, err := tr.First(ctx, btree.Range{}); !errors.Is(err, btree.ErrNotFound) {
			t.Fatalf("part %d: the tree has key %x, %v", which, k, err)
		}
	}
	if err := tr.BulkLoad(ctx, btree.BulkOptions{}, partsOf(200, 4)...); err != nil {
		t.Error("the next load:", err)
	}
}

// A sequence that stops because the context has ended leaves the tree empty, and the error says why.
func TestTreeBulkLoadEndsWithItsContext(t *testing.T) {
	c, _ := open(t)
	tr, err := c.Tree(t.Context(), "t", declock.TreeConfig{MaxKey: 8, MaxInline: 8})
	if err != nil {
		t.Fatal(err)
	}
	for _, which := range []int{0, 2} {
		ctx, cancel := context.WithCancelCause(t.Context())
		parts := partsOf(300, 3)
		part, source := parts[which], errors.New("source")
		parts[which] = func(yield func(k, v []byte) bool) {
			for k, v := range part {
				if binary.BigEndian.Uint64(k)%100 == 50 {
					cancel(source)
				}
				if ctx.Err() != nil || !yield(k, v) {
					return
				}
			}
		}
		if err := tr.BulkLoad(ctx, btree.BulkOptions{}, parts...); !errors.Is(err, source) || !errors.Is(err, lock.ErrCanceled) {
			t.Errorf("part %d: %v", which, err)
		}
		if k, _, err := tr.First(t.Context(), btree.Range{}); !errors.Is(err, btree.ErrNotFound) {
			t.Errorf("part %d: the tree has key %x, %v", which, k, err)
		}
	}
}

// Sequences use a store, locks and other trees of the cluster, and load such a tree, however few sessions there are, and however many loads are under way: none waits for a session of a load.
func TestTreeBulkLoadFromAStore(t *testing.T) {
	const loads, parts, n = 3, 20, 400
	for _, sessions := range []int{1, 4, 128} {
		c, _ := open(t, declock.WithSessions(sessions), declock.WithLockSessions(sessions))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		st, err := c.Store(ctx, "s", declock.StoreConfig{})
		if err != nil {
			t.Fatal(err)
		}
		for k := range numbers(0, n) {
			if err := st.Set(ctx, k, k, declock.SetOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		locks, err := c.Locks(ctx, "l", 100)
		if err != nil {
			t.Fatal(err)
		}
		load := func(name string, from func(k []byte) ([]byte, error)) error {
			tr, err := c.Tree(ctx, name, declock.TreeConfig{MaxKey: 8, MaxInline: 8})
			if err != nil {
				return err
			}
			list := partsOf(n, parts)
			for i, part := range list {
				list[i] = func(yield func(k, v []byte) bool) {
					for k := range part {
						v, err := from(k)
						if err != nil {
							t.Errorf("%d sessions, %s: %v", sessions, name, err)
							cancel()
							return
						}
						if !yield(k, v) {
							return
						}
					}
				}
			}
			return tr.BulkLoad(ctx, btree.BulkOptions{}, list...)
		}
		get := func(k []byte) ([]byte, error) {
			g, err := c.Lock(ctx, locks.Key(k))
			if err != nil {
				return nil, err
			}
			v, err := st.Get(ctx, k, nil)
			return v, errors.Join(err, g.Unlock())
		}
		var all sync.WaitGroup
		for i := range loads {
			all.Go(func() {
				if err := load(fmt.Sprint("t", i), func(k []byte) ([]byte, error) {
					if at := binary.BigEndian.Uint64(k); at == n/2 { // another load within this one
						if err := load(fmt.Sprint("within", i), get); err != nil {
							return nil, err
						}
					}
					return get(k)
				}); err != nil {
					t.Errorf("%d sessions, load %d: %v", sessions, i, err)
				}
			})
		}
		all.Wait()
	}
}

// A load loads up to 8 parts at a time, and all loads of a cluster together one each, and 32 besides, in as many sessions, which they close. When a part has failed, no other begins.
func TestTreeBulkLoadSessions(t *testing.T) {
	const loads, parts, at, helpers = 10, 40, 8, 32
	c, _ := open(t, declock.WithMemory(64<<20))
	ctx := t.Context()
	sessions := func() int { return c.Node().Observe(0).Sessions }
	var under, most, begun, fails atomic.Int64
	load := func(name string) error {
		tr, err := c.Tree(ctx, name, declock.TreeConfig{MaxKey: 8, MaxInline: 8})
		if err != nil {
			return err
		}
		list := partsOf(parts, parts)
		for i, part := range list {
			list[i] = func(yield func(k, v []byte) bool) {
				begun.Add(1)
				most.Store(max(most.Load(), under.Add(1)))
				defer under.Add(-1)
				time.Sleep(5 * time.Millisecond)
				if fails.Load() == 0 || i > 0 {
					part(yield)
				} else {
					yield(make([]byte, 9), nil)
				}
			}
		}
		return tr.BulkLoad(ctx, btree.BulkOptions{}, list...)
	}
	if err := load("alone"); err != nil {
		t.Fatal(err)
	}
	before := sessions()
	if most.Load() > at || begun.Load() != parts {
		t.Errorf("%d parts at a time, %d in all", most.Load(), begun.Load())
	}
	var all sync.WaitGroup
	for i := range loads {
		all.Go(func() {
			if err := load(fmt.Sprint("t", i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if most.Load() > loads+helpers {
		t.Errorf("%d parts at a time in %d loads", most.Load(), loads)
	}
	begun.Store(0)
	fails.Store(1)
	if err := load("fails"); !errors.Is(err, btree.ErrKeySize) || begun.Load() > 3*at {
		t.Errorf("a part that fails: %v, of %d parts %d have begun", err, parts, begun.Load())
	}
	if after := sessions(); after != before {
		t.Errorf("%d sessions after the loads, %d before", after, before)
	}
}

// What it takes to load a tree in one part and in several, in turns.
func BenchmarkBulkLoad(b *testing.B) {
	c, err := declock.Open(b.Context(), "shm:", declock.WithMemory(512<<20))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	const n, parts = 200_000, 4
	var one, several time.Duration
	for i := 0; b.Loop(); i++ {
		one += timeOfLoad(b, c, fmt.Sprint("one", i), partsOf(n, 1))
		several += timeOfLoad(b, c, fmt.Sprint("several", i), partsOf(n, parts))
	}
	keys := float64(n) * float64(b.N)
	b.ReportMetric(keys/one.Seconds(), "keys/s")
	b.ReportMetric(keys/several.Seconds(), "keys/s-of-4")
	b.ReportMetric(float64(one)/float64(several), "ratio")
}

// timeOfLoad loads a tree, and returns how long that takes.
func timeOfLoad(b *testing.B, c *declock.Cluster, name string, parts []iter.Seq2[[]byte, []byte]) time.Duration {
	b.Helper()
	tr, err := c.Tree(b.Context(), name, declock.TreeConfig{MaxKey: 8, MaxInline: 8})
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	if err := tr.BulkLoad(b.Context(), btree.BulkOptions{}, parts...); err != nil {
		b.Fatal(err)
	}
	took := time.Since(began)
	if err := c.DropTree(b.Context(), name); err != nil {
		b.Fatal(err)
	}
	return took
}

// A load does not wait for the session of its caller: where there is no room for it, that is an error, and the load is made when there is.
func TestTreeBulkLoadWithoutRoom(t *testing.T) {
	c, _ := open(t, declock.WithPolicy("cql"))
	ctx := t.Context()
	tr, err := c.Tree(ctx, "t", declock.TreeConfig{MaxKey: 8, MaxInline: 8})
	if err != nil {
		t.Fatal(err)
	}
	var taken []*declock.Session
	for len(taken) < 10_000 {
		s, err := c.Session()
		if errors.Is(err, cn.ErrTooManySessions) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, s)
	}
	if err := tr.BulkLoad(ctx, btree.BulkOptions{}, partsOf(100, 4)...); !errors.Is(err, cn.ErrTooManySessions) {
		t.Errorf("without room: %v", err)
	}
	if err := taken[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := tr.BulkLoad(ctx, btree.BulkOptions{}, partsOf(100, 4)...); err != nil {
		t.Errorf("with room for the caller's: %v", err)
	}
}
