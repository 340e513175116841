package declock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/declock/declock/lock"
)

// A lock is acquired with a context within Do: Do's own context still ends what follows, also if it ends during the one within.
func TestContextWithinDo(t *testing.T) {
	c, err := Open(context.Background(), "shm:")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, err := c.Locks(context.Background(), "l", 2)
	if err != nil {
		t.Fatal(err)
	}
	open := func() *Session {
		s, err := c.Session()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	a, b := open(), open()
	taken, err := b.Lock(context.Background(), l.At(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, endsWithin := range []bool{false, true} {
		ctx, cancel := context.WithCancel(context.Background())
		within, cancelWithin := context.WithTimeout(ctx, time.Minute)
		defer cancelWithin()
		done := make(chan error, 1)
		go func() {
			done <- a.Do(ctx, func() error {
				g, err := a.Lock(within, l.At(0))
				if err != nil {
					return err
				}
				defer g.Unlock()
				if endsWithin { // Do's context, during another operation with a context
					own, cancelOwn := context.WithCancel(context.Background())
					defer cancelOwn()
					_ = a.Do(own, func() error { cancel(); return nil })
				} else {
					time.AfterFunc(20*time.Millisecond, cancel)
				}
				g, err = a.Lock(context.Background(), l.At(1))
				if err == nil {
					g.Unlock()
				}
				return err
			})
		}()
		select {
		case err := <-done:
			if !errors.Is(err, lock.ErrCanceled) || !errors.Is(err, context.Canceled) {
				t.Errorf("ends within %v: %v", endsWithin, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("ends within %v: Do waits on though its context has ended", endsWithin)
			_ = taken.Unlock()
			<-done
			return
		}
		cancel()
	}
	if err := taken.Unlock(); err != nil {
		t.Error(err)
	}
	g, err := a.Lock(context.Background(), l.At(1)) // nothing interrupts the session any more
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
}

// The context of an operation ends while one within it waits, which has a context of its own: the wait ends. Or it ends when that one has waited and goes on: what comes
// later does not wait.
func TestContextEndsWithinDo(t *testing.T) {
	c, ctx := openPools(t)
	l, err := c.Locks(ctx, "l", 2)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, waits := range []bool{true, false} {
		taken, err := c.Lock(ctx, l.At(1))
		if err != nil {
			t.Fatal(err)
		}
		brief, err := c.Lock(ctx, l.At(0))
		if err != nil {
			t.Fatal(err)
		}
		around, cancel := context.WithCancel(ctx)
		within, cancelWithin := context.WithTimeout(context.Background(), 20*time.Second) // then it has waited in vain
		time.AfterFunc(20*time.Millisecond, func() {
			if waits {
				cancel()
			} else if err := brief.Unlock(); err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		err = s.Do(around, func() error {
			if waits {
				return s.Do(within, func() error { return lockOnce(s, l.At(1)) })
			}
			if err := s.Do(within, func() error {
				err := lockOnce(s, l.At(0)) // waits, until brief is unlocked
				cancel()
				time.Sleep(20 * time.Millisecond) // the end of the context interrupts the session, which waits for nothing
				return err
			}); err != nil {
				return fmt.Errorf("within: %w", err)
			}
			waiting, stop := context.WithTimeout(context.Background(), 20*time.Second)
			defer stop()
			g, err := s.Lock(waiting, l.At(1))
			if err == nil {
				err = g.Unlock()
			}
			return err
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 10*time.Second {
			t.Errorf("waits within %v: %v after %v", waits, err, time.Since(began))
		}
		cancelWithin()
		if err := taken.Unlock(); err != nil {
			t.Error(err)
		}
		if waits {
			if err := brief.Unlock(); err != nil {
				t.Error(err)
			}
		}
		if err := lockOnce(s, l.At(1)); err != nil { // nothing interrupts the session any more
			t.Error(err)
		}
	}
}

// lockOnce acquires a lock and releases it.
func lockOnce(s *Session, id LockID) error {
	g, err := s.Lock(context.Background(), id)
	if err == nil {
		err = g.Unlock()
	}
	return err
}
