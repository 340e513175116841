package declock_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/lock"
)

// closed reports whether a channel is closed, or is so within a while.
func closed(c <-chan struct{}, within time.Duration) bool {
	for end := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		select {
		case <-c:
			return true
		default:
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// Guards are notified of the loss of their locks when the memory node restarts, whether they have asked before or after, alone or in common; guards that are unlocked, and
// grants of later, are not.
func TestGuardLost(t *testing.T) {
	ctx := t.Context()
	o := shm.Options{Name: "lost", Dir: t.TempDir(), Size: 64 << 20, Sparse: true, Keep: true}
	m := serve(t, o)
	c, err := declock.Open(ctx, "shm:lost", declock.WithDir(o.Dir))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, err := c.Locks(ctx, "l", 4)
	if err != nil {
		t.Fatal(err)
	}
	var guards []declock.Guard
	for i, acquire := range []func(i int) (declock.Guard, error){
		func(i int) (declock.Guard, error) { return c.Lock(ctx, l.At(i)) },
		func(i int) (declock.Guard, error) { return session(t, c).Lock(ctx, l.At(i)) },
		func(i int) (declock.Guard, error) { return c.Lock(ctx, l.At(i)) }, // does not ask before
		func(i int) (declock.Guard, error) { return c.RLock(ctx, l.At(i)) },
		func(i int) (declock.Guard, error) { return c.RLock(ctx, l.At(i-1)) },
		func(i int) (declock.Guard, error) { return c.RLock(ctx, l.At(i-2)) },
	} {
		g, err := acquire(i)
		if err != nil {
			t.Fatal(err)
		}
		guards = append(guards, g)
	}
	early := map[int]<-chan struct{}{}
	for _, i := range []int{0, 1, 3, 4, 5} {
		early[i] = guards[i].Lost()
	}
	if err := guards[5].Unlock(); err != nil { // one of three readers
		t.Fatal(err)
	}
	for i, lost := range early {
		if closed(lost, 0) {
			t.Errorf("guard %d: lost at the beginning", i)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m = serve(t, o)
	defer m.Close()
	for i, g := range guards[:5] {
		if !closed(g.Lost(), 20*time.Second) || early[i] != nil && !closed(early[i], 0) {
			t.Errorf("guard %d: not notified", i)
		}
		if err := g.Unlock(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("guard %d: Unlock: %v", i, err)
		}
		if !closed(g.Lost(), 0) {
			t.Errorf("guard %d: open after Unlock", i)
		}
	}
	if !closed(declock.Guard{}.Lost(), 0) {
		t.Error("the zero Guard holds something")
	}
	g, err := c.Lock(ctx, l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	if closed(g.Lost(), 50*time.Millisecond) {
		t.Error("a grant of later is lost")
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
}

// A guard whose session is closed beneath it is notified, as of a loss: it holds nothing any more, and nothing else would tell.
func TestGuardLostByClose(t *testing.T) {
	c, err := declock.Open(t.Context(), "shm:")
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Locks(t.Context(), "l", 2)
	if err != nil {
		t.Fatal(err)
	}
	s := session(t, c)
	own, err := s.Lock(t.Context(), l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	pooled, err := c.Lock(t.Context(), l.At(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		g     declock.Guard
		close func() error
	}{{own, s.Close}, {pooled, c.Close}} {
		lost := x.g.Lost()
		if closed(lost, 0) {
			t.Error("lost at the beginning")
		}
		if err := x.close(); !errors.Is(err, declock.ErrHeld) {
			t.Errorf("Close: %v", err)
		}
		if !closed(lost, 0) || !closed(x.g.Lost(), 0) {
			t.Error("not notified")
		}
	}
}

// Done says that the process is no member any more: it has closed the cluster, or was given up.
func TestDone(t *testing.T) {
	o := shm.Options{Name: "done", Dir: t.TempDir(), Size: 64 << 20, Sparse: true}
	m := serve(t, o)
	defer m.Close()
	for _, fenced := range []bool{false, true} {
		c, err := declock.Open(t.Context(), "shm:"+o.Name, declock.WithDir(o.Dir))
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.Locks(t.Context(), "l", 1)
		if err != nil {
			t.Fatal(err)
		}
		g, err := c.Lock(t.Context(), l.At(0))
		if err != nil {
			t.Fatal(err)
		}
		lost := g.Lost()
		if closed(c.Done(), 10*time.Millisecond) {
			t.Error("done at the beginning")
		}
		if fenced {
			err = os.Truncate(filepath.Join(o.Dir, "declock-"+o.Name, "cluster"), 0)
		} else {
			err = errors.Join(g.Unlock(), c.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		if !closed(c.Done(), 10*time.Second) || fenced && !closed(lost, 10*time.Second) {
			t.Errorf("fenced %v: not notified", fenced)
		}
		c.Close()
	}
}

// Locks by key: a key has one lock, the same in all processes; keys are spread evenly; LockAll takes a lock that two keys have in common once.
func TestLocksByKey(t *testing.T) {
	const locks, keys = 100, 100_000
	c, s := open(t)
	ctx := t.Context()
	l, err := c.Locks(ctx, "l", locks)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[declock.LockID]int{}
	for i := range keys {
		counts[l.Key(fmt.Appendf(nil, "orders/%d", i))]++
	}
	for id, n := range counts {
		if n < keys/locks*4/5 || n > keys/locks*6/5 {
			t.Errorf("%v has %d of %d keys", id, n, keys)
		}
	}
	if len(counts) != locks {
		t.Errorf("%d locks have keys", len(counts))
	}
	for key, at := range map[string]int{"orders/17": 38, "": 93} { // in every process of whatever version
		if id := l.Key([]byte(key)); id != l.At(at) {
			for i := range locks {
				if l.At(i) == id {
					t.Errorf("%q has lock %d", key, i)
				}
			}
		}
	}
	first := []byte("orders/0")
	second := first
	for i := 1; l.Key(second) != l.Key(first) || i == 1; i++ {
		second = fmt.Appendf(nil, "orders/%d", i)
	}
	g, err := c.LockAll(ctx, declock.Read(l.Key(first)), declock.Write(l.Key(second)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.TryRLock(l.Key(first)); !errors.Is(err, lock.ErrBusy) {
		t.Errorf("two keys of one lock, of which one is to be written: %v", err)
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
}

// A lock as a sync.Locker, and what it panics with.
func TestSyncLocker(t *testing.T) {
	c, _ := open(t)
	l, err := c.Locks(t.Context(), "l", 1)
	if err != nil {
		t.Fatal(err)
	}
	mu := c.Locker(l.At(0))
	var all sync.WaitGroup
	n, ready := 0, sync.NewCond(mu)
	for range 50 {
		all.Go(func() {
			mu.Lock()
			n++
			mu.Unlock()
			ready.Signal()
		})
	}
	mu.Lock()
	for n < 50 {
		ready.Wait()
	}
	mu.Unlock()
	all.Wait()
	named := c.Named("orders/17").Locker()
	named.Lock()
	if _, err := c.Named("orders/17").TryRLock(t.Context()); !errors.Is(err, lock.ErrBusy) {
		t.Errorf("a lock by name that is held: %v", err)
	}
	named.Unlock()
	if panicOf(mu.Unlock) == "" || panicOf(c.Locker(declock.LockID{}).Lock) == "" {
		t.Error("misuse goes unnoticed")
	}
}
