package tcp

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A control is the page that a memory node shares with a compute node to which it lends memory (lend.go), besides that memory:
//
//	         63                                                             0
//	       +-----------------------------------------------------------------+
//	 0     |          revoked: not 0 when the compute node is shut out       |   the memory node writes
//	 8     | until when its memory may be used, on the clock of boottime, ns |
//	       +-----------------------------------------------------------------+
//	64 i   |                   chains that have begun                        |   Ports of the compute node write, by slots
//	64 i+8 |                   chains that have ended, or were refused       |   i from 1 to 63
//	       +-----------------------------------------------------------------+
//
// A Port counts its chain as begun, then looks at revoked, executes, and counts it as ended. The memory node sets revoked, then waits until in each slot
// as many chains have ended as have begun. Of the first two steps of each side one is seen by the other: a chain either finds that it is revoked, or is
// waited for.
//
// A memory node that stands still or is dead revokes nothing, and another may serve its number. So it says again and again until when its memory may be used, and a
// Port looks at that before its chain and after.
//
// Behind the page are tallies of what is executed (tally.go): these, no decision depends on.
//
// Both sides can write the whole page: they are processes of one user, which can do worse to each other.
type control struct {
	at      unsafe.Pointer
	tallies bool // they are there: memory nodes of earlier releases share the page alone
}

const (
	controlSize  = 4096
	controlSlots = controlSize/64 - 1
)

// openControl maps a page. It is unmapped when nothing refers to it any more: a Port that has just found it may be about to count a chain.
func openControl(fd int) (*control, error) {
	size, tallies := uint64(controlSize), checkShared(fd, controlSize+talliesSize) == nil
	if tallies {
		size += talliesSize
	}
	at, err := mapShared(fd, size)
	if err != nil {
		return nil, err
	}
	c := &control{at, tallies}
	runtime.AddCleanup(c, func(at unsafe.Pointer) { _ = unix.MunmapPtr(at, uintptr(size)) }, at)
	return c, nil
}

func (c *control) word(i int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Add(c.at, 8*i)) }
func (c *control) revoked() *atomic.Uint64   { return c.word(0) }
func (c *control) until() *atomic.Uint64     { return c.word(1) }

// begin counts a chain as begun, and reports whether it may be executed. If not, it has ended.
func (c *control) begin(slot int, over *atomic.Bool) bool {
	c.word(8 * slot).Add(1)
	if c.revoked().Load() == 0 && !over.Load() {
		return true
	}
	c.end(slot)
	return false
}

// end counts a chain as ended.
func (c *control) end(slot int) {
	c.word(8*slot + 1).Add(1)
	runtime.KeepAlive(c)
}

// idle reports whether no chain is being executed. (What has ended is read first: if as many have begun by the time that this is read, there was a moment
// at which none was under way.)
func (c *control) idle() bool {
	for slot := 1; slot <= controlSlots; slot++ {
		if ended := c.word(8*slot + 1).Load(); c.word(8*slot).Load() != ended {
			return false
		}
	}
	runtime.KeepAlive(c)
	return true
}

// chains returns how many chains were executed, or were refused here.
func (c *control) chains() (n uint64) {
	for slot := 1; slot <= controlSlots; slot++ {
		n += c.word(8*slot + 1).Load()
	}
	runtime.KeepAlive(c)
	return n
}

// sealed are the seals of memory that is shared: nobody can shorten it, so no access to it is a SIGBUS for want of a file.
const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// newShared returns a file that is in memory only.
func newShared(name string, size uint64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err = unix.Ftruncate(fd, int64(wholePages(size))); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sealed)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%d bytes of shared memory: %w", size, err)
	}
	return f, nil
}

// checkShared checks that a descriptor that came from another process is of memory of a size that keeps it.
func checkShared(fd int, size uint64) error {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return fmt.Errorf("%w: shared memory that may be shortened (seals %#x): %v", ErrProtocol, seals, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || uint64(st.Size) < wholePages(size) {
		return fmt.Errorf("%w: shared memory of %d bytes, want %d: %v", ErrProtocol, st.Size, size, err)
	}
	return nil
}

// mapShared maps shared memory. A child of this process has no business with it, and it is not in its core.
func mapShared(fd int, size uint64) (unsafe.Pointer, error) {
	n := uintptr(wholePages(size))
	at, err := unix.MmapPtr(fd, 0, nil, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of shared memory: %w", n, err)
	}
	_ = unix.Madvise(unsafe.Slice((*byte)(at), n), unix.MADV_DONTFORK)
	_ = unix.Madvise(unsafe.Slice((*byte)(at), n), unix.MADV_DONTDUMP)
	return at, nil
}

func wholePages(size uint64) uint64 { return (size + filePage - 1) / filePage * filePage }
