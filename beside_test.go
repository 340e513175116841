package declock

import (
	"context"
	"errors"
	"testing"
	"time"
)

// While locks are opened by their name, they are not dropped, nor opened by another goroutine: it would note what has been dropped since as what is there, and two goroutines would hold one lock.
func TestLocksOneOfAName(t *testing.T) {
	c, ctx := openPools(t)
	end, err := c.beginName(ctx) // another goroutine has begun
	if err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := c.DropLocks(brief, "locks"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a drop beside it: %v", err)
	}
	if _, err := c.Locks(brief, "locks", 4); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("opened beside it: %v", err)
	}
	end()
	if _, err := c.Locks(ctx, "locks", 4); err != nil {
		t.Error(err)
	}
	if err := c.DropLocks(ctx, "locks"); err != nil {
		t.Error(err)
	}
}

// A goroutine asks whether a lock is lost, and another closes the session that holds it.
func TestLostBesideClose(t *testing.T) {
	c, ctx := openPools(t)
	l, err := c.Locks(ctx, "locks", 1)
	if err != nil {
		t.Fatal(err)
	}
	guards, done := make(chan Guard), make(chan struct{})
	go func() {
		for g := range guards {
			for range 20 {
				g.Lost()
			}
			done <- struct{}{}
		}
	}()
	for range 300 {
		s, err := c.Session()
		if err != nil {
			t.Fatal(err)
		}
		g, err := s.Lock(ctx, l.At(0))
		if err != nil {
			t.Fatal(err)
		}
		guards <- g
		if err := s.Close(); !errors.Is(err, ErrHeld) {
			t.Fatal(err)
		}
		<-done
	}
	close(guards)
}
