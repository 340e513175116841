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

// SwapMasked is a masked compare-and-swap of an aligned word: it returns what was there. Each
// round that fails means that another's succeeded.
func SwapMasked(word *uint64, w *fabric.Wide) uint64 {
	for {
		old := atomic.LoadUint64(word)
		if (old^w.Cmp[0])&w.CmpMask[0] != 0 {
			return old
		}
		if atomic.CompareAndSwapUint64(word, old, old&^w.SwapMask[0]|w.Swap[0]&w.SwapMask[0]) {
			return old
		}
	}
}

// AddMasked is a masked fetch-and-add of an aligned word: it returns what was there.
func AddMasked(word *uint64, w *fabric.Wide) uint64 {
	for {
		old := atomic.LoadUint64(word)
		sum, _ := addFields(old, w.Swap[0], w.Boundary[0], 0)
		if atomic.CompareAndSwapUint64(word, old, sum) {
			return old
		}
	}
}

// addFields adds with a carry into bit 0, so that no carry leaves a bit that is
// set in boundary. Without their boundary bits the operands cannot carry out of
// those; there the sum then has the carry that came in, and the exclusive or adds
// the bits themselves.
func addFields(a, b, boundary, carryIn uint64) (sum, carryOut uint64) {
	sum, carryOut = bits.Add64(a&^boundary, b&^boundary, carryIn)
	return sum ^ (a^b)&boundary, carryOut
}

// SwapMasked16 is SwapMasked of 16 aligned bytes. Where HasAtomic16 is false it is atomic only if the
// caller keeps all others away.
func SwapMasked16(a unsafe.Pointer, w *fabric.Wide) [2]uint64 {
	old := load16(a)
	for {
		if (old[0]^w.Cmp[0])&w.CmpMask[0] != 0 || (old[1]^w.Cmp[1])&w.CmpMask[1] != 0 {
			return old
		}
		now := [2]uint64{
			old[0]&^w.SwapMask[0] | w.Swap[0]&w.SwapMask[0],
			old[1]&^w.SwapMask[1] | w.Swap[1]&w.SwapMask[1],
		}
		seen := compareAndSwap16(a, old, now)
		if seen == old {
			return old
		}
		old = seen
	}
}

// AddMasked16 is AddMasked of 16 aligned bytes; see SwapMasked16.
func AddMasked16(a unsafe.Pointer, w *fabric.Wide) [2]uint64 {
	old := load16(a)
	for {
		var now [2]uint64
		var carry uint64
		now[0], carry = addFields(old[0], w.Swap[0], w.Boundary[0], 0)
		now[1], _ = addFields(old[1], w.Swap[1], w.Boundary[1], carry)
		seen := compareAndSwap16(a, old, now)
		if seen == old {
			return old
		}
		old = seen
	}
}

// load16 reads 16 bytes at once: a compare-and-swap that changes nothing.
func load16(a unsafe.Pointer) [2]uint64 { return compareAndSwap16(a, [2]uint64{}, [2]uint64{}) }

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
