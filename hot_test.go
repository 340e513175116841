package declock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/declock/declock/cn"
)

// A hot lock is shown with the clients that hold it, and with those that wait for it.
func TestHotLockHasHoldersAndWaiters(t *testing.T) {
	c, _ := open(t)
	ctx := t.Context()
	l, err := c.Locks(ctx, "hot", 2)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * cn.SampleEvery {
		g, err := c.Lock(ctx, l.At(1))
		if err != nil || g.Unlock() != nil {
			t.Fatal(err)
		}
	}
	g, err := c.Lock(ctx, l.At(1))
	if err != nil {
		t.Fatal(err)
	}
	var waits sync.WaitGroup
	for range 2 {
		waits.Go(func() {
			if g, err := c.Lock(ctx, l.At(1)); err != nil || g.Unlock() != nil {
				t.Error(err)
			}
		})
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		hot := c.Node().Observe(1).Hot
		if len(hot) == 1 && hot[0].Lock == l.At(1).Addr() && hot[0].Holders == 1 && hot[0].Waiters == 2 {
			break
		}
		if time.Now().After(end) {
			t.Errorf("hot locks: %+v", hot)
			break
		}
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
	waits.Wait()
}
