package declock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// 10,000 goroutines share a store, a tree and locks, without a session of their own. The sessions that they use stay within the bounds.
func TestTenThousandGoroutines(t *testing.T) {
	const locks, sessions, lockSessions = 8, 16, 100
	goroutines := 10_000
	if testing.Short() { // as where races are looked for
		goroutines = 2000
	}
	c, _ := open(t, declock.WithSessions(sessions), declock.WithLockSessions(lockSessions))
	ctx := t.Context()
	l, err := c.Locks(ctx, "l", locks)
	if err != nil {
		t.Fatal(err)
	}
	st, tr := storeAndTree(t, c)
	if err := st.Set(ctx, []byte("n"), []byte("0"), declock.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	var counts [locks]int // each guarded by its lock
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() {
			key := fmt.Appendf(nil, "k%d", i)
			_, err := st.Incr(ctx, []byte("n"), 1)
			err = errors.Join(err, st.Set(ctx, key, key, declock.SetOptions{TTL: time.Hour}), tr.Put(ctx, key, key))
			got, gerr := st.Get(ctx, key, nil)
			found, terr := tr.Get(ctx, key, nil)
			if err := errors.Join(err, gerr, terr); err != nil || !bytes.Equal(got, key) || !bytes.Equal(found, key) {
				t.Errorf("%s: %q of the store, %q of the tree, %v", key, got, found, err)
			}
			g, err := c.Lock(ctx, l.At(i%locks))
			if err != nil {
				t.Error(err)
				return
			}
			counts[i%locks]++
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i, n := range counts {
		if n != goroutines/locks {
			t.Errorf("lock %d: %d", i, n)
		}
	}
	if n, err := st.Get(ctx, []byte("n"), nil); err != nil || string(n) != fmt.Sprint(goroutines) {
		t.Errorf("counted %s, %v", n, err)
	}
	if n := c.Node().Observe(0).Sessions; n > sessions+lockSessions+2 { // that of the test, and the reclaimer's
		t.Errorf("%d sessions", n)
	}
}

// What an operation returns is the caller's: it is appended to what the caller gives, and no later operation changes it.
func TestResultsAreTheCallers(t *testing.T) {
	c, _ := open(t, declock.WithSessions(1))
	ctx := t.Context()
	st, tr := storeAndTree(t, c)
	for _, k := range []string{"a", "b"} {
		if err := errors.Join(st.Set(ctx, []byte(k), []byte(k+k), declock.SetOptions{Flags: 7}), tr.Put(ctx, []byte(k), []byte(k+k))); err != nil {
			t.Fatal(err)
		}
	}
	s1, err1 := st.Get(ctx, []byte("a"), []byte("x:"))
	t1, err2 := tr.Get(ctx, []byte("a"), []byte("y:"))
	it, err3 := st.GetItem(ctx, []byte("a"), nil)
	s2, err4 := st.Get(ctx, []byte("b"), nil)
	t2, err5 := tr.Get(ctx, []byte("b"), nil)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%s %s %s %d %s %s", s1, t1, it.Value, it.Flags, s2, t2); got != "x:aa y:aa aa 7 bb bb" {
		t.Error(got)
	}
	if err := st.CompareAndSwap(ctx, []byte("a"), []byte("c"), declock.SetOptions{}, it.CAS); err != nil {
		t.Error(err)
	}
	if got, err := st.Get(ctx, []byte("c"), s2); !errors.Is(err, objstore.ErrNotFound) || string(got) != "bb" {
		t.Errorf("a miss: %q, %v", got, err)
	}
	if err := st.Set(ctx, []byte("a"), nil, declock.SetOptions{TTL: -1}); !errors.Is(err, declock.ErrTTL) {
		t.Errorf("a TTL below 0: %v", err)
	}
}

// A session that has handled a large value gives its buffers back before it waits in the pool.
func TestLargeValuesAreNotKept(t *testing.T) {
	const sessions, size = 16, 1 << 20
	c, _ := open(t, declock.WithSessions(sessions))
	ctx := t.Context()
	st, err := c.Store(ctx, "s", declock.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	big := make([]byte, size-1)
	before := heapInUse()
	for range 4 {
		var all sync.WaitGroup
		for i := range sessions {
			all.Go(func() {
				key := fmt.Appendf(nil, "k%d", i)
				if err := st.Set(ctx, key, big, declock.SetOptions{}); err != nil {
					t.Error(err)
				}
				// All sessions are out at a time.
				if _, err := st.Get(ctx, key, nil); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	if after := heapInUse(); after > before+4*size {
		t.Errorf("the heap has grown by %d MB", (after-before)>>20)
	}
}

// A goroutine that finds no session waits, for as long as its context lets it, and then gets the one that comes back first.
func TestWaitForASession(t *testing.T) {
	c, _ := open(t, declock.WithLockSessions(1))
	ctx := t.Context()
	l, err := c.Locks(ctx, "l", 2)
	if err != nil {
		t.Fatal(err)
	}
	g, err := c.Lock(ctx, l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := c.Lock(short, l.At(1)); !errors.Is(err, lock.ErrCanceled) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no session, and the context has ended: %v", err)
	}
	done := make(chan error)
	go func() {
		h, err := c.Lock(ctx, l.At(1))
		if err == nil {
			err = h.Unlock()
		}
		done <- err
	}()
	time.Sleep(10 * time.Millisecond)
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Errorf("after the session came back: %v", err)
	}
}

// Goroutines that hold a lock each, and ask for another, when there are no more sessions: the error tells, and none waits for ever.
func TestNoSession(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for 5 seconds")
	}
	t.Parallel()
	c, _ := open(t, declock.WithLockSessions(2))
	ctx := t.Context()
	l, err := c.Locks(ctx, "l", 4)
	if err != nil {
		t.Fatal(err)
	}
	var held [2]declock.Guard // both before the first asks again: none finds a session that the other has not taken yet
	for i := range held {
		if held[i], err = c.Lock(ctx, l.At(i)); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	var refused atomic.Int32
	for i, g := range held {
		all.Go(func() {
			second, err := c.Lock(ctx, l.At(i+2))
			if errors.Is(err, declock.ErrNoSession) {
				refused.Add(1)
			} else if err = errors.Join(err, second.Unlock()); err != nil { // the other one has given up
				t.Error(err)
			}
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if refused.Load() == 0 {
		t.Error("both have got a session")
	}
	wants := []declock.Want{{ID: l.At(0), Mode: declock.Exclusive}, {ID: l.At(1), Mode: declock.Shared}}
	for range 2 { // more locks than sessions
		g, err := c.LockAll(ctx, wants...)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		if err := g.Unlock(); !errors.Is(err, lock.ErrMisuse) {
			t.Errorf("the second Unlock: %v", err)
		}
	}
}

// A second Unlock is refused and touches nothing, also when the session has gone to another goroutine, which is in the middle of its work.
func TestUnlockTwiceOfAPooledGuard(t *testing.T) {
	c, _ := open(t, declock.WithLockSessions(1))
	ctx := t.Context()
	l, err := c.Locks(ctx, "l", 1)
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	old := make(chan declock.Guard, 1)
	var all sync.WaitGroup
	all.Go(func() {
		for !stop.Load() {
			g, err := c.Lock(ctx, l.At(0))
			if err == nil {
				err = g.Unlock()
			}
			if err != nil {
				t.Error(err)
				return
			}
			select {
			case old <- g:
			default:
			}
		}
	})
	for range 2000 {
		g := <-old
		if err := g.Unlock(); !errors.Is(err, lock.ErrMisuse) {
			t.Fatalf("the second Unlock: %v", err)
		}
	}
	stop.Store(true)
	all.Wait()
}

// Close of the cluster ends the wait for a session, and releases what guards hold.
func TestCloseWithPooledGuards(t *testing.T) {
	c, err := declock.Open(t.Context(), "shm:", declock.WithLockSessions(1))
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Locks(t.Context(), "l", 2)
	if err != nil {
		t.Fatal(err)
	}
	st, err := c.Store(t.Context(), "s", declock.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Set(t.Context(), []byte("k"), nil, declock.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	g, err := c.Lock(t.Context(), l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error)
	go func() {
		_, err := c.Lock(t.Context(), l.At(1))
		waited <- err
	}()
	time.Sleep(10 * time.Millisecond)
	if err := c.Close(); !errors.Is(err, declock.ErrHeld) {
		t.Errorf("Close: %v", err)
	}
	_, err = st.Get(t.Context(), []byte("k"), nil)
	_, lerr := c.Lock(t.Context(), l.At(0))
	for what, err := range map[string]error{"Lock that waits": <-waited, "Unlock": g.Unlock(), "Get": err, "Lock": lerr} {
		if !errors.Is(err, declock.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Use lends a session for several locks. What is left held is released, and said.
func TestUse(t *testing.T) {
	c, _ := open(t, declock.WithLockSessions(1))
	ctx := t.Context()
	l, err := c.Locks(ctx, "l", 2)
	if err != nil {
		t.Fatal(err)
	}
	both := func(s *declock.Session) error {
		a, err := s.Lock(ctx, l.At(0))
		if err != nil {
			return err
		}
		b, err := s.Lock(ctx, l.At(1))
		if err != nil {
			return err
		}
		return errors.Join(b.Unlock(), a.Unlock())
	}
	if err := c.Use(ctx, both); err != nil {
		t.Error(err)
	}
	if err := c.Use(ctx, func(s *declock.Session) error { _, err := s.Lock(ctx, l.At(0)); return err }); !errors.Is(err, declock.ErrHeld) {
		t.Errorf("a lock is left held: %v", err)
	}
	if panicOf(func() { _ = c.Use(ctx, func(s *declock.Session) error { panic("user") }) }) == "" {
		t.Error("the panic is gone")
	}
	if err := c.Use(ctx, both); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A loss of memory is reported to the users of a handle once, and not again by each session that has been idle meanwhile.
func TestLossThroughAHandle(t *testing.T) {
	ctx := t.Context()
	o := shm.Options{Name: "handle", Dir: t.TempDir(), Size: 32 << 20, Sparse: true}
	m := serveLosing(t, o)
	c, err := declock.Open(ctx, "shm:handle", declock.WithDir(o.Dir))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	st, err := c.Store(ctx, "s", declock.StoreConfig{Objects: 1000})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := c.Tree(ctx, "t", declock.TreeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Locks(ctx, "l", 1)
	if err != nil {
		t.Fatal(err)
	}
	keys := inOwnBuckets(st, 8)
	// inAll has so many operations under way at a time, each in a session of its own.
	var inAll func(depth int) error
	inAll = func(depth int) error {
		if depth == 0 {
			return nil
		}
		var inner error
		err := st.Update(ctx, keys[depth-1], objstore.Update{Apply: func(*objstore.Object) objstore.Change {
			inner = inAll(depth - 1)
			return objstore.Change{}
		}})
		return errors.Join(err, inner)
	}
	for range 2 {
		if err := inAll(8); err != nil {
			t.Fatal(err)
		}
		m.lose()
		for what, f := range map[string]func() error{
			"store": func() error { return st.Set(ctx, []byte("k"), nil, declock.SetOptions{}) },
			"tree":  func() error { return tr.Put(ctx, []byte("k"), nil) },
		} {
			if err := f(); !errors.Is(err, declock.ErrMemoryLost) {
				t.Errorf("%s: the first operation: %v", what, err)
			}
			if err := f(); err != nil {
				t.Errorf("%s: the second operation: %v", what, err)
			}
		}
		if err := inAll(8); err != nil {
			t.Errorf("the other sessions: %v", err)
		}
		g, err := c.Lock(ctx, l.At(0))
		if errors.Is(err, declock.ErrMemoryLost) { // it knew where the lock had been
			g, err = c.Lock(ctx, l.At(0))
		}
		if err == nil {
			err = g.Unlock()
		}
		if err != nil {
			t.Errorf("lock: %v", err)
		}
	}
}

// A handle of a dropped store or tree says so; the name, opened anew, is another.
func TestDropThroughAHandle(t *testing.T) {
	c, _ := open(t)
	ctx, k := t.Context(), []byte("k")
	for range 2 {
		st, tr := storeAndTree(t, c)
		if err := errors.Join(st.Add(ctx, k, k, declock.SetOptions{}), tr.Insert(ctx, k, k)); err != nil {
			t.Error(err)
		}
		if err := errors.Join(c.DropStore(ctx, "s"), c.DropTree(ctx, "t")); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := st.Get(ctx, k, nil); !errors.Is(err, objstore.ErrDropped) {
				t.Errorf("store: %v", err)
			}
			if err := tr.Delete(ctx, k); !errors.Is(err, btree.ErrDropped) {
				t.Errorf("tree: %v", err)
			}
		}
	}
}

// A scan has every key of its range once, in order, over many pages, and no session while the body of its loop runs.
func TestTreeScan(t *testing.T) {
	const keys = 5000
	c, _ := open(t, declock.WithSessions(1))
	ctx := t.Context()
	tr, err := c.Tree(ctx, "t", declock.TreeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var all, some []string
	for i := range keys {
		key := fmt.Sprintf("k%05d", i)
		if err := tr.Put(ctx, []byte(key), []byte("v"+key)); err != nil {
			t.Fatal(err)
		}
		if all = append(all, key); strings.HasPrefix(key, "k012") {
			some = append(some, key)
		}
	}
	backwards := slices.Clone(all)
	slices.Reverse(backwards)
	prefix := tr.Prefix([]byte("k012"))
	for what, x := range map[string]struct {
		r    btree.Range
		want []string
	}{
		"all":       {btree.Range{}, all},
		"backwards": {btree.Range{Descending: true}, backwards},
		"prefix":    {prefix, some},
		"limit":     {btree.Range{From: []byte("k01000"), Limit: 700}, all[1000:1700]},
		"between":   {btree.Range{From: []byte("k04000"), To: []byte("k03001"), Descending: true}, backwards[999:1999]},
		"open":      {btree.Range{From: []byte("k01000"), FromOpen: true, To: []byte("k02000"), ToOpen: true}, all[1001:2000]},
		"none":      {btree.Range{From: []byte("z")}, nil},
	} {
		s := tr.Scan(ctx, x.r)
		var got []string
		for i, broke := 0, true; broke; i++ { // the second loop goes on where the first breaks
			broke = false
			for k, v := range s.All() {
				if string(v) != "v"+string(k) {
					t.Errorf("%s: value of %q: %q", what, k, v)
				}
				got = append(got, string(k))
				if len(got)%97 == 0 && i == 0 {
					if _, err := tr.Get(ctx, k, nil); err != nil { // with the only session
						t.Error(err)
					}
				}
				if broke = i == 0 && len(got) == 150; broke {
					break
				}
			}
		}
		if err := s.Err(); err != nil || !slices.Equal(got, x.want) {
			t.Errorf("%s: %d keys, want %d, %v", what, len(got), len(x.want), err)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	s := tr.Scan(ended, btree.Range{})
	for range s.All() {
		t.Error("a key after the end of the context")
	}
	if err := s.Err(); !errors.Is(err, lock.ErrCanceled) {
		t.Errorf("the context has ended: %v", err)
	}
	for k := range tr.Scan(ctx, btree.Range{}).All() {
		if err := tr.Delete(ctx, k); err != nil {
			t.Fatal(err)
		}
	}
	for k := range tr.Scan(ctx, btree.Range{}).All() {
		t.Fatalf("%q is left", k)
	}
}

// A Guard fits into registers: a struct of five words is copied through memory at each return, which costs a fifth of an acquisition.
func TestGuardSize(t *testing.T) {
	if n := unsafe.Sizeof(declock.Guard{}); n > 4*unsafe.Sizeof(uintptr(0)) {
		t.Errorf("a Guard has %d bytes", n)
	}
}
