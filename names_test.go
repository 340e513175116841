package declock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/lock"
)

func names(t *testing.T, c *declock.Cluster, n int) *declock.Names {
	t.Helper()
	x, err := c.Names(t.Context(), "names", n)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// Clients of two compute nodes hold two names each, out of more than the table has locks: names go from slot to slot all the time. Each name excludes as a lock does, its
// tokens grow, whichever slot it has, and clients that take names in their order never wait for each other in a circle.
func TestNamesExclude(t *testing.T) {
	const all, clients, rounds = 200, 6, 150 // names of one bucket, of 64 slots
	o := shm.Options{Name: "names", Dir: t.TempDir(), Size: 64 << 20, Sparse: true}
	m := serve(t, o)
	defer m.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var held [all]atomic.Int32 // -1: exclusively; else by so many
	var tokens [all]lock.Token // guarded by the names
	var group sync.WaitGroup
	for n := range 2 {
		x := names(t, opened(t, "names", o.Dir), 1)
		for k := range clients {
			random := rand.New(rand.NewPCG(uint64(n), uint64(k)))
			group.Go(func() {
				for range rounds {
					i, j := random.IntN(all), random.IntN(all)
					if i == j {
						continue
					}
					if err := holdTwo(ctx, x, min(i, j), max(i, j), held[:], tokens[:], random); err != nil {
						t.Error(err)
						cancel()
						return
					}
				}
			})
		}
	}
	group.Wait()
}

// holdTwo holds two names, the first exclusively.
func holdTwo(ctx context.Context, x *declock.Names, i, j int, held []atomic.Int32, tokens []lock.Token, random *rand.Rand) error {
	g, err := x.Lock(ctx, fmt.Sprint(i))
	if err != nil {
		return err
	}
	if !held[i].CompareAndSwap(0, -1) {
		return fmt.Errorf("name %d is held by %d when it is acquired exclusively", i, held[i].Load())
	}
	if g.Token() <= tokens[i] {
		return fmt.Errorf("name %d: token %v after %v", i, g.Token(), tokens[i])
	}
	tokens[i] = g.Token()
	var second declock.Guard
	if random.IntN(3) == 0 {
		second, err = x.RLock(ctx, fmt.Sprint(j))
	} else {
		second, err = x.TryRLock(ctx, fmt.Sprint(j))
	}
	if err == nil {
		if n := held[j].Add(1); n <= 0 {
			return fmt.Errorf("name %d is shared while it is held exclusively", j)
		}
		if second.Token() < tokens[j] {
			return fmt.Errorf("name %d: shared token %v after %v", j, second.Token(), tokens[j])
		}
		held[j].Add(-1)
		err = second.Unlock()
	}
	if err != nil && !errors.Is(err, lock.ErrBusy) {
		return err
	}
	held[i].Store(0)
	return g.Unlock()
}

// A name that is held, or waited for, keeps its slot while others take all that are free; when all are in use, a further name is refused, and waits for none of them for ever.
func TestNamesInUse(t *testing.T) {
	c, _ := open(t)
	x := names(t, c, 1)
	ctx := t.Context()
	first, err := x.Lock(ctx, "first")
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		g, err := x.Lock(ctx, "first")
		if err == nil {
			err = g.Unlock()
		}
		waited <- err
	}()
	var guards []declock.Guard
	for round := range 3 { // each takes all that the round before has given back
		for _, g := range guards {
			if err := g.Unlock(); err != nil {
				t.Fatal(err)
			}
		}
		guards = guards[:0]
		for i := range 63 {
			g, err := x.TryLock(ctx, fmt.Sprint(round, i))
			if err != nil {
				t.Fatalf("round %d, name %d: %v", round, i, err)
			}
			guards = append(guards, g)
		}
	}
	if _, err := x.TryLock(ctx, "first"); !errors.Is(err, lock.ErrBusy) {
		t.Errorf("held by another: %v", err)
	}
	if _, err := x.Lock(ctx, "one more"); !errors.Is(err, declock.ErrNames) {
		t.Errorf("with all in use: %v", err)
	}
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if g, err := x.Lock(ctx, "one more"); err != nil {
		t.Error(err)
	} else if err := g.Unlock(); err != nil {
		t.Error(err)
	}
	select {
	case <-guards[0].Lost():
		t.Error("a guard whose name had another slot is lost")
	default:
	}
	for _, g := range guards {
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Names(ctx, "names", 1000); !errors.Is(err, declock.ErrLocks) {
		t.Errorf("a table of another size: %v", err)
	}
}

// The lock of a name that needs no table is that of the shell's table, which may be dropped and made anew.
func TestNamed(t *testing.T) {
	c, _ := open(t)
	ctx := t.Context()
	for range 2 {
		g, err := c.Named("orders/17").RLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		shell, err := c.Names(ctx, "shell", 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := shell.TryLock(ctx, "orders/17"); !errors.Is(err, lock.ErrBusy) {
			t.Errorf("the same lock by its table: %v", err)
		}
		other, err := c.Named("orders/18").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(g.Unlock(), other.Unlock()); err != nil {
			t.Error(err)
		}
		if g, err = c.Named("orders/17").TryLock(ctx); err != nil {
			t.Fatal(err)
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		if err := c.DropLocks(ctx, "shell.names"); err != nil {
			t.Fatal(err)
		}
	}
}
