package overtcp_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/lock"
)

// A peer is one compute node with locks, without a store: Close has nothing to give back but locks.
type peer struct {
	c     *declock.Cluster
	s     *declock.Session
	locks *declock.Locks
}

func (x *stand) peer() peer {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := declock.Open(ctx, x.address)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { c.Close() })
	s, err := c.Session()
	if err != nil {
		x.t.Fatal(err)
	}
	locks, err := c.Locks(ctx, "close", 2)
	if err != nil {
		x.t.Fatal(err)
	}
	return peer{c, s, locks}
}

// Close while a session waits and holds a lock: the others look at once for what that session had.
func TestCloseWhileInUse(t *testing.T) {
	x := newStand(t)
	a, b := x.peer(), x.peer()
	ctx := context.Background()
	g, err := b.s.Lock(ctx, b.locks.At(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.s.Lock(ctx, a.locks.At(0)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := a.s.Lock(ctx, a.locks.At(1))
		done <- err
	}()
	for a.c.Node().Observe(0).Load.Waiters == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := a.c.Close(); !errors.Is(err, declock.ErrInUse) {
		t.Errorf("close: %v", err)
	}
	if err := <-done; !errors.Is(err, declock.ErrClosed) {
		t.Errorf("the wait: %v", err)
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(ctx, 7*time.Second) // a wait of 10 s asks for a reset
	defer cancel()
	for i := range 2 {
		g, err := b.s.Lock(short, b.locks.At(i))
		if err != nil {
			t.Fatalf("lock %d: %v", i, err)
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// Close with a ticket in the queue of a lock on a memory node that does not answer does not wait for that memory node. It has a stand of its own:
// for a minute after a failure tickets leave queues sooner.
func TestCloseWithoutMemoryNode(t *testing.T) {
	x := newStandOf(t, 6*time.Second) // an operation on a memory node that does not answer takes as long, or longer
	a, b := x.peer(), x.peer()
	ctx := context.Background()
	if _, err := b.s.Lock(ctx, b.locks.At(0)); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := a.s.Lock(short, a.locks.At(0)); !errors.Is(err, lock.ErrTimeout) {
		t.Fatalf("lock of another: %v", err)
	}
	stop(t, x.memory)
	defer func() { _ = x.memory.Signal(syscall.SIGCONT) }()
	closed := make(chan error, 1)
	go func() { closed <- a.c.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Errorf("close: %v", err)
		}
	case <-time.After(3 * time.Second):
		t.Error("close waits for the memory node")
	}
}
