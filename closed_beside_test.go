package declock_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/mn"
)

// Many sessions lock and unlock while their cluster is closed: each operation succeeds, or is ErrClosed. None panics, and the race detector
// has nothing to object to.
func TestCloseBesideSessions(t *testing.T) {
	ctx := context.Background()
	const sessions = 8
	so := shm.Options{Name: "test", Dir: t.TempDir(), Size: 16 << 20, Sparse: true}
	srv, err := shm.Serve(so)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mn.Start(srv, mn.Config{Participants: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for round := range 30 {
		c, err := declock.Open(ctx, "shm:test", declock.WithDir(so.Dir))
		if err != nil {
			t.Fatal(err)
		}
		locks, err := c.Locks(ctx, "l", sessions)
		if err != nil {
			t.Fatal(err)
		}
		var tasks sync.WaitGroup
		var done atomic.Int64
		for i := range sessions {
			s := session(t, c)
			id := locks.At(i) // the first ones are wanted by two sessions
			if i >= sessions/2 {
				id = locks.At(i - sessions/2)
			}
			tasks.Go(func() {
				for {
					g, err := s.Lock(ctx, id)
					if err == nil {
						err = g.Unlock()
					}
					done.Add(1)
					if err != nil {
						if !errors.Is(err, declock.ErrClosed) {
							t.Errorf("round %d: %v", round, err)
						}
						return
					}
				}
			})
		}
		for done.Load() < int64(round)*10 {
			runtime.Gosched()
		}
		if err := c.Close(); err != nil && !errors.Is(err, declock.ErrInUse) && !errors.Is(err, declock.ErrHeld) {
			t.Errorf("round %d: Close: %v", round, err)
		}
		tasks.Wait()
	}
}

// One goroutine opens locks again and again while another closes the cluster: each call succeeds, or is ErrClosed.
func TestCloseBesideLocks(t *testing.T) {
	ctx := context.Background()
	o := shm.Options{Name: "test", Dir: t.TempDir(), Size: 16 << 20, Sparse: true}
	m := serve(t, o)
	defer m.Close()
	for range 20 {
		c, err := declock.Open(ctx, "shm:"+o.Name, declock.WithDir(o.Dir))
		if err != nil {
			t.Fatal(err)
		}
		var opened atomic.Int64
		done := make(chan error, 1)
		go func() {
			for {
				if _, err := c.Locks(ctx, "l", 8); err != nil {
					done <- err
					return
				}
				opened.Add(1)
			}
		}()
		for opened.Load() < 4 {
			runtime.Gosched()
		}
		if err := c.Close(); err != nil && !errors.Is(err, declock.ErrInUse) {
			t.Errorf("Close: %v", err)
		}
		if err := <-done; !errors.Is(err, declock.ErrClosed) {
			t.Errorf("Locks: %v", err)
		}
	}
}

// Nothing is opened while Close waits until what was dropped is let go, and no background reclaimer is left when it has returned.
func TestNothingIsOpenedWhileClosing(t *testing.T) {
	ctx := context.Background()
	o := shm.Options{Name: "test", Dir: t.TempDir(), Size: 64 << 20, Sparse: true}
	m := serve(t, o)
	defer m.Close()
	c := opened(t, o.Name, o.Dir)
	s := session(t, c)
	st, err := c.Store(ctx, "s", declock.StoreConfig{Objects: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.DropStore(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Close() }()
	for !errors.Is(err, declock.ErrClosed) { // until it has begun
		_, err = st.Client(s)
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // it has ended the reclaimer
	if _, err := c.Store(ctx, "other", declock.StoreConfig{Objects: 1000}); !errors.Is(err, declock.ErrClosed) {
		t.Errorf("Store: %v", err)
	}
	if err := c.DropTree(ctx, "t"); !errors.Is(err, declock.ErrClosed) {
		t.Errorf("DropTree: %v", err)
	}
	if err := <-done; err != nil && !errors.Is(err, declock.ErrInUse) { // in use: the loop above was opening a client
		t.Errorf("Close: %v", err)
	}
	stacks := make([]byte, 1<<20)
	if stacks = stacks[:runtime.Stack(stacks, true)]; strings.Contains(string(stacks), "declock.(*keeper).run") {
		t.Error("a background reclaimer runs after Close")
	}
}
