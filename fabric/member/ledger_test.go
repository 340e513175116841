package member_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// Whatever happens in whatever order: a number is not given out again until all members have acknowledged that its node has gone;
// until then the node is live; while a memory node has gone of which not all know, none is forgotten; and states follow each other.
func TestLedger(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		l := member.NewLedger(4)
		var lost uint64
		for step := range 200 {
			before, were := l.State(), slices.Clone(l.Entries)
			act(t, r, l)
			s := l.State()
			if s.View() != l.View() {
				t.Fatalf("seed %d, step %d: view %+v of state %+v", seed, step, l.View(), *s)
			}
			if s.Revision < before.Revision || s.Revision == before.Revision && fmt.Sprint(s.CNs, s.Fencing, s.MNs) != fmt.Sprint(before.CNs, before.Fencing, before.MNs) {
				t.Fatalf("seed %d, step %d: %+v after %+v", seed, step, *s, *before)
			}
			for _, e := range were {
				switch {
				case e.Phase != member.Died || !e.IsCN() || slices.Contains(l.Entries, e):
				case unknown(l, e.Since) || memoryGone(l):
					t.Fatalf("seed %d, step %d: %+v is forgotten early", seed, step, *e)
				default:
					lost++
				}
			}
			if s.Lost != lost {
				t.Fatalf("seed %d, step %d: %d lost, %d forgotten", seed, step, s.Lost, lost)
			}
			unique(t, l)
			admitted(t, l)
		}
		settled(t, l)
	}
}

// admitted fails if a node is admitted although a node that was there before, and may still act, has not acknowledged it.
func admitted(t *testing.T, l *member.Ledger) {
	t.Helper()
	for _, e := range l.Entries {
		if e.Phase != member.Joined || !l.Admits(e.Entry) {
			continue
		}
		for _, x := range l.Entries {
			if x.Phase != member.Reserved && x.Acked < e.Entry && !(x.Gone() && x.Entry > e.Entry) {
				t.Fatalf("%+v is admitted, and %+v has not acknowledged it", *e, *x)
			}
		}
	}
}

// settled fails if an admission waits for more than the acknowledgements of all members.
func settled(t *testing.T, l *member.Ledger) {
	t.Helper()
	for range 3 { // forgetting changes the state, which is to be acknowledged again
		for _, e := range slices.Clone(l.Entries) {
			if e.Phase == member.Joined {
				l.Ack(e, l.Revision)
			}
		}
	}
	for _, e := range l.Entries {
		if e.Phase == member.Joined && !l.Admits(e.Entry) {
			t.Fatalf("all have acknowledged, and %+v is not admitted: %+v", *e, l.Entries)
		}
	}
}

// The rule of admission, case by case. A node that has gone counts until it is forgotten, or has acknowledged.
func TestAdmits(t *testing.T) {
	l := member.NewLedger(8)
	join := func() *member.Entry {
		e, err := l.ReserveCN("")
		if err != nil {
			t.Fatal(err)
		}
		l.Join(e)
		return e
	}
	mn, err := l.ReserveMN(member.MN{Size: 8})
	if err != nil {
		t.Fatal(err)
	}
	l.Join(mn)
	a, b := join(), join()
	know := func(e *member.Entry) { l.Ack(e, l.Revision) }
	want := func(e *member.Entry, yes bool, why string) {
		t.Helper()
		if l.Admits(e.Entry) != yes {
			t.Errorf("%s: admitted %v", why, !yes)
		}
	}
	know(mn)
	know(b)
	want(b, false, "a, a member, has not acknowledged")
	l.End(a, member.Died)
	want(b, false, "a has died, and the memory node does not know")
	later := join()
	know(b)
	l.End(later, member.Died)
	want(b, false, "a is not forgotten")
	know(b)
	know(mn)
	want(b, true, "a is forgotten")

	a, c := join(), b
	b = join()
	for _, e := range []*member.Entry{a, mn, b, c} {
		know(e)
	}
	l.End(a, member.Left)
	want(b, true, "a had acknowledged")
	later = join()
	l.End(later, member.Left)
	want(b, true, "a node that came later and has gone is not waited for")
	if _, err := l.ReserveCN(""); err != nil {
		t.Fatal(err)
	}
	want(b, true, "a node that has only a number is not waited for")
}

// act does something that a coordinator may do.
func act(t *testing.T, r *rand.Rand, l *member.Ledger) {
	full := l.FreeCN() == 0
	switch k := r.IntN(11); {
	case k == 10:
		id := fabric.MemID(r.IntN(2))
		epoch, up := l.Epochs[id], slices.ContainsFunc(l.Entries, func(e *member.Entry) bool { return !e.IsCN() && e.MN.ID == id })
		switch err := l.Forget(id); {
		case up != errors.Is(err, member.ErrInUse):
			t.Fatalf("forget %v, in use %v: %v", id, up, err)
		case l.Epochs[id] != epoch:
			t.Fatalf("%v was at epoch %d, and is at %d when it is forgotten", id, epoch, l.Epochs[id])
		case !up && slices.ContainsFunc(l.State().Down, func(m member.MN) bool { return m.ID == id }):
			t.Fatalf("%v is forgotten, and down", id)
		}
	case k == 0:
		if _, err := l.ReserveCN("a"); full != errors.Is(err, member.ErrFull) {
			t.Fatalf("full %v: %v", full, err)
		}
	case k == 1:
		mn := member.MN{ID: fabric.MemID(r.IntN(2)), Size: 8, Addr: "m", Epoch: uint32(r.IntN(3))}
		before := max(l.Epochs[mn.ID], mn.Epoch)
		e, err := l.ReserveMN(mn)
		if err != nil && !errors.Is(err, member.ErrInUse) || err == nil && e.MN.Epoch <= before {
			t.Fatalf("%+v after epoch %d: %v", e, before, err)
		}
	case len(l.Entries) == 0:
	default:
		e := l.Entries[r.IntN(len(l.Entries))]
		switch {
		case k < 4:
			l.Join(e)
		case k == 4:
			if e.Phase != member.Reserved || e.IsCN() { // reserved memory nodes keep their number here
				l.End(e, member.Left)
			}
		case k == 5 && e.IsCN() && e.Phase == member.Joined:
			l.End(e, member.Died)
		default:
			l.Ack(e, l.Revision-min(l.Revision, r.Uint64N(3)))
		}
	}
}

// unknown reports whether a member has not acknowledged a revision.
func unknown(l *member.Ledger, revision uint64) bool {
	return slices.ContainsFunc(l.Entries, func(e *member.Entry) bool { return e.Phase == member.Joined && e.Acked < revision })
}

func memoryGone(l *member.Ledger) bool {
	return slices.ContainsFunc(l.Entries, func(e *member.Entry) bool { return !e.IsCN() && e.Gone() })
}

// unique fails if two have the same number.
func unique(t *testing.T, l *member.Ledger) {
	t.Helper()
	var taken fabric.CNSet
	for _, e := range l.Entries {
		if e.IsCN() && taken.Has(e.CN.ID) {
			t.Fatalf("two have number %v", e.CN.ID)
		}
		taken.Add(e.CN.ID)
	}
}

// No member acknowledges what has not happened yet, and when the last member ends none is left to acknowledge that.
func TestLedgerAcknowledgements(t *testing.T) {
	l := member.NewLedger(4)
	var cn [3]*member.Entry
	for i := range cn {
		e, err := l.ReserveCN("")
		if err != nil {
			t.Fatal(err)
		}
		l.Join(e)
		cn[i] = e
	}
	l.Ack(cn[0], l.Revision+100)
	l.Ack(cn[2], l.Revision)
	l.End(cn[1], member.Died)
	l.Ack(cn[2], l.Revision)
	if !slices.Contains(l.Entries, cn[1]) {
		t.Error("a node that has died is forgotten, and a member has acknowledged it only beforehand")
	}
	l.End(cn[0], member.Died)
	if l.End(cn[2], member.Left); len(l.Entries) != 0 {
		t.Errorf("all members have ended, and %d are not forgotten", len(l.Entries))
	}
}
