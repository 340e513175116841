//go:build linux && cgo

package verbs

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	minClass = 4 // 16 bytes
	// The first slab of a class is small, for a process has hundreds of ports
	// and each uses few sizes; the next ones double up to maxSlab.
	minSlab = 4 << 10
	maxSlab = 256 << 10
	// A chunk is what is registered at a time: a NIC knows few regions well. The first is small, for some
	// processes have a few clients only; the next ones double up to maxChunk.
	minChunk = 256 << 10
	maxChunk = 2 << 20
)

// A pool has the registered memory of a compute node. It is mapped outside of
// Go's heap: what a NIC writes must never move, nor be anything else's.
type pool struct {
	dev *device

	mu     sync.Mutex
	chunks []mapped
	free   [bits.UintSize][]block // by class; never merged, never given back
	rest   block                  // of the newest chunk
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

// A block is a part of a chunk.
type block struct {
	at   unsafe.Pointer
	size uintptr
	lkey uint32
}

// take returns a block of 1<<class bytes.
func (p *pool) take(class int) (block, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
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
	if p.rest.size < size {
		// Blocks are powers of two from 4 KiB: what is left over is some of them.
		for p.rest.size > 0 {
			p.put(p.cut(p.rest.size & -p.rest.size))
		}
		b, err := p.chunk(next)
		if err != nil {
			return block{}, err
		}
		p.rest = b
	}
	return p.cut(size), nil
}

// cut takes a piece off rest; mu is held.
func (p *pool) cut(size uintptr) block {
	b := block{p.rest.at, size, p.rest.lkey}
	p.rest.at = unsafe.Add(p.rest.at, size)
	p.rest.size -= size
	return b
}

func (p *pool) put(b block) {
	class := bits.TrailingZeros(uint(b.size))
	p.free[class] = append(p.free[class], b)
}

// give takes a block back.
func (p *pool) give(b block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(b)
}

// chunk maps and registers memory; mu is held.
func (p *pool) chunk(size uintptr) (block, error) {
	m, err := p.dev.mapMemory(uint64(size), false, HugeOff, 0)
	if err != nil {
		return block{}, err
	}
	p.chunks = append(p.chunks, m)
	return block{m.at, size, m.regions[0].lkey}, nil
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.chunks {
		m.release()
	}
	p.chunks, p.rest = nil, block{}
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

// An arena is a port's registered memory. Slabs hold blocks of one size, a
// power of two.
type arena struct {
	pool  *pool
	slabs []*slab
	last  *slab // where the last buffer was: it often is again
	free  [bits.UintSize][]unsafe.Pointer
	count [bits.UintSize]int // slabs by class
}

type slab struct {
	block
	base  uintptr
	class int
	used  []bool // by block
}

// classOf returns the class of blocks that hold n bytes: their size is 1<<class.
func classOf(n int) int { return max(minClass, bits.Len(uint(max(n, 1)-1))) }

// alloc returns n zeroed bytes. Like make, it panics if there is no memory.
func (a *arena) alloc(n int) []byte {
	if n < 0 {
		panic(fmt.Sprintf("verbs: Alloc(%d)", n))
	}
	class := classOf(n)
	if len(a.free[class]) == 0 {
		if err := a.grow(class); err != nil {
			panic(err)
		}
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

func (a *arena) grow(class int) error {
	size := max(1<<class, min(minSlab<<a.count[class], maxSlab))
	b, err := a.pool.take(bits.TrailingZeros(uint(size)))
	if err != nil {
		return err
	}
	a.count[class]++
	s := &slab{block: b, base: uintptr(b.at), class: class, used: make([]bool, size>>class)}
	a.slabs = append(a.slabs, s)
	for i := len(s.used) - 1; i >= 0; i-- {
		a.free[class] = append(a.free[class], unsafe.Add(b.at, i<<class))
	}
	return nil
}

// slabOf returns the slab in which n bytes lie, or nil.
func (a *arena) slabOf(p, n uintptr) *slab {
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

// find returns the slab of a buffer, or nil. Any slab will do for an empty one.
func (a *arena) find(buf []byte) *slab {
	return a.slabOf(uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)))
}

// release takes a slice of alloc back. Anything else is a bug of the caller.
func (a *arena) release(buf []byte) {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	s := a.slabOf(p, 1)
	if s == nil {
		panic(fmt.Sprintf("verbs: Free of %d bytes at %#x, which this port did not allocate", len(buf), p))
	}
	block := (p - s.base) >> s.class
	if s.base+block<<s.class != p || classOf(len(buf)) != s.class || !s.used[block] {
		panic(fmt.Sprintf("verbs: Free of %d bytes at %#x: not a slice that Alloc returned, or freed before", len(buf), p))
	}
	s.used[block] = false
	a.free[s.class] = append(a.free[s.class], unsafe.Pointer(unsafe.SliceData(buf)))
}

// close gives all memory back.
func (a *arena) close() {
	for _, s := range a.slabs {
		a.pool.give(s.block)
	}
	*a = arena{pool: a.pool}
}
