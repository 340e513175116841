package shm

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"golang.org/x/sys/unix"
)

const (
	clusterFile = "cluster"
	clusterTemp = "cluster.tmp"
	bellSuffix  = ".bell"

	// lockTimeout is how long a process waits for the lock of a cluster's
	// directory. It is held for milliseconds, unless its holder is stopped.
	lockTimeout = 10 * time.Second
)

// A cluster is an open cluster directory. Its lock is held while files come
// and go; the slots in its file may be read and compared-and-swapped without.
type cluster struct {
	name, dir string
	file      *os.File
	m         *mapping
	clusterHeader

	// mu is the part of the lock that is between goroutines: the lock of a
	// file is its open file's.
	mu sync.Mutex
}

// openCluster opens a cluster and takes its lock. With create it makes the
// cluster if there is none.
func openCluster(ctx context.Context, o *Options, create bool) (*cluster, error) {
	for ctx.Err() == nil {
		c, err := loadCluster(o)
		switch {
		case err == nil:
			if err := c.lock(ctx); err != nil {
				c.close()
				return nil, err
			}
			if c.isCurrent() {
				return c, nil
			}
			c.unlock() // removed while we waited for the lock
			c.close()
		case !errors.Is(err, os.ErrNotExist):
			return nil, err
		case !create:
			return nil, fmt.Errorf("%w: %q in %s; start it first, as with: declock up --name %s", ErrNoCluster, o.Name, o.Dir, o.Name)
		default:
			// Another process may be creating it too, or removing what is left
			// of it: then the next look shows what has come of that.
			err := createCluster(o)
			if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrExist) {
				return nil, fmt.Errorf("create cluster %q: %w", o.Name, err)
			}
		}
	}
	return nil, ctx.Err()
}

// createCluster makes the directory and the file of a cluster. Another process
// may be doing the same, or removing the directory: the caller tries again.
func createCluster(o *Options) error {
	dir := clusterDir(o.Dir, o.Name)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: directory %s does not exist", ErrOptions, o.Dir)
		}
		return err
	}
	if err := checkDir(dir); err != nil {
		return err
	}
	h, err := newClusterHeader(o)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, clusterTemp)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := allocate(f, clusterSize); err != nil {
		return err
	}
	b := h.encode()
	if _, err := f.WriteAt(b[:], 0); err != nil {
		return err
	}
	return os.Link(f.Name(), filepath.Join(dir, clusterFile))
}

func newClusterHeader(o *Options) (h clusterHeader, err error) {
	h.maxCN = uint32(o.MaxCN)
	if h.maxCN == 0 {
		h.maxCN = DefaultMaxCN
	}
	h.slots = slotsFor(int(h.maxCN))
	h.key = o.Key
	for h.key == 0 {
		var b [8]byte
		rand.Read(b[:])
		h.key = binary.LittleEndian.Uint64(b[:])
	}
	h.clock, err = clockOffset()
	if err != nil {
		return h, err
	}
	h.bootID, err = bootID()
	return h, err
}

// bootID tells one boot of the machine from another.
func bootID() (id [16]byte, err error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, err
	}
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("boot ID %q", text)
	}
	return [16]byte(b), nil
}

// loadCluster opens the file of an existing cluster, without its lock.
func loadCluster(o *Options) (*cluster, error) {
	c := &cluster{name: o.Name, dir: clusterDir(o.Dir, o.Name)}
	if err := checkDir(c.dir); err != nil {
		return nil, err
	}
	f, err := openOwn(filepath.Join(c.dir, clusterFile))
	if err != nil {
		return nil, err
	}
	c.file = f
	if err := c.load(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *cluster) load() error {
	st, err := c.file.Stat()
	if err != nil {
		return err
	}
	if st.Size() < clusterSize {
		return fmt.Errorf("%w: %w: %s has %d bytes, not %d; end all processes of the cluster and remove the directory",
			ErrFormat, ErrTruncated, c.file.Name(), st.Size(), clusterSize)
	}
	var b [headerSize]byte
	if _, err := c.file.ReadAt(b[:], 0); err != nil {
		return fmt.Errorf("%w: %s: %v", ErrFormat, c.file.Name(), err)
	}
	if err := c.decode(b[:]); err != nil {
		return fmt.Errorf("%s: %w; if no process uses it, remove the directory", c.file.Name(), err)
	}
	if st.Size() != clusterSize {
		return fmt.Errorf("%w: %s has %d bytes, not %d", ErrFormat, c.file.Name(), st.Size(), clusterSize)
	}
	c.m, err = mapFile(c.file, uintptr(clusterSize))
	return err
}

// checkBoot renews the clock of a cluster whose directory has survived a
// reboot. No process can be using it.
func (c *cluster) checkBoot() error {
	id, err := bootID()
	if err != nil || id == c.bootID {
		return err
	}
	if c.clock, err = clockOffset(); err != nil {
		return err
	}
	c.bootID = id
	b := c.encode()
	copy(c.m.bytes(0, headerSize), b[:])
	return nil
}

// lock takes the lock of the directory. The kernel has no lock call that a
// context can end, so it asks again and again, less and less often.
func (c *cluster) lock(ctx context.Context) error {
	c.mu.Lock()
	limit := time.Now().Add(lockTimeout)
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, 5*time.Millisecond) {
		ok, err := tryLock(c.file)
		if ok {
			if err = c.intact(); err == nil {
				err = c.checkBoot()
			}
			if err == nil {
				return nil
			}
			_ = unlock(c.file)
		}
		if err == nil && time.Now().After(limit) {
			err = fmt.Errorf("%w: %s, by another process for more than %v: is one stopped?", ErrBusy, c.dir, lockTimeout)
		}
		if err != nil {
			c.mu.Unlock()
			return err
		}
		select {
		case <-ctx.Done():
			c.mu.Unlock()
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// intact returns an error if a page of the cluster's file is missing. A caller that reads a missing page sees empty slots: members that are alive
// would look as if they had left.
func (c *cluster) intact() error {
	for page := uintptr(0); page < uintptr(clusterSize); page += pageSize {
		c.m.word(page).Load()
	}
	return c.damage()
}

// damage returns why the cluster's file cannot be used any more; nil if nothing is known to be wrong with it.
func (c *cluster) damage() error {
	if err := c.m.lost(); err != nil {
		return fmt.Errorf("%w: end all processes of cluster %q, remove what is left with \"declock clean %s\", and start its memory nodes again", err, c.name, c.name)
	}
	return nil
}

func (c *cluster) unlock() {
	// Closing the file unlocks too, so that an error here changes nothing.
	_ = unlock(c.file)
	c.mu.Unlock()
}

// isCurrent reports whether the open file is still the cluster's.
func (c *cluster) isCurrent() bool {
	mine, err1 := c.file.Stat()
	now, err2 := os.Stat(c.file.Name())
	return err1 == nil && err2 == nil && os.SameFile(mine, now)
}

func (c *cluster) close() {
	c.m.release()
	_ = c.file.Close()
}

// cns returns the numbers that compute nodes may have.
func (c *cluster) cns() iter.Seq[fabric.CNID] {
	return func(yield func(fabric.CNID) bool) {
		for n := uint32(1); n <= c.maxCN && yield(fabric.CNID(n)); n++ {
		}
	}
}

func (c *cluster) cn(id fabric.CNID) *cnSlot {
	return (*cnSlot)(c.m.at(cnSlotsOffset + uintptr(id)*cacheLine))
}

func (c *cluster) mn(id fabric.MemID) *mnSlot {
	return (*mnSlot)(c.m.at(uintptr(mnSlotsOffset) + uintptr(id)*cacheLine))
}

func (c *cluster) path(file string) string { return filepath.Join(c.dir, file) }

func (c *cluster) cnPath(id fabric.CNID) string { return c.path(id.String()) }

func (c *cluster) bellPath(id fabric.CNID) string { return c.path(id.String() + bellSuffix) }

func (c *cluster) mnPath(id fabric.MemID) string { return c.path(id.String()) }

// view returns the live compute nodes. Counters only grow, so that reading all
// of them twice with the same result is reading them at one time, and their
// sum names the set.
func (c *cluster) view() (_ fabric.View, counters [int(fabric.MaxCN) + 1]uint64) {
	for same := false; !same; {
		same = true
		for id := range c.cns() {
			k := c.cn(id).counter.Load()
			same = same && k == counters[id]
			counters[id] = k
		}
	}
	return viewOf(counters[:c.maxCN+1], c.lost().Load()), counters
}

// viewOf returns the view with counters.
func viewOf(counters []uint64, lost uint64) fabric.View {
	v := fabric.View{Lost: lost}
	for id, k := range counters {
		v.Epoch += k
		if isLive(k) {
			v.Live.Add(fabric.CNID(id))
		}
	}
	return v
}

// isLive reports whether a cnSlot's counter is that of a live compute node.
func isLive(counter uint64) bool { return counter%2 == 1 }

// endCN notes that an incarnation of a compute node has ended. Of those that
// notice, one gets true.
func (c *cluster) endCN(id fabric.CNID, incarnation uint64) bool {
	return c.cn(id).counter.CompareAndSwap(incarnation, incarnation+1)
}

// loseCN is endCN for an incarnation that has crashed. The count of the lost grows
// first, so that no view shows the end without it.
func (c *cluster) loseCN(id fabric.CNID, incarnation uint64) bool {
	if c.cn(id).counter.Load() != incarnation {
		return false
	}
	c.lost().Add(1)
	return c.endCN(id, incarnation)
}

func (c *cluster) lost() *atomic.Uint64 { return c.m.word(lostOffset) }

// cnAlive reports whether the process of a compute node exists. The lock is held.
func (c *cluster) cnAlive(id fabric.CNID) bool {
	return isLive(c.cn(id).counter.Load()) && pathLocked(c.cnPath(id))
}

// removeCN removes the files of a compute node that is not alive. The lock is
// held.
func (c *cluster) removeCN(id fabric.CNID) {
	_ = os.Remove(c.cnPath(id))
	_ = os.Remove(c.bellPath(id))
}

// mnAlive reports whether the server of a memory node exists. In doubt it does. The lock is held.
func (c *cluster) mnAlive(id fabric.MemID) bool {
	path, err := regionPath(c.mnPath(id))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	return pathLocked(path)
}

// sweep removes what crashed members have left, but for memory that is to be kept,
// and the cluster itself if no member and no memory remains. It returns how much
// does. The memory of spare is not touched. The lock is held.
func (c *cluster) sweep(spare fabric.MemID) (members int) {
	for id := range c.cns() {
		k := c.cn(id).counter.Load()
		if c.cnAlive(id) || c.m.isLost() {
			members++
			continue
		}
		if isLive(k) {
			c.loseCN(id, k)
		}
		c.removeCN(id)
	}
	for id := fabric.MemID(0); id < MaxMN; id++ {
		if _, err := os.Lstat(c.mnPath(id)); err != nil {
			continue
		}
		if id == spare || c.mnAlive(id) || c.retireRegion(id) {
			members++
		}
	}
	if members == 0 {
		removeDir(c.dir)
	}
	return members
}

// noMN spares no memory node.
const noMN = fabric.MemID(MaxMN)

// isNew reports whether there has never been a member.
func (c *cluster) isNew() bool {
	for id := fabric.MemID(0); id < MaxMN; id++ {
		if c.mn(id).live.Load() != 0 {
			return false
		}
	}
	v, _ := c.view()
	return v.Epoch == 0
}

// retireRegion notes that the server of a memory node has gone, and removes its
// memory unless it is to be kept. The lock is held.
func (c *cluster) retireRegion(id fabric.MemID) (kept bool) {
	s := c.mn(id)
	epoch := liveWord(s.live.Load()).epoch()
	path, err := regionPath(c.mnPath(id))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) // as below
	}
	r, err := openRegion(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return true // not ours to remove: the next server of it gets the error
	}
	if err == nil {
		defer r.close()
	}
	if err == nil && !r.blank {
		r.markDown()
		epoch = max(epoch, r.live().epoch())
		if r.flags&flagKeep != 0 {
			s.live.Store(uint64(makeLive(epoch, memDown)))
			return true
		}
	}
	s.live.Store(uint64(makeLive(epoch, memAbsent)))
	c.removeRegion(id)
	return false
}

// removeDir removes the files of a cluster, and its directory if it is empty
// then: files of others are not ours to remove.
func removeDir(dir string) {
	// The cluster file goes last: without it the others cannot be found.
	temps, _ := filepath.Glob(filepath.Join(dir, clusterTemp+"*"))
	for _, path := range append(temps, filepath.Join(dir, clusterFile)) {
		_ = os.Remove(path)
	}
	_ = unix.Rmdir(dir)
}

// allocate makes a file n bytes long with all of its memory, so that there is no
// access later that finds none: see package mapped.
func allocate(f *os.File, n int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, n)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EFBIG), errors.Is(err, unix.EDQUOT):
			return fmt.Errorf("%w: %d bytes for %s: %v; ask for less, or free some", ErrNoSpace, n, f.Name(), err)
		case errors.Is(err, unix.EOPNOTSUPP):
			return fmt.Errorf("%w: the file system of %s cannot reserve memory (%v); use a memory file system, or Sparse",
				ErrUnsupported, f.Name(), err)
		}
		return fmt.Errorf("reserve %d bytes for %s: %w", n, f.Name(), err)
	}
}
