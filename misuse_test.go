package declock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// A LockID that no Locks of the cluster gave is refused by every way to lock, and nothing is written.
func TestLockIDsOfNothing(t *testing.T) {
	ctx := context.Background()
	c, s := open(t)
	elsewhere, _ := open(t)
	foreign, err := elsewhere.Locks(ctx, "l", 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []declock.LockID{{}, foreign.At(3)} {
		_, all := s.LockAll(ctx, declock.Want{ID: id, Mode: declock.Exclusive})
		for what, try := range map[string]func() (declock.Guard, error){
			"Lock":     func() (declock.Guard, error) { return s.Lock(ctx, id) },
			"RLock":    func() (declock.Guard, error) { return s.RLock(ctx, id) },
			"TryLock":  func() (declock.Guard, error) { return s.TryLock(id) },
			"TryRLock": func() (declock.Guard, error) { return s.TryRLock(id) },
			"LockAll":  func() (declock.Guard, error) { return declock.Guard{}, all },
		} {
			if _, err := try(); !errors.Is(err, declock.ErrLockID) {
				t.Errorf("%s of %v: %v", what, id, err)
			}
		}
	}
	// Code over the Locker brings addresses of its own. Those of what all of the memory depends on are refused.
	for _, a := range []fabric.Addr{0, fabric.At(0, 64), fabric.At(0, 4096)} {
		var h lock.Hold
		if err := s.Locker().Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}); !errors.Is(err, lock.ErrMisuse) {
			t.Errorf("Acquire of %v over the Locker: %v", a, err)
		}
	}
	if _, err := c.Locks(ctx, "l", 10); err != nil {
		t.Errorf("the cluster afterwards: %v", err)
	}
}

// The zero Mode of a Want is refused before anything is locked.
func TestWantWithoutMode(t *testing.T) {
	c, l := openLocks(t, 2)
	s := session(t, c)
	for _, m := range []declock.Mode{0, 3} {
		if _, err := s.LockAll(context.Background(), declock.Want{ID: l.At(0), Mode: declock.Shared}, declock.Want{ID: l.At(1), Mode: m}); !errors.Is(err, declock.ErrMode) {
			t.Errorf("mode %d: %v", m, err)
		}
	}
	if g, err := session(t, c).TryLock(l.At(0)); err != nil {
		t.Errorf("the other lock: %v", err)
	} else if err := g.Unlock(); err != nil {
		t.Error(err)
	}
}

// A session that locks a lock that it holds gets ErrDeadlock at once, in all modes and policies, and goes on.
func TestRelock(t *testing.T) {
	ctx := context.Background()
	for _, policy := range hier.PolicyNames() {
		c, s := open(t, declock.WithPolicy(policy))
		l, err := c.Locks(ctx, "l", 2)
		if err != nil {
			t.Fatal(err)
		}
		other := session(t, c)
		for first, lockFirst := range map[string]func(context.Context, declock.LockID) (declock.Guard, error){"Lock": s.Lock, "RLock": s.RLock} {
			g, err := lockFirst(ctx, l.At(0))
			if err != nil {
				t.Fatal(err)
			}
			for then, again := range map[string]func(context.Context, declock.LockID) (declock.Guard, error){"Lock": s.Lock, "RLock": s.RLock} {
				if _, err := again(ctx, l.At(0)); !errors.Is(err, lock.ErrDeadlock) {
					t.Errorf("%s: %s, then %s: %v", policy, first, then, err)
				}
			}
			if _, err := s.TryLock(l.At(0)); !errors.Is(err, lock.ErrBusy) {
				t.Errorf("%s: %s, then TryLock: %v", policy, first, err)
			}
			beside, err := s.Lock(ctx, l.At(1))
			if err != nil {
				t.Fatalf("%s: another lock: %v", policy, err)
			}
			if err := errors.Join(g.Unlock(), beside.Unlock()); err != nil {
				t.Fatal(err)
			}
			if g, err = other.TryLock(l.At(0)); err != nil {
				t.Fatalf("%s: the lock afterwards: %v", policy, err)
			}
			if err := g.Unlock(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// panicOf returns what f panics with, as text.
func panicOf(f func()) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint(v)
		}
	}()
	f()
	return ""
}

// A second goroutine in a session is found.
func TestTwoGoroutinesInASession(t *testing.T) {
	ctx := context.Background()
	c, l := openLocks(t, 2)
	s, other := session(t, c), session(t, c)
	held, err := other.Lock(ctx, l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	mine, err := s.Lock(ctx, l.At(1))
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error)
	go func() {
		g, err := s.Lock(ctx, l.At(0))
		waiting <- err
		waiting <- g.Unlock()
	}()
	// What the waiter did before it waits has happened before what is seen of it in the table.
	for c.Node().Table().Load().Waiters == 0 {
		time.Sleep(time.Millisecond)
	}
	for what, f := range map[string]func(){
		"TryLock": func() { _, _ = s.TryLock(l.At(1)) },
		"Unlock":  func() { _ = mine.Unlock() },
		"Close":   func() { _ = s.Close() },
	} {
		if text := panicOf(f); !strings.Contains(text, "concurrent use of a Session") {
			t.Errorf("%s beside another operation of the session: panic %q", what, text)
		}
	}
	if err := held.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-waiting, <-waiting, mine.Unlock(), s.Close()); err != nil {
		t.Error(err)
	}
}

// A context does not interrupt what comes after a Do whose function panicked.
func TestDoOfAPanic(t *testing.T) {
	c, l := openLocks(t, 1)
	s, other := session(t, c), session(t, c)
	ctx, cancel := context.WithCancel(context.Background())
	if text := panicOf(func() { _ = s.Do(ctx, func() error { panic("f") }) }); text != "f" {
		t.Fatalf("panic %q", text)
	}
	cancel()
	g, err := other.Lock(context.Background(), l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(10 * time.Millisecond)
		_ = g.Unlock()
	}()
	if _, err := s.Lock(context.Background(), l.At(0)); err != nil {
		t.Errorf("Lock after it: %v", err)
	}
}

// A lock that other code over the session's Locker holds is named by Close, which cannot release it.
func TestCloseWithALockOfOtherCode(t *testing.T) {
	c, l := openLocks(t, 1)
	s := session(t, c)
	var h lock.Hold
	if err := s.Locker().Acquire(&h, &lock.Request{Lock: l.At(0).Addr(), Mode: lock.Exclusive}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); !errors.Is(err, declock.ErrHeld) || !strings.Contains(err.Error(), l.At(0).String()) {
		t.Errorf("Close: %v", err)
	}
}

// An address of a fabric that the program does not import says what to import.
func TestOpenWithoutItsImport(t *testing.T) {
	for scheme, want := range map[string]string{"tcp": "declock/overtcp", "verbs": "declock/oververbs"} {
		_, err := declock.Open(t.Context(), scheme+"://127.0.0.1:1/x")
		if !errors.Is(err, declock.ErrAddress) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", scheme, err)
		}
	}
}

// The zero Guards are none, as the zero Guard; those of no locks are.
func TestUnlockOfTheZeroGuards(t *testing.T) {
	c, _ := open(t)
	if err := (declock.Guards{}).Unlock(); !errors.Is(err, lock.ErrMisuse) {
		t.Errorf("the zero Guards: %v", err)
	}
	g, err := c.LockAll(t.Context())
	if err == nil {
		err = g.Unlock()
	}
	if err != nil {
		t.Errorf("no locks: %v", err)
	}
}

// A scan says what is wrong with it: a limit below 0, a second loop after the first has come to the end, a context that has ended, which is no wait for a lock.
func TestScanThatCannotBe(t *testing.T) {
	c, _ := open(t)
	tree, err := c.Tree(t.Context(), "t", declock.TreeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"a", "b", "c"} {
		if err := tree.Put(t.Context(), []byte(k), nil); err != nil {
			t.Fatal(err)
		}
	}
	count := func(s *declock.TreeScan, most int) (n int) {
		for range s.All() {
			if n++; n == most {
				break
			}
		}
		return n
	}
	s := tree.Scan(t.Context(), btree.Range{Limit: -1})
	if n := count(s, 9); n != 0 || !errors.Is(s.Err(), btree.ErrConfig) {
		t.Errorf("at most -1 keys: %d, %v", n, s.Err())
	}
	for _, limit := range []int{0, 3} {
		s = tree.Scan(t.Context(), btree.Range{Limit: limit})
		if n := count(s, 2) + count(s, 9); n != 3 || s.Err() != nil {
			t.Errorf("limit %d, in two loops: %d, %v", limit, n, s.Err())
		}
		if n := count(s, 9); n != 0 || !errors.Is(s.Err(), lock.ErrMisuse) {
			t.Errorf("limit %d, after the end: %d, %v", limit, n, s.Err())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s = tree.Scan(ctx, btree.Range{})
	if n := count(s, 9); n != 0 || !errors.Is(s.Err(), context.Canceled) || !errors.Is(s.Err(), lock.ErrCanceled) || strings.Contains(s.Err().Error(), "waiting") {
		t.Errorf("its context has ended: %d, %v", n, s.Err())
	}
}
