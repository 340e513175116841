package declock_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

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
