//go:build linux

package shm

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/declock/declock/fabric"
)

// performWide executes the masked and the 16-byte atomics, by a loop around the
// CPU's compare-and-swap. Each round that fails means that somebody else's
// succeeded.
func performWide(o *fabric.Op, a unsafe.Pointer) {
	w := o.Wide
	switch o.Kind {
	case fabric.OpMaskedCAS:
		w.Old[0] = swapMasked((*uint64)(a), w)
		o.Old = w.Old[0]
	case fabric.OpMaskedFAA:
		w.Old[0] = addMasked((*uint64)(a), w)
		o.Old = w.Old[0]
	case fabric.OpMaskedCAS16:
		w.Old = swapMasked16(a, w)
		o.Old = w.Old[0]
	case fabric.OpMaskedFAA16:
		w.Old = addMasked16(a, w)
		o.Old = w.Old[0]
	}
}

func swapMasked(word *uint64, w *fabric.Wide) uint64 {
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

func addMasked(word *uint64, w *fabric.Wide) uint64 {
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

func swapMasked16(a unsafe.Pointer, w *fabric.Wide) [2]uint64 {
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

func addMasked16(a unsafe.Pointer, w *fabric.Wide) [2]uint64 {
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
	seen[0], seen[1] = cas16(a, old[0], old[1], now[0], now[1])
	return seen
}
