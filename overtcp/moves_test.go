package overtcp_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// move makes planned moves, as "declock mn" does.
func (x *replicas) move(next func(*member.State) (member.Step, error)) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
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
	x := newReplicas(t)
	h := &history{t: t, holds: map[lock.Token]bool{}, first: make(chan time.Time, 1)}
	stop := h.work(x, 2)
	x.restartAll()
	stop()
	if t.Logf("%d grants, %d holds lost", h.granted, h.lost); h.granted == 0 {
		t.Error("nothing was granted")
	}
}

// The same of stores: nothing is lost. An operation fails only if it is a change of which a write to a backup was under way when that was promoted: its outcome is unknown.
func TestStoreRollingRestart(t *testing.T) {
	x := newReplicas(t)
	l := newStoreLoad(x)
	l.begin()
	x.restartAll()
	ops := l.end()
	t.Logf("%d operations, %d of unknown outcome", len(ops), l.failed)
	for i := range ops {
		if o := &ops[i]; o.Err != "" && (!o.changes() || !strings.Contains(o.Err, fabric.ErrUnknownOutcome.Error())) {
			t.Errorf("%s: %s", o.Op, o.Err)
		}
	}
}

// A number whose copies are all lost is abandoned, and begins anew with empty memory in a later term.
func TestAbandon(t *testing.T) {
	x := newReplicas(t)
	g := x.whole().Group(0)
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
	x := newReplicas(t)
	c := x.open()
	for round := range 3 {
		g := x.whole().Group(fabric.MemID(round))
		kill(t, x.mns[g.Replicas[0].ID])

		name := fmt.Sprint("made", round)
		st, err := c.Store(t.Context(), name, objstore.Config{Objects: 100})
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
