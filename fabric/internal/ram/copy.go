package ram

import (
	"sync/atomic"
	"unsafe"
)

const (
	wordSize = 8
	// Words are copied in groups, to spend less on the loop.
	groupSize = 8 * wordSize
)

// Pointers are computed from an index, where they are used: a pointer that has
// run past the end of a Go object must not exist.

func byteAt(p unsafe.Pointer, i int) *byte     { return (*byte)(unsafe.Add(p, i)) }
func wordAt(p unsafe.Pointer, i int) *uint64   { return (*uint64)(unsafe.Add(p, i)) }
func group(p unsafe.Pointer, i int) *[8]uint64 { return (*[8]uint64)(unsafe.Add(p, i)) }

// edge returns how many of n bytes at p come before the first aligned word.
func edge(p unsafe.Pointer, n int) int { return min(n, int(-uintptr(p)%wordSize)) }

// CopyOut copies n bytes of a memory node to a local buffer, so that no aligned
// word of the memory node is torn: each is loaded at once, in ascending order.
// The local side may have any alignment.
func CopyOut(dst, src unsafe.Pointer, n int) {
	i := 0
	for first := edge(src, n); i < first; i++ {
		*byteAt(dst, i) = *byteAt(src, i)
	}
	for ; n-i >= groupSize; i += groupSize {
		d, s := group(dst, i), group(src, i)
		d[0] = atomic.LoadUint64(&s[0])
		d[1] = atomic.LoadUint64(&s[1])
		d[2] = atomic.LoadUint64(&s[2])
		d[3] = atomic.LoadUint64(&s[3])
		d[4] = atomic.LoadUint64(&s[4])
		d[5] = atomic.LoadUint64(&s[5])
		d[6] = atomic.LoadUint64(&s[6])
		d[7] = atomic.LoadUint64(&s[7])
	}
	for ; n-i >= wordSize; i += wordSize {
		*wordAt(dst, i) = atomic.LoadUint64(wordAt(src, i))
	}
	for ; i < n; i++ {
		*byteAt(dst, i) = *byteAt(src, i)
	}
}

const (
	lineSize = 64
	// largeCopy is from how many bytes on copies go past the caches, someLines how many lines at a time: the runtime cannot interrupt it meanwhile.
	largeCopy = 32 << 10
	someLines = 512
)

// copyLines copies from byte i on, where a word begins, all that is in whole lines but for the last of these, and returns where that ends.
func copyLines(dst, src unsafe.Pointer, i, n int) int {
	for ; uintptr(unsafe.Add(dst, i))%lineSize != 0; i += wordSize {
		*wordAt(dst, i) = *wordAt(src, i)
	}
	for lines := (n-i)/lineSize - 1; lines > 0; {
		k := min(lines, someLines)
		storeLines(unsafe.Add(dst, i), unsafe.Add(src, i), k)
		i, lines = i+k*lineSize, lines-k
	}
	return i
}

// CopyIn copies n bytes of a local buffer to a memory node, so that no aligned
// word of the memory node is torn. The last whole word is stored atomically:
// a reader that sees it sees the words before it.
func CopyIn(dst, src unsafe.Pointer, n int) {
	i := 0
	for first := edge(dst, n); i < first; i++ {
		*byteAt(dst, i) = *byteAt(src, i)
	}
	if hasLines && n-i >= largeCopy {
		i = copyLines(dst, src, i, n)
	}
	// One word at least is left for the atomic store.
	for ; n-i >= groupSize+wordSize; i += groupSize {
		d, s := group(dst, i), group(src, i)
		d[0] = s[0]
		d[1] = s[1]
		d[2] = s[2]
		d[3] = s[3]
		d[4] = s[4]
		d[5] = s[5]
		d[6] = s[6]
		d[7] = s[7]
	}
	for ; n-i >= 2*wordSize; i += wordSize {
		*wordAt(dst, i) = *wordAt(src, i)
	}
	if n-i >= wordSize {
		atomic.StoreUint64(wordAt(dst, i), *wordAt(src, i))
		i += wordSize
	}
	for ; i < n; i++ {
		*byteAt(dst, i) = *byteAt(src, i)
	}
}
