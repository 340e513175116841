package shm

import (
	"encoding/binary"
	"math/big"
	"sync"
	"testing"

	"github.com/declock/declock/fabric"
)

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
