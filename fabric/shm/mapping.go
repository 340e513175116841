//go:build linux

package shm

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A mapping is a file in the address space of the process.
//
// Nothing stops a goroutine from being in the middle of an operation when its
// Node is closed by another, and a lock around each operation would cost more
// than the operation. So release does not unmap: it replaces the file's pages
// by private zero pages, in one step of the kernel, and the late operation hits
// those. The addresses are given back when the garbage collector finds that
// nobody holds the mapping. Whoever holds a pointer into a mapping therefore
// holds the mapping too.
type mapping struct {
	base     unsafe.Pointer
	size     uintptr
	released atomic.Bool
}

// mapFile maps the first size bytes of a file, shared.
func mapFile(f *os.File, size uintptr) (*mapping, error) {
	base, err := unix.MmapPtr(int(f.Fd()), 0, nil, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of %s: %w", size, f.Name(), err)
	}
	m := &mapping{base: base, size: size}
	runtime.AddCleanup(m, func(r addressRange) { _ = unix.MunmapPtr(r.base, r.size) }, addressRange{base, size})
	return m, nil
}

type addressRange struct {
	base unsafe.Pointer
	size uintptr
}

// release gives the file's memory up. It may be called more than once.
func (m *mapping) release() {
	if m == nil || m.released.Swap(true) {
		return
	}
	// Should the kernel refuse, the file's pages stay until the garbage
	// collector gets to it: correct, but later.
	_, _ = unix.MmapPtr(-1, 0, m.base, m.size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED)
}

// at returns a pointer to the byte at an offset.
func (m *mapping) at(offset uintptr) unsafe.Pointer { return unsafe.Add(m.base, offset) }

// bytes returns a part of the mapping as a slice.
func (m *mapping) bytes(offset, n uintptr) []byte {
	return unsafe.Slice((*byte)(m.at(offset)), n)
}

func (m *mapping) word(offset uintptr) *atomic.Uint64 { return (*atomic.Uint64)(m.at(offset)) }
