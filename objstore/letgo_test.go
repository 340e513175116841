package objstore

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

// A leaver is a Locker whose compute node has nothing to do with locks but while a client holds them.
type leaver struct{ lock.Locker }

func (leaver) Left(*uint64, func(fabric.Addr) bool) bool { return true }

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

// letGo has a client let its store go, which has been dropped: it must come to an end.
func letGo(t *testing.T, c *Client, view func() fabric.View) {
	t.Helper()
	_, err := c.ReclaimStep(view)
	wantErr(t, "tend", err, ErrDropped)
	c.l = leaver{c.l}
	for range 100 {
		done, err := c.s.LetGo(c.l, view)
		if wantErr(t, "let go", err, nil); done {
			return
		}
		wantErr(t, "pause", c.port.Pause(c.port.Now()+100*fabric.Millisecond), nil)
	}
	t.Fatal("it does not let go")
}

// The memory of a dropped store that a crashed compute node had open comes back when another has its number, and says that it is another.
func TestDroppedAndTheNumberIsUsedAgain(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal(), Late: sim.LateDrop}, 2, 4<<20, 2)
	p := w.port(0)
	before := w.freeBytes(p)
	w.client(1, w.open(1, w.config()))
	wantErr(t, "drop", Stores.Drop(p, "test", w.mns, w.cns[0].View), nil)
	w.c.Kill(w.cns[1])
	wantErr(t, "pause", p.Pause(p.Now()+fabric.Second), nil)
	next := w.c.AddCN()
	if next.ID() != w.cns[1].ID() {
		t.Fatalf("%v has not the number of %v", next.ID(), w.cns[1].ID())
	}
	mine, err := next.Open()
	wantErr(t, "port", err, nil)
	wantErr(t, "free", handle.FreeDropped(p, w.mns, w.cns[0].View), nil)
	if w.freeBytes(p) == before {
		t.Fatal("memory is given back that the compute node with this number has registered for")
	}
	for _, mn := range w.mns {
		r, err := memory.Open(mine, mn)
		wantErr(t, "region", err, nil)
		list, err := r.Retired(mine)
		wantErr(t, "retired", err, nil)
		for i := range list {
			wantErr(t, "mark crashed", Stores.MarkCrashed(mine, r, &list[i]), nil)
		}
	}
	wantErr(t, "free", handle.FreeDropped(p, w.mns, w.cns[0].View), nil)
	if got := w.freeBytes(p); got != before {
		t.Errorf("%d bytes are free, want %d", got, before)
	}
}

// A compute node that could not register with a store, and one of which the first part was made anew beside others, hear that the store has been dropped, and let it go.
func TestDroppedForNodesWithoutPart(t *testing.T) {
	w, _, before, s := downWorld(t, 0)
	c := w.client(1, s)
	w.c.RestartServer(w.mns[0])
	p := w.port(2)
	wantErr(t, "drop", Stores.Drop(p, "test", w.mns, w.cns[2].View), nil)
	if c.s.h.Registered() {
		t.Fatal("it is registered")
	}
	c = w.client(1, s) // with a Port of after the restart
	letGo(t, c, w.cns[1].View)
	_, _ = before, p

	w = newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 4<<20, 2)
	c = w.client(0, w.open(0, w.config()))
	c.s.h.Survivors = true
	wantErr(t, "drop", Stores.Drop(w.port(1), "test", w.mns, w.cns[1].View), nil)
	letGo(t, c, w.cns[0].View)
}

// A client that closes a store has had a chain executed on each of its memory nodes before it says so: what it had posted there is over.
func TestLeaveSettlesEachPart(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 3, 4<<20, 1)
	p := &seenPort{Port: w.port(0)}
	s := w.open(0, w.config())
	c, err := s.Client(cas.New(p, cas.Config{}))
	wantErr(t, "client", err, nil)
	records := s.h.Parts[0].Base.Add(reclaim.Offset)
	asked := map[fabric.MemID]bool{}
	closed := false
	p.see = func(op fabric.Op) {
		if op.Kind == fabric.OpCAS && op.Addr > records && op.Addr < records.Add(reclaim.End) {
			closed = true
			for _, mn := range w.mns {
				if !asked[mn] {
					t.Errorf("the record is closed before anything is posted to %v", mn)
				}
			}
		}
		asked[op.Addr.MN()] = true
	}
	if wantErr(t, "leave", c.Leave(), nil); !closed {
		t.Error("the record is not closed")
	}
}

// A seenPort shows a function each operation.
type seenPort struct {
	fabric.Port
	see func(fabric.Op)
}

func (p *seenPort) Do(ops []fabric.Op) error {
	for _, op := range ops {
		if p.see != nil {
			p.see(op)
		}
	}
	return p.Port.Do(ops)
}

// A shy is a Port that does not execute one chain, and says that the memory node is down.
type shy struct {
	fabric.Port
	left *int
}

// Do implements fabric.Port.
func (p shy) Do(ops []fabric.Op) error {
	if *p.left--; *p.left == -1 {
		return fabric.ErrNodeDown
	}
	return p.Port.Do(ops)
}

// A shyLocker is a leaver over a shy Port.
type shyLocker struct {
	leaver
	port shy
}

func (l shyLocker) Port() fabric.Port { return l.port }

// A compute node whose chains fail, whichever it is, while it lets go of a dropped store goes on with that: the memory comes back.
func TestLetGoThatFailsIsDoneAgain(t *testing.T) {
	for k, all := 0, false; !all; k++ {
		w := newWorld(t, sim.Config{NIC: sim.Ideal(), Late: sim.LateDrop}, 1, 4<<20, 2)
		p := w.port(0)
		before := w.freeBytes(p)
		c := w.client(1, w.open(1, w.config()))
		wantErr(t, "drop", Stores.Drop(p, "test", w.mns, w.cns[0].View), nil)
		_, err := c.ReclaimStep(w.cns[1].View)
		wantErr(t, "tend", err, ErrDropped)
		left := k
		l := shyLocker{leaver{c.l}, shy{c.port, &left}}
		done := false
		for range 100 {
			if done, _ = c.s.LetGo(l, w.cns[1].View); done {
				break
			}
			wantErr(t, "pause", c.port.Pause(c.port.Now()+100*fabric.Millisecond), nil)
		}
		if got := w.freeBytes(p); !done || got != before {
			t.Errorf("chain %d has failed: let go: %v, %d bytes are free, want %d", k, done, got, before)
		}
		all = left >= 0
	}
}

// A compute node that keeps its registration when it closes a store, since it has lost blocks, lets go of it if it has been dropped before, whether it knows that or not.
func TestLeaveOfADroppedStoreWithLostBlocks(t *testing.T) {
	for _, how := range []string{"unknown", "known", "later"} {
		w := newWorld(t, sim.Config{NIC: sim.Ideal(), Late: sim.LateDrop}, 2, 4<<20, 2)
		p := w.port(0)
		before := w.freeBytes(p)
		c := w.client(1, w.open(1, w.config()))
		c.s.h.Member.Lose(0, 1)
		if how == "later" {
			wantErr(t, how+": leave", c.Leave(), nil)
		}
		wantErr(t, how+": drop", Stores.Drop(p, "test", w.mns, w.cns[0].View), nil)
		if w.freeBytes(p) == before {
			t.Errorf("%s: memory is given back of which a client may use some yet", how)
		}
		if how == "known" {
			c.s.MarkDropped()
		}
		wantErr(t, how+": leave", c.Leave(), nil)
		if got := w.freeBytes(p); got != before {
			t.Errorf("%s: %d bytes are free, want %d", how, got, before)
		}
	}
}

// A compute node of which a chain fails, whichever it is, while it closes a dropped store closes it again. Meanwhile another gives the memory back, if it can, and it becomes something else: none of that is changed.
func TestLeaveThatFailsIsDoneAgain(t *testing.T) {
	for k, all := 0, false; !all; k++ {
		w := newWorld(t, sim.Config{NIC: sim.Ideal(), Late: sim.LateDrop}, 1, 4<<20, 2)
		p := w.port(0)
		before := w.freeBytes(p)
		s := w.open(1, w.config())
		c := w.client(1, s)
		wantErr(t, "drop", Stores.Drop(p, "test", w.mns, w.cns[0].View), nil)
		left := k
		c, err := s.Client(shyLocker{leaver{c.l}, shy{c.port, &left}})
		if err == nil {
			err = c.Leave()
		}
		all = left >= 0
		if all || c == nil || err == nil {
			continue
		}
		wantErr(t, "free", handle.FreeDropped(p, w.mns, w.cns[0].View), nil)
		var want []byte
		part := s.h.Parts[0]
		freed := w.freeBytes(p) == before
		if freed {
			e, _, err := part.Region.Create(p, memory.Spec{Name: "locks", Kind: memory.KindLocks, Size: part.Entry.Length, Align: 4096})
			wantErr(t, "locks", err, nil)
			if e.Addr != part.Base {
				t.Fatalf("locks are at %v, the store was at %v", e.Addr, part.Base)
			}
			want = bytes.Repeat([]byte{0x7f}, int(e.Length)) // a round that is under way, and records that are not open
			w.c.Poke(e.Addr, want)
		}
		wantErr(t, "leave again", c.Leave(), nil)
		if got := w.freeBytes(p); !freed && got != before {
			t.Errorf("chain %d has failed: %d bytes are free, want %d", k, got, before)
		}
		if got := make([]byte, len(want)); freed {
			w.c.Peek(part.Base, got)
			if !bytes.Equal(got, want) {
				t.Errorf("chain %d has failed: what has the memory of the store is changed", k)
			}
		}
	}
}
