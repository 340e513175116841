package memory_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// A backup is promoted after each chain of a client that levels a word, and attaches by itself: if the client hears that it is done, what serves then has the word.
func TestLevelOverAPromotion(t *testing.T) {
	for factor := 2; factor <= 3; factor++ {
		for k, left := 0, -1; left < 0 && !t.Failed(); k++ {
			w := newReplicated(t, factor)
			p, a := open(t, w.nodes[0]), w.r.At(size-8)
			want(t, p.Do([]fabric.Op{fabric.CAS(a, 0, 1)}), nil)
			left = k
			err := w.r.Level(again{p, w, w.nodes[0], &left}, a, 1)
			if err == nil && w.c.PeekWord(a) != 1 {
				t.Errorf("%d replicas, promoted after chain %d: it is levelled, and what serves does not have it", factor, k)
			}
			if err != nil && left >= 0 {
				t.Error(factor, k, err)
			}
		}
	}
}

// A silent is a Port on which a backup does not answer.
type silent struct {
	fabric.Port
	fabric.Replicator
	backup int
}

// PostBackup implements fabric.Replicator.
func (p *silent) PostBackup(g *fabric.Replicas, i int, ops []fabric.Op) (fabric.Pending, error) {
	if i == p.backup {
		return 0, fabric.ErrNodeDown
	}
	return p.Replicator.PostBackup(g, i, ops)
}

// The page table is levelled whichever backup differs, and one that does not answer is said to have missed it, and is a backup still.
func TestLevelPages(t *testing.T) {
	for i := range 2 {
		w := newReplicated(t, 3)
		p := open(t, w.nodes[0])
		rep := fabric.ReplicatorOf(p)
		g, err := rep.Replicas(w.mn)
		want(t, err, nil)
		post, err := rep.PostBackup(&g, i, []fabric.Op{fabric.Store(w.r.At(w.r.TableOffset()+8*900), 1<<41)})
		want(t, err, nil)
		want(t, p.Wait(post), nil)
		missed, err := w.r.LevelPages(p)
		if want(t, err, nil); missed {
			t.Error("a backup that is there is said to have missed it")
		}
		w.compare("levelled")
		missed, err = w.r.LevelPages(&silent{p, rep, i})
		if want(t, err, nil); !missed {
			t.Errorf("backup %d does not answer, and has missed nothing", i)
		}
		if n := len(w.c.Group(w.mn).Replicas); n != 3 {
			t.Errorf("%d replicas", n)
		}
	}
}

// One client stands still when it has begun to give back the memory of what has been dropped, another does the rest, and is stopped after each of its chains; then the backup is promoted. What may be in use
// there still has all of its memory.
func TestGivenBackOverAPromotion(t *testing.T) {
	unused := func(*memory.Entry) (bool, error) { return false, nil }
	for j, all := 0, true; all; j++ {
		for k, more := 0, true; more; k++ {
			w := newReplicated(t, 2)
			p, other := open(t, w.nodes[0]), open(t, w.nodes[1])
			e, _, err := w.r.Create(p, memory.Spec{Name: "s", Kind: memory.KindStore, Size: 4096, Info: memory.Info{1 << 48}})
			want(t, err, nil)
			want(t, w.r.Retire(p, &e), nil)
			first, second := j, k
			one := w.r.Free(stopped{slow{p, &first}}, &e)
			two := memory.FreeRetired(stopped{slow{other, &second}}, []fabric.MemID{w.mn}, whole, unused, nil)
			for _, err := range []error{one, two} {
				if err != nil {
					want(t, err, fabric.ErrInterrupted)
				}
			}
			all, more = one != nil, two != nil
			want(t, w.c.Promote(w.mn), nil)
			w.attach(p, w.nodes[0])
			pages, err := w.r.Pages(p)
			want(t, err, nil)
			if err := w.r.Kept(p, &e); err == nil && pages.Owned(&e) < e.Length {
				t.Fatalf("stopped after chains %d and %d: it is kept, and has %d bytes", j, k, pages.Owned(&e))
			} else if err != nil && !errors.Is(err, memory.ErrRemoved) {
				t.Fatal(err)
			}
		}
	}
}
