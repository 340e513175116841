package shm

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/declock/declock/fabric/internal/mapped"
	"golang.org/x/sys/unix"
)

// A mapping is a file in the address space of the process.
//
// Nothing stops a goroutine from being in the middle of an operation when its
// Node is closed by another, and a lock around each operation would cost more
// than the operation. So release does not unmap: it replaces the file's pages
// by private zero pages, in one step of the kernel, and the late operation hits
// those. The addresses are given back when the garbage collector finds that
// nothing refers to the mapping: code that keeps a pointer into a mapping must
// keep the mapping too.
//
// A file that is truncated comes to the same: the access that finds no memory, and all later ones, hit private zero pages, by
// package mapped. lost says so then. An access to a mapping never faults, and its caller checks afterwards whether it has read
// the file: words of the mapping that are never 0 in a file that is in use say so at no cost (live, counter).
type mapping struct {
	base     unsafe.Pointer
	size     uintptr
	path     string
	guard    *mapped.Range
	released atomic.Bool
}

// mapFile maps the first size bytes of a file, shared.
func mapFile(f *os.File, size uintptr) (*mapping, error) {
	base, err := unix.MmapPtr(int(f.Fd()), 0, nil, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of %s: %w", size, f.Name(), err)
	}
	m := &mapping{base: base, size: size, path: f.Name(), guard: mapped.Guard(base, size)}
	runtime.AddCleanup(m, addressRange.unmap, addressRange{base, size, m.guard})
	return m, nil
}

type addressRange struct {
	base  unsafe.Pointer
	size  uintptr
	guard *mapped.Range
}

func (r addressRange) unmap() {
	r.guard.Release()
	_ = unix.MunmapPtr(r.base, r.size)
}

// isLost reports whether an access has found that the file has no memory any more.
func (m *mapping) isLost() bool { return m.guard.Lost() }

// isReplaced reports whether zero pages are in the place of the file's, or are about to be.
func (m *mapping) isReplaced() bool { return m.released.Load() || m.isLost() }

// lost says what has become of the file's memory; nil if nothing is known to be wrong with it.
func (m *mapping) lost() error {
	if !m.isLost() {
		return nil
	}
	if st, err := os.Stat(m.path); err == nil && st.Size() >= int64(m.size) {
		return fmt.Errorf("%w: %s: truncated and made longer again, or its file system has no room left for it", ErrTruncated, m.path)
	}
	return fmt.Errorf("%w: %s was truncated while processes used it", ErrTruncated, m.path)
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
