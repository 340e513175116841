//go:build cgo && !shmonly

package verbs

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/declock/declock/fabric/internal/ram"
	"golang.org/x/sys/unix"
)

const (
	// A chunk is what is registered at a time: a NIC knows few regions well. The first is small, for some
	// processes have a few clients only; the next ones double up to maxChunk.
	minChunk = 256 << 10
	maxChunk = 2 << 20
	minBlock = 4 << 10 // of a chunk
)

// A pool has the memory of a compute node's arenas: registered memory. It is mapped outside of
// Go's heap: what a NIC writes must never move, nor be anything else's.
type pool struct {
	dev *device

	mu     sync.Mutex
	chunks []mapped
	free   [bits.UintSize][]ram.Slab // by class; never merged, never given back
	rest   ram.Slab                  // of the newest chunk
	size   uintptr                   // of all chunks
	left   uintptr                   // that closed Ports have, until the garbage collector finds that they are unreachable
	closed bool
}

// A portMemory is the memory that one Port has. Close of the Port does not end it: the Port's owner may be about to read what is in it. It ends when the
// garbage collector finds that the Port is unreachable: keep the Port for as long as its memory is in use. So a portMemory does not refer to
// its Port, nor to the node.
type portMemory struct {
	pool *pool

	// Under the pool's mutex.
	slabs []ram.Slab
	size  uintptr
	left  bool // the Port is closed
}

// Take is ram.Source.Take.
func (m *portMemory) Take(n int) (ram.Slab, error) {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	s, err := m.pool.take(n)
	if err == nil {
		m.slabs = append(m.slabs, s)
		m.grow(s.Size)
	}
	return s, err
}

// Give is ram.Source.Give.
func (m *portMemory) Give(s ram.Slab) {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	m.slabs = slices.DeleteFunc(m.slabs, func(x ram.Slab) bool { return x.At == s.At })
	m.grow(-s.Size)
	m.pool.put(s)
}

// grow counts memory that comes, or goes; the pool's mutex is held.
func (m *portMemory) grow(n uintptr) {
	m.size += n
	if m.left {
		m.pool.left += n
	}
}

// leave notes that the Port is closed.
func (m *portMemory) leave() {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	m.left = true
	m.pool.left += m.size
}

// end gives the memory back: the Port is unreachable.
func (m *portMemory) end() {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	for _, s := range m.slabs {
		m.pool.put(s)
	}
	m.grow(-m.size)
	m.slabs = nil
}

// A mapped is registered memory from the kernel: in one region, or in several where a device does not take
// as much in one. The i-th begins at i<<shift. Each but the last goes on behind where the next begins, by as much as
// one operation may move: so that an operation is in one region, whichever its first byte is in.
type mapped struct {
	at      unsafe.Pointer
	size    uintptr
	regions []region
	shift   uint8
}

// Take is ram.Source.Take; a size that is no power of two is rounded up.
func (p *pool) Take(n int) (ram.Slab, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.take(n)
}

// take is Take; mu is held.
func (p *pool) take(n int) (ram.Slab, error) {
	for try := 0; ; try++ {
		if p.closed {
			return ram.Heap{}.Take(n) // nothing is posted any more, but owners of closed Ports need not know that yet
		}
		s, err := p.find(n)
		if err == nil || p.left == 0 || try > 0 {
			return s, err
		}
		p.collect()
	}
}

// collect has the garbage collector find closed Ports that are unreachable, and waits a moment for the memory of some; mu is held.
func (p *pool) collect() {
	left := p.left
	p.mu.Unlock()
	runtime.GC()
	p.mu.Lock()
	for range 50 {
		if p.left < left {
			return
		}
		p.mu.Unlock()
		time.Sleep(100 * time.Microsecond)
		p.mu.Lock()
	}
}

// find finds memory, or registers some; mu is held.
func (p *pool) find(n int) (ram.Slab, error) {
	class := ram.Class(max(n, minBlock))
	if f := p.free[class]; len(f) > 0 {
		b := f[len(f)-1]
		p.free[class] = f[:len(f)-1]
		return b, nil
	}
	size := uintptr(1) << class
	next := uintptr(min(minChunk<<min(len(p.chunks), 8), maxChunk))
	if size >= next {
		return p.chunk(size)
	}
	if p.rest.Size < size {
		// Blocks are powers of two from minBlock: what is left over is some of them.
		for p.rest.Size > 0 {
			p.put(p.cut(p.rest.Size & -p.rest.Size))
		}
		b, err := p.chunk(next)
		if err != nil {
			return ram.Slab{}, err
		}
		p.rest = b
	}
	return p.cut(size), nil
}

// cut takes a block off rest; mu is held.
func (p *pool) cut(size uintptr) ram.Slab {
	b := ram.Slab{At: p.rest.At, Size: size, Key: p.rest.Key}
	p.rest.At = unsafe.Add(p.rest.At, size)
	p.rest.Size -= size
	return b
}

// put makes a block free; mu is held.
func (p *pool) put(b ram.Slab) {
	if p.closed {
		return
	}
	class := bits.TrailingZeros(uint(b.Size))
	p.free[class] = append(p.free[class], b)
}

// Give is ram.Source.Give.
func (p *pool) Give(b ram.Slab) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(b)
}

// chunk maps and registers memory; mu is held.
func (p *pool) chunk(size uintptr) (ram.Slab, error) {
	m, err := p.dev.mapMemory(uint64(size), false, HugeOff, 0)
	if err != nil {
		return ram.Slab{}, err
	}
	p.chunks = append(p.chunks, m)
	p.size += m.size
	if p.left > p.size/2 {
		// The collector knows nothing of this memory: it might run when there are thousands of closed Ports.
		go runtime.GC()
	}
	return ram.Slab{At: m.at, Size: size, Key: m.regions[0].lkey}, nil
}

// close ends the registrations: all Ports have wound up. The memory itself stays for as long as one of them is reachable, and with it the pool.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.chunks {
		p.chunks[i].unregister()
	}
	runtime.AddCleanup(p, func(chunks []mapped) {
		for _, m := range chunks {
			m.release()
		}
	}, p.chunks)
	p.chunks, p.rest, p.closed = nil, ram.Slab{}, true
	clear(p.free[:])
}

// mapMemory maps and registers zeroed memory, in regions of at most limit bytes (0: what the device takes).
func (d *device) mapMemory(size uint64, remote bool, huge HugePolicy, limit uint64) (mapped, error) {
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	var at unsafe.Pointer
	var err error = unix.ENOMEM
	m := mapped{size: uintptr(size)}
	if huge != HugeOff {
		const page = 2 << 20
		m.size = (m.size + page - 1) &^ (page - 1)
		at, err = unix.MmapPtr(-1, 0, nil, m.size, prot, flags|unix.MAP_HUGETLB|unix.MAP_POPULATE)
	}
	if err != nil && huge == HugeRequire {
		return m, fmt.Errorf("%w: %d bytes in pages of 2 MiB: %w; reserve some: sysctl vm.nr_hugepages=%d",
			ErrNoHuge, size, err, m.size>>21+8)
	}
	if err != nil {
		m.size = uintptr(size)
		if at, err = unix.MmapPtr(-1, 0, nil, m.size, prot, flags); err != nil {
			return m, fmt.Errorf("%w: %d bytes: %w", ErrNoMemory, size, err)
		}
		if huge == HugeTry {
			_ = unix.Madvise(unsafe.Slice((*byte)(at), size), unix.MADV_HUGEPAGE) // only faster
		}
	}
	m.at = at
	// A child of this process must not share it: its writes would go elsewhere.
	_ = unix.Madvise(unsafe.Slice((*byte)(at), m.size), unix.MADV_DONTFORK)
	if limit == 0 {
		limit = uint64(d.caps.max_mr_size)
	}
	if err = m.register(d, size, remote, limit); err != nil {
		m.release()
		return mapped{}, err
	}
	return m, nil
}

// regionShift returns how many bytes there are from one region to the next, as a power of two: all of them
// if they fit into one.
func regionShift(size, limit uint64) uint8 {
	if limit == 0 || size <= limit {
		return 63
	}
	return uint8(bits.Len64(limit/2) - 1) // half is for what goes on behind
}

func (m *mapped) register(d *device, size uint64, remote bool, limit uint64) error {
	m.shift = regionShift(size, limit)
	for begin := uint64(0); begin < size; begin += 1 << m.shift {
		length := min(size-begin, limit)
		if m.shift == 63 {
			length = size
		}
		r, err := d.register(unsafe.Add(m.at, begin), length, remote)
		if err != nil {
			return err
		}
		m.regions = append(m.regions, r)
	}
	return nil
}

// keys returns the keys of the regions.
func (m *mapped) keys() (keys []memoryKey) {
	for _, r := range m.regions {
		keys = append(keys, memoryKey(r.rkey))
	}
	return keys
}

func (m *mapped) unregister() {
	for _, r := range m.regions {
		r.release()
	}
	m.regions = nil
}

func (m *mapped) release() {
	m.unregister()
	_ = unix.MunmapPtr(m.at, m.size)
}

// registerError says why memory cannot be registered.
func registerError(size uint64, err error) error {
	var limit unix.Rlimit
	if !errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EPERM) ||
		unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil || limit.Cur == unix.RLIM_INFINITY {
		return fmt.Errorf("%w: register %d bytes: %w", ErrNoMemory, size, err)
	}
	return fmt.Errorf("%w: register %d bytes: %w; RLIMIT_MEMLOCK is %d bytes for the whole process: raise it with ulimit -l unlimited, "+
		"/etc/security/limits.d, LimitMEMLOCK=infinity (systemd) or --ulimit memlock=-1 (containers)", ErrMemlock, size, err, limit.Cur)
}
