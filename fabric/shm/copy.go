//go:build linux

package shm

import (
	"sync/atomic"
	"unsafe"
)

const wordSize = 8

// copyOut copies n bytes of a memory node to a local buffer, so that no aligned
// word of the memory node is torn: each is loaded at once, in ascending order.
// The local side may have any alignment.
func copyOut(dst, src unsafe.Pointer, n int) {
	for ; n > 0 && uintptr(src)%wordSize != 0; n-- {
		*(*byte)(dst) = *(*byte)(src)
		dst, src = unsafe.Add(dst, 1), unsafe.Add(src, 1)
	}
	for ; n >= 8*wordSize; n -= 8 * wordSize {
		d, s := (*[8]uint64)(dst), (*[8]uint64)(src)
		d[0] = atomic.LoadUint64(&s[0])
		d[1] = atomic.LoadUint64(&s[1])
		d[2] = atomic.LoadUint64(&s[2])
		d[3] = atomic.LoadUint64(&s[3])
		d[4] = atomic.LoadUint64(&s[4])
		d[5] = atomic.LoadUint64(&s[5])
		d[6] = atomic.LoadUint64(&s[6])
		d[7] = atomic.LoadUint64(&s[7])
		dst, src = unsafe.Add(dst, 8*wordSize), unsafe.Add(src, 8*wordSize)
	}
	for ; n >= wordSize; n -= wordSize {
		*(*uint64)(dst) = atomic.LoadUint64((*uint64)(src))
		dst, src = unsafe.Add(dst, wordSize), unsafe.Add(src, wordSize)
	}
	for ; n > 0; n-- {
		*(*byte)(dst) = *(*byte)(src)
		dst, src = unsafe.Add(dst, 1), unsafe.Add(src, 1)
	}
}

// copyIn copies n bytes of a local buffer to a memory node, so that no aligned
// word of the memory node is torn. The last whole word is stored atomically:
// who sees it sees the words before it.
func copyIn(dst, src unsafe.Pointer, n int) {
	for ; n > 0 && uintptr(dst)%wordSize != 0; n-- {
		*(*byte)(dst) = *(*byte)(src)
		dst, src = unsafe.Add(dst, 1), unsafe.Add(src, 1)
	}
	// One word at least is left for the atomic store.
	for ; n >= 9*wordSize; n -= 8 * wordSize {
		d, s := (*[8]uint64)(dst), (*[8]uint64)(src)
		d[0] = s[0]
		d[1] = s[1]
		d[2] = s[2]
		d[3] = s[3]
		d[4] = s[4]
		d[5] = s[5]
		d[6] = s[6]
		d[7] = s[7]
		dst, src = unsafe.Add(dst, 8*wordSize), unsafe.Add(src, 8*wordSize)
	}
	for ; n >= 2*wordSize; n -= wordSize {
		*(*uint64)(dst) = *(*uint64)(src)
		dst, src = unsafe.Add(dst, wordSize), unsafe.Add(src, wordSize)
	}
	if n >= wordSize {
		atomic.StoreUint64((*uint64)(dst), *(*uint64)(src))
		dst, src, n = unsafe.Add(dst, wordSize), unsafe.Add(src, wordSize), n-wordSize
	}
	for ; n > 0; n-- {
		*(*byte)(dst) = *(*byte)(src)
		dst, src = unsafe.Add(dst, 1), unsafe.Add(src, 1)
	}
}
