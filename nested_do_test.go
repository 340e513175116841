package declock

import (
	"context"
	"errors"
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
