package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/mapped"
	"golang.org/x/sys/unix"
)

// A file of memory begins with a page that says what it is; the memory follows.
//
//	       +------------------------------+
//	 0     |           "DECLOCKM"         |
//	 8     |      MN      |    version    |   32 bits each
//	16     |       size of the memory     |
//	       +------------------------------+
//	24     |  last epoch   |      0       |   32 bits each; 0 if an older program served it last
//	       +------------------------------+
const (
	fileMagic   = "DECLOCKM"
	fileVersion = 1
	filePage    = 4096
	fileHeader  = 32
	epochAt     = 24
)

// A memory is a memory node's memory.
type memory struct {
	base   unsafe.Pointer // what offset 0 is
	size   uint64
	file   *os.File       // nil: nothing is kept
	shared *os.File       // what can be lent; nil: nothing can
	epoch  uint32         // the last in which the file was served; 0: none, or not known
	at     unsafe.Pointer // the mapping
	len    uintptr
	guard  *mapped.Range // of the mapping of a file; nil: none
}

// openMemory maps memory. What no file holds takes room only where it is touched.
func openMemory(o *Options) (*memory, error) {
	m := &memory{size: o.Size}
	var err error
	if o.File == "" && o.Local {
		err = m.openShared(o)
	} else if o.File == "" {
		m.len = uintptr(m.size)
		m.at, err = unix.MmapPtr(-1, 0, nil, m.len, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		m.base = m.at
	} else if err = m.openFile(o); err == nil {
		m.len = uintptr(m.size) + filePage
		m.at, err = unix.MmapPtr(int(m.file.Fd()), 0, nil, m.len, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
		m.base = unsafe.Add(m.at, filePage)
		if err == nil {
			m.guard = mapped.Guard(m.at, (m.len+filePage-1)/filePage*filePage)
		}
	}
	if err != nil {
		m.at = nil
		m.close()
		if errors.Is(err, unix.ENOMEM) {
			err = fmt.Errorf("%w: %d bytes: %w", ErrNoMemory, o.Size, err)
		}
		return nil, err
	}
	whole := unsafe.Slice((*byte)(m.at), m.len)
	// A child of this process has no business with it.
	_ = unix.Madvise(whole, unix.MADV_DONTFORK)
	if o.Huge {
		_ = unix.Madvise(whole, unix.MADV_HUGEPAGE) // only faster
	}
	return m, nil
}

// openFile opens, locks and checks the file, or makes it. All its blocks are there then, so that no access finds the file system full.
func (m *memory) openFile(o *Options) (err error) {
	if m.file, err = os.OpenFile(o.File, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return fmt.Errorf("%w: the file of the memory: %w", ErrOptions, err)
	}
	if err := unix.Flock(int(m.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%w: %s: another process serves it: %w", ErrInUse, o.File, err)
	}
	st, err := m.file.Stat()
	if err != nil {
		return err
	}
	var head [fileHeader]byte
	if st.Size() == 0 {
		if o.Size == 0 {
			return fmt.Errorf("%w: Size is 0 and %s is empty", ErrOptions, o.File)
		}
		if err := m.reserve(o.Size); err != nil {
			_ = m.file.Truncate(0)
			return err
		}
		copy(head[:], fileMagic)
		binary.LittleEndian.PutUint32(head[8:], fileVersion)
		binary.LittleEndian.PutUint32(head[12:], uint32(o.Mem))
		binary.LittleEndian.PutUint64(head[16:], o.Size)
		_, err := m.file.WriteAt(head[:], 0)
		return err
	}
	if _, err := m.file.ReadAt(head[:], 0); err != nil || string(head[:8]) != fileMagic {
		return fmt.Errorf("%w: %s is something else; remove it or choose another", ErrFormat, o.File)
	}
	version, mem := binary.LittleEndian.Uint32(head[8:]), binary.LittleEndian.Uint32(head[12:])
	m.size = binary.LittleEndian.Uint64(head[16:])
	m.epoch = binary.LittleEndian.Uint32(head[epochAt:])
	switch {
	case version != fileVersion:
		return fmt.Errorf("%w: %s has version %d, here %d", ErrFormat, o.File, version, fileVersion)
	case mem != uint32(o.Mem):
		return fmt.Errorf("%w: %s is of memory node %d, not %d", ErrFormat, o.File, mem, o.Mem)
	case m.size == 0 || m.size > fabric.MaxOffset || uint64(st.Size()) < m.size+filePage:
		return fmt.Errorf("%w: %s has %d bytes, its header says %d", ErrFormat, o.File, st.Size(), m.size)
	case o.Size != 0 && o.Size != m.size:
		return fmt.Errorf("%w: %s has memory of %d bytes, not %d; leave Size out to keep it", ErrOptions, o.File, m.size, o.Size)
	}
	return m.reserve(m.size)
}

// keepEpoch notes in which epoch the memory is served: so its epochs go on growing when the coordinator loses its storage.
func (m *memory) keepEpoch(epoch uint32) {
	if m.file != nil {
		(*atomic.Uint32)(unsafe.Add(m.at, epochAt)).Store(epoch)
	}
}

// isLost reports whether an access has found that the file has no memory any more. All memory is zeros of this process's own since then: nothing
// that was read from it may be answered.
func (m *memory) isLost() bool { return m.guard != nil && m.guard.Lost() }

// damage returns why the memory of the file is lost; nil if it is not, as far as is known. It does not touch the memory: it may be huge.
func (m *memory) damage() error {
	switch {
	case m.file == nil && m.isLost():
		return fmt.Errorf("%w: the machine has no memory left", fabric.ErrNodeDown)
	case m.file == nil:
		return nil
	}
	st, err := m.file.Stat()
	short := err == nil && st.Mode().IsRegular() && uint64(st.Size()) < m.size+filePage
	switch {
	case short:
		err = fmt.Errorf("%w: %s was truncated to %d bytes", ErrTruncated, m.file.Name(), st.Size())
	case m.isLost():
		err = fmt.Errorf("%w: %s was truncated and made longer again, or its file system has no room left for it", ErrTruncated, m.file.Name())
	default:
		return nil
	}
	return fmt.Errorf("%w: %w: remove the file and start the memory node again", fabric.ErrNodeDown, err)
}

// reserve makes the file system set blocks aside for memory of a size. What is in the file stays.
func (m *memory) reserve(size uint64) error {
	n := int64(size) + filePage
	err := unix.Fallocate(int(m.file.Fd()), 0, 0, n)
	for err == unix.EINTR {
		err = unix.Fallocate(int(m.file.Fd()), 0, 0, n)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = rewrite(m.file, n)
	}
	if err != nil {
		return fmt.Errorf("%w: %d bytes in %s: %w", ErrNoMemory, n, m.file.Name(), err)
	}
	return nil
}

// rewrite writes all that is in a file once more, and zeroes where there is nothing.
func rewrite(f *os.File, n int64) error {
	buf := make([]byte, 1<<20)
	for at := int64(0); at < n; {
		b := buf[:min(int64(len(buf)), n-at)]
		k, err := f.ReadAt(b, at)
		if err != nil && err != io.EOF {
			return err
		}
		clear(b[k:])
		if _, err := f.WriteAt(b, at); err != nil {
			return err
		}
		at += int64(len(b))
	}
	return nil
}

// openShared maps memory that can be lent.
func (m *memory) openShared(o *Options) (err error) {
	if m.shared, err = newShared(fmt.Sprintf("declock-mn%d", o.Mem), m.size); err != nil {
		return err
	}
	m.len = uintptr(wholePages(m.size))
	if m.at, err = mapShared(int(m.shared.Fd()), m.size); err == nil {
		m.base, m.guard = m.at, mapped.Guard(m.at, m.len)
	}
	return err
}

// discard makes memory that no file holds zero, and gives back what it takes. Nothing uses it meanwhile.
func (m *memory) discard() error {
	if m.shared != nil {
		return unix.Fallocate(int(m.shared.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(m.len))
	}
	return unix.Madvise(unsafe.Slice((*byte)(m.at), m.len), unix.MADV_DONTNEED)
}

// close unmaps the memory. Nothing uses it any more.
func (m *memory) close() {
	if m.guard != nil {
		m.guard.Release()
		m.guard = nil
	}
	if m.at != nil {
		_ = unix.MunmapPtr(m.at, m.len)
		m.at = nil
	}
	if m.file != nil {
		_ = m.file.Close()
		m.file = nil
	}
	if m.shared != nil {
		_ = m.discard() // a process to which it was lent, and that stands still, keeps nothing of it
		_ = m.shared.Close()
		m.shared = nil
	}
}
