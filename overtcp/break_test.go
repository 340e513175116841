package overtcp_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/lock"
)

// A lock by name is taken from a process that lives: when Break returns nothing of that reaches memory any more, its guard is lost, and the next holder has a greater token.
func TestBreak(t *testing.T) {
	t.Parallel()
	x := newStand(t)
	ctx := t.Context()
	var names [3]*declock.Names
	var nodes [3]peer
	for i := range names {
		nodes[i] = x.peer()
		n, err := nodes[i].c.Names(ctx, "names", 0)
		if err != nil {
			t.Fatal(err)
		}
		names[i] = n
	}
	holder, tool, next := names[0], names[1], names[2]
	st, err := nodes[0].c.Store(ctx, "protected", declock.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := holder.Lock(ctx, "job")
	if err != nil {
		t.Fatal(err)
	}
	var list []declock.Holder
	for range 1000 {
		if list, err = tool.Break(ctx, "job"); !errors.Is(err, declock.ErrNotHeld) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err != nil || len(list) != 1 || list[0].Node != nodes[0].c.Node().Fabric().ID() || list[0].Token != g.Token() {
		t.Fatalf("broken: %+v, %v", list, err)
	}
	if err := st.Set(ctx, []byte("late"), []byte("x"), declock.SetOptions{}); err == nil {
		t.Error("the process that held the lock writes after Break has returned")
	}
	after, err := next.Lock(ctx, "job")
	if err != nil {
		t.Fatal(err)
	}
	if after.Token() <= g.Token() || !after.Recovered() {
		t.Errorf("token %v after %v, recovered: %v", after.Token(), g.Token(), after.Recovered())
	}
	select {
	case <-g.Lost():
	case <-time.After(10 * time.Second):
		t.Error("the guard is not lost")
	}
	if err := g.Unlock(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	if list, err = tool.Holders(ctx); err != nil || len(list) > 1 || len(list) == 1 && list[0].Token != after.Token() {
		t.Errorf("holders: %+v, %v", list, err)
	}
	if err := after.Unlock(); err != nil {
		t.Error(err)
	}
}

// All processes that share a lock are shut out when it is broken.
func TestBreakOfAll(t *testing.T) {
	t.Parallel()
	x := newStand(t)
	ctx := t.Context()
	names := func(p peer) *declock.Names {
		n, err := p.c.Names(ctx, "names", 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	tool := names(x.peer())
	var holders []peer
	for range 2 {
		p := x.peer()
		if _, err := names(p).RLock(ctx, "job"); err != nil {
			t.Fatal(err)
		}
		holders = append(holders, p)
	}
	for range 1000 {
		if list, err := tool.Holders(ctx); err != nil {
			t.Fatal(err)
		} else if len(list) == len(holders) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	breaking, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if list, err := tool.Break(breaking, "job"); err != nil || len(list) != len(holders) {
		t.Fatalf("broken: %+v, %v", list, err)
	}
	for i, p := range holders {
		if _, err := p.c.Store(ctx, "late", declock.StoreConfig{}); err == nil {
			t.Errorf("holder %d makes a store after Break has returned", i)
		}
	}
	g, err := tool.Lock(ctx, "job")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
}
