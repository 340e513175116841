package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"golang.org/x/sys/unix"
)

// A MemoryServer is a memory node. It holds memory and the proof that it is there,
// and does nothing else: no operation waits for its process to run.
type MemoryServer struct {
	c     *cluster
	r     *region
	m     *mapping // of the whole file
	id    fabric.MemID
	epoch uint32
	keep  bool
	huge  string // what it uses; empty for 4 KiB pages
	note  string // why it has no huge pages

	close    sync.Once
	stop     chan struct{} // ends enforce and watch
	stopping sync.WaitGroup

	watching sync.Once
	ended    chan struct{} // closed when the memory is found lost
}

// Serve starts a memory node: it creates the cluster if there is none, takes the
// memory and formats it, or takes over what an earlier server has left. When it
// returns, operations on the memory work. Serve returns at once, and starts no
// goroutine but one with Lease: the memory node is up until Close, or until the process ends.
func Serve(o Options) (*MemoryServer, error) {
	if err := o.checkServe(); err != nil {
		return nil, err
	}
	c, err := openForServe(&o)
	if err != nil {
		return nil, err
	}
	s := &MemoryServer{c: c, id: o.Mem, keep: o.Keep, stop: make(chan struct{}), ended: make(chan struct{})}
	kept, err := s.claim(&o)
	if err != nil {
		c.sweep(o.spared()) // it may have been made for this
	}
	c.unlock()
	if err == nil && !kept {
		// Without the lock: to reserve and zero much memory takes long.
		if err = s.format(&o); err != nil && o.Path != "" && !isDevice(s.r.file) {
			_ = s.r.file.Truncate(0) // as it was: the file stays
		}
	}
	if err == nil {
		s.m, err = mapFile(s.r.file, uintptr(s.r.start+s.r.size))
	}
	if err == nil {
		err = s.Err()
	}
	if err != nil {
		if s.r != nil {
			s.keep = kept
			err = errors.Join(err, s.Close())
		} else {
			c.close()
		}
		return nil, err
	}
	if o.Lease > 0 {
		s.c.lease().Store(uint64(o.Lease))
	}
	s.start()
	if o.Lease > 0 {
		s.stopping.Go(func() { s.enforce(&o) })
	}
	return s, nil
}

// openForServe opens the cluster, with its lock. What crashed members have left of
// it goes first; if that was all, it is created anew.
func openForServe(o *Options) (*cluster, error) {
	for {
		c, err := openCluster(context.Background(), o, true)
		if err != nil {
			return nil, err
		}
		if !c.isNew() && c.sweep(o.spared()) == 0 {
			c.unlock()
			c.close()
			continue
		}
		switch {
		case o.MaxCN != 0 && uint32(o.MaxCN) != c.maxCN:
			err = fmt.Errorf("%w: cluster %q was created for %d compute nodes, not %d; take that number (or, with 0, what there is), or stop all of it first",
				ErrOptions, o.Name, c.maxCN, o.MaxCN)
		case o.Key != 0 && o.Key != c.key:
			err = fmt.Errorf("%w: cluster %q has another key", fabric.ErrBadKey, o.Name)
		default:
			return c, nil
		}
		c.unlock()
		c.close()
		return nil, err
	}
}

// spared returns the memory node of which the memory is to be kept.
func (o *Options) spared() fabric.MemID {
	if o.Keep {
		return o.Mem
	}
	return noMN
}

// claim takes the region, and notes in the cluster that this process is about to
// serve it. The cluster's lock is held.
func (s *MemoryServer) claim(o *Options) (kept bool, err error) {
	r, kept, err := s.c.claim(o)
	if err != nil {
		return false, err
	}
	s.r = r
	slot := s.c.mn(s.id)
	s.epoch = liveWord(slot.live.Load()).epoch()
	if kept {
		s.epoch = max(s.epoch, r.live().epoch())
		s.huge = hugeOf(r)
	}
	s.epoch++
	slot.live.Store(uint64(makeLive(s.epoch, memStarting)))
	slot.pid.Store(uint64(os.Getpid()))
	slot.pidNS.Store(pidNamespace())
	return kept, nil
}

// format reserves the memory and writes the header. Operations are refused
// until start.
func (s *MemoryServer) format(o *Options) error {
	r := s.r
	page, have, err := headerPage(r.file)
	if err != nil {
		return err
	}
	if o.Huge != HugeOff {
		page = hugePageSize
	}
	device := isDevice(r.file)
	r.memoryHeader = memoryHeader{size: roundUp(o.Size, page), start: page, key: s.c.key, mem: s.id}
	switch {
	case device && o.Size == 0:
		r.size = have - page
	case o.Size == 0:
		return fmt.Errorf("%w: a new memory node needs a size", ErrOptions)
	case device && r.size > have-page:
		return fmt.Errorf("%w: %s has %d bytes, less than %d", ErrNoSpace, r.file.Name(), have-page, r.size)
	}
	if err := s.reserve(o, device); err != nil {
		return err
	}
	if err := r.mapHeader(page); err != nil {
		return err
	}
	r.blank = false
	r.liveWord().Store(uint64(makeLive(s.epoch, memStarting)))
	r.writeHeader()
	return nil
}

// reserve takes all memory now, so that no access finds none later.
func (s *MemoryServer) reserve(o *Options, device bool) error {
	f, total := s.r.file, int64(s.r.start+s.r.size)
	if device {
		s.huge = "device"
		return s.zero(total)
	}
	_, hugetlb := hugetlbPage(f)
	if hugetlb {
		s.huge = "hugetlbfs"
	}
	if err := unix.Ftruncate(int(f.Fd()), total); err != nil {
		return fmt.Errorf("%w: %d bytes for %s: %v", ErrNoSpace, total, f.Name(), err)
	}
	if o.Huge != HugeOff && !hugetlb {
		if s.note = s.adviseHuge(total); s.note == "" {
			s.huge = "transparent"
			s.r.flags |= flagHuge
		} else if o.Huge == HugeRequire {
			return fmt.Errorf("%w: no hugetlbfs with free 2 MiB pages is mounted, and transparent ones: %s",
				ErrNoHuge, s.note)
		}
	}
	if o.Sparse {
		return nil
	}
	err := allocate(f, total)
	if err != nil && hugetlb {
		return fmt.Errorf("%w; raise vm.nr_hugepages", err)
	}
	return err
}

// adviseHuge asks for transparent huge pages and takes them. It returns why
// there are none.
func (s *MemoryServer) adviseHuge(total int64) (why string) {
	m, err := mapFile(s.r.file, uintptr(total))
	if err != nil {
		return err.Error()
	}
	defer m.release()
	const setting = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
	text, err := os.ReadFile(setting)
	if err != nil || !shmemHugeAllowed(string(text)) {
		return fmt.Sprintf("%s does not say advise, within_size or always", setting)
	}
	mem := m.bytes(0, uintptr(total))
	if err := unix.Madvise(mem, unix.MADV_HUGEPAGE); err != nil {
		return fmt.Sprintf("madvise: %v", err)
	}
	// Touched through a mapping with the advice; fallocate knows of none.
	if err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE); err != nil {
		return fmt.Sprintf("populate: %v", err)
	}
	return ""
}

// zero clears a device. A file is new, and zero.
func (s *MemoryServer) zero(total int64) error {
	m, err := mapFile(s.r.file, uintptr(total))
	if err != nil {
		return err
	}
	defer m.release()
	clear(m.bytes(0, uintptr(total)))
	return nil
}

// start lets operations in.
func (s *MemoryServer) start() {
	s.r.key = s.c.key
	s.r.flags &^= flagKeep
	if s.keep {
		s.r.flags |= flagKeep
	}
	s.r.writeHeader()
	slot := s.c.mn(s.id)
	slot.size.Store(s.r.size)
	up := uint64(makeLive(s.epoch, memUp))
	s.r.liveWord().Store(up)
	slot.live.Store(up)
}

// Close ends the memory node: operations on it give fabric.ErrNodeDown. Its
// memory is removed, unless it was served with Keep or Path.
func (s *MemoryServer) Close() (err error) {
	s.close.Do(func() {
		close(s.stop)
		s.stopping.Wait()
		s.r.markDown()
		s.m.release()
		if err = s.c.lock(context.Background()); err != nil {
			// The files stay for the next server; this one is down.
			err = fmt.Errorf("%v of cluster %q is down, but its files are still there: %w", s.id, s.c.name, err)
			s.r.close()
			s.c.close()
			return
		}
		state := memAbsent
		if s.keep {
			state = memDown
		} else {
			s.c.removeRegion(s.id)
		}
		slot := s.c.mn(s.id)
		slot.pid.Store(0)
		slot.live.Store(uint64(makeLive(s.epoch, state)))
		s.r.close()
		s.c.sweep(noMN)
		s.c.unlock()
		s.c.close()
	})
	return err
}

// lookEvery is how often a server looks whether its files are as long as they were.
const lookEvery = 500 * time.Millisecond

// Done returns a channel that is closed when a file of the memory node, or that of the cluster, has been found truncated: Err says which. Clients
// are refused then. The first call starts a goroutine that looks twice a second until Close.
func (s *MemoryServer) Done() <-chan struct{} {
	s.watching.Do(func() { s.stopping.Go(s.watch) })
	return s.ended
}

// watch waits until a file is truncated, or the server is closed. It does not touch the memory: it may be huge.
func (s *MemoryServer) watch() {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for s.Err() == nil {
		select {
		case <-s.stop:
			return
		case <-t.C:
		}
	}
	s.lose()
	close(s.ended)
}

// lose lets no client in any more. Those that have not touched what is lost notice too.
func (s *MemoryServer) lose() {
	s.r.markDown()
	s.c.mn(s.id).live.CompareAndSwap(uint64(makeLive(s.epoch, memUp)), uint64(makeLive(s.epoch, memDown)))
}

// Err returns which of its files has been truncated; nil if none has. It is not called after Close.
func (s *MemoryServer) Err() error {
	if err := s.c.damage(); err != nil {
		return err
	}
	if st, err := s.c.file.Stat(); err == nil && st.Size() < clusterSize {
		s.c.intact()
		return s.c.damage()
	}
	for _, m := range []*mapping{s.r.m, s.m} {
		if m.isLost() {
			return s.lostMemory(m.lost())
		}
	}
	st, err := s.r.file.Stat()
	if err == nil && st.Mode().IsRegular() && st.Size() < int64(s.r.start+s.r.size) {
		return s.lostMemory(fmt.Errorf("%w: %s was truncated to %d bytes", ErrTruncated, s.r.file.Name(), st.Size()))
	}
	return nil
}

func (s *MemoryServer) lostMemory(err error) error {
	return fmt.Errorf("%w: %v: %w: start it again", fabric.ErrNodeDown, s.id, err)
}

// Unlink removes the names of the cluster's files. Those that have joined go on with the files that they have open; no other
// can join any more, and nothing is left of the cluster when their processes end, however they end.
func (s *MemoryServer) Unlink() error {
	if err := s.c.lock(context.Background()); err != nil {
		return err
	}
	defer s.c.unlock()
	for id := range s.c.cns() {
		s.c.removeCN(id)
	}
	for id := fabric.MemID(0); id < MaxMN; id++ {
		s.c.removeRegion(id)
	}
	removeDir(s.c.dir)
	if _, err := os.Lstat(s.c.dir); !errors.Is(err, os.ErrNotExist) {
		return errors.Join(fmt.Errorf("%w: %s has files that are not of shm", ErrFormat, s.c.dir), err)
	}
	return nil
}

// ID returns the number of the memory node.
func (s *MemoryServer) ID() fabric.MemID { return s.id }

// Word returns a word of its memory, for its own use; it is good until Close. The offset is a multiple of 8.
func (s *MemoryServer) Word(offset uint64) *atomic.Uint64 {
	return s.m.word(uintptr(s.r.start + offset))
}

// Epoch returns the epoch of the memory node: it grows with every Serve.
func (s *MemoryServer) Epoch() uint32 { return s.epoch }

// Size returns how many bytes operations can address.
func (s *MemoryServer) Size() uint64 { return s.r.size }

// Path returns the file or device that holds the memory.
func (s *MemoryServer) Path() string { return s.r.file.Name() }

// Huge returns what kind of huge pages the memory is in: "hugetlbfs",
// "transparent", "device", or nothing for pages of 4 KiB; and if huge pages were
// wanted and there are none, why.
func (s *MemoryServer) Huge() (kind, why string) { return s.huge, s.note }
