package slab

import (
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/region"
	"github.com/declock/declock/region/sweep"
)

// A recorder is an owner that writes down what is released.
type recorder struct {
	*owner
	released []sweep.Piece
}

func (o *recorder) Release(list []sweep.Piece) error {
	o.released = append(o.released, list...)
	return o.owner.Release(list)
}

// A leader marks while another has taken a run and not given it a class: what has a class when the batch is answered is no garbage.
func TestRunThatGetsItsClassInARound(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.hand(0, 4<<10), w.hand(1, 4<<10)
	oa, ob := &owner{h: a, view: w.cn[0].View}, &recorder{owner: &owner{h: b, view: w.cn[1].View}}
	tend := func(h *hand, o sweep.Owner) {
		_, err := h.Member.Tend(o)
		w.want(err)
	}
	b.Member.Force()
	tend(b, ob) // begins a round
	tend(a, oa)
	tend(b, ob)
	do, marked := a.Do, false
	a.Do = func(ops []fabric.Op) error {
		p, err := w.r.Pages(b.Port)
		w.want(err)
		p.Runs(&w.e, func(x region.Run) {
			if x.Tag == 0 && !marked {
				marked = true
				tend(b, ob) // marks and publishes
			}
		})
		return do(ops)
	}
	item, err := a.Grow(&a.Worker, 1, 0)
	w.want(err)
	a.Do = do
	for range 6 {
		tend(a, oa)
		tend(b, ob)
	}
	if n := b.Member.Found().Rounds; !marked || n != 1 {
		t.Fatalf("marked in between: %v, %d rounds", marked, n)
	}
	if slices.ContainsFunc(ob.released, func(p sweep.Piece) bool { return p.Off64 == Off64(item) }) {
		t.Errorf("released %v, with the run of %#x", ob.released, item)
	}
}

// A candidate was a run without class when it was published, and has one when it is released: it stays.
func TestReleaseOfARunThatHasAClass(t *testing.T) {
	w := newWorld(t, 1)
	a := w.hand(0, 4<<10)
	item, err := a.get(1)
	w.want(err)
	w.want(a.Release(&a.Worker, []sweep.Piece{{Off64: Off64(item), Class: sweep.WholeRun}}))
	p, err := w.r.Pages(a.Port)
	w.want(err)
	if mine, _ := p.Owner(Off64(item)*unit, &w.e); !mine {
		t.Error("a run that is in use was given back")
	}
}
