package ram

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

func TestArena(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var a Arena
		var live [][]byte
		rt.Repeat(map[string]func(*rapid.T){
			"alloc": func(rt *rapid.T) {
				n := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 600<<10)).Draw(rt, "n")
				b := a.Alloc(n)
				if len(b) != n || cap(b) != n || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 != 0 {
					rt.Fatalf("%d bytes: %d, capacity %d, at %p", n, len(b), cap(b), b)
				}
				if bytes.Count(b, []byte{0}) != len(b) || !a.Owns(b) || n > 1 && !a.Owns(b[1:n-1]) {
					rt.Fatalf("%d bytes: zero %v, own %v", n, bytes.Count(b, []byte{0}) == len(b), a.Owns(b))
				}
				for i := range b {
					b[i] = byte(len(live))
				}
				live = append(live, b)
			},
			"free": func(rt *rapid.T) {
				if len(live) == 0 {
					rt.Skip()
				}
				i := rapid.IntRange(0, len(live)-1).Draw(rt, "i")
				a.Free(live[i])
				live = append(live[:i], live[i+1:]...)
			},
			"": func(rt *rapid.T) {
				for _, b := range live {
					if len(b) > 0 && (bytes.Count(b, b[:1]) != len(b) || !a.Owns(b)) {
						rt.Fatal("blocks overlap")
					}
				}
			},
		})
	})
}

func TestArenaRefusesForeign(t *testing.T) {
	var a, b Arena
	p := a.Alloc(100)
	for name, buf := range map[string][]byte{
		"foreign": make([]byte, 10), "other arena's": b.Alloc(100),
	} {
		if a.Owns(buf) {
			t.Errorf("%s memory is accepted", name)
		}
	}
	if a.slabOf(uintptr(unsafe.Pointer(unsafe.SliceData(p))), maxSlab+1) != nil {
		t.Error("memory over the end is accepted")
	}
	mustPanic := func(name string, buf []byte) {
		defer func() {
			if recover() == nil {
				t.Errorf("Free of %s memory is accepted", name)
			}
		}()
		a.Free(buf)
	}
	mustPanic("foreign", make([]byte, 100))
	mustPanic("part of", p[8:])
	a.Free(p)
	mustPanic("freed", p)
}

func TestArenaReuses(t *testing.T) {
	var a Arena
	for range 10000 {
		a.Free(a.Alloc(1000))
	}
	if len(a.slabs) != 1 {
		t.Errorf("%d slabs for one block at a time", len(a.slabs))
	}
}

// counted counts what its users have.
type counted struct {
	Heap
	size uintptr
}

func (c *counted) Take(n int) (Slab, error) {
	s, err := c.Heap.Take(n)
	c.size += s.Size
	return s, err
}

func (c *counted) Give(s Slab) { c.size -= s.Size }

// Large blocks go back to the source as soon as they are free.
func TestArenaGivesBack(t *testing.T) {
	var c counted
	a := Arena{Source: &c}
	small := a.Alloc(maxSlab)
	before := c.size
	b, b2 := a.Alloc(1<<20+300), a.Alloc(1<<20)
	if !a.Owns(b) || c.size < before+3<<20 {
		t.Errorf("%d bytes", c.size)
	}
	a.Free(b)
	a.Free(b2)
	if c.size != before || a.Owns(b) || !a.Owns(small) {
		t.Errorf("%d bytes are kept, of %d before; owns the freed one: %v, the other: %v", c.size, before, a.Owns(b), a.Owns(small))
	}
}

// Every length and alignment of either side, against bytes.
func TestCopies(t *testing.T) {
	const room = 256
	mem := make([]uint64, room/8)
	shared := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(mem))), room)
	local, before := make([]byte, room), make([]byte, room)
	for n := range 150 {
		for at := range 16 {
			for from := range 9 {
				for i := range room {
					shared[i], local[i] = byte(rand.Uint32()), byte(rand.Uint32())
				}
				copy(before, local)
				CopyOut(unsafe.Pointer(&local[from]), unsafe.Pointer(&shared[at]), n)
				copy(before[from:from+n], shared[at:])
				if !bytes.Equal(local, before) {
					t.Fatalf("%d bytes out of %d to %d", n, at, from)
				}
				copy(before, shared)
				local[from]++
				CopyIn(unsafe.Pointer(&shared[at]), unsafe.Pointer(&local[from]), n)
				copy(before[at:at+n], local[from:])
				if !bytes.Equal(shared, before) {
					t.Fatalf("%d bytes in to %d from %d", n, at, from)
				}
			}
		}
	}
}

// Copies that go past the caches, between all alignments.
func TestLargeCopies(t *testing.T) {
	const room = largeCopy + someLines*lineSize + 1000
	mem := make([]uint64, room/8)
	shared := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(mem))), room)
	local, before := make([]byte, room), make([]byte, room)
	for i := range local {
		local[i] = byte(rand.Uint32())
	}
	for at := range 80 {
		for _, n := range []int{largeCopy - 1, largeCopy, largeCopy + 1 + at, largeCopy + someLines*lineSize + 13*at%600} {
			from := at * 5 % 64
			clear(shared)
			clear(before)
			n = min(n, room-at, room-from)
			CopyIn(unsafe.Pointer(&shared[at]), unsafe.Pointer(&local[from]), n)
			if copy(before[at:at+n], local[from:]); !bytes.Equal(shared, before) {
				t.Fatalf("%d bytes in to %d from %d", n, at, from)
			}
		}
	}
}

// addFields against a sum field by field.
func TestAddFields(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := rapid.Uint64().Draw(rt, "a"), rapid.Uint64().Draw(rt, "b")
		boundary := rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64()).Draw(rt, "boundary")
		carry := rapid.Uint64Range(0, 1).Draw(rt, "carry")
		want, c := uint64(0), carry
		for bit := range 64 {
			s := a>>bit&1 + b>>bit&1 + c
			want |= s & 1 << bit
			if c = s >> 1; boundary>>bit&1 != 0 {
				c = 0
			}
		}
		got, out := addFields(a, b, boundary, carry)
		if got != want || out != c {
			rt.Fatalf("%#x, carry %d, want %#x, carry %d", got, out, want, c)
		}
	})
}
