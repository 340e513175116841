package declock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A meanwhile is a context that does something when it is asked whether it has ended.
type meanwhile struct {
	context.Context
	do func()
}

func (m *meanwhile) Err() error {
	m.do()
	return m.Context.Err()
}

// No call returns a lock that was lost before it returned: of a name, whose binding is read after the grant, and of several, which are acquired one after the other. The memory nodes restart
// when the first lock is held, before the call goes on.
func TestLostBeforeItIsReturned(t *testing.T) {
	two := twoNodes(t, true)
	c := two.open()
	bound, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l, err := c.Locks(bound, "l", 3) // the last is where the first is
	if err != nil {
		t.Fatal(err)
	}
	x := names(t, c, 0)
	for of, call := range map[string]struct {
		acquire func(context.Context) (interface{ Unlock() error }, error)
		try     func() (declock.Guard, error)
	}{
		"a name": {func(ctx context.Context) (interface{ Unlock() error }, error) { return x.Lock(ctx, "n") },
			func() (declock.Guard, error) { return x.TryLock(bound, "n") }},
		"several": {func(ctx context.Context) (interface{ Unlock() error }, error) {
			return c.LockAll(ctx, declock.Write(l.At(0)), declock.Write(l.At(1)))
		}, func() (declock.Guard, error) { return c.TryLock(bound, l.At(0)) }},
	} {
		if g, err := call.try(); err != nil || g.Unlock() != nil { // a name is bound by that
			t.Fatalf("%s: %v", of, err)
		}
		restarted := false
		held, err := call.acquire(&meanwhile{bound, func() { restarted = restarted || two.restartOnceHeld(t, bound, c, call.try, l.At(2)) }})
		if err != nil {
			t.Fatalf("%s: %v", of, err)
		}
		if err := held.Unlock(); err != nil || !restarted {
			t.Errorf("%s: restarted %v: %v", of, restarted, err)
		}
	}
}

// restartOnceHeld restarts the memory nodes if try finds a lock held, and has the process find out by another lock. It reports whether it has.
func (s *nodesTwo) restartOnceHeld(t *testing.T, ctx context.Context, c *declock.Cluster, try func() (declock.Guard, error), another declock.LockID) bool {
	g, err := try()
	if err == nil {
		_ = g.Unlock()
	}
	if !errors.Is(err, lock.ErrBusy) {
		return false
	}
	for mn := range fabric.MemID(2) {
		s.stop(mn)
		s.serve(mn)
	}
	if g, err := c.Lock(ctx, another); err != nil || g.Unlock() != nil {
		t.Error(err)
	}
	return true
}

// Locks that LockAll acquires again, for some were lost meanwhile, have no more time for that than LockAll has.
func TestLockAllAgainWithinTimeout(t *testing.T) {
	two := twoNodes(t, true)
	c := two.open()
	bound, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l, err := c.Locks(bound, "l", 3)
	if err != nil {
		t.Fatal(err)
	}
	const timeout = 3 * time.Second // for the first lock, too, on a machine that stands still
	restarted := false
	ctx := &meanwhile{bound, func() {
		if !restarted && two.restartOnceHeld(t, bound, c, func() (declock.Guard, error) { return c.TryLock(bound, l.At(0)) }, l.At(2)) {
			restarted = true
			time.Sleep(timeout)
		}
	}}
	_, err = c.LockAll(ctx, declock.Want{ID: l.At(0), Mode: declock.Exclusive, Timeout: timeout}, declock.Write(l.At(1)))
	if !errors.Is(err, lock.ErrTimeout) || !restarted {
		t.Errorf("restarted %v: %v", restarted, err)
	}
	for i := range 2 {
		if g, err := c.Lock(bound, l.At(i)); err != nil || g.Unlock() != nil {
			t.Errorf("lock %d afterwards: %v", i, err)
		}
	}
}
