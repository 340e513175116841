package ram

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/declock/declock/fabric"
)

// CompareAndSwap is a compare-and-swap of an aligned word that returns what was there.
func CompareAndSwap(word *uint64, expect, swap uint64) uint64 {
	for {
		if atomic.CompareAndSwapUint64(word, expect, swap) {
			return expect
		}
		// It was not what was expected; unless it is again.
		if old := atomic.LoadUint64(word); old != expect {
			return old
		}
	}
}

// Wide executes a masked or 16-byte atomic on aligned memory, and returns what was there. Where HasAtomic16 is false, one of 16
// bytes is atomic only if the caller keeps all others away. Each round that fails means that another operation has succeeded.
func Wide(kind fabric.OpKind, a unsafe.Pointer, w *fabric.Wide) (old [2]uint64) {
	if kind == fabric.OpMaskedCAS || kind == fabric.OpMaskedFAA {
		word := (*uint64)(a)
		for {
			old[0] = atomic.LoadUint64(word)
			now := Masked(kind, old, w)
			if now == old || atomic.CompareAndSwapUint64(word, old[0], now[0]) {
				return old
			}
		}
	}
	old = compareAndSwap16(a, old, old) // reads 16 bytes at once
	for {
		seen := compareAndSwap16(a, old, Masked(kind, old, w))
		if seen == old {
			return old
		}
		old = seen
	}
}

// Masked returns what a masked or 16-byte atomic makes of memory, low word first. Those of 8 bytes leave the high word alone.
func Masked(kind fabric.OpKind, old [2]uint64, w *fabric.Wide) [2]uint64 {
	words := 1
	if kind == fabric.OpMaskedCAS16 || kind == fabric.OpMaskedFAA16 {
		words = 2
	}
	now := old
	if kind == fabric.OpMaskedFAA || kind == fabric.OpMaskedFAA16 {
		carry := uint64(0)
		for i := range words {
			now[i], carry = addFields(old[i], w.Swap[i], w.Boundary[i], carry)
		}
		return now
	}
	for i := range words {
		if (old[i]^w.Cmp[i])&w.CmpMask[i] != 0 {
			return old
		}
		now[i] = old[i]&^w.SwapMask[i] | w.Swap[i]&w.SwapMask[i]
	}
	return now
}

// addFields adds with a carry into bit 0, so that no carry leaves a bit that is
// set in boundary. Without their boundary bits the operands cannot carry out of
// those; there the sum then has the carry that came in, and the exclusive or adds
// the bits themselves.
func addFields(a, b, boundary, carryIn uint64) (sum, carryOut uint64) {
	sum, carryOut = bits.Add64(a&^boundary, b&^boundary, carryIn)
	return sum ^ (a^b)&boundary, carryOut
}

func compareAndSwap16(a unsafe.Pointer, old, now [2]uint64) (seen [2]uint64) {
	if !HasAtomic16 {
		seen[0], seen[1] = swapWords(a, old[0], old[1], now[0], now[1])
		return seen
	}
	seen[0], seen[1] = cas16(a, old[0], old[1], now[0], now[1])
	return seen
}

// swapWords is cas16 by two words: not atomic.
func swapWords(a unsafe.Pointer, old0, old1, new0, new1 uint64) (seen0, seen1 uint64) {
	w := (*[2]uint64)(a)
	seen0, seen1 = atomic.LoadUint64(&w[0]), atomic.LoadUint64(&w[1])
	if seen0 == old0 && seen1 == old1 {
		atomic.StoreUint64(&w[0], new0)
		atomic.StoreUint64(&w[1], new1)
	}
	return seen0, seen1
}
