package sim

import (
	"fmt"
	"math/bits"
	"unsafe"
)

// An allocator hands out a Port's registered memory. Sizes are powers of two
// from minAlloc; what is freed is kept by size. Chunks grow with use, for
// there may be thousands of Ports with a few hundred bytes each.
type allocator struct {
	chunks []chunk
	hit    int         // chunk of the last buffer checked
	next   int         // size of the next chunk
	rest   []byte      // of the last chunk that is cut up
	free   [40][]*byte // by log2 of the size
}

type chunk struct {
	base, end uintptr
	mem       []byte // keeps it alive
}

const (
	minAlloc   = 8
	firstChunk = 1 << 10
	lastChunk  = 1 << 20
)

// class returns log2 of the size that serves n bytes.
func class(n int) int { return bits.Len(uint(max(n, minAlloc) - 1)) }

func (a *allocator) alloc(n int) []byte {
	if n < 0 {
		panic(fmt.Sprintf("sim: Alloc(%d)", n))
	}
	k := class(n)
	if list := a.free[k]; len(list) > 0 {
		p := list[len(list)-1]
		a.free[k] = list[:len(list)-1]
		buf := unsafe.Slice(p, 1<<k)[:n:n]
		clear(buf)
		return buf
	}
	size := 1 << k
	if len(a.rest) < size {
		a.grow(size)
	}
	buf := a.rest[:n:n]
	a.rest = a.rest[size:]
	return buf
}

func (a *allocator) grow(size int) {
	a.next = min(max(a.next*2, firstChunk), lastChunk)
	n := max(a.next, size)
	// Of words, so that it is aligned.
	words := make([]uint64, n/8)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
	base := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	a.chunks = append(a.chunks, chunk{base, base + uintptr(n), mem})
	a.rest = mem
}

func (a *allocator) release(buf []byte) {
	if !a.owns(buf) || cap(buf) != len(buf) {
		panic(fmt.Sprintf("sim: Free of %d bytes that Alloc did not return", len(buf)))
	}
	k := class(len(buf))
	a.free[k] = append(a.free[k], unsafe.SliceData(buf))
}

// owns tells whether buf lies in memory of alloc. The heap does not move.
func (a *allocator) owns(buf []byte) bool {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	n := uintptr(len(buf))
	if a.hit < len(a.chunks) {
		if c := &a.chunks[a.hit]; p >= c.base && p+n <= c.end {
			return true
		}
	}
	for i := range a.chunks {
		if c := &a.chunks[i]; p >= c.base && p+n <= c.end {
			a.hit = i
			return true
		}
	}
	return false
}
