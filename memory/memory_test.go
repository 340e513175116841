package memory_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/memory"
)

const size = 1 << 20

var params = memory.Params{Size: size, CapacityLog2: 3, VersionBits: 16}

func cluster(t testing.TB, seed uint64, cns int) (*sim.Cluster, fabric.MemID, []*sim.Node) {
	t.Helper()
	c := sim.New(sim.Config{Seed: seed, Tear: sim.Tear{Prob: 0.5, Grain: 8}})
	t.Cleanup(func() { c.Close() })
	mn := c.AddMN(size)
	var nodes []*sim.Node
	for range cns {
		nodes = append(nodes, c.AddCN())
	}
	return c, mn, nodes
}

func open(t testing.TB, n *sim.Node) fabric.Port {
	t.Helper()
	p, err := n.Open()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// formatted returns a formatted region and a port.
func formatted(t testing.TB) (*sim.Cluster, *memory.Region, fabric.Port) {
	t.Helper()
	c, mn, nodes := cluster(t, 1, 2)
	p := open(t, nodes[0])
	want(t, memory.Format(p, mn, params), nil)
	r, err := memory.Open(p, mn)
	want(t, err, nil)
	return c, r, p
}

func want(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error %v, want %v", err, target)
	}
}

func TestFormat(t *testing.T) {
	c, mn, nodes := cluster(t, 1, 2)
	p := open(t, nodes[0])
	_, err := memory.Open(p, mn)
	want(t, err, memory.ErrNotFormatted)
	want(t, memory.Format(p, mn, params), nil)
	r, err := memory.Open(p, mn)
	want(t, err, nil)
	if r.Size() != size || r.CapacityLog2() != 3 || r.VersionBits() != 16 || r.UUID() == (memory.UUID{}) {
		t.Fatalf("%+v", r)
	}
	want(t, memory.Format(p, mn, params), nil)
	again, _ := memory.Open(p, mn)
	if again.UUID() != r.UUID() {
		t.Fatal("formatted twice")
	}
	other := params
	other.CapacityLog2 = 4
	want(t, memory.Format(p, mn, other), memory.ErrParams)
	other.LeastLog2 = 3
	want(t, memory.Format(p, mn, other), nil)
	other.LeastLog2 = 4
	want(t, memory.Format(p, mn, other), memory.ErrParams)
	other.CapacityLog2 = 9
	if memory.Format(p, mn, other) == nil {
		t.Fatal("capacity 2^9 accepted")
	}

	for _, v := range []byte{2, 99} { // before and after
		c.Poke(fabric.At(mn, 8), []byte{v})
		want(t, memory.Format(p, mn, params), memory.ErrVersion)
		_, err = memory.Open(p, mn)
		want(t, err, memory.ErrVersion)
	}
	c.Poke(fabric.At(mn, 8), []byte{memory.LayoutVersion})
	c.Poke(fabric.At(mn, 16), []byte{1})
	_, err = memory.Open(p, mn)
	want(t, err, memory.ErrCorrupt)
	c.Poke(fabric.At(mn, 0), []byte("something else"))
	_, err = memory.Open(p, mn)
	want(t, err, memory.ErrForeign)
	want(t, memory.Format(p, mn, params), memory.ErrForeign)
}

// The identity of a superblock, byte by byte. If this test fails, the format has changed.
func TestSuperblockGolden(t *testing.T) {
	c, r, _ := formatted(t)
	b := make([]byte, 0x148)
	c.Peek(fabric.At(r.Memory(), 0), b)
	clear(b[0x0c:0x10]) // the checksum covers the uuid
	clear(b[0x18:0x28]) // the uuid
	got := hex.EncodeToString(b[:0x48]) + " " + hex.EncodeToString(b[memory.ChangeOffset:0x148])
	const golden = "4445434c4f434b31" + "04000000" + "00000000" + "0000100000000000" +
		"00000000000000000000000000000000" + "0310" + "00000000000000000000000000000000000000000000" +
		"0000000001001020" +
		" 0000000000000000" + "0000000000000000000000000000000000000000000000000000000000000000" +
		"0000000000000000000000000000000000000000000000000000000000000000"
	if got != golden {
		t.Fatalf("superblock\n got %s\nwant %s", got, golden)
	}
}

// Memory of version 3, without trains, is opened, and kept: nothing else in it differs.
func TestSuperblockWithoutTrains(t *testing.T) {
	c, mn, nodes := cluster(t, 1, 1)
	p := open(t, nodes[0])
	plain := params
	plain.Plain = true
	want(t, memory.Format(p, mn, plain), nil)
	want(t, memory.Format(p, mn, params), nil)
	r, err := memory.Open(p, mn)
	want(t, err, nil)
	if v := c.PeekWord(fabric.At(mn, 8)) & 0xffffffff; v != 3 || !r.Plain() || r.Version() != 3 {
		t.Errorf("version %d, plain %v", v, r.Plain())
	}
}

// A compute node dies while it formats, or while it creates an entry: the memory is formatted anew, and others
// say who creates the entry, and take over when they are told that it is dead.
func TestCrashedCreator(t *testing.T) {
	for at := fabric.Time(0); at < 30*fabric.Microsecond; at += 500 {
		c, mn, nodes := cluster(t, 1, 2)
		c.Go(nodes[0], "dies", func(p fabric.Port) {
			if memory.Format(p, mn, params) != nil {
				return
			}
			if r, err := memory.Open(p, mn); err == nil {
				r.Create(p, memory.Spec{Name: "x", Kind: memory.KindMemory, Size: 64})
			}
		})
		c.At(at, func() { c.Kill(nodes[0]) })
		c.Run()
		p := open(t, nodes[1])
		var dead fabric.CNSet
		dead.Add(nodes[0].ID())
		want(t, memory.Format(p, mn, params), nil)
		r, err := memory.Open(p, mn)
		want(t, err, nil)
		spec := memory.Spec{Name: "x", Kind: memory.KindMemory, Size: 64, Deadline: p.Now() + fabric.Millisecond}
		if _, _, err := r.Create(p, spec); err != nil {
			want(t, err, memory.ErrHalfCreated)
			_, err = r.Lookup(p, "x", memory.KindMemory)
			want(t, err, memory.ErrHalfCreated)
			if cl, err := r.Claims(p); err != nil || len(cl) != 1 || cl[0].Creator != nodes[0].ID() {
				t.Fatal(cl, err)
			}
			spec.DeadNow = func() fabric.CNSet { return dead }
			_, created, err := r.Create(p, spec)
			want(t, err, nil)
			if !created {
				t.Fatal("opened an entry of a dead creator")
			}
		}
		_, err = r.Lookup(p, "x", memory.KindMemory)
		want(t, err, nil)
	}
}

func TestAlloc(t *testing.T) {
	c, r, p := formatted(t)
	a, err := r.Alloc(p, 10, 8)
	want(t, err, nil)
	b, err := r.Alloc(p, 64, 4096)
	want(t, err, nil)
	if a.Offset() != r.HeapOffset() || b.Offset()%4096 != 0 || b.Offset() < a.Offset()+10 {
		t.Fatal(a, b)
	}
	_, err = r.Alloc(p, size, 64)
	want(t, err, memory.ErrNoSpace)
	_, err = r.Alloc(p, ^uint64(0), 64)
	want(t, err, memory.ErrNoSpace)
	if _, err = r.Alloc(p, 64, 3); err == nil {
		t.Fatal("alignment 3 accepted")
	}
	used, _ := r.Used(p)
	for left := size - used; left > 0; left -= r.PageSize() {
		_, err = r.Alloc(p, 64, 64)
		want(t, err, nil)
	}
	_, err = r.Alloc(p, 1, 1)
	want(t, err, memory.ErrNoSpace)
	c.Poke(fabric.At(r.Memory(), memory.ChangeOffset), []byte{1, 64, 0, 0, 0, 0, 0, 0x80})
	_, err = r.Alloc(p, 1, 1)
	want(t, err, memory.ErrCorrupt)
}

// Allocations of many clients at once do not overlap.
func TestAllocRace(t *testing.T) {
	c, r, _ := formatted(t)
	n := c.AddCN()
	owner := map[fabric.Addr]bool{}
	for range 8 {
		c.Go(n, "", func(p fabric.Port) {
			for range 100 {
				a, err := r.Alloc(p, 128, 64)
				want(t, err, nil)
				if owner[a] || owner[a.Add(64)] {
					t.Error("overlap at", a)
				}
				owner[a], owner[a.Add(64)] = true, true
			}
		})
	}
	want(t, c.Run(), nil)
}

func TestRoot(t *testing.T) {
	c, r, p := formatted(t)
	spec := memory.Spec{Name: "store", Kind: memory.KindStore, Size: 100, Align: 64, Info: memory.Info{1, 2, 3},
		Init: func(e *memory.Entry) error { e.Info[6] = 7; return nil }}
	e, created, err := r.Create(p, spec)
	want(t, err, nil)
	f, again, err := r.Create(p, spec)
	want(t, err, nil)
	if !created || again || e != f || e.Info != (memory.Info{1, 2, 3, 0, 0, 0, 7}) || e.Length != 100 {
		t.Fatalf("%+v %v, %+v %v", e, created, f, again)
	}
	g, err := r.Lookup(p, "store", memory.KindStore)
	want(t, err, nil)
	if g != e {
		t.Fatal(g)
	}
	_, err = r.Lookup(p, "store", memory.KindTree)
	want(t, err, memory.ErrKind)
	_, err = r.Lookup(p, "stor", memory.KindStore)
	want(t, err, memory.ErrNotFound)
	_, _, err = r.Create(p, memory.Spec{Name: "", Kind: memory.KindMemory})
	want(t, err, memory.ErrName)
	boom := errors.New("boom")
	_, _, err = r.Create(p, memory.Spec{Name: "y", Kind: memory.KindMemory, Init: func(*memory.Entry) error { return boom }})
	want(t, err, boom)

	for i := 1; i < r.Entries(); i++ {
		_, _, err := r.Create(p, memory.Spec{Name: fmt.Sprint("e", i), Kind: memory.KindMemory})
		want(t, err, nil)
	}
	_, _, err = r.Create(p, memory.Spec{Name: "full", Kind: memory.KindMemory})
	want(t, err, memory.ErrDirectoryFull)
	list, err := r.List(p)
	want(t, err, nil)
	if len(list) != r.Entries() || list[0] != e {
		t.Fatal(len(list), list[0])
	}
	want(t, remove(p, r, "e5", memory.KindMemory), nil)
	want(t, remove(p, r, "e5", memory.KindMemory), memory.ErrNotFound)
	_, _, err = r.Create(p, memory.Spec{Name: "full", Kind: memory.KindMemory})
	want(t, err, nil)

	c.Poke(fabric.At(r.Memory(), memory.DirectoryOffset+40), []byte("X"))
	_, err = r.Lookup(p, "store", memory.KindStore)
	want(t, err, memory.ErrCorrupt)
	_, err = r.List(p)
	want(t, err, memory.ErrCorrupt)
	c.Poke(fabric.At(r.Memory(), memory.DirectoryOffset), []byte{0, 0, 0, 0, 0, 0, 0, 0xff})
	_, err = r.Lookup(p, "store", memory.KindStore)
	want(t, err, memory.ErrCorrupt)
}

// Many clients create the same few names at once, while others are removed:
// of each name one creates, the rest open what it made.
func TestCreateRace(t *testing.T) {
	for seed := range uint64(40) {
		c, mn, nodes := cluster(t, seed, 4)
		p := open(t, nodes[0])
		want(t, memory.Format(p, mn, params), nil)
		r, err := memory.Open(p, mn)
		want(t, err, nil)
		for i := range 4 {
			_, _, err := r.Create(p, memory.Spec{Name: fmt.Sprint("old", i), Kind: memory.KindMemory})
			want(t, err, nil)
		}
		makers, addrs := map[string]int{}, map[string]fabric.Addr{}
		for i := range 12 {
			c.Go(nodes[i%4], fmt.Sprint(i), func(p fabric.Port) {
				p.Pause(p.Now() + fabric.Time(p.Rand()%10_000))
				if i < 4 {
					want(t, remove(p, r, fmt.Sprint("old", i), memory.KindMemory), nil)
				}
				for _, name := range []string{"a", "b"} {
					e, created, err := r.Create(p, memory.Spec{Name: name, Kind: memory.KindMemory, Size: 64})
					want(t, err, nil)
					if created {
						makers[name]++
					}
					if a := addrs[name]; a != 0 && a != e.Addr {
						t.Errorf("seed %d: %q is at %v and at %v", seed, name, a, e.Addr)
					}
					addrs[name] = e.Addr
				}
			})
		}
		want(t, c.Run(), nil)
		if makers["a"] != 1 || makers["b"] != 1 {
			t.Fatalf("seed %d: created %v", seed, makers)
		}
		if list, err := r.List(p); err != nil || len(list) != 2 {
			t.Fatalf("seed %d: %+v, %v", seed, list, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte("DECLOCK1"), uint16(0))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0x20}, uint16(memory.DirectoryOffset))
	f.Fuzz(func(t *testing.T, junk []byte, at uint16) {
		c, r, p := formatted(t)
		r.Create(p, memory.Spec{Name: "x", Kind: memory.KindMemory, Size: 64})
		off := int(at) % int(r.HeapOffset())
		c.Poke(fabric.At(r.Memory(), uint64(off)), junk[:min(len(junk), int(r.HeapOffset())-off)])
		deadline := p.Now() + fabric.Millisecond
		if r, err := memory.Open(p, r.Memory()); err == nil {
			r.List(p)
			r.Claims(p)
			r.Alloc(p, 64, 64)
			r.Create(p, memory.Spec{Name: "y", Kind: memory.KindMemory, Size: 64, Deadline: deadline})
			remove(p, r, "x", memory.KindMemory)
		}
	})
}

// own is a memory node's own access to its memory.
type own struct {
	c  *sim.Cluster
	mn fabric.MemID
}

func (o own) Load(offset uint64) uint64 { return o.c.PeekWord(fabric.At(o.mn, offset)) }

func (o own) Store(offset, v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	o.c.Poke(fabric.At(o.mn, offset), b[:])
}

// A memory node formats its own memory; what a life before left half formatted it begins anew, and what is formatted stays.
func TestFormatOwn(t *testing.T) {
	c, mn, nodes := cluster(t, 1, 1)
	w, p := own{c, mn}, params
	p.Generation = 7
	const state, claimed = 0x40, 1<<60 | 3<<52 | 5<<32
	w.Store(state, claimed)
	w.Store(0x10, 99)
	want(t, memory.FormatOwn(mn, w, p, memory.UUID{1, 2}), nil)
	port, err := nodes[0].Open()
	want(t, err, nil)
	r, err := memory.Open(port, mn)
	want(t, err, nil)
	if r.UUID() != (memory.UUID{1, 2}) || r.Generation() != 7 || r.Size() != size || r.At(64) != fabric.At(mn, 64).In(7) {
		t.Errorf("%v, birth %d, %d bytes", r.UUID(), r.Generation(), r.Size())
	}
	if used, err := r.Used(port); err != nil || used != r.HeapOffset() {
		t.Errorf("%d bytes used, %v", used, err)
	}
	a, err := r.Alloc(port, 64, 64)
	want(t, err, nil)
	if a.Generation() != 7 {
		t.Errorf("allocated at %v", a)
	}
	later := p
	later.Generation++
	want(t, memory.FormatOwn(mn, w, later, memory.UUID{3, 4}), nil)
	if r, err := memory.Open(port, mn); err != nil || r.Generation() != 7 {
		t.Errorf("formatted again: %v", err)
	}
	later.CapacityLog2++
	want(t, memory.FormatOwn(mn, w, later, memory.UUID{3, 4}), memory.ErrParams)
	c, mn, _ = cluster(t, 1, 1)
	w = own{c, mn}
	w.Store(0x800, 1)
	want(t, memory.FormatOwn(mn, w, p, memory.UUID{}), memory.ErrForeign)
}
