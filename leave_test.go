package declock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/cn"
	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric/tcp"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/mn"
)

// overTCP starts a memory node, and returns what opens a cluster of it, and what makes the cluster give the memory node up.
func overTCP(t *testing.T) (open func(...declock.Option) *declock.Cluster, giveUp func()) {
	t.Helper()
	members := coordinator.NewMemory(16)
	o := tcp.Options{Members: members, Insecure: true, Listen: "127.0.0.1:0"}
	so := o
	so.Size = 64 << 20
	srv, err := tcp.Serve(context.Background(), so)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := mn.Start(srv, mn.Config{Participants: 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = memory.Close() })
	open = func(opts ...declock.Option) *declock.Cluster {
		f, err := tcp.Join(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		c, err := declock.OpenNode(f, opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	return open, func() { members.Kill(srv.Member().Incarnation) }
}

func locksOf(t *testing.T, c *declock.Cluster) *declock.Locks {
	t.Helper()
	l, err := c.Locks(context.Background(), "x", 4)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A Lock whose context has ended leaves a ticket behind until its grant comes. Its cluster is closed before that, and another has its number:
// nobody waits for 10 s for a grant that nobody takes.
func TestCloseAfterAWaitThatWasCanceled(t *testing.T) {
	ctx := context.Background()
	for _, behind := range []bool{false, true} {
		open, _ := overTCP(t)
		a, b, c := open(), open(), open()
		la, lb, lc := locksOf(t, a), locksOf(t, b), locksOf(t, c)
		sa, sb, sc := session(t, a), session(t, b), session(t, c)
		g, err := sb.Lock(ctx, lb.At(0))
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		if _, err := sa.Lock(short, la.At(0)); !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("with a short context: %v", err)
		}
		cancel()
		got := make(chan error, 1)
		wait := func() {
			g, err := sc.Lock(ctx, lc.At(0))
			if err == nil {
				err = g.Unlock()
			}
			got <- err
		}
		if behind {
			go wait()
			time.Sleep(20 * time.Millisecond)
		}
		number := a.Node().Fabric().ID()
		if err := a.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		// A number is free when all members have acknowledged that its node has left.
		for limit := time.Now().Add(time.Minute); b.Node().Fabric().View().Live.Has(number) && time.Now().Before(limit); {
			time.Sleep(time.Millisecond)
		}
		if d := open(); d.Node().Fabric().ID() != number {
			t.Errorf("number %v, want %v again", d.Node().Fabric().ID(), number)
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		if !behind {
			go wait()
		}
		select {
		case err := <-got:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Second): // a wait of 10 s asks for a reset
			t.Fatal("the lock is not free")
		}
	}
}

// Close while a session waits says so, ends the wait, and others get what that session held.
func TestCloseWhileASessionWaits(t *testing.T) {
	ctx := context.Background()
	open, _ := overTCP(t)
	a, b := open(), open()
	la, lb := locksOf(t, a), locksOf(t, b)
	sa, sb := session(t, a), session(t, b)
	g, err := sb.Lock(ctx, lb.At(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sa.Lock(ctx, la.At(0)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := sa.Lock(ctx, la.At(1))
		done <- err
	}()
	for a.Node().Observe(0).Load.Waiters == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := a.Close(); !errors.Is(err, declock.ErrInUse) {
		t.Errorf("close: %v", err)
	}
	if err := <-done; !errors.Is(err, declock.ErrClosed) {
		t.Errorf("the wait: %v", err)
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for i := range 2 {
		g, err := sb.Lock(short, lb.At(i))
		if err != nil {
			t.Fatalf("lock %d: %v", i, err)
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// A memory node joins again with its memory: the lock that a session has lost, and does not unlock, is free for others.
func TestLostLockIsFreeBeforeItsUnlock(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	open, giveUp := overTCP(t)
	lost := make(chan lock.Loss, 2)
	a, b := open(declock.WithOnLoss(func(l lock.Loss) { lost <- l })), open()
	la, lb := locksOf(t, a), locksOf(t, b)
	sa, sa2, sb := session(t, a), session(t, a), session(t, b)
	g, err := sa.Lock(ctx, la.At(0))
	if err != nil {
		t.Fatal(err)
	}
	giveUp()
	for _, x := range []struct {
		s  *declock.Session
		id declock.LockID
	}{{sb, lb.At(0)}, {sa2, la.At(0)}} {
		for {
			got, err := x.s.Lock(ctx, x.id)
			if err == nil {
				if got.Token() <= g.Token() {
					t.Errorf("token %v after %v", got.Token(), g.Token())
				}
				if err := got.Unlock(); err == nil {
					break
				}
			}
			if ctx.Err() != nil {
				t.Fatalf("the lost lock is not free: %v", err)
			}
			time.Sleep(time.Millisecond) // it is not back yet
		}
	}
	select {
	case l := <-lost:
		if l.Token != g.Token() {
			t.Errorf("lost %+v", l)
		}
	default:
		t.Error("OnLoss was not called before others had the lock")
	}
	if err := g.Unlock(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("unlock: %v", err)
	}
}

// A panic in the function of WithOnLoss ends that function only: it is reported, the lock is lost, and the sessions can be used.
func TestPanicInOnLoss(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	open, giveUp := overTCP(t)
	reported := make(chan error, 100)
	a := open(declock.WithOnLoss(func(lock.Loss) { panic("in OnLoss") }), declock.WithReport(func(err error) {
		if errors.Is(err, cn.ErrPanic) {
			reported <- err
		}
	}))
	l, s := locksOf(t, a), session(t, a)
	g, err := s.Lock(ctx, l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	giveUp()
	for other := session(t, a); len(reported) == 0; time.Sleep(time.Millisecond) { // until an operation finds out
		if g, err := other.TryLock(l.At(2)); err == nil {
			_ = g.Unlock()
		}
		if ctx.Err() != nil {
			t.Fatal("the panic was not reported")
		}
	}
	if err := g.Unlock(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("unlock: %v", err)
	}
	for {
		if g, err = s.Lock(ctx, l.At(0)); err == nil {
			err = g.Unlock()
		}
		if err == nil || ctx.Err() != nil {
			break
		}
		time.Sleep(time.Millisecond) // it is not back yet
	}
	if err != nil {
		t.Error(err)
	}
}
