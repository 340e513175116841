package member_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// moves takes a ledger through the steps of a planned move. What is to be copied is in sync at once. No number ever has fewer copies than it is to have.
func moves(t *testing.T, l *member.Ledger, next func(*member.State) (member.Step, error)) (steps []string, err error) {
	t.Helper()
	for range 100 {
		step, err := next(l.State())
		if err != nil || step.What == "" {
			return steps, err
		}
		if step.Change != nil {
			if err := l.Change(*step.Change); err != nil {
				t.Fatal(step.What, err)
			}
			steps = append(steps, step.What)
			for _, g := range l.Groups {
				synced := slices.DeleteFunc(slices.Clone(g.Replicas), func(r member.Replica) bool { return r.Phase != member.InSync })
				if len(synced) < g.Factor {
					t.Fatalf("%v has %d copies after %q", g.ID, len(synced), steps)
				}
			}
		}
		ackAll(l)
		syncAll(t, l)
	}
	t.Fatalf("it does not end: %q", steps)
	return nil, nil
}

// syncAll says that all copies are in sync.
func syncAll(t *testing.T, l *member.Ledger) {
	t.Helper()
	for _, g := range l.State().Groups {
		for _, r := range g.Replicas {
			if r.Phase == member.Copying {
				if err := l.Change(member.Change{ID: g.ID, Kind: member.Synced, Host: r.Host, Seen: l.Groups[g.ID].Changed}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	ackAll(l)
}

// whole is n memory nodes with two copies each, in sync, and room for others'.
func whole(t *testing.T, n int) (l *member.Ledger) {
	t.Helper()
	l = member.NewLedger(4)
	for id := range n {
		joinMN(t, l, member.MN{ID: fabric.MemID(id), Size: 1 << 20, Replicas: 2, Room: 3 << 20})
	}
	ackAll(l)
	syncAll(t, l)
	return l
}

// A memory node that is drained has no copy any more, and each number has its copies all the while.
func TestDrain(t *testing.T) {
	for _, n := range []int{3, 4} {
		for id := range n {
			l := whole(t, n)
			steps, err := moves(t, l, func(s *member.State) (member.Step, error) { return s.Drain(fabric.MemID(id)) })
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range l.Groups {
				if slices.Contains(hosts(l, g.ID), fabric.MemID(id)) {
					t.Errorf("mn%d of %d: %v is on %v after %q", id, n, g.ID, hosts(l, g.ID), steps)
				}
			}
			if len(steps) != 5 { // the mark, a copy and a move of its own number, a copy and a drop of the backup
				t.Errorf("mn%d of %d: %q", id, n, steps)
			}
		}
	}
	l := whole(t, 2)
	if steps, err := moves(t, l, func(s *member.State) (member.Step, error) { return s.Drain(1) }); !errors.Is(err, member.ErrNoHost) || len(steps) != 1 {
		t.Errorf("one of two: %q, %v", steps, err)
	}
	if _, err := l.State().Drain(7); !errors.Is(err, member.ErrUnknown) {
		t.Errorf("one that is not there: %v", err)
	}
}

// After a rebalance each number is served by the memory node that has joined with it, and backups are spread.
func TestRebalance(t *testing.T) {
	l := whole(t, 3)
	if _, err := moves(t, l, func(s *member.State) (member.Step, error) { return s.Drain(1) }); err != nil {
		t.Fatal(err)
	}
	joinMN(t, l, member.MN{ID: 3, Size: 1 << 20, Replicas: 2, Room: 3 << 20})
	ackAll(l)
	syncAll(t, l)
	steps, err := moves(t, l, (*member.State).Rebalance)
	if err != nil {
		t.Fatal(err)
	}
	backups := map[fabric.MemID]int{}
	for id, g := range l.Groups {
		on := hosts(l, id)
		if on[0] != id || len(on) != g.Factor {
			t.Errorf("%v is on %v after %q", id, on, steps)
		}
		for _, b := range on[1:] {
			backups[b]++
		}
	}
	for id, n := range backups {
		if n > 2 || len(backups) < 3 {
			t.Errorf("mn%d has %d backups: %v, after %q", id, n, backups, steps)
		}
	}
}

// A rebalance puts the copies of a number on memory nodes with different labels, if there are enough labels, whatever came first: where copies are at first depends on who joined when. A drain
// keeps them there.
func TestRebalanceKeepsLabelsApart(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		n, copies := 3+rnd.IntN(5), 2+rnd.IntN(2)
		labels := copies + rnd.IntN(2)
		n = max(n, labels+1)
		l := member.NewLedger(4)
		for id := range n {
			joinMN(t, l, member.MN{ID: fabric.MemID(id), Size: 1 << 20, Replicas: copies, Room: 8 << 20, Label: string(rune('a' + min(id, rnd.IntN(n))%labels))})
			ackAll(l)
			syncAll(t, l)
		}
		apart := func(what string, drained int) {
			t.Helper()
			label, distinct := map[fabric.MemID]string{}, map[string]bool{}
			for _, m := range l.State().MNs {
				if label[m.ID] = m.Label; int(m.ID) != drained {
					distinct[m.Label] = true
				}
			}
			for id := range l.Groups {
				seen := map[string]bool{}
				for _, h := range hosts(l, id) {
					seen[label[h]] = true
				}
				if len(seen) < min(copies, len(distinct)) {
					t.Errorf("seed %d, %s: %v is on %v, of labels %v", seed, what, id, hosts(l, id), label)
				}
			}
		}
		if _, err := moves(t, l, (*member.State).Rebalance); err != nil {
			t.Fatal(err)
		}
		apart("rebalanced", -1)
		id := rnd.IntN(n)
		if _, err := moves(t, l, func(s *member.State) (member.Step, error) { return s.Drain(fabric.MemID(id)) }); err == nil {
			apart("drained", id)
		}
	}
}

// A memory node that is drained gets no copies: not by the drain of another one, which may go on at the same time, nor when one fails. It gets its share by a rebalance, and when it
// joins anew, or if the drain is undone.
func TestDrainedGetsNoCopies(t *testing.T) {
	for _, back := range []string{"rebalance", "undo", "joined anew"} {
		l := whole(t, 4)
		both := func(s *member.State) (member.Step, error) {
			if step, err := s.Drain(1); err != nil || step.What != "" {
				if step.Change == nil || step.Change.Kind != member.Drain {
					if other, err := s.Drain(2); err != nil || other.Change != nil && other.Change.Kind == member.Drain {
						return other, err
					}
				}
				return step, err
			}
			return s.Drain(2)
		}
		steps, err := moves(t, l, both)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(steps, func(s string) bool { return strings.HasSuffix(s, "to mn1") || strings.HasSuffix(s, "to mn2") }) {
			t.Errorf("copies move to and fro: %q", steps)
		}
		on := func(id fabric.MemID) (n int) {
			for _, g := range l.Groups {
				if slices.Contains(hosts(l, g.ID), id) {
					n++
				}
			}
			return n
		}
		end(l, 3)
		ackAll(l)
		syncAll(t, l)
		if on(1)+on(2) > 0 {
			t.Errorf("%d and %d copies are on memory nodes that were drained", on(1), on(2))
		}
		switch back {
		case "rebalance":
			joinMN(t, l, member.MN{ID: 3, Size: 1 << 20, Replicas: 2, Room: 3 << 20}) // else there is no other place while one is moved
			ackAll(l)
			syncAll(t, l)
			_, err = moves(t, l, (*member.State).Rebalance)
		case "undo":
			var step member.Step
			if step, err = l.State().Undrain(1); err == nil {
				err = l.Change(*step.Change)
			}
		default:
			end(l, 1)
			ackAll(l)
			joinMN(t, l, member.MN{ID: 1, Size: 1 << 20, Replicas: 2, Room: 3 << 20})
			ackAll(l)
		}
		if err != nil || on(1) == 0 {
			t.Errorf("%s: %d copies, %v", back, on(1), err)
		}
	}
}

// end ends the memory node with a number.
func end(l *member.Ledger, id fabric.MemID) {
	for _, e := range slices.Clone(l.Entries) {
		if !e.IsCN() && e.MN.ID == id && e.Phase == member.Joined {
			l.End(e, member.Died)
		}
	}
}

// A planned move waits until a copy that is dropped is: it does not count, and is not promoted.
func TestMoveWaitsForADrop(t *testing.T) {
	for name, next := range map[string]func(*member.State) (member.Step, error){
		"drain": func(s *member.State) (member.Step, error) { return s.Drain(0) }, "rebalance": (*member.State).Rebalance,
	} {
		l := whole(t, 3)
		if step, err := l.State().Drain(0); name == "drain" && (err != nil || l.Change(*step.Change) != nil) {
			t.Fatal(step.What, err)
		}
		ackAll(l)
		g := l.Groups[0]
		if err := l.Change(member.Change{ID: 0, Kind: member.Drop, Host: g.Replicas[1].Host, Seen: g.Changed}); err != nil {
			t.Fatal(err)
		}
		step, err := next(l.State())
		if err != nil || step.Change != nil || !strings.Contains(step.What, "is dropped") {
			t.Errorf("%s: %q, %+v, %v", name, step.What, step.Change, err)
		}
	}
}
