package overtcp_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/declock/declock"
)

// bulkKeys are objects that no client changes: only a copy brings them to a new backup.
const bulkKeys = 800

func bulk(i int) (key, value []byte) {
	return fmt.Appendf(nil, "bulk%d", i), bytes.Repeat(fmt.Appendf(nil, "%d,", i), 1+i%200)
}

// One memory node after the other is killed, and started again without what it had, each as soon as all copies are in sync again, while clients work: in the end none has
// been there from the start, and nothing is lost.
func TestStoreRepair(t *testing.T) {
	t.Parallel()
	x := newReplicas(t)
	l := newStoreLoad(x)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	s, err := l.own.Store(ctx, "bulk", declock.StoreConfig{Objects: 200, NoEvict: true}) // buckets have overflow blocks
	if err != nil {
		t.Fatal(err)
	}
	l.repaired(func(key, value []byte) error { return s.Set(ctx, key, value, declock.SetOptions{}) },
		func(key []byte) ([]byte, error) { return s.Get(ctx, key, nil) })
}

// The same for trees.
func TestTreeRepair(t *testing.T) {
	t.Parallel()
	x := newReplicas(t)
	l := newStoreLoad(x)
	l.trees = true
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	s, err := l.own.Tree(ctx, "bulk", declock.TreeConfig{MaxKey: 16, NodeSize: 512})
	if err != nil {
		t.Fatal(err)
	}
	l.repaired(func(key, value []byte) error { return s.Put(ctx, key, value) }, func(key []byte) ([]byte, error) { return s.Get(ctx, key, nil) })
}

// repaired kills each memory node, and what there is besides the load is there in the end.
func (l *storeLoad) repaired(put func(key, value []byte) error, get func(key []byte) ([]byte, error)) {
	t, x := l.t, l.replicas
	for i := range bulkKeys {
		key, value := bulk(i)
		if err := put(key, value); err != nil {
			t.Fatal(err)
		}
	}
	l.begin()
	var took []time.Duration
	for range len(x.mns) + 1 {
		victim := x.whole().Group(0).Replicas[0].ID
		kill(t, x.mns[victim])
		began := time.Now()
		x.start(victim)
		st := x.whole()
		took = append(took, time.Since(began).Round(time.Millisecond))
		if g := st.Group(0); g.Replicas[0].ID == victim {
			t.Errorf("%v still serves number 0: %+v", victim, *g)
		}
	}
	l.end()
	if l.failed > 0 {
		t.Errorf("%d operations have failed", l.failed)
	}
	for i := range bulkKeys {
		key, value := bulk(i)
		if got, err := get(key); err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%s: %.20q, %v", key, got, err)
		}
	}
	t.Logf("%d operations; from each kill until all copies are in sync: %v", l.done, took)
}

// How far a copy to a new backup is shows at the compute node that makes it, and work goes on meanwhile.
func TestCopyProgress(t *testing.T) {
	t.Parallel()
	x := newReplicas(t)
	x.opened[0].Close() // the compute node with the lowest number is that which copies
	c, err := declock.Open(t.Context(), x.address, declock.WithCopyRate(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	x.t.Cleanup(func() { c.Close() })
	x.opened = append(x.opened, c)
	s, err := c.Store(t.Context(), "bulk", declock.StoreConfig{Objects: 200, NoEvict: true})
	if err != nil {
		t.Fatal(err)
	}
	set := func(i int) {
		key, value := bulk(i)
		if err := s.Set(t.Context(), key, value, declock.SetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range bulkKeys {
		set(i)
	}
	victim := x.whole().Group(0).Replicas[1].ID
	kill(t, x.mns[victim])
	x.start(victim)
	var seen []declock.Copying
	for until := time.Now().Add(patience); len(seen) < 2 && time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		set(1)
		if k := c.Copying(); k != nil && k.Done > 0 && k.Done < k.All && (len(seen) == 0 || k.Done > seen[0].Done) {
			seen = append(seen, *k)
		}
	}
	if len(seen) < 2 || seen[0].Number != seen[1].Number || seen[0].All != seen[1].All {
		t.Errorf("the copy shows as %+v", seen)
	}
}

// What is dropped on memory nodes with replicas is let go, and its memory comes back, without that anything is reported.
func TestDropLetsGo(t *testing.T) {
	t.Parallel()
	x := newReplicas(t)
	reports := make(chan error, 100)
	c, err := declock.Open(t.Context(), x.address, declock.WithReport(func(err error) {
		select {
		case reports <- err:
		default:
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Store(t.Context(), "store", declock.StoreConfig{Objects: 100}); err != nil {
		t.Fatal(err)
	}
	if err := c.DropStore(t.Context(), "store"); err != nil {
		t.Fatal(err)
	}
	s, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		left := 0
		for _, r := range c.Node().Regions() {
			list, err := r.Retired(s.Port())
			if err != nil {
				t.Fatal(err)
			}
			left += len(list)
		}
		if left == 0 {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%d parts have not been let go", left)
		}
	}
	select {
	case err := <-reports:
		t.Errorf("reported: %v", err)
	default:
	}
}
