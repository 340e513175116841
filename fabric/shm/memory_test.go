//go:build linux

package shm

import (
	"bytes"
	"encoding/binary"
	"math/big"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/declock/declock/fabric"
	"pgregory.net/rapid"
)

func TestArena(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var a arena
		var live [][]byte
		rt.Repeat(map[string]func(*rapid.T){
			"alloc": func(rt *rapid.T) {
				n := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 600<<10)).Draw(rt, "n")
				b := a.alloc(n)
				if len(b) != n || cap(b) != n || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 != 0 {
					rt.Fatalf("%d bytes: %d, capacity %d, at %p", n, len(b), cap(b), b)
				}
				if !isZero(b) || !a.owns(b) || n > 1 && !a.owns(b[1:n-1]) {
					rt.Fatalf("%d bytes: zero %v, own %v", n, isZero(b), a.owns(b))
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
				a.release(live[i])
				live = append(live[:i], live[i+1:]...)
			},
			"": func(rt *rapid.T) {
				for _, b := range live {
					if len(b) > 0 && (bytes.Count(b, b[:1]) != len(b) || !a.owns(b)) {
						rt.Fatal("blocks overlap")
					}
				}
			},
		})
	})
}

func TestArenaRefusesForeign(t *testing.T) {
	var a, b arena
	p := a.alloc(100)
	for name, buf := range map[string][]byte{
		"foreign": make([]byte, 10), "other arena's": b.alloc(100),
	} {
		if a.owns(buf) {
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
		a.release(buf)
	}
	mustPanic("foreign", make([]byte, 100))
	mustPanic("part of", p[8:])
	a.release(p)
	mustPanic("freed", p)
}

func TestArenaReuses(t *testing.T) {
	var a arena
	for range 10000 {
		a.release(a.alloc(1000))
	}
	if len(a.slabs) != 1 {
		t.Errorf("%d slabs for one block at a time", len(a.slabs))
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
				copyOut(unsafe.Pointer(&local[from]), unsafe.Pointer(&shared[at]), n)
				copy(before[from:from+n], shared[at:])
				if !bytes.Equal(local, before) {
					t.Fatalf("%d bytes out of %d to %d", n, at, from)
				}
				copy(before, shared)
				local[from]++
				copyIn(unsafe.Pointer(&shared[at]), unsafe.Pointer(&local[from]), n)
				copy(before[at:at+n], local[from:])
				if !bytes.Equal(shared, before) {
					t.Fatalf("%d bytes in to %d from %d", n, at, from)
				}
			}
		}
	}
}

// Writers write words of which both halves are equal; no reader sees another.
func TestWordsDoNotTear(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t)}
	serve(t, o)
	n := join(t, o)
	const words, rounds = 27, 3000
	// The ends are not aligned, what is between is.
	const first, length = 5, 3 + words*8 + 6
	var wg sync.WaitGroup
	for id := range uint32(2) {
		p := open(t, n)
		wg.Go(func() {
			buf := p.Alloc(length)
			for i := range uint32(rounds) {
				v := id<<31 | i
				for w := range words {
					binary.LittleEndian.PutUint64(buf[3+w*8:], uint64(v)<<32|uint64(v))
				}
				if err := p.Do([]fabric.Op{fabric.Write(fabric.At(0, first), buf)}); err != nil {
					t.Error(err)
				}
			}
		})
		r := open(t, n)
		wg.Go(func() {
			buf := r.Alloc(length)
			for range rounds {
				if err := r.Do([]fabric.Op{fabric.Read(fabric.At(0, first), buf)}); err != nil {
					t.Error(err)
				}
				for w := range words {
					if v := binary.LittleEndian.Uint64(buf[3+w*8:]); uint32(v) != uint32(v>>32) {
						t.Errorf("torn: %#x", v)
						return
					}
				}
			}
		})
	}
	wg.Wait()
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

func TestMaskedOperations(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t)}
	serve(t, o)
	p := open(t, join(t, o))
	a := fabric.At(0, 64)
	do := func(kind fabric.OpKind, w *fabric.Wide) {
		t.Helper()
		if err := p.Do([]fabric.Op{{Kind: kind, Addr: a, Wide: w}}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(low, high uint64) {
		t.Helper()
		ops := []fabric.Op{fabric.Load(a), fabric.Load(a + 8)}
		if err := p.Do(ops); err != nil || ops[0].Old != low || ops[1].Old != high {
			t.Errorf("%#x %#x, %v; want %#x %#x", ops[0].Old, ops[1].Old, err, low, high)
		}
	}
	if err := p.Do([]fabric.Op{fabric.Store(a, 0xaabbccdd), fabric.Store(a+8, 7)}); err != nil {
		t.Fatal(err)
	}
	w := &fabric.Wide{Cmp: [2]uint64{0xcc00}, CmpMask: [2]uint64{0xff00}, Swap: [2]uint64{0x11 << 24}, SwapMask: [2]uint64{0xff << 24}}
	do(fabric.OpMaskedCAS, w)
	want(0x11bbccdd, 7)
	if w.Old[0] != 0xaabbccdd {
		t.Errorf("old %#x", w.Old[0])
	}
	w.Cmp[0] = 0xcd00
	do(fabric.OpMaskedCAS, w)
	want(0x11bbccdd, 7)
	do(fabric.OpMaskedFAA, &fabric.Wide{Swap: [2]uint64{0x0001_0023}, Boundary: [2]uint64{0x80}})
	want(0x11bccc00, 7) // dd+23 carries out of the low byte, and is lost
	if !p.Caps().Atomic16 {
		return
	}
	w = &fabric.Wide{Swap: [2]uint64{^uint64(0), 1}}
	do(fabric.OpMaskedFAA16, w)
	want(0x11bccbff, 9)
	if w.Old != [2]uint64{0x11bccc00, 7} {
		t.Errorf("old %#x", w.Old)
	}
	w = &fabric.Wide{Cmp: [2]uint64{0xff, 9}, CmpMask: [2]uint64{0xff, ^uint64(0)},
		Swap: [2]uint64{5, 0xab}, SwapMask: [2]uint64{^uint64(0), 0xf0}}
	do(fabric.OpMaskedCAS16, w)
	want(5, 0xa9)
	do(fabric.OpMaskedCAS16, w)
	want(5, 0xa9)
}

// 16-byte additions of many are one sum.
func TestAtomic16IsAtomic(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t)}
	serve(t, o)
	n := join(t, o)
	if !n.Caps().Atomic16 {
		t.Skip("this CPU has no 16-byte atomics")
	}
	const each = 5000
	add := [2]uint64{0xfff0_0000_0000_0000, 3}
	var wg sync.WaitGroup
	for range 3 {
		p := open(t, n)
		wg.Go(func() {
			ops := []fabric.Op{{Kind: fabric.OpMaskedFAA16, Addr: fabric.At(0, 16), Wide: &fabric.Wide{Swap: add}}}
			for range each {
				if err := p.Do(ops); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	value := func(v [2]uint64) *big.Int {
		high := new(big.Int).SetUint64(v[1])
		return high.Add(high.Lsh(high, 64), new(big.Int).SetUint64(v[0]))
	}
	ops := []fabric.Op{fabric.Load(fabric.At(0, 16)), fabric.Load(fabric.At(0, 24))}
	if err := open(t, n).Do(ops); err != nil {
		t.Fatal(err)
	}
	want := value(add)
	want.Mul(want, big.NewInt(3*each))
	want.And(want, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1)))
	if got := value([2]uint64{ops[0].Old, ops[1].Old}); got.Cmp(want) != 0 {
		t.Errorf("%x, want %x", got, want)
	}
}
