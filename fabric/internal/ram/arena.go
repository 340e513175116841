package ram

import (
	"fmt"
	"math/bits"
	"unsafe"
)

const (
	minClass = 4 // 16 bytes
	// The first slab of a class is small, for a process has hundreds of ports
	// and each uses few sizes; the next ones double up to maxSlab.
	minSlab = 4 << 10
	maxSlab = 256 << 10
)

// An Arena is a port's memory for operations, where nothing has to be registered: ordinary
// Go memory. Slabs hold blocks of one size, a power of two. The zero value is ready; one goroutine uses it.
type Arena struct {
	slabs []*slab
	last  *slab // where the last buffer was: it often is again
	free  [bits.UintSize][]unsafe.Pointer
	count [bits.UintSize]int // slabs by class
}

type slab struct {
	words []uint64 // keeps it alive, and aligned
	base  uintptr
	size  uintptr
	class int
	used  []bool // by block
}

// classOf returns the class of blocks that hold n bytes: their size is 1<<class.
func classOf(n int) int { return max(minClass, bits.Len(uint(max(n, 1)-1))) }

// Alloc returns n zeroed bytes.
func (a *Arena) Alloc(n int) []byte {
	if n < 0 {
		panic(fmt.Sprintf("fabric: Alloc(%d)", n))
	}
	class := classOf(n)
	if len(a.free[class]) == 0 {
		a.grow(class)
	}
	last := len(a.free[class]) - 1
	p := a.free[class][last]
	a.free[class] = a.free[class][:last]
	s := a.slabOf(uintptr(p), 1)
	s.used[(uintptr(p)-s.base)>>class] = true
	b := unsafe.Slice((*byte)(p), n)
	clear(b)
	return b[:n:n]
}

func (a *Arena) grow(class int) {
	size := max(1<<class, min(minSlab<<a.count[class], maxSlab))
	a.count[class]++
	s := &slab{words: make([]uint64, size/wordSize), size: uintptr(size), class: class}
	start := unsafe.Pointer(unsafe.SliceData(s.words))
	s.base = uintptr(start)
	s.used = make([]bool, size>>class)
	a.slabs = append(a.slabs, s)
	for i := len(s.used) - 1; i >= 0; i-- {
		a.free[class] = append(a.free[class], unsafe.Add(start, i<<class))
	}
}

// slabOf returns the slab in which n bytes lie, or nil.
func (a *Arena) slabOf(p, n uintptr) *slab {
	if s := a.last; s != nil && p-s.base < s.size && n <= s.size-(p-s.base) {
		return s
	}
	for _, s := range a.slabs {
		if p-s.base < s.size && n <= s.size-(p-s.base) {
			a.last = s
			return s
		}
	}
	return nil
}

// Owns tells whether a buffer lies in the arena. An empty one does.
func (a *Arena) Owns(buf []byte) bool {
	n := uintptr(len(buf))
	return n == 0 || a.slabOf(uintptr(unsafe.Pointer(unsafe.SliceData(buf))), n) != nil
}

// Free takes a slice of Alloc back. Anything else is a bug of the caller.
func (a *Arena) Free(buf []byte) {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	s := a.slabOf(p, 1)
	if s == nil {
		panic(fmt.Sprintf("fabric: Free of %d bytes at %#x, which this port did not allocate", len(buf), p))
	}
	block := (p - s.base) >> s.class
	if s.base+block<<s.class != p || classOf(len(buf)) != s.class || !s.used[block] {
		panic(fmt.Sprintf("fabric: Free of %d bytes at %#x: not a slice that Alloc returned, or freed before", len(buf), p))
	}
	s.used[block] = false
	a.free[s.class] = append(a.free[s.class], unsafe.Pointer(unsafe.SliceData(buf)))
}
