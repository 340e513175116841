package declock_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// Bad input to Open: each error names what is wrong and what would be right.
func TestOpenRefuses(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		address string
		opts    []declock.Option
		want    error
		says    string
	}{
		{"demo", nil, declock.ErrAddress, "shm:NAME"},
		{"", nil, declock.ErrAddress, "no scheme"},
		{"floppy:demo", nil, declock.ErrAddress, "unknown fabric"},
		{"shm:../../etc", nil, shm.ErrName, "letters"},
		{"shm:no-such-cluster", nil, shm.ErrNoCluster, "no-such-cluster"},
		{"shm:", []declock.Option{declock.WithPolicy("fair")}, declock.ErrPolicy, "declock-pf"},
		{"shm:", []declock.Option{declock.WithPolicy("local-bound:0")}, declock.ErrPolicy, "local-bound:N"},
		{"shm:", []declock.Option{declock.WithMemory(100)}, nil, "size"},
	} {
		cl, err := declock.Open(ctx, c.address, append(c.opts, declock.WithDir(t.TempDir()))...)
		if err == nil {
			cl.Close()
			t.Errorf("%q: no error", c.address)
			continue
		}
		if c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v", c.address, err)
		}
	}
}

// A private cluster leaves nothing behind, also when Open fails.
func TestPrivateLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	c, err := declock.Open(context.Background(), "shm:", declock.WithDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("files of a process that may end without Close: %v", left)
	}
	st, err := c.Store(context.Background(), "s", declock.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	cache, err := st.Client(session(t, c))
	if err != nil {
		t.Fatal(err)
	}
	if err := cache.Set([]byte("k"), []byte("v"), objstore.Options{}); err != nil {
		t.Errorf("without files: %v", err)
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if _, err := declock.Open(context.Background(), "shm:", declock.WithDir(dir), declock.WithMemory(100)); err == nil {
		t.Error("100 bytes of memory are enough")
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRegisterTwicePanics(t *testing.T) {
	join := func(context.Context, string) (fabric.Node, error) { return nil, errors.ErrUnsupported }
	declock.Register("twice", join)
	if _, err := declock.Open(context.Background(), "twice:x"); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	declock.Register("twice", join)
}

// The same name gives the same locks; another number of them is refused.
func TestLocksByName(t *testing.T) {
	c, s := open(t)
	ctx := context.Background()
	a, err := c.Locks(ctx, "a", 10)
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.Locks(ctx, "a", 10)
	if err != nil || again.At(7) != a.At(7) || again.Len() != 10 {
		t.Errorf("again: %v %v", again, err)
	}
	if _, err := c.Locks(ctx, "a", 11); !errors.Is(err, declock.ErrLocks) || !strings.Contains(err.Error(), "10 locks on 1 memory nodes, wanted 11") {
		t.Errorf("11 locks: %v", err)
	}
	if _, err := c.Locks(ctx, "b", 0); err == nil {
		t.Error("0 locks")
	}
	if _, err := c.Store(ctx, "a", declock.StoreConfig{}); err == nil {
		t.Error("a store with the name of locks")
	}
	g, err := s.Lock(ctx, a.At(3))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
}

// A Guard unlocks once, also when its memory has been used again.
func TestGuardMisuse(t *testing.T) {
	c, s := open(t)
	ctx := context.Background()
	l, err := c.Locks(ctx, "l", 2)
	if err != nil {
		t.Fatal(err)
	}
	old, err := s.Lock(ctx, l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Unlock(); err != nil {
		t.Fatal(err)
	}
	g, err := s.RLock(ctx, l.At(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Unlock(); !errors.Is(err, lock.ErrMisuse) {
		t.Errorf("second Unlock: %v", err)
	}
	if err := (declock.Guard{}).Unlock(); !errors.Is(err, lock.ErrMisuse) {
		t.Errorf("zero Guard: %v", err)
	}
	if _, err := s.TryLock(l.At(1)); !errors.Is(err, lock.ErrBusy) {
		t.Errorf("TryLock of a shared lock: %v", err)
	}
	second, err := s.TryRLock(l.At(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(second.Unlock(), g.Unlock()); err != nil {
		t.Error(err)
	}
}

// Close releases what a session holds still, and says so: the lock is not lost to the others of the process.
func TestCloseOfASessionWithLocks(t *testing.T) {
	for _, policy := range []string{hier.DefaultPolicy, "cql"} {
		c, s := open(t, declock.WithPolicy(policy))
		ctx := context.Background()
		l, err := c.Locks(ctx, "l", 3)
		if err != nil {
			t.Fatal(err)
		}
		write, err := s.Lock(ctx, l.At(0))
		if err != nil {
			t.Fatal(err)
		}
		read, err := s.RLock(ctx, l.At(1))
		if err != nil {
			t.Fatal(err)
		}
		free, err := s.Lock(ctx, l.At(2))
		if err != nil {
			t.Fatal(err)
		}
		if err := free.Unlock(); err != nil {
			t.Fatal(err)
		}
		err = s.Close()
		if !errors.Is(err, declock.ErrHeld) {
			t.Fatalf("%s: Close with locks held: %v", policy, err)
		}
		for i, says := range []string{l.At(0).String() + " exclusive", l.At(1).String() + " shared", l.At(2).String()} {
			if strings.Contains(err.Error(), says) != (i < 2) {
				t.Errorf("%s: lock %d: %v", policy, i, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: the second Close: %v", policy, err)
		}
		for _, g := range []declock.Guard{write, read} {
			if err := g.Unlock(); !errors.Is(err, lock.ErrMisuse) {
				t.Errorf("%s: Unlock afterwards: %v", policy, err)
			}
		}
		other, err := c.Session()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			g, err := other.TryLock(l.At(i))
			if err != nil {
				t.Errorf("%s: lock %d is lost: %v", policy, i, err)
				continue
			}
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
		}
		if err := other.Close(); err != nil {
			t.Errorf("%s: a session without locks: %v", policy, err)
		}
	}
}

// A cluster that is closed releases what its sessions hold, and says so; a session that has ended with it has nothing to release.
func TestCloseOfASessionAfterItsCluster(t *testing.T) {
	c, s := open(t)
	l, err := c.Locks(context.Background(), "l", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lock(context.Background(), l.At(0)); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); !errors.Is(err, declock.ErrHeld) || !strings.Contains(err.Error(), l.At(0).String()) {
		t.Errorf("Close of a cluster with a lock held: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A context that has ended, or ends while waiting, is the error's cause, and the session goes on.
func TestContexts(t *testing.T) {
	c, s := open(t)
	l, err := c.Locks(context.Background(), "l", 1)
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("enough")
	ended, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	if _, err := s.Lock(ended, l.At(0)); !errors.Is(err, why) || !errors.Is(err, lock.ErrCanceled) {
		t.Errorf("ended: %v", err)
	}
	g, err := s.Lock(context.Background(), l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Millisecond, func() { cancel(why) })
		if _, err := other.Lock(ctx, l.At(0)); !errors.Is(err, why) || !errors.Is(err, lock.ErrCanceled) {
			t.Errorf("waiting: %v", err)
		}
	}
	if err := g.Unlock(); err != nil {
		t.Fatal(err)
	}
	g, err = other.Lock(context.Background(), l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
}

// Uncontended locks and gets allocate nothing.
func TestNoAllocations(t *testing.T) {
	c, s := open(t)
	ctx := context.Background()
	l, err := c.Locks(ctx, "l", 100)
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		i++
		g, err := s.Lock(ctx, l.At(i%100))
		if err == nil {
			err = g.Unlock()
		}
		if err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("lock: %v allocations", n)
	}
	st, err := c.Store(ctx, "s", declock.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := st.Client(s)
	if err != nil {
		t.Fatal(err)
	}
	key, value := []byte("key"), make([]byte, 414)
	if err := cl.Set(key, value, objstore.Options{}); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := cl.Get(key); err != nil {
			t.Error(err)
		}
		if err := cl.Set(key, value, objstore.Options{}); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("get and set: %v allocations", n)
	}
}
