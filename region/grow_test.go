package region_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/region"
)

// A stepPort calls between before its k-th operation, once. If that returns false, its compute node is dead from there on.
type stepPort struct {
	fabric.Port
	k       int
	between func() bool
	dead    bool
	reached bool
}

var errDead = errors.New("dead")

func (p *stepPort) Do(ops []fabric.Op) error {
	for i := range ops {
		if p.k == 0 {
			p.reached = true
			p.dead = !p.between()
		}
		p.k--
		if p.dead {
			return errDead
		}
		if err := p.Port.Do(ops[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}

// A heap is a region with a store's list of extents, and all that clients have got of it.
type heap struct {
	t    *testing.T
	p    fabric.Port
	r    *region.Region
	e    region.Entry
	got  map[fabric.Addr]uint64 // sizes
	base uint64                 // brk at first
}

func newHeap(t *testing.T) *heap {
	_, r, p := formatted(t)
	e, _, err := r.Create(p, region.Spec{Name: "s", Kind: region.KindStore, Size: 4096})
	want(t, err, nil)
	used, err := r.Used(p)
	want(t, err, nil)
	return &heap{t: t, p: p, r: r, e: e, got: map[fabric.Addr]uint64{}, base: used}
}

// grow takes an extent, and then memory for nobody's list. A caller that dies has nothing.
func (h *heap) grow(p fabric.Port, size uint64) {
	h.t.Helper()
	a, err := h.r.Grow(p, &h.e, region.Growth{Size: size})
	if err == nil {
		if h.got[a] != 0 {
			h.t.Errorf("%v is given out twice", a)
		}
		h.got[a] = size
	}
	if err == nil || !errors.Is(err, errDead) {
		want(h.t, err, nil)
	}
}

// check reads the list: what clients have got is in it, its extents lie side by side, and brk has moved for nothing else.
func (h *heap) check(what string, args ...any) {
	h.t.Helper()
	want(h.t, h.r.Settle(h.p), nil)
	b := h.p.Alloc(region.ExtentHeader)
	defer h.p.Free(b)
	head := []fabric.Op{fabric.Load(h.e.Addr.Add(region.StoreExtents))}
	want(h.t, h.p.Do(head), nil)
	var sum uint64
	found, mine := 0, 0
	for at, end := head[0].Old, uint64(0); at != 0 && found < 100; {
		want(h.t, h.p.Do([]fabric.Op{fabric.Read(fabric.At(h.r.Memory(), at), b)}), nil)
		x, err := region.DecodeExtent(b, at, h.r.Size())
		want(h.t, err, nil)
		found++
		if size, ok := h.got[fabric.At(h.r.Memory(), at)]; ok {
			mine++
			if size != x.Size {
				h.t.Errorf("extent at %#x has %d bytes, not %d", at, x.Size, size)
			}
		}
		if end != 0 && at+x.Size != end {
			h.t.Errorf("extent at %#x ends at %#x, the next begins at %#x", at, at+x.Size, end)
		}
		sum += x.Size
		at, end = x.Next, at
	}
	used, err := h.r.Used(h.p)
	want(h.t, err, nil)
	if mine != len(h.got) || sum != used-h.base {
		h.t.Errorf("%d of %d extents are in the list; all there have %d bytes, %d were taken", mine, len(h.got), sum, used-h.base)
	}
	if h.t.Failed() {
		h.t.Fatalf(what, args...)
	}
}

// Three who take extents at once, each stopped at every operation while the next one takes his: the second at every
// operation of his while the third does. The first and the second go on, or are dead from there on. Nothing is lost, nothing given out twice.
func TestGrowStoppedEverywhere(t *testing.T) {
	runs := 0
	for _, dies := range []struct{ first, second bool }{{}, {first: true}, {second: true}, {first: true, second: true}} {
		for k := 0; ; k++ {
			reached := false
			for j := 0; ; j++ {
				h := newHeap(t)
				second := &stepPort{Port: h.p, k: j}
				second.between = func() bool { h.grow(h.p, 192); return !dies.second }
				first := &stepPort{Port: h.p, k: k}
				first.between = func() bool {
					h.grow(second, 128)
					h.grow(h.p, 64)
					return !dies.first
				}
				h.grow(first, 256)
				runs++
				h.check("dies %+v: first stopped at %d, second at %d", dies, k, j)
				reached = first.reached
				if !second.reached {
					break
				}
			}
			if !reached {
				break
			}
		}
	}
	if t.Logf("%d runs", runs); runs < 100 {
		t.Error("that is too few")
	}
}

// The limit of a list holds also among those who take at once.
func TestGrowLimit(t *testing.T) {
	h := newHeap(t)
	for k := range 40 {
		p := &stepPort{Port: h.p, k: k, between: func() bool {
			_, err := h.r.Grow(h.p, &h.e, region.Growth{Size: 64, Limit: 1024})
			return err == nil || errors.Is(err, region.ErrNoSpace)
		}}
		_, err := h.r.Grow(p, &h.e, region.Growth{Size: 64, Limit: 1024})
		if err != nil && !errors.Is(err, region.ErrNoSpace) {
			t.Fatal(err)
		}
	}
	used, err := h.r.Used(h.p)
	want(t, err, nil)
	if used-h.base != 1024 {
		t.Errorf("%d bytes are taken, with a limit of 1024", used-h.base)
	}
}

func TestGrowRefuses(t *testing.T) {
	h := newHeap(t)
	for _, g := range []region.Growth{{Size: 0}, {Size: 100}, {Size: 32}} {
		if _, err := h.r.Grow(h.p, &h.e, g); err == nil {
			t.Errorf("%+v accepted", g)
		}
	}
	_, err := h.r.Grow(h.p, &h.e, region.Growth{Size: memory})
	want(t, err, region.ErrNoSpace)
	_, err = h.r.Grow(h.p, &h.e, region.Growth{Size: 64, End: h.base})
	want(t, err, region.ErrNoSpace)
	locks, _, err := h.r.Create(h.p, region.Spec{Name: "l", Kind: region.KindLocks, Size: 64})
	want(t, err, nil)
	if _, err := h.r.Grow(h.p, &locks, region.Growth{Size: 64}); err == nil {
		t.Error("locks have got an extent")
	}
}
