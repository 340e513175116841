package declock_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/lock"
)

// What is held for long has a record, which others can read, until it is unlocked; what is held briefly has none. The record of a process that has left is of no holder.
func TestNamesHolders(t *testing.T) {
	o := shm.Options{Name: "holders", Dir: t.TempDir(), Size: 64 << 20, Sparse: true}
	m := serve(t, o)
	defer m.Close()
	ctx := t.Context()
	tool := names(t, opened(t, "holders", o.Dir), 0)
	if list, err := tool.Holders(ctx); err != nil || len(list) != 0 {
		t.Errorf("of a new table: %v, %v", list, err)
	}
	c := opened(t, "holders", o.Dir)
	x := names(t, c, 0)
	before := time.Now()
	a, err := x.Lock(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	var shared []declock.Guard
	for range 2 {
		g, err := x.RLock(ctx, "b "+strings.Repeat("x", 400)+"\x00\xff")
		if err != nil {
			t.Fatal(err)
		}
		shared = append(shared, g)
	}
	holders := func(want int) (list []declock.Holder) {
		t.Helper()
		for range 500 {
			if list, err = tool.Holders(ctx); err != nil {
				t.Fatal(err)
			}
			if len(list) == want {
				return list
			}
			if g, err := x.Lock(ctx, "brief"); err != nil || g.Unlock() != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Fatalf("holders: %+v, want %d", list, want)
		return nil
	}
	list := holders(3)
	host, _ := os.Hostname()
	h := list[0]
	if h.Name != "a" || h.Mode != declock.Exclusive || h.Node != c.Node().Fabric().ID() || h.Host != host || h.PID != os.Getpid() || h.Token != a.Token() ||
		h.Since.Before(before.Add(-time.Millisecond)) || time.Since(h.Since) < 100*time.Millisecond {
		t.Errorf("%+v", h)
	}
	if list[1].Mode != declock.Shared || !strings.HasPrefix(list[1].Name, "b xxx") || list[1].Token != shared[0].Token() {
		t.Errorf("%+v", list[1])
	}
	if err := shared[1].Unlock(); err != nil {
		t.Error(err)
	}
	if list, err = tool.Holders(ctx); err != nil || len(list) != 2 {
		t.Errorf("after Unlock: %+v, %v", list, err)
	}
	if _, err := tool.Break(ctx, "none"); !errors.Is(err, declock.ErrNotHeld) {
		t.Errorf("break of what is not held: %v", err)
	}
	if _, err := x.Break(ctx, "a"); !errors.Is(err, lock.ErrMisuse) {
		t.Errorf("break of its own: %v", err)
	}
	if err := c.Close(); !errors.Is(err, declock.ErrHeld) {
		t.Errorf("Close: %v", err)
	}
	if list, err = tool.Holders(ctx); err != nil || len(list) != 0 {
		t.Errorf("after Close: %+v, %v", list, err)
	}
}

// Two processes that share a lock have a record each, though they have joined as one another's contemporaries: the record of one goes with its own hold.
func TestHoldersInCommon(t *testing.T) {
	o := shm.Options{Name: "incommon", Dir: t.TempDir(), Size: 64 << 20, Sparse: true}
	m := serve(t, o)
	defer m.Close()
	ctx := t.Context()
	tool := names(t, opened(t, "incommon", o.Dir), 0)
	var guards []declock.Guard
	for range 2 {
		g, err := names(t, opened(t, "incommon", o.Dir), 0).RLock(ctx, "s")
		if err != nil {
			t.Fatal(err)
		}
		guards = append(guards, g)
	}
	for i, want := range []int{2, 1, 0} {
		if i > 0 {
			if err := guards[i-1].Unlock(); err != nil {
				t.Fatal(err)
			}
		}
		var list []declock.Holder
		for range 1000 {
			var err error
			if list, err = tool.Holders(ctx); err != nil {
				t.Fatal(err)
			}
			if len(list) == want {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		if len(list) != want {
			t.Fatalf("holders after %d were released: %+v", i, list)
		}
	}
}

// While a memory node is down that has some of the records, those of the others are there, with an error that says so: whichever memory node that is.
func TestHoldersWhileANodeIsDown(t *testing.T) {
	for mn := range fabric.MemID(2) {
		two := twoNodes(t, true)
		x := names(t, two.open(), 0)
		const held = 20 // on both
		for i := range held {
			if _, err := x.Lock(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		await := func(ok func(n int, err error) bool) {
			t.Helper()
			for until := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
				list, err := x.Holders(t.Context())
				if ok(len(list), err) {
					return
				}
				if time.Now().After(until) {
					t.Fatalf("%d holders, %v", len(list), err)
				}
			}
		}
		await(func(n int, err error) bool { return n == held && err == nil })
		two.stop(mn)
		await(func(n int, err error) bool { return 0 < n && n < held && errors.Is(err, fabric.ErrNodeDown) })
	}
}
