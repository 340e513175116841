package btree

import (
	"bytes"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/memory/reclaim"
)

// A compute node that has not looked since the tree was dropped, and needs more memory for it, hears that it has been dropped, and makes no other
// under its name.
func TestDropThenGrow(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal(), Late: sim.LateDrop}, 1, 4<<20, 2)
	c, p := w.client(0, w.open(0, w.config())), w.port(1)
	wantErr(t, "put", c.Put(keyOf(1), nil), nil)
	wantErr(t, "drop", Trees.Drop(p, "test", w.mns, w.cns[1].View), nil)
	var err error
	for i := 0; err == nil && i < 3000; i++ {
		err = c.Put(keyOf(i), bytes.Repeat([]byte("x"), 900))
	}
	wantErr(t, "put", err, ErrDropped)
	wantErr(t, "next put", c.Put(keyOf(1), nil), ErrDropped)
	r, err := memory.Open(p, w.mns[0])
	wantErr(t, "region", err, nil)
	_, err = r.Lookup(p, "test", memory.KindTree)
	wantErr(t, "lookup", err, memory.ErrNotFound)
}

// The last who close a dropped tree give its memory back, also if they have not looked since it was dropped.
func TestDropAndLeaveWithoutLooking(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal(), Late: sim.LateDrop}, 2, 4<<20, 3)
	p := w.port(2)
	free := func() (sum uint64) {
		for _, mn := range w.mns {
			r, err := memory.Open(p, mn)
			wantErr(t, "region", err, nil)
			pages, err := r.Pages(p)
			wantErr(t, "pages", err, nil)
			sum += pages.Free()
		}
		return sum
	}
	before := free()
	c, d := w.client(0, w.open(0, w.config())), w.client(1, w.open(1, w.config()))
	for i := range 100 {
		wantErr(t, "put", c.Put(keyOf(i), make([]byte, 500)), nil)
	}
	wantErr(t, "drop", Trees.Drop(p, "test", w.mns, w.cns[2].View), nil)
	wantErr(t, "leave", c.Leave(), nil)
	wantErr(t, "leave", d.Leave(), nil)
	if got := free(); got != before {
		t.Fatalf("%d bytes are free, %d before the tree was made", got, before)
	}
}

// The memory of a dropped tree that a crashed compute node had open comes back when another has its number, and says that it is another.
func TestDroppedAndTheNumberIsUsedAgain(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal(), Late: sim.LateDrop}, 1, 4<<20, 2)
	p := w.port(0)
	r, err := memory.Open(p, w.mns[0])
	wantErr(t, "region", err, nil)
	w.client(1, w.open(1, w.config()))
	wantErr(t, "drop", Trees.Drop(p, "test", w.mns, w.cns[0].View), nil)
	w.c.Kill(w.cns[1])
	wantErr(t, "pause", p.Pause(p.Now()+fabric.Second), nil)
	next := w.c.AddCN()
	mine, err := next.Open()
	wantErr(t, "port", err, nil)
	for _, left := range []int{1, 0} {
		wantErr(t, "free", handle.FreeDropped(p, w.mns, w.cns[0].View), nil)
		list, err := r.Retired(mine)
		if wantErr(t, "retired", err, nil); len(list) != left || next.ID() != w.cns[1].ID() {
			t.Fatalf("%d entries are retired, want %d; %v has the number of %v", len(list), left, next.ID(), w.cns[1].ID())
		}
		for i := range list {
			wantErr(t, "mark crashed", Trees.MarkCrashed(mine, r, &list[i]), nil)
		}
	}
}

// A tree was opened while its first memory node was down, and is dropped as soon as that is back: it is not made again by a client of before, and is let go.
func TestDroppedWhileItWaits(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 4<<20, 2)
	c := w.client(0, w.open(0, w.config()))
	wantErr(t, "put", c.Put(keyOf(1), nil), nil)
	w.c.KillMN(w.mns[0])
	tree := w.open(1, w.config())
	d := w.client(1, tree)
	_, err := d.Get(keyOf(1))
	wantErr(t, "get", err, fabric.ErrNodeDown)
	w.c.RestartServer(w.mns[0])
	p := w.port(1)
	wantErr(t, "drop", Trees.Drop(p, "test", w.mns, w.cns[1].View), nil)
	tree.MarkDropped()
	wantErr(t, "put", d.Put(keyOf(1), nil), ErrDropped)
	later := cas.New(p, cas.Config{}) // with a Port of after the restart
	_, err = tree.Client(later)
	wantErr(t, "client", err, ErrDropped)
	r, err := memory.Open(p, w.mns[0])
	wantErr(t, "region", err, nil)
	_, err = r.Lookup(p, "test", memory.KindTree)
	wantErr(t, "lookup", err, memory.ErrNotFound)
	for range 100 {
		done, err := tree.LetGo(leaver{later}, w.cns[1].View)
		if wantErr(t, "let go", err, nil); done {
			return
		}
		wantErr(t, "pause", p.Pause(p.Now()+100*fabric.Millisecond), nil)
	}
	t.Fatal("it is not let go")
}

// A leaver is a Locker whose compute node has nothing to do with locks but while a client holds them.
type leaver struct{ lock.Locker }

func (leaver) Left(*uint64, func(fabric.Addr) bool) bool { return true }

// Blocks on a missing part have become free, for which others look when the compute node has left the cluster: it stays registered when it closes the tree, and says that some are lost. If the tree has
// been dropped it lets go of it, whether it finds that when it closes it, or later.
func TestDroppedWithBlocksOnAMissingPart(t *testing.T) {
	for _, later := range []bool{false, true} {
		w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 4<<20, 2)
		q := w.port(0)
		before := w.freeBytes(q)
		first := w.client(0, w.open(0, w.config()))
		for i := range 40 {
			wantErr(t, "put", first.Put(keyOf(i), large(i)), nil)
		}
		wantErr(t, "leave", first.Leave(), nil)
		w.c.KillMN(w.mns[1])
		tree := w.open(1, w.config())
		c := w.client(1, tree)
		for i := range 40 {
			if err := c.Put(keyOf(i), large(i+1)); err != nil {
				wantErr(t, "put", err, fabric.ErrNodeDown)
			}
		}
		lost := c.Found().Lost
		if lost == 0 {
			t.Fatal("nothing that is replaced was on the memory node that is down")
		}
		w.c.RestartServer(w.mns[1])
		q = w.port(0)
		p := w.port(1)
		l := leaver{cas.New(p, cas.Config{Plain: true})}
		c, err := tree.Client(l)
		wantErr(t, "client", err, nil)
		if later {
			if wantErr(t, "leave", c.Leave(), nil); c.Found().Lost != lost {
				t.Fatalf("%d blocks are lost, want %d", c.Found().Lost, lost)
			}
		}
		wantErr(t, "drop", Trees.Drop(q, "test", w.mns, w.cns[0].View), nil)
		if w.freeBytes(q) == before {
			t.Fatal("the memory is given back, and a compute node has it open")
		}
		if later {
			_, err := c.ReclaimStep(w.cns[1].View)
			wantErr(t, "tend", err, ErrDropped)
			for done := false; !done; wantErr(t, "pause", p.Pause(p.Now()+100*fabric.Millisecond), nil) {
				done, err = tree.LetGo(l, w.cns[1].View)
				wantErr(t, "let go", err, nil)
			}
		} else {
			wantErr(t, "leave", c.Leave(), nil)
		}
		if got := w.freeBytes(q); got != before {
			t.Errorf("found later: %v: %d bytes are free, want %d", later, got, before)
		}
	}
}

// freeBytes returns how much of the memory nodes no client has.
func (w *world) freeBytes(p fabric.Port) (sum uint64) {
	w.t.Helper()
	for _, mn := range w.mns {
		r, err := memory.Open(p, mn)
		wantErr(w.t, "region", err, nil)
		pages, err := r.Pages(p)
		wantErr(w.t, "pages", err, nil)
		sum += pages.Free()
	}
	return sum
}

// A dropping is a Port that does something before its first chain at an address, or before it first pauses.
type dropping struct {
	*sim.Port
	at    fabric.Addr
	then  func()
	pause func()
}

func (p *dropping) Do(ops []fabric.Op) error {
	if then := p.then; then != nil && ops[0].Addr == p.at {
		p.then = nil
		then()
	}
	return p.Port.Do(ops)
}

func (p *dropping) Pause(until fabric.Time) error {
	if then := p.pause; then != nil {
		p.pause = nil
		then()
	}
	return p.Port.Pause(until)
}

// A tree that waits is opened by one client of a compute node, and dropped. Another client, which waits still, closes it: it says that it has been dropped, and the compute node lets go of it.
func TestDroppedAndLeftByAClientThatWaits(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 4<<20, 2)
	before := w.freeBytes(w.port(0))
	wantErr(t, "leave", w.client(0, w.open(0, w.config())).Leave(), nil)
	w.c.KillMN(w.mns[0])
	tree := w.open(1, w.config())
	waits := w.client(1, tree)
	w.c.RestartServer(w.mns[0])
	p, q := w.port(1), w.port(0)
	l := leaver{cas.New(p, cas.Config{Plain: true})}
	c, err := tree.Client(l)
	wantErr(t, "client", err, nil)
	wantErr(t, "put", c.Put(keyOf(1), nil), nil)
	wantErr(t, "drop", Trees.Drop(q, "test", w.mns, w.cns[0].View), nil)
	_, err = c.ReclaimStep(w.cns[1].View)
	wantErr(t, "tend", err, ErrDropped)
	wantErr(t, "leave", waits.Leave(), ErrDropped)
	for done := false; !done; wantErr(t, "pause", p.Pause(p.Now()+100*fabric.Millisecond), nil) {
		done, err = tree.LetGo(l, w.cns[1].View)
		wantErr(t, "let go", err, nil)
	}
	if got := w.freeBytes(q); got != before {
		t.Errorf("%d bytes are free, want %d", got, before)
	}
}

// A tree that waits is looked for in the middle of a drop, when its first part is there, and another is not: it is looked for again, and has been dropped.
func TestDroppedInTheMiddleOfADrop(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 4<<20, 2)
	cfg := w.config()
	cfg.Nodes = []fabric.MemID{w.mns[1], w.mns[0]}
	wantErr(t, "leave", w.client(0, w.open(0, cfg)).Leave(), nil)
	w.c.KillMN(w.mns[1])
	cfg.Existing = true
	tree := w.open(1, cfg)
	w.c.RestartServer(w.mns[1])
	q := w.port(0)
	r, err := memory.Open(q, w.mns[0])
	wantErr(t, "region", err, nil)
	e, err := r.Lookup(q, "test", memory.KindTree)
	wantErr(t, "lookup", err, nil)
	wantErr(t, "retire", r.Retire(q, &e), nil)
	p := &dropping{Port: w.port(1).(*sim.Port), pause: func() { wantErr(t, "drop", Trees.Drop(q, "test", w.mns, w.cns[0].View), nil) }}
	_, err = tree.Client(cas.New(p, cas.Config{Plain: true}))
	wantErr(t, "client", err, ErrDropped)
}

// A tree is dropped when its parts have been found, and before the compute node has registered: what its memory has become is not taken for its root.
func TestDroppedBeforeItIsRegistered(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 2)
	tree, q := w.open(0, w.config()), w.port(0)
	part := tree.h.Parts[0]
	wantErr(t, "leave", w.client(0, tree).Leave(), nil)
	p := &dropping{Port: w.port(1).(*sim.Port), at: part.Base.Add(rootOffset)}
	p.then = func() {
		wantErr(t, "drop", Trees.Drop(q, "test", w.mns, w.cns[0].View), nil)
		e, _, err := part.Region.Create(q, memory.Spec{Name: "locks", Kind: memory.KindLocks, Size: part.Entry.Length, Align: 4096})
		if wantErr(t, "locks", err, nil); e.Addr != part.Base {
			t.Fatalf("locks are at %v, the tree was at %v", e.Addr, part.Base)
		}
	}
	_, err := Open(p, w.config())
	wantErr(t, "open", err, memory.ErrRemoved)
}

// A tree is dropped when a compute node has registered that is about to open it: the drop leaves the memory, and it comes back when the registration is undone.
func TestDroppedWhenItIsJustRegistered(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 4<<20, 2)
	q := w.port(0)
	before := w.freeBytes(q)
	tree := w.open(0, w.config())
	base := tree.h.Parts[0].Base
	wantErr(t, "leave", w.client(0, tree).Leave(), nil)
	records, _ := reclaim.Records(base)
	p := &stopping{Port: w.port(1).(*sim.Port), at: records.Add(8 * uint64(w.cns[1].ID()))}
	p.after = []func(){nil, func() { wantErr(t, "drop", Trees.Drop(q, "test", w.mns, w.cns[0].View), nil) }} // it looks, and registers
	_, err := Open(p, w.config())
	wantErr(t, "open", err, memory.ErrRemoved)
	if got := w.freeBytes(q); len(p.after) > 0 || got != before {
		t.Errorf("%d bytes are free, want %d", got, before)
	}
}
