package ram

import (
	"fmt"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/declock/declock/fabric"
)

const (
	minClass = 4 // 16 bytes
	// The first slab of a class is small, for a process has hundreds of ports
	// and each uses few sizes; the next ones double up to maxSlab.
	minSlab = 1 << 10
	maxSlab = 256 << 10
)

// A Slab is memory that an Arena cuts into blocks of one size.
type Slab struct {
	At   unsafe.Pointer
	Size uintptr // a power of two
	Key  uint32  // by which a device knows it, if it is registered
}

// A Source has the memory of Arenas. Any goroutine may use it.
type Source interface {
	// Take returns memory of a size, a power of two, or more, that the garbage collector leaves alone, or
	// which At keeps alive.
	Take(size int) (Slab, error)
	// Give takes it back.
	Give(s Slab)
}

// Heap is a Source of ordinary Go memory: for where nothing has to be registered.
type Heap struct{}

// Take is Source.Take.
func (Heap) Take(size int) (Slab, error) {
	words := make([]uint64, (size+wordSize-1)/wordSize) // aligned
	return Slab{At: unsafe.Pointer(unsafe.SliceData(words)), Size: uintptr(size)}, nil
}

// Give is Source.Give.
func (Heap) Give(Slab) {}

// An Arena is a port's memory for operations. Slabs hold blocks of one size, a power of two. The zero value is
// ready, and takes ordinary Go memory; one goroutine uses it.
type Arena struct {
	Source Source      // nil: Go memory
	Caps   fabric.Caps // of the Port, for Check

	slabs  []*slab
	recent [8]*slab // where buffers were, by bits of their addresses: a client uses few, and again and again
	free   [bits.UintSize][]unsafe.Pointer
	count  [bits.UintSize]int // slabs by class
	lent   []byte
}

type slab struct {
	Slab
	base  uintptr
	class int
	used  []bool // by block
}

// Class returns the class of blocks that hold n bytes: their size is 1<<class.
func Class(n int) int { return max(minClass, bits.Len(uint(max(n, 1)-1))) }

// Alloc returns n zeroed bytes. Like make, it panics if there is no memory.
func (a *Arena) Alloc(n int) []byte {
	if n < 0 {
		panic(fmt.Sprintf("fabric: Alloc(%d)", n))
	}
	class := Class(n)
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
	if a.Source == nil {
		a.Source = Heap{}
	}
	got, err := a.Source.Take(max(1<<class, min(minSlab<<a.count[class], maxSlab)))
	if err != nil {
		panic(err)
	}
	a.count[class]++
	s := &slab{Slab: got, base: uintptr(got.At), class: class, used: make([]bool, got.Size>>class)}
	a.slabs = append(a.slabs, s)
	for i := len(s.used) - 1; i >= 0; i-- {
		a.free[class] = append(a.free[class], unsafe.Add(s.At, i<<class))
	}
}

// slabOf returns the slab in which n bytes lie, or nil.
func (a *Arena) slabOf(p, n uintptr) *slab {
	recent := &a.recent[p/minSlab%uintptr(len(a.recent))]
	if s := *recent; s != nil && p-s.base < s.Size && n <= s.Size-(p-s.base) {
		return s
	}
	for _, s := range a.slabs {
		if p-s.base < s.Size && n <= s.Size-(p-s.base) {
			*recent = s
			return s
		}
	}
	return nil
}

// Lend makes the arena take memory of the owner for its own until the next Lend, and reports whether it does: not where memory has to be registered.
func (a *Arena) Lend(buf []byte) bool {
	if _, ok := a.Source.(Heap); !ok && a.Source != nil {
		return false
	}
	a.lent = buf
	return true
}

// isLent reports whether n bytes at p lie in what was lent.
func (a *Arena) isLent(p, n uintptr) bool {
	from, size := uintptr(unsafe.Pointer(unsafe.SliceData(a.lent))), uintptr(len(a.lent))
	return p-from < size && n <= size-(p-from)
}

// Owns reports whether a buffer lies in the arena, or was lent to it. An empty one does.
func (a *Arena) Owns(buf []byte) bool {
	n := uintptr(len(buf))
	p := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	return n == 0 || a.slabOf(p, n) != nil || a.isLent(p, n)
}

// Key returns the key of the slab in which a buffer of the arena lies.
func (a *Arena) Key(buf []byte) uint32 {
	return a.slabOf(uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf))).Key
}

// Free takes a slice of Alloc back. Anything else is a bug of the caller.
func (a *Arena) Free(buf []byte) {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	s := a.slabOf(p, 1)
	if s == nil {
		panic(fmt.Sprintf("fabric: Free of %d bytes at %#x, which this port did not allocate", len(buf), p))
	}
	block := (p - s.base) >> s.class
	if s.base+block<<s.class != p || Class(len(buf)) != s.class || !s.used[block] {
		panic(fmt.Sprintf("fabric: Free of %d bytes at %#x: not a slice that Alloc returned, or freed before", len(buf), p))
	}
	s.used[block] = false
	if s.Size > maxSlab { // one large block: few need such for long
		a.drop(s)
		return
	}
	a.free[s.class] = append(a.free[s.class], unsafe.Pointer(unsafe.SliceData(buf)))
}

// drop gives a slab back of which no block is in use or free.
func (a *Arena) drop(s *slab) {
	a.slabs = slices.DeleteFunc(a.slabs, func(x *slab) bool { return x == s })
	a.count[s.class]--
	clear(a.recent[:])
	free := a.free[s.class] // what Alloc has taken off its end would keep the memory from the garbage collector
	clear(free[len(free):cap(free)])
	a.Source.Give(s.Slab)
}
