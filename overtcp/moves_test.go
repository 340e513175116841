package overtcp_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/lock"
)

// move makes planned moves, as "declock mn" does.
func (x *replicas) move(next func(*member.State) (member.Step, error)) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := x.options.Membership().Coordinator(ctx)
	if err != nil {
		x.t.Fatal(err)
	}
	defer c.Close()
	w, err := c.Watch(ctx)
	if err != nil {
		x.t.Fatal(err)
	}
	for {
		s, newer := w.State()
		if s != nil {
			step, err := next(s)
			if err != nil {
				x.t.Fatal(err)
			}
			if step.What == "" {
				return
			}
			if step.Change != nil {
				if err := c.Change(ctx, *step.Change); err != nil && !errors.Is(err, member.ErrChanged) {
					x.t.Fatal(step.What, err)
				}
			}
		}
		select {
		case <-newer:
		case <-ctx.Done():
			x.t.Fatalf("moves do not end: %+v", s.Groups)
		}
	}
}

// restartAll restarts all memory nodes, one after the other, each when it has been drained.
func (x *replicas) restartAll() {
	x.t.Helper()
	for id := range x.mns {
		x.move(func(s *member.State) (member.Step, error) { return s.Drain(fabric.MemID(id)) })
		kill(x.t, x.mns[id])
		x.start(fabric.MemID(id))
		x.move((*member.State).Rebalance)
	}
	for id, g := range x.whole().Groups {
		if g.Replicas[0].ID != fabric.MemID(id) {
			x.t.Errorf("%v is served by %v", g.ID, g.Replicas[0].ID)
		}
	}
}

// A rolling restart under load: no acquisition fails, and holders are notified where a number moves.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	x := newReplicas(t)
	h := &history{t: t, holds: map[lock.Token]bool{}, first: make(chan time.Time, 1)}
	stop := h.work(x, 2)
	x.restartAll()
	stop()
	if t.Logf("%d grants, %d holds lost", h.granted, h.lost); h.granted == 0 {
		t.Error("nothing was granted")
	}
}

// The same of stores and trees: nothing is lost, and nothing fails.
func TestStoreRollingRestart(t *testing.T) { rollingRestart(t, false) }

func TestTreeRollingRestart(t *testing.T) { rollingRestart(t, true) }

func rollingRestart(t *testing.T, trees bool) {
	t.Parallel()
	x := newReplicas(t)
	l := newStoreLoad(x)
	l.trees = trees
	l.begin()
	x.restartAll()
	ops := l.end()
	t.Logf("%d operations", len(ops))
	for i := range ops {
		if o := &ops[i]; o.Err != "" {
			t.Errorf("%s: %s", o.Op, o.Err)
		}
	}
}

// A number whose copies are all lost is abandoned, and begins anew with empty memory in a later term. Stores and a tree that were open all the while report the loss, and can be used; what was on other
// numbers is there.
func TestAbandon(t *testing.T) {
	t.Parallel()
	x := newReplicas(t)
	g := x.whole().Group(0)
	users := newLosers(t, x.open())
	for _, r := range g.Replicas {
		kill(t, x.mns[r.ID])
	}
	for _, r := range g.Replicas {
		x.start(r.ID)
	}
	lost := func(s *member.State) *member.Group {
		for _, g := range s.Groups {
			if len(g.Replicas) > 0 && !slices.ContainsFunc(g.Replicas, func(r member.Replica) bool { return s.Has(r.Host) }) {
				return g
			}
		}
		return nil
	}
	x.move(func(s *member.State) (member.Step, error) {
		if s.Has(g.Primary()) || s.Has(g.Replicas[1].Host) {
			return member.Step{What: "the cluster knows that they have ended"}, nil
		}
		n := lost(s)
		if n == nil {
			return member.Step{}, nil
		}
		return member.Step{What: "abandon", Change: &member.Change{ID: n.ID, Kind: member.Abandon, Seen: n.Changed}}, nil
	})
	users.goOn(x, g)
	if now := x.whole().Group(0); now.Term <= g.Term || now.Origin == g.Origin {
		t.Errorf("%+v after %+v", *now, *g)
	}
	c, s := open(t, x.address)
	locks, err := c.Locks(t.Context(), "new", 3)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		guard, err := s.Lock(t.Context(), locks.At(i))
		if err != nil {
			t.Fatal(err)
		}
		if err := guard.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// What is opened while a memory node is being replaced is there a moment later: stores, locks, names. None of that fails.
func TestOpenOverFailover(t *testing.T) {
	t.Parallel()
	x := newReplicas(t)
	c := x.open()
	for round := range 3 {
		g := x.whole().Group(fabric.MemID(round))
		kill(t, x.mns[g.Replicas[0].ID])

		name := fmt.Sprint("made", round)
		st, err := c.Store(t.Context(), name, declock.StoreConfig{Objects: 100})
		if err == nil {
			err = st.Set(t.Context(), []byte("a"), []byte("b"), declock.SetOptions{})
		}
		if err != nil {
			t.Errorf("store: %v", err)
		}
		if _, err := c.Locks(t.Context(), name+".locks", 30); err != nil {
			t.Errorf("locks: %v", err)
		}
		names, err := c.Names(t.Context(), name, 30)
		if err != nil {
			t.Errorf("names: %v", err)
			continue
		}
		guard, err := names.Lock(t.Context(), "a name")
		if err != nil {
			t.Errorf("lock of a name: %v", err)
			continue
		}
		if err := guard.Unlock(); err != nil {
			t.Error(err)
		}
		x.start(g.Replicas[0].ID)
	}
}

// A process that opens the cluster while a memory node is being replaced, and opens, uses and drops stores, trees and locks at once, waits and goes on: nothing fails.
func TestOpenOverFailoverAnew(t *testing.T) {
	t.Parallel()
	x := newReplicas(t)
	c := x.open()
	const each = 60
	key := func(i int) []byte { return fmt.Appendf(nil, "key%02d", i) }
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for round := range 3 {
		name := fmt.Sprint("made", round)
		st, err := c.Store(t.Context(), name, declock.StoreConfig{Objects: 100})
		must("store", err)
		tree, err := c.Tree(t.Context(), name+".tree", declock.TreeConfig{MaxKey: 16, NodeSize: 512})
		must("tree", err)
		_, err = c.Locks(t.Context(), name+".locks", each)
		must("locks", err)
		other, err := c.Tree(t.Context(), name+".other", declock.TreeConfig{MaxKey: 16, NodeSize: 512})
		must("tree", err)
		must("put", other.Put(t.Context(), key(0), key(0)))
		for i := range each {
			must("set", st.Set(t.Context(), key(i), key(i), declock.SetOptions{}))
			must("put", tree.Put(t.Context(), key(i), key(i)))
		}
		g := x.whole().Group(fabric.MemID(round))
		kill(t, x.mns[g.Replicas[0].ID])
		dropped := make(chan error, 1)
		go func() { dropped <- c.DropTree(t.Context(), name+".other") }()
		for range 3 {
			d, err := declock.Open(t.Context(), x.address)
			must("open", err)
			st, err := d.Store(t.Context(), name, declock.StoreConfig{})
			must("store", err)
			tree, err := d.Tree(t.Context(), name+".tree", declock.TreeConfig{})
			must("tree", err)
			locks, err := d.Locks(t.Context(), name+".locks", each)
			must("locks", err)
			for i := range each {
				_, err := st.Get(t.Context(), key(i), nil)
				must("get", err)
				_, err = tree.Get(t.Context(), key(i), nil)
				must("get from the tree", err)
				must("put", tree.Put(t.Context(), key(i), key(i)))
				guard, err := d.Lock(t.Context(), locks.At(i))
				must("lock", err)
				must("unlock", guard.Unlock())
			}
			must("close", d.Close())
		}
		must("drop of another tree", <-dropped)
		must("drop of the tree", c.DropTree(t.Context(), name+".tree"))
		must("drop of the store", c.DropStore(t.Context(), name))
		must("drop of locks", c.DropLocks(t.Context(), name+".locks"))
		x.start(g.Replicas[0].ID)
		x.whole()
	}
}

// When no memory node is left, each operation fails after the time for which it waits for another to take the place, and Close returns within a lease or so, though locks are held, and stores
// and trees are open.
func TestNoMemoryNodeIsLeft(t *testing.T) {
	t.Parallel()
	x := newReplicas(t)
	c, _ := open(t, x.address)
	st, err := c.Store(t.Context(), "store", declock.StoreConfig{Objects: 100})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := c.Tree(t.Context(), "tree", declock.TreeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	locks, err := c.Locks(t.Context(), "locks", 30)
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("key")
	ops := map[string]func() error{
		"set":    func() error { return st.Set(t.Context(), key, key, declock.SetOptions{}) },
		"get":    func() error { _, err := st.Get(t.Context(), key, nil); return err },
		"touch":  func() error { return st.Touch(t.Context(), key, 0) },
		"put":    func() error { return tree.Put(t.Context(), key, key) },
		"lookup": func() error { _, err := tree.Get(t.Context(), key, nil); return err },
		"lock":   func() error { _, err := c.Lock(t.Context(), locks.At(1)); return err },
		"drop":   func() error { return c.DropTree(t.Context(), "another") },
	}
	for _, what := range []string{"set", "put", "get", "lookup"} {
		if err := ops[what](); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	if _, err := c.Lock(t.Context(), locks.At(0)); err != nil {
		t.Fatal(err)
	}
	for _, m := range x.mns {
		kill(t, m)
	}
	var all sync.WaitGroup
	for what, do := range ops {
		all.Go(func() {
			begun := time.Now()
			err := do()
			if took := time.Since(begun); err == nil || took < 14*time.Second || took > 24*time.Second { // on a busy machine
				t.Errorf("%s: after %v: %v", what, took, err)
			}
		})
	}
	all.Wait()
	begun := time.Now()
	err = c.Close()
	if took := time.Since(begun); took > 2*deadAfter {
		t.Errorf("closed after %v: %v", took, err)
	}
}
