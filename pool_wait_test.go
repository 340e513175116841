package declock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// A session that comes back just when its next user stops waiting is not lost.
func TestSessionForWhoeverWaits(t *testing.T) {
	c, _ := open(t, declock.WithLockSessions(1))
	l, err := c.Locks(t.Context(), "l", 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		enough, done := context.WithTimeout(t.Context(), 3*time.Second)
		g, err := c.Lock(enough, l.At(0))
		if err != nil {
			t.Fatalf("round %d: the session is lost: %v", i, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() {
			h, err := c.Lock(ctx, l.At(0))
			if err == nil {
				err = h.Unlock()
			}
			waited <- err
		}()
		time.Sleep(100 * time.Microsecond)
		cancel()
		err = g.Unlock()
		if werr := <-waited; err != nil || werr != nil && !errors.Is(werr, lock.ErrCanceled) {
			t.Errorf("round %d: %v, %v", i, err, werr)
		}
		done()
	}
}

// A goroutine that waits while the only session is closed, because a lock was left held in it, gets a new one.
func TestSessionInPlaceOfAClosedOne(t *testing.T) {
	c, _ := open(t, declock.WithLockSessions(1))
	l, err := c.Locks(t.Context(), "l", 2)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	waited := make(chan error)
	err = c.Use(ctx, func(s *declock.Session) error {
		go func() {
			g, err := c.Lock(ctx, l.At(1))
			if err == nil {
				err = g.Unlock()
			}
			waited <- err
		}()
		time.Sleep(20 * time.Millisecond)
		_, err := s.Lock(ctx, l.At(0))
		return err
	})
	if !errors.Is(err, declock.ErrHeld) {
		t.Errorf("a lock is left held: %v", err)
	}
	if err := <-waited; err != nil {
		t.Errorf("in place of the session that was closed: %v", err)
	}
}

// A session goes back to its pool when what it was taken for fails: a lock that is busy, several of which one is, a function of the user's that panics.
func TestSessionAfterFailure(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	c, err := declock.Open(ctx, "shm:", declock.WithSessions(1), declock.WithLockSessions(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() // what it says of the lock that the panic leaves held is not judged here
	own, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Locks(ctx, "l", 2)
	if err != nil {
		t.Fatal(err)
	}
	g, err := own.Lock(ctx, l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.TryLock(ctx, l.At(0)); !errors.Is(err, lock.ErrBusy) {
		t.Errorf("a lock that is busy: %v", err)
	}
	wants := []declock.Want{{ID: l.At(1), Mode: declock.Exclusive}, {ID: l.At(0), Mode: declock.Shared, Timeout: time.Millisecond}}
	if _, err := c.LockAll(ctx, wants...); !errors.Is(err, lock.ErrTimeout) {
		t.Errorf("two locks of which one is busy: %v", err)
	}
	if h, err := c.Lock(ctx, l.At(1)); err != nil || h.Unlock() != nil {
		t.Errorf("a lock that is free: %v", err)
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
	st, err := c.Store(ctx, "s", declock.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	_ = st.Set(ctx, []byte("k"), nil, declock.SetOptions{})
	if panicOf(func() {
		_ = st.Update(ctx, []byte("k"), objstore.Update{IfFound: true, Apply: func(*objstore.Object) objstore.Change { panic("user") }})
	}) == "" {
		t.Error("the panic is gone")
	}
	if _, err := st.Get(ctx, []byte("another"), nil); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("after a panic: %v", err)
	}
}
