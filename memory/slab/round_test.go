package slab

import (
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/reclaim"
)

// A recorder is an owner that writes down what is released.
type recorder struct {
	*owner
	released []reclaim.Block
}

func (o *recorder) Release(list []reclaim.Block) error {
	o.released = append(o.released, list...)
	return o.owner.Release(list)
}

// A round is what two compute nodes do, of which b leads.
type round struct {
	*world
	a, b *hand
	user reclaim.User // of a
	oa   *owner
	ob   *recorder
}

func newRound(t *testing.T, limit uint64) *round {
	w := newWorld(t, 2)
	x := &round{world: w, a: w.hand(0, limit), b: w.hand(1, limit)}
	x.oa, x.ob = &owner{h: x.a, view: w.cn[0].View}, &recorder{owner: &owner{h: x.b, view: w.cn[1].View}}
	x.a.Member.Add(&x.user)
	return x
}

func (x *round) tendA() {
	_, err := x.a.Member.ReclaimStep(x.oa)
	x.want(err)
}

func (x *round) tendB() {
	_, err := x.b.Member.ReclaimStep(x.ob)
	x.want(err)
}

// begin begins the round: both remember what passes through their hands.
func (x *round) begin() {
	x.b.Member.Force()
	x.tendB()
	x.tendA()
	x.tendB()
}

// ask marks, publishes, and asks a, which waits for its operation if one is under way.
func (x *round) ask() {
	x.tendB()
	x.tendB()
	x.tendA()
}

// end ends the round, in which no block that a has, in its lists or in hand, may be released.
func (x *round) end(inHand ...uint64) {
	x.t.Helper()
	for range 6 {
		x.tendA()
		x.tendB()
	}
	if n := x.b.Member.Found().Rounds; n != 1 {
		x.t.Fatalf("%d rounds", n)
	}
	has := slices.Clone(inHand)
	for class := range uint8(3) {
		step := x.a.cfg.Size(class) / unit
		x.a.Each(class, func(from, to uint64) {
			for ; from < to; from += step {
				has = append(has, from)
			}
		})
	}
	for _, p := range x.ob.released {
		if slices.Contains(has, p.Off64) {
			x.t.Errorf("block %#x of a living compute node was released as garbage", p.Off64)
		}
	}
}

// A leader marks while another has taken a run and not given it a class: what has a class when the batch is answered is no garbage.
func TestRunThatGetsItsClassInARound(t *testing.T) {
	x := newRound(t, 4<<10)
	x.begin()
	do, marked := x.a.Do, false
	x.a.Do = func(ops []fabric.Op) error {
		if !marked && x.hasRun(func(r memory.Run) bool { return r.Tag == 0 }) {
			marked = true
			x.tendB() // marks and publishes
		}
		return do(ops)
	}
	item, err := x.a.Grow(&x.a.Worker, 1, 0)
	x.want(err)
	x.a.Do = do
	if !marked {
		t.Fatal("not marked in between")
	}
	x.end(Off64(item))
}

func (x *round) hasRun(is func(memory.Run) bool) (found bool) {
	p, err := x.r.Pages(x.b.Port)
	x.want(err)
	p.Runs(&x.e, func(r memory.Run) { found = found || is(r) })
	return found
}

// A leader marks, and asks, when a run of another compute node has got its class, and its blocks are in no list yet: they are no garbage.
func TestBlocksOfARunThatGetsItsClassInARound(t *testing.T) {
	x := newRound(t, 4<<10)
	x.begin()
	do, marked := x.a.Do, false
	x.a.Do = func(ops []fabric.Op) error {
		err := do(ops)
		if !marked && x.hasRun(func(r memory.Run) bool { return r.Tag != 0 }) {
			marked = true
			x.ask()
		}
		return err
	}
	x.user.Enter()
	item, err := x.a.Grow(&x.a.Worker, 1, 0)
	x.want(err)
	x.user.Exit()
	x.a.Do = do
	if !marked {
		t.Fatal("not marked in between")
	}
	x.end(Off64(item))
}

// A leader marks, and asks, when blocks are out of another's list, to be given back. The memory node refuses them, and they come into the list again: they are no garbage.
func TestBlocksKeptInARound(t *testing.T) {
	for name, keep := range map[string]func(x *round, during func()) error{
		"collected": func(x *round, during func()) error {
			got := x.a.steal(1, 0, offMask)
			during()
			return x.a.giveAll(&x.a.Worker, 1, got)
		},
		"drained": func(x *round, during func()) error {
			x.a.cfg.Free = func(w *Worker, class uint8, items []uint64) error {
				during()
				x.a.Keep(w, class, items)
				return fabric.ErrNodeDown
			}
			return x.a.GiveLists(&x.a.Worker)
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRound(t, 64<<10)
			for range 8 {
				_, err := x.a.Grow(&x.a.Worker, 1, 0)
				x.want(err)
			}
			x.begin()
			do := x.a.Do
			x.user.Enter()
			err := keep(x, func() {
				x.ask()
				x.a.Do = func(ops []fabric.Op) error { return &fabric.ChainError{Op: ops[0], Err: fabric.ErrNodeDown} }
			})
			x.a.Do = do
			x.user.Exit()
			if !fabric.Refused(err) {
				t.Fatalf("error %v", err)
			}
			x.end()
		})
	}
}

// A candidate was a run without class when it was published, and has one when it is released: it stays.
func TestReleaseOfARunThatHasAClass(t *testing.T) {
	w := newWorld(t, 1)
	a := w.hand(0, 4<<10)
	item, err := a.get(1)
	w.want(err)
	w.want(a.Release(&a.Worker, []reclaim.Block{{Off64: Off64(item), Class: reclaim.WholeRun}}))
	p, err := w.r.Pages(a.Port)
	w.want(err)
	if mine, _ := p.Owner(Off64(item)*unit, &w.e); !mine {
		t.Error("a run that is in use was given back")
	}
}
