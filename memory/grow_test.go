package memory_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
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

// A heap is a region with a store's runs, and all that clients have got of them.
type heap struct {
	t    *testing.T
	p    fabric.Port
	r    *memory.Region
	e    memory.Entry
	got  map[uint64]memory.Run
	base uint64 // used at first
}

func newHeap(t *testing.T) *heap {
	_, r, p := formatted(t)
	e, _, err := r.Create(p, memory.Spec{Name: "s", Kind: memory.KindStore, Size: 4096})
	want(t, err, nil)
	used, err := r.Used(p)
	want(t, err, nil)
	return &heap{t: t, p: p, r: r, e: e, got: map[uint64]memory.Run{}, base: used}
}

// grow takes a run. A caller that crashes has nothing.
func (h *heap) grow(p fabric.Port, pages uint64) {
	h.t.Helper()
	x, err := h.r.Grow(p, &h.e, memory.Growth{Size: pages * h.r.PageSize()})
	if err == nil {
		if _, ok := h.got[x.Off]; ok {
			h.t.Errorf("%#x is given out twice", x.Off)
		}
		h.got[x.Off] = x
	}
	if err == nil || !errors.Is(err, errDead) {
		want(h.t, err, nil)
	}
}

// shrink gives back some run that a client has. Of a caller that crashes no client has it any more, and it is free or not.
func (h *heap) shrink(p fabric.Port) {
	h.t.Helper()
	for off, x := range h.got {
		delete(h.got, off)
		if err := h.r.Shrink(p, &h.e, x); !errors.Is(err, errDead) {
			want(h.t, err, nil)
		}
		return
	}
}

// check reads the page table: what clients have got is there, runs do not overlap, and nothing is missing.
func (h *heap) check(what string, args ...any) {
	h.t.Helper()
	pages, err := h.r.Pages(h.p)
	want(h.t, err, nil)
	var sum, end uint64
	mine := 0
	pages.Runs(&h.e, func(x memory.Run) {
		if y, ok := h.got[x.Off]; ok {
			if mine++; x != y {
				h.t.Errorf("run is %+v, was %+v", x, y)
			}
		}
		if x.Off < end {
			h.t.Errorf("run at %#x begins before %#x", x.Off, end)
		}
		end = x.Off + x.Size
		sum += x.Size
	})
	used, err := h.r.Used(h.p)
	want(h.t, err, nil)
	if mine != len(h.got) || sum != used-h.base || pages.Free() != h.r.Size()-used {
		h.t.Errorf("%d of %d runs are there; all there have %d bytes, %d were taken, %d are free", mine, len(h.got), sum, used-h.base, pages.Free())
	}
	if h.t.Failed() {
		h.t.Fatalf(what, args...)
	}
}

// Three who take runs and give them back at once, each stopped at every operation while the next one does: the second at every
// operation of its own while the third does. The first and the second go on, or have crashed there. Nothing is lost, nothing given out twice.
func TestGrowStoppedEverywhere(t *testing.T) {
	runs := 0
	for _, crashes := range []struct{ first, second bool }{{}, {first: true}, {second: true}, {first: true, second: true}} {
		for k := 0; ; k++ {
			reached := false
			for j := 0; ; j++ {
				h := newHeap(t)
				h.grow(h.p, 2)
				second := &stepPort{Port: h.p, k: j}
				second.between = func() bool { h.grow(h.p, 3); h.shrink(h.p); return !crashes.second }
				first := &stepPort{Port: h.p, k: k}
				first.between = func() bool {
					h.grow(second, 2)
					h.shrink(second)
					h.grow(h.p, 1)
					return !crashes.first
				}
				h.grow(first, 4)
				h.shrink(first)
				runs++
				h.check("crashes %+v: first stopped at %d, second at %d", crashes, k, j)
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

// A limit and a reserve hold also among those who take at once.
func TestGrowLimit(t *testing.T) {
	h := newHeap(t)
	page := h.r.PageSize()
	for k := range 40 {
		g := memory.Growth{Size: page, Limit: 16 * page}
		p := &stepPort{Port: h.p, k: k, between: func() bool {
			_, err := h.r.Grow(h.p, &h.e, g)
			return err == nil || errors.Is(err, memory.ErrNoSpace)
		}}
		_, err := h.r.Grow(p, &h.e, g)
		if err != nil && !errors.Is(err, memory.ErrNoSpace) {
			t.Fatal(err)
		}
	}
	used, err := h.r.Used(h.p)
	want(t, err, nil)
	if used-h.base != 16*page {
		t.Errorf("%d bytes are taken, with a limit of %d", used-h.base, 16*page)
	}
	for err == nil {
		_, err = h.r.Grow(h.p, &h.e, memory.Growth{Size: page, Reserve: 5 * page})
	}
	want(t, err, memory.ErrNoSpace)
	if used, _ = h.r.Used(h.p); h.r.Size()-used != 5*page {
		t.Errorf("%d bytes are left, with a reserve of %d", h.r.Size()-used, 5*page)
	}
}

// A client that is stopped at every operation while another takes a run does not read the whole table again; it does if there were two, or if long ago.
func TestGrowFollowsAChange(t *testing.T) {
	for _, x := range []struct {
		name        string
		runs, reads int
		pause       fabric.Time
	}{{"one", 1, 1, 0}, {"two", 2, 2, 0}, {"long ago", 1, 2, 2 * fabric.Second}} {
		t.Run(x.name, func(t *testing.T) {
			most := 0
			for k := 0; ; k++ {
				h := newHeap(t)
				h.grow(h.p, 2)
				table := &tablePort{Port: h.p, least: int(h.r.Size()/h.r.PageSize()) * 8}
				p := &stepPort{Port: table, k: k, between: func() bool {
					for range x.runs {
						h.grow(h.p, 3)
					}
					want(t, h.p.Pause(h.p.Now()+x.pause), nil)
					return true
				}}
				h.grow(p, 4)
				h.check("stopped at %d", k)
				most = max(most, table.reads)
				if !p.reached {
					break
				}
			}
			if most != x.reads {
				t.Errorf("the table was read %d times, want %d", most, x.reads)
			}
		})
	}
}

// What is kept at the end of the region stays in one piece, however runs come and go before it: it can be had whole, and by the first runs of an entry.
func TestKeepIsInOnePiece(t *testing.T) {
	h := newHeap(t)
	page := h.r.PageSize()
	keep := 8 * page
	g := memory.Growth{Size: page, Reserve: keep, Keep: keep}
	var runs []memory.Run
	for {
		x, err := h.r.Grow(h.p, &h.e, g)
		if err != nil {
			want(t, err, memory.ErrNoSpace)
			break
		}
		runs = append(runs, x)
	}
	for i := 1; i < 16; i += 2 {
		want(t, h.r.Shrink(h.p, &h.e, runs[i]), nil)
	}
	g.Size = 2 * page
	for _, g.High = range []bool{false, true} {
		if x, err := h.r.Grow(h.p, &h.e, g); !errors.Is(err, memory.ErrNoSpace) {
			t.Errorf("%+v of what is kept, %v", x, err)
		}
	}
	_, _, err := h.r.Create(h.p, memory.Spec{Name: "later", Kind: memory.KindStore, Size: keep - 2*page})
	want(t, err, nil)
	for range 8 { // what is free before it comes first
		x, err := h.r.Grow(h.p, &h.e, memory.Growth{Size: page})
		if want(t, err, nil); x.Off >= h.r.Size()-keep {
			t.Errorf("a page at %#x, while others are free before what is kept", x.Off)
		}
	}
}

// A tablePort counts READs of the page table.
type tablePort struct {
	fabric.Port
	least, reads int
}

func (p *tablePort) Do(ops []fabric.Op) error {
	for i := range ops {
		if ops[i].Kind == fabric.OpRead && len(ops[i].Buf) >= p.least {
			p.reads++
		}
	}
	return p.Port.Do(ops)
}

func TestGrowRefuses(t *testing.T) {
	h := newHeap(t)
	if _, err := h.r.Grow(h.p, &h.e, memory.Growth{}); err == nil {
		t.Error("a run of no bytes")
	}
	for _, g := range []memory.Growth{{Size: size}, {Size: ^uint64(0)}, {Size: 64, End: h.e.Addr.Offset()}} {
		_, err := h.r.Grow(h.p, &h.e, g)
		want(t, err, memory.ErrNoSpace)
	}
	x, err := h.r.Grow(h.p, &h.e, memory.Growth{Size: 1})
	want(t, err, nil)
	want(t, h.r.Shrink(h.p, &h.e, x), nil)
	want(t, h.r.Shrink(h.p, &h.e, x), memory.ErrRun)
	want(t, remove(h.p, h.r, "s", memory.KindStore), nil)
	_, err = h.r.Grow(h.p, &h.e, memory.Growth{Size: 1})
	want(t, err, memory.ErrRemoved)
}

// A client that removes an entry is stopped at every operation while another takes a run for it; then it crashes or goes on. The entry's memory
// is free as a whole when the next entry is made, and that has zeros.
func TestRemoveStoppedEverywhere(t *testing.T) {
	for _, crashes := range []bool{false, true} {
		for k := 0; ; k++ {
			h := newHeap(t)
			h.grow(h.p, 3)
			b := h.p.Alloc(64)
			for i := range b {
				b[i] = 0xa5
			}
			want(t, h.p.Do([]fabric.Op{fabric.Write(h.e.Addr, b)}), nil)
			p := &stepPort{Port: h.p, k: k, between: func() bool {
				if _, err := h.r.Grow(h.p, &h.e, memory.Growth{Size: 1}); err != nil {
					want(t, err, memory.ErrRemoved)
				}
				return !crashes
			}}
			err := remove(p, h.r, "s", memory.KindStore)
			if !errors.Is(err, errDead) {
				want(t, err, nil)
			}
			if err := remove(h.p, h.r, "s", memory.KindStore); err != nil {
				want(t, err, memory.ErrNotFound)
			}
			unused := func(*memory.Entry) (bool, error) { return false, nil }
			want(t, memory.FreeRetired(h.p, []fabric.MemID{h.r.Memory()}, whole, unused, nil), nil)
			e, _, err := h.r.Create(h.p, memory.Spec{Name: "s", Kind: memory.KindStore, Size: 4096})
			want(t, err, nil)
			want(t, h.p.Do([]fabric.Op{fabric.Read(e.Addr, b)}), nil)
			for _, x := range b {
				if x != 0 {
					t.Fatalf("stopped at %d: the next entry begins with %x", k, b)
				}
			}
			if used, err := h.r.Used(h.p); err != nil || used != h.base {
				t.Fatalf("stopped at %d, crashes %v: %d bytes are used, %d with an empty store: %v", k, crashes, used, h.base, err)
			}
			if !p.reached {
				break
			}
		}
	}
}

// A Drop stands still before any of its chains, while another drops the same, and the memory is given back and becomes another's: it writes nothing there.
func TestDropWritesNothingToMemory(t *testing.T) {
	for k := 0; ; k++ {
		h := newHeap(t)
		among := []fabric.MemID{h.r.Memory()}
		a5 := bytes.Repeat([]byte{0xa5}, int(h.e.Length))
		var other memory.Entry
		p := &stepPort{Port: h.p, k: k, between: func() bool {
			want(t, memory.Drop(h.p, among, "s", memory.KindStore), nil)
			unused := func(*memory.Entry) (bool, error) { return false, nil }
			want(t, memory.FreeRetired(h.p, among, whole, unused, nil), nil)
			var err error
			other, _, err = h.r.Create(h.p, memory.Spec{Name: "other", Kind: memory.KindStore, Size: h.e.Length})
			want(t, err, nil)
			if other.Addr != h.e.Addr {
				t.Fatalf("the other has memory at %v, want %v", other.Addr, h.e.Addr)
			}
			b := h.p.Alloc(len(a5))
			copy(b, a5)
			want(t, h.p.Do([]fabric.Op{fabric.Write(other.Addr, b)}), nil)
			return true
		}}
		err := memory.Drop(p, among, "s", memory.KindStore)
		if !p.reached {
			want(t, err, nil)
			return
		}
		if err != nil {
			want(t, err, memory.ErrNotFound)
		}
		b := h.p.Alloc(len(a5))
		want(t, h.p.Do([]fabric.Op{fabric.Read(other.Addr, b)}), nil)
		if !bytes.Equal(b, a5) {
			t.Fatalf("stopped at %d: the memory of another has changed", k)
		}
	}
}

// A client that takes a run is stopped at every operation, and the entry is removed meanwhile, and made anew: then the run is the new entry's, or
// not taken.
func TestGrowStoppedWhileItsEntryIsRemoved(t *testing.T) {
	for k := 0; ; k++ {
		h := newHeap(t)
		p := &stepPort{Port: h.p, k: k, between: func() bool {
			want(t, remove(h.p, h.r, "s", memory.KindStore), nil)
			_, _, err := h.r.Create(h.p, memory.Spec{Name: "other", Kind: memory.KindStore, Size: 4096})
			want(t, err, nil)
			return true
		}}
		_, err := h.r.Grow(p, &h.e, memory.Growth{Size: 2 * h.r.PageSize()})
		if used, uerr := h.r.Used(h.p); uerr != nil || p.reached && used != h.base {
			t.Fatalf("stopped at %d: %d bytes are used, %d with an empty store: %v, %v", k, used, h.base, uerr, err)
		}
		if !p.reached {
			want(t, err, nil)
			return
		}
	}
}

// A compute node that crashes while it makes an entry, at every operation, leaves nothing: who finds its claim takes the memory back.
func TestCreateCrashesEverywhere(t *testing.T) {
	for k := 0; ; k++ {
		_, r, p := formatted(t)
		before, err := r.Used(p)
		want(t, err, nil)
		dying := &stepPort{Port: p, k: k, between: func() bool { return false }}
		s := memory.Spec{Name: "s", Kind: memory.KindStore, Size: 40000}
		_, _, err = r.Create(dying, s)
		if dying.reached && !errors.Is(err, errDead) {
			t.Fatal(err)
		}
		var dead fabric.CNSet
		dead.Add(p.ID().CN())
		s.DeadNow = func() fabric.CNSet { return dead }
		_, _, err = r.Create(p, s)
		want(t, err, nil)
		pages := (s.Size + r.PageSize() - 1) / r.PageSize()
		if used, err := r.Used(p); err != nil || used != before+pages*r.PageSize() {
			t.Fatalf("crash at operation %d: %d bytes are used, %d before: %v", k, used, before, err)
		}
		if !dying.reached {
			if t.Logf("%d operations", k); k < 8 {
				t.Error("that is too few")
			}
			return
		}
	}
}

// remove removes an entry and gives its memory back.
func remove(p fabric.Port, r *memory.Region, name string, kind memory.Kind) error {
	e, err := r.Lookup(p, name, kind)
	if err == nil {
		err = r.Retire(p, &e)
	}
	if err == nil {
		err = r.Free(p, &e)
	}
	return err
}

// A busyPort has another change the table before the first CAS of a change.
type busyPort struct {
	fabric.Port
	other func()
}

func (p *busyPort) Do(ops []fabric.Op) error {
	if f := p.other; f != nil && slices.ContainsFunc(ops, func(op fabric.Op) bool { return op.Kind == fabric.OpCAS }) {
		p.other = nil
		f()
	}
	return p.Port.Do(ops)
}

// The first run of a store comes from what is kept, also if another changes the table meanwhile.
func TestFirstRunFromWhatIsKept(t *testing.T) {
	h := newHeap(t)
	page := h.r.PageSize()
	keep := 8 * page
	g := memory.Growth{Size: page, Reserve: keep, Keep: keep}
	var last memory.Run
	for {
		x, err := h.r.Grow(h.p, &h.e, g)
		if err != nil {
			want(t, err, memory.ErrNoSpace)
			break
		}
		last = x
	}
	e, _, err := h.r.Create(h.p, memory.Spec{Name: "small", Kind: memory.KindStore, Size: page * 3 / 4})
	want(t, err, nil)
	p := &busyPort{Port: h.p, other: func() {
		want(t, h.r.Shrink(h.p, &h.e, last), nil)
		_, err := h.r.Grow(h.p, &h.e, memory.Growth{Size: page})
		want(t, err, nil)
	}}
	if _, err := h.r.Grow(p, &e, g); err != nil || p.other != nil {
		t.Errorf("the first run of a small store: %v", err)
	}
}
