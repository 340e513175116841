package declock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/objstore"
)

// openPools opens a private cluster. Whatever waits for ever in a test ends with the context.
func openPools(t *testing.T, opts ...Option) (*Cluster, context.Context) {
	t.Helper()
	c, err := Open(t.Context(), "shm:", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return c, ctx
}

// twoAtATime has two operations on a store under way at a time.
func twoAtATime(ctx context.Context, st *Store) (second, first error) {
	first = st.Update(ctx, []byte("a"), objstore.Update{Apply: func(*objstore.Object) objstore.Change {
		_, second = st.Get(ctx, []byte("k"), nil)
		return objstore.Change{}
	}})
	return second, first
}

// fill opens sessions until there is no room for another.
func fill(t *testing.T, c *Cluster) (list []*Session) {
	for {
		s, err := c.Session()
		if err != nil {
			t.Log(len(list), "sessions:", err)
			return list
		}
		list = append(list, s)
	}
}

// A pool that found no room for another session opens more when there is room again.
func TestPoolGrowsAgain(t *testing.T) {
	c, ctx := openPools(t, WithPolicy("cql"), WithSessions(8))
	st, err := c.Store(ctx, "s", StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Set(ctx, []byte("k"), nil, SetOptions{}); err != nil {
		t.Fatal(err)
	}
	others := fill(t, c)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if second, _ := twoAtATime(short, st); !errors.Is(second, context.DeadlineExceeded) {
		t.Errorf("two operations while there is room for one: %v", second)
	}
	for _, s := range others {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if second, first := twoAtATime(ctx, st); second != nil || first != nil {
		t.Errorf("when there is room again: %v, %v", second, first)
	}
	c.work.mu.Lock()
	defer c.work.mu.Unlock()
	if c.work.open != len(c.work.free) {
		t.Errorf("it counts %d sessions and has %d", c.work.open, len(c.work.free))
	}
}

// Work under locks finds a session, though locks have all the others that the policy admits.
func TestWorkUnderAllLocks(t *testing.T) {
	c, ctx := openPools(t, WithPolicy("cql"))
	l, err := c.Locks(ctx, "l", 1000)
	if err != nil {
		t.Fatal(err)
	}
	st, err := c.Store(ctx, "s", StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var held []Guard
	for i := range 1000 {
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		g, err := c.Lock(short, l.At(i))
		cancel()
		if err != nil {
			t.Logf("%d locks: %v", i, err)
			break
		}
		held = append(held, g)
	}
	if len(held) == 1000 {
		t.Error("there is no bound")
	}
	if err := st.Set(ctx, []byte("k"), nil, SetOptions{}); err != nil {
		t.Errorf("work under a lock: %v", err)
	}
	for _, g := range held {
		if err := g.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
}

// A session whose clients are given up gives back what these keep of stores and trees: memory nodes do not fill up with it.
func TestPooledClientsAreClosed(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of clients of one goroutine")
	}
	c, ctx := openPools(t, WithMemory(8<<20))
	tr, err := c.Tree(ctx, "t", TreeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := c.Store(ctx, "s", StoreConfig{Objects: 1000})
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("k")
	for i := range 6000 {
		if i%2 == 0 {
			c.memoryLost(fabric.MaxMem) // of a memory node that neither is on
		} else {
			c.changes.Add(1) // something has been let go
		}
		if err := errors.Join(tr.Put(ctx, key, key), st.Set(ctx, key, key, SetOptions{})); err != nil {
			t.Fatalf("after %d losses and drops: %v", i, err)
		}
	}
}

// The place of a session that is lost goes to the first that waits, and not to one that comes at this moment.
func TestPlacesGoToTheFirst(t *testing.T) {
	c, ctx := openPools(t, WithLockSessions(1))
	p := &c.guards
	w, err := p.take(ctx)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		w, err := p.take(ctx)
		if err == nil {
			p.give(w)
		}
		done <- err
	}()
	for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		waiting = p.waiting.Len()
		p.mu.Unlock()
	}
	if err := w.s.Close(); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.pass(&worker{home: p})
	if p.open != p.most {
		t.Error("one that comes now opens a session before the one that waits")
	}
	p.mu.Unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
	c.guards.close()
	if _, err := p.take(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
