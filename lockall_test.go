package declock_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/lock"
)

// openLocks opens a private cluster with some locks.
func openLocks(t *testing.T, n int) (*declock.Cluster, *declock.Locks) {
	t.Helper()
	c, err := declock.Open(context.Background(), "shm:", declock.WithDir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	l, err := c.Locks(context.Background(), "l", n)
	if err != nil {
		t.Fatal(err)
	}
	return c, l
}

func session(t *testing.T, c *declock.Cluster) *declock.Session {
	t.Helper()
	s, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// LockAll acquires all or none, and says which one could not be had.
func TestLockAllOrNone(t *testing.T) {
	c, l := openLocks(t, 4)
	a, b := session(t, c), session(t, c)
	busy, err := a.Lock(context.Background(), l.At(2))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	wants := []declock.Want{{ID: l.At(3), Mode: declock.Exclusive}, {ID: l.At(1), Mode: declock.Shared}, {ID: l.At(2), Mode: declock.Shared}, {ID: l.At(1), Mode: declock.Exclusive}}
	_, err = b.LockAll(ctx, wants...)
	if !errors.Is(err, lock.ErrCanceled) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), l.At(2).String()) {
		t.Errorf("with one that is held: %v", err)
	}
	if err := busy.Unlock(); err != nil {
		t.Fatal(err)
	}
	g, err := b.LockAll(context.Background(), wants...)
	if err != nil {
		t.Fatal(err)
	}
	for i, free := range []bool{true, false, false, false} {
		try, err := a.TryLock(l.At(i))
		if free != (err == nil) {
			t.Errorf("lock %d while locks 1 to 3 are held: %v", i, err)
		}
		if err == nil {
			try.Unlock()
		}
	}
	if _, err := a.TryRLock(l.At(1)); !errors.Is(err, lock.ErrBusy) {
		t.Errorf("a lock that was named twice, once exclusively: %v", err)
	}
	if shared, err := a.TryRLock(l.At(2)); err != nil {
		t.Errorf("a lock that is held shared: %v", err)
	} else {
		shared.Unlock()
	}
	if g.Token(l.At(3)) == 0 {
		t.Error("no token")
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
	if none, err := b.LockAll(context.Background()); err != nil || none.Unlock() != nil {
		t.Errorf("no locks: %v", err)
	}
}

// Each lock may have a time of its own.
func TestLockAllTimeouts(t *testing.T) {
	c, l := openLocks(t, 3)
	a, b := session(t, c), session(t, c)
	busy, err := a.Lock(context.Background(), l.At(1))
	if err != nil {
		t.Fatal(err)
	}
	want := func(i int, d time.Duration) declock.Want {
		return declock.Want{ID: l.At(i), Mode: declock.Exclusive, Timeout: d}
	}
	_, err = b.LockAll(context.Background(), want(0, time.Hour), want(1, time.Hour), want(1, time.Millisecond), want(2, 0))
	if !errors.Is(err, lock.ErrTimeout) || !strings.Contains(err.Error(), l.At(1).String()) || !strings.Contains(err.Error(), "after 1 of 3") {
		t.Errorf("with one that is held: %v", err)
	}
	if try, err := a.TryLock(l.At(0)); err != nil {
		t.Errorf("the one before: %v", err)
	} else {
		try.Unlock()
	}
	if err := busy.Unlock(); err != nil {
		t.Fatal(err)
	}
	g, err := b.LockAll(context.Background(), want(0, time.Hour), want(1, time.Hour), want(2, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
}

// The time of each lock runs from the call on, and not from its turn: those before it have some of it.
func TestLockAllTimeoutsOfTheCall(t *testing.T) {
	c, l := openLocks(t, 2)
	const timeout = 20 * time.Millisecond
	waited := false
	ctx := &meanwhile{t.Context(), func() {
		if !waited { // the first lock takes longer than the second has
			waited = true
			time.Sleep(2 * timeout)
		}
	}}
	_, err := session(t, c).LockAll(ctx, declock.Write(l.At(0)), declock.Want{ID: l.At(1), Mode: declock.Exclusive, Timeout: timeout})
	if !errors.Is(err, lock.ErrTimeout) || !strings.Contains(err.Error(), "after 1 of 2") || !waited {
		t.Errorf("waited %v: %v", waited, err)
	}
	for i := range 2 {
		if g, err := c.TryLock(t.Context(), l.At(i)); err != nil || g.Unlock() != nil {
			t.Errorf("lock %d afterwards: %v", i, err)
		}
	}
}

// A timeout beyond the end of time is none.
func TestLockAllForever(t *testing.T) {
	c, l := openLocks(t, 1)
	a, b := session(t, c), session(t, c)
	busy, err := a.Lock(context.Background(), l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	_, err = b.LockAll(ctx, declock.Want{ID: l.At(0), Mode: declock.Exclusive, Timeout: math.MaxInt64})
	if !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrTimeout) {
		t.Errorf("lock that is held: %v", err)
	}
	if err := busy.Unlock(); err != nil {
		t.Error(err)
	}
}

// Sessions that acquire overlapping sets of locks, named in any order, all get on.
func TestLockAllDoesNotDeadlock(t *testing.T) {
	const locks, sessions, rounds = 5, 6, 60
	c, l := openLocks(t, locks)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var count [locks]int // each guarded by its lock
	var wg sync.WaitGroup
	for i := range sessions {
		s := session(t, c)
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for range rounds {
				var wants []declock.Want
				which := rng.Perm(locks)[:3]
				for _, j := range which {
					wants = append(wants, declock.Want{ID: l.At(j), Mode: declock.Exclusive})
				}
				g, err := s.LockAll(ctx, wants...)
				if err != nil {
					t.Error(err)
					return
				}
				for _, j := range which {
					count[j]++
				}
				if err := g.Unlock(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range count {
		total += n
	}
	if total != 3*sessions*rounds {
		t.Errorf("%d increments, want %d", total, 3*sessions*rounds)
	}
}

// Two sessions that name locks in opposite orders, and both come while one in the middle is held, get on when that is free.
func TestLockAllInOneOrder(t *testing.T) {
	c, l := openLocks(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	middle, err := session(t, c).Lock(ctx, l.At(1))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}} {
		s := session(t, c)
		all.Go(func() {
			var wants []declock.Want
			for _, i := range order {
				wants = append(wants, declock.Write(l.At(i)))
			}
			g, err := s.LockAll(ctx, wants...)
			if err == nil {
				err = g.Unlock()
			}
			if err != nil {
				t.Errorf("%v: %v", order, err)
			}
		})
		time.Sleep(50 * time.Millisecond) // it has what it can have
	}
	if err := middle.Unlock(); err != nil {
		t.Error(err)
	}
	all.Wait()
}
