package memory_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// A crashing is a slow Port whose compute node crashes after the chain that comes next.
type crashing struct {
	slow
	crash func()
}

// Under implements fabric.Under.
func (p crashing) Under() fabric.Port { return p.slow.Port }

// Do implements fabric.Port.
func (p crashing) Do(ops []fabric.Op) error {
	err := p.slow.Do(ops)
	p.after()
	return err
}

// Wait implements fabric.Port.
func (p crashing) Wait(x fabric.Pending) error {
	err := p.slow.Wait(x)
	p.after()
	return err
}

func (p crashing) after() {
	if *p.left == -2 {
		p.crash()
	}
}

// late has a name dropped, and another made of its memory, on one compute node, which stands still for a millisecond after chain j; meanwhile another compute node does what is
// given, stands still after chain k, and crashes after the next. Then the backup is promoted: it has the name. It reports whether there are as many chains.
func (w *replicated) late(j, k int, next string, do func(p fabric.Port, x *memory.Entry)) (more, all bool) {
	x := w.locks(open(w.t, w.nodes[0]), "x")
	var made memory.Entry
	w.c.Go(w.nodes[0], "drop", func(p fabric.Port) {
		p = slow{p, &j}
		want(w.t, w.r.Retire(p, &x), nil)
		var err error
		made, _, err = w.r.Create(p, memory.Spec{Name: next, Kind: memory.KindLocks, Size: 3000, Reuse: always})
		want(w.t, err, nil)
	})
	w.c.Go(w.nodes[1], "late", func(p fabric.Port) {
		_ = p.Pause(p.Now() + fabric.Millisecond/2)
		do(crashing{slow{p, &k}, func() { w.c.Kill(w.nodes[1]) }}, &x)
	})
	want(w.t, w.c.Run(), nil)
	want(w.t, w.c.Promote(w.mn), nil)
	w.c.Go(w.nodes[0], "look", func(p fabric.Port) {
		w.attach(p, w.nodes[0])
		if e, err := w.r.Lookup(p, next, memory.KindLocks); err != nil || e.Addr != made.Addr {
			w.t.Errorf("%q is at %v, was made at %v: %v", next, e.Addr, made.Addr, err)
		}
	})
	want(w.t, w.c.Run(), nil)
	return k < 0, j < 0
}

// everyLate is late with each j and k.
func everyLate(t *testing.T, next string, do func(w *replicated, p fabric.Port, x *memory.Entry)) {
	for j, all := 0, true; all; j++ {
		for k, more := 0, true; more; k++ {
			w := newReplicated(t, 2)
			more, all = w.late(j, k, next, func(p fabric.Port, x *memory.Entry) { do(w, p, x) })
			if t.Failed() {
				t.Fatalf("after chains %d and %d", j, k)
			}
		}
	}
}

// A name that is dropped and made again of the same memory is not taken from a backup by a client that levels the entry late: the state of before never comes back.
func TestLateLevelTakesNoNameAway(t *testing.T) {
	everyLate(t, "x", func(w *replicated, p fabric.Port, _ *memory.Entry) {
		_ = w.r.LevelEntry(p, 0)
	})
}

// What an entry was is not written over what it is by a client that settles it late.
func TestLateSettleTakesNoNameAway(t *testing.T) {
	everyLate(t, "y", func(w *replicated, p fabric.Port, x *memory.Entry) { _ = w.r.Settle(p, x) })
}

// An entry of a name that was dropped, and whose memory has another name now, retires nothing.
func TestRetireOfBeforeReuse(t *testing.T) {
	_, r, p := formatted(t)
	s := memory.Spec{Name: "a", Kind: memory.KindLocks, Size: 5000, Reuse: always}
	a, _, err := r.Create(p, s)
	want(t, err, nil)
	want(t, r.Retire(p, &a), nil)
	s.Name = "b"
	b, _, err := r.Create(p, s)
	if want(t, err, nil); b.Addr != a.Addr {
		t.Fatalf("at %v, was at %v", b.Addr, a.Addr)
	}
	want(t, r.Retire(p, &a), memory.ErrRemoved)
	if e, err := r.Lookup(p, "b", memory.KindLocks); err != nil || e.Addr != b.Addr {
		t.Errorf("%+v, %v", e, err)
	}
	want(t, r.Retire(p, &b), nil)
}

// A disturbed is a Port on which something happens before each chain to a backup.
type disturbed struct {
	fabric.Port
	fabric.Replicator
	before func(g *fabric.Replicas, ops []fabric.Op)
}

// PostBackup implements fabric.Replicator.
func (p *disturbed) PostBackup(g *fabric.Replicas, i int, ops []fabric.Op) (fabric.Pending, error) {
	p.before(g, ops)
	return p.Replicator.PostBackup(g, i, ops)
}

// An entry is published at a backup to which a client that stood still has given the state before the claim again: a claim that is withdrawn may come back.
func TestPublishOverAStateOfBefore(t *testing.T) {
	w := newReplicated(t, 2)
	p := open(t, w.nodes[0])
	x := w.locks(p, "x")
	want(t, w.r.Retire(p, &x), nil)
	kept, rep := w.c.PeekWord(w.r.At(memory.DirectoryOffset)), fabric.ReplicatorOf(p)
	_, _, err := w.r.Create(&disturbed{p, rep, func(g *fabric.Replicas, ops []fabric.Op) {
		if len(ops) != 2 || ops[1].Kind != fabric.OpCAS || kept == 0 {
			return // it does not publish
		}
		post, err := rep.PostBackup(g, 0, []fabric.Op{fabric.Store(ops[1].Addr, kept)})
		want(t, err, nil)
		want(t, p.Wait(post), nil)
		kept = 0
	}}, memory.Spec{Name: "y", Kind: memory.KindLocks, Size: 3000, Reuse: always})
	want(t, err, nil)
	want(t, w.c.Promote(w.mn), nil)
	w.attach(p, w.nodes[0])
	e, err := w.r.Lookup(p, "y", memory.KindLocks)
	if want(t, err, nil); e.Addr != x.Addr {
		t.Errorf("%+v", e)
	}
}

// A client settles an entry at a new backup, which lacks it, and stands still; meanwhile its memory gets another name. In the end the backup has what the entry is.
func TestSettleWhatChanges(t *testing.T) {
	w := newReplicated(t, 2)
	p, other := open(t, w.nodes[0]), open(t, w.nodes[1])
	x := w.locks(p, "x")
	w.anew(p)
	changed := false
	slow := &disturbed{p, fabric.ReplicatorOf(p), func(_ *fabric.Replicas, ops []fabric.Op) {
		if ops[0].Kind == fabric.OpWrite && !changed {
			changed = true
			want(t, w.r.Retire(other, &x), nil)
			_, _, err := w.r.Create(other, memory.Spec{Name: "y", Kind: memory.KindLocks, Size: 3000, Reuse: always})
			want(t, err, nil)
		}
	}}
	want(t, w.r.Settle(slow, &x), nil)
	want(t, w.c.Promote(w.mn), nil)
	w.attach(p, w.nodes[0])
	e, err := w.r.Lookup(p, "y", memory.KindLocks)
	if want(t, err, nil); e.Addr != x.Addr || !changed {
		t.Errorf("%+v", e)
	}
}

// A stopped is a slow Port that is interrupted after one of its chains.
type stopped struct{ slow }

// Do implements fabric.Port.
func (p stopped) Do(ops []fabric.Op) error {
	if *p.left < 0 {
		return fabric.ErrInterrupted
	}
	*p.left--
	return p.Port.Do(ops)
}

// Wait implements fabric.Port.
func (p stopped) Wait(x fabric.Pending) error {
	err := p.Port.Wait(x)
	if *p.left < 0 {
		return fabric.ErrInterrupted
	}
	*p.left--
	return err
}

// A name whose Drop was interrupted after any of its chains, and done again by another client, does not come back when a backup serves.
func TestDropThatIsDoneAgain(t *testing.T) {
	for k, all := 0, false; !all; k++ {
		w := newReplicated(t, 2)
		w.locks(open(t, w.nodes[0]), "x")
		among, left := []fabric.MemID{w.mn}, k
		err := memory.Drop(stopped{slow{open(t, w.nodes[0]), &left}}, among, "x", memory.KindLocks)
		if all = err == nil; !all {
			if err = memory.Drop(open(t, w.nodes[1]), among, "x", memory.KindLocks); !errors.Is(err, memory.ErrNotFound) {
				want(t, err, nil)
			}
		}
		want(t, w.c.Promote(w.mn), nil)
		p := open(t, w.nodes[1])
		w.attach(p, w.nodes[1])
		if _, err := w.r.Lookup(p, "x", memory.KindLocks); !errors.Is(err, memory.ErrNotFound) {
			t.Errorf("interrupted after chain %d, and done again: %v", k, err)
		}
	}
}
