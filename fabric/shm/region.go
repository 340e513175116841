package shm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"golang.org/x/sys/unix"
)

// pointerPrefix starts the file mnN of a memory node whose memory is elsewhere.
// The path follows, and a newline.
const pointerPrefix = "declock: the memory is at "

// regionPath returns where the memory of the memory node with the file mnPath
// is: there, or where it points to.
func regionPath(mnPath string) (string, error) {
	f, err := openOwn(mnPath)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, pageSize))
	if err != nil {
		return "", err
	}
	target, isPointer := strings.CutPrefix(string(text), pointerPrefix)
	if !isPointer {
		return mnPath, nil
	}
	return strings.TrimSuffix(target, "\n"), nil
}

// A region is the open file of a memory node: its header is mapped.
type region struct {
	file  *os.File
	m     *mapping // the header page; nil if the file is empty
	blank bool     // there is no header: new, or its server ended before it wrote one
	memoryHeader
}

// openRegion opens a memory node's memory and reads its header.
func openRegion(path string) (*region, error) { return openTo(path, (*region).load) }

// openHeader opens a memory node's memory of which all but the header may be missing.
func openHeader(path string) (*region, error) {
	return openTo(path, func(r *region) error {
		n, size, err := headerPage(r.file)
		if err == nil && size < n {
			err = fmt.Errorf("%w: %s has %d bytes", ErrTruncated, path, size)
		}
		if err == nil {
			err = r.mapHeader(n)
		}
		return err
	})
}

// openTo opens a memory node's memory, of which load reads what is needed.
func openTo(path string, load func(*region) error) (*region, error) {
	f, err := openFile(path, 0) // the operator may name it by a symbolic link
	if err != nil {
		return nil, err
	}
	r := &region{file: f}
	if err := load(r); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// load maps and reads the header of the file.
func (r *region) load() error {
	n, size, err := headerPage(r.file)
	if err != nil {
		return err
	}
	if size == 0 {
		r.blank = true
		return nil
	}
	if size < n {
		return fmt.Errorf("%w: %s has %d bytes", ErrFormat, r.file.Name(), size)
	}
	if err := r.mapHeader(n); err != nil {
		return err
	}
	if r.blank = bytes.Count(r.m.bytes(0, pageSize), []byte{0}) == pageSize; r.blank {
		return nil
	}
	if err := r.decode(r.m.bytes(0, headerSize)); err != nil {
		return fmt.Errorf("%s: %w", r.file.Name(), err)
	}
	if size < r.start || size-r.start < r.size {
		return fmt.Errorf("%w: %w: %s has %d bytes, its header says %d; end all processes of the cluster and remove the file", ErrFormat, ErrTruncated, r.file.Name(), size, r.start+r.size)
	}
	return nil
}

func (r *region) mapHeader(n uint64) (err error) {
	if r.m != nil {
		r.m.release()
	}
	r.m, err = mapFile(r.file, uintptr(n))
	return err
}

func (r *region) close() {
	r.m.release()
	_ = r.file.Close()
}

func (r *region) liveWord() *atomic.Uint64 { return r.m.word(memoryLiveOffset) }

func (r *region) live() liveWord { return liveWord(r.liveWord().Load()) }

// markDown makes all that still have the memory mapped see that its server
// has gone.
func (r *region) markDown() {
	if r.m == nil || r.blank {
		return
	}
	w := r.live()
	r.liveWord().CompareAndSwap(uint64(w), uint64(makeLive(w.epoch(), memDown)))
}

// writeHeader writes the header through the mapping: huge page files and
// devices know no write call.
func (r *region) writeHeader() {
	b := r.encode()
	copy(r.m.bytes(0, headerSize), b[:])
}

// headerPage returns the smallest part of a file that can be mapped, and the
// size of the file or device.
func headerPage(f *os.File) (page, size uint64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", f.Name(), err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFCHR:
		size, err := deviceSize(st.Rdev)
		return hugePageSize, size, err
	default:
		return 0, 0, fmt.Errorf("%w: %s is neither a file nor a DAX device", ErrOptions, f.Name())
	}
	if page, ok := hugetlbPage(f); ok {
		return page, uint64(st.Size), nil
	}
	return pageSize, uint64(st.Size), nil
}

// hugetlbPage reports whether a file is on hugetlbfs, and the size of its pages.
func hugetlbPage(f *os.File) (uint64, bool) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return 0, false
	}
	return uint64(fs.Bsize), fs.Type == unix.HUGETLBFS_MAGIC
}

// deviceSize returns the size of a DAX device.
func deviceSize(rdev uint64) (uint64, error) {
	path := fmt.Sprintf("/sys/dev/char/%d:%d/size", unix.Major(rdev), unix.Minor(rdev))
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("%w: not a DAX device: %v", ErrOptions, err)
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

func isDevice(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// removeRegion removes the memory of a memory node, but never what Options.Path
// named: then only the pointer to it goes. The lock is held.
func (c *cluster) removeRegion(id fabric.MemID) {
	mnPath := c.mnPath(id)
	if path, err := regionPath(mnPath); err == nil && c.choseItself(path, id) {
		_ = os.Remove(path)
	}
	_ = os.Remove(mnPath)
}

// choseItself reports whether create chose the path of a memory node's memory: a file on hugetlbfs.
func (c *cluster) choseItself(path string, id fabric.MemID) bool {
	if filepath.Base(path) != c.hugeName(id) {
		return false
	}
	var fs unix.Statfs_t
	return unix.Statfs(filepath.Dir(path), &fs) == nil && fs.Type == unix.HUGETLBFS_MAGIC
}

// hugeName returns the name of a memory node's file on hugetlbfs.
func (c *cluster) hugeName(id fabric.MemID) string {
	return fmt.Sprintf("%s%s-%v", dirPrefix, c.name, id)
}

// claim makes the caller the server of a memory node: it returns its region,
// locked, and whether there is memory in it to be kept. The cluster's lock is
// held.
func (c *cluster) claim(o *Options) (r *region, keep bool, err error) {
	mnPath := c.mnPath(o.Mem)
	old, err := regionPath(mnPath)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, false, err
	}
	if err == nil {
		keep := o.Keep && (o.Path == "" || o.Path == old)
		r, err := c.reclaim(old, o, keep)
		if err != nil || keep && !r.blank {
			return r, keep, err
		}
		r.close()
		c.removeRegion(o.Mem)
	}
	if o.Path == "" {
		r, err = c.create(mnPath, o)
		return r, false, err
	}
	if _, err := os.Stat(o.Path); err == nil {
		return c.claimPath(o)
	}
	r, err = c.create(o.Path, o)
	return r, false, err
}

// claimPath is claim where the file or device of Options.Path is there. An empty file and a device whose first page is zero are formatted; a
// file that begins with zeros may be another program's data.
func (c *cluster) claimPath(o *Options) (r *region, keep bool, err error) {
	if r, err = c.reclaim(o.Path, o, true); err != nil {
		return nil, false, err
	}
	if st, serr := r.file.Stat(); r.blank && !isDevice(r.file) && (serr != nil || st.Size() != 0) {
		err = fmt.Errorf("%w: %s has no header of memory and is not empty; remove it or choose another", ErrFormat, o.Path)
	}
	if err == nil {
		err = c.point(c.mnPath(o.Mem), o.Path)
	}
	if err != nil {
		r.close()
		return nil, false, err
	}
	return r, !r.blank, nil
}

// reclaim opens and locks a region of which the server should have ended. If the memory is
// to be kept its header must be right; if not, it must at least not be
// another program's data.
func (c *cluster) reclaim(path string, o *Options, keep bool) (*region, error) {
	f, err := openFile(path, 0) // the operator may name it by a symbolic link
	if err != nil {
		if !errors.Is(err, ErrForeign) {
			err = fmt.Errorf("%w: cannot serve memory in this file: %v", ErrOptions, err)
		}
		return nil, err
	}
	r := &region{file: f}
	ok, err := tryLock(f)
	if err == nil && !ok {
		err = fmt.Errorf("%w: %v of cluster %q (%s) is being served%s; stop that server first",
			ErrInUse, o.Mem, o.Name, path, c.serverOf(o.Mem))
	}
	if err == nil {
		err = r.load()
	}
	keep = keep && !r.blank
	if err == nil && keep && o.Key != 0 && r.key != o.Key {
		err = fmt.Errorf("%w: %s has another key", fabric.ErrBadKey, path)
	}
	if err == nil && keep && o.Size != 0 && roundUp(o.Size, r.start) != r.size {
		err = fmt.Errorf("%w: %s has %d bytes, not %d; leave Size out to keep it, or %s to start anew",
			ErrOptions, path, r.size, o.Size, map[bool]string{true: "remove the file", false: "leave Keep out"}[o.Path != ""])
	}
	if err != nil {
		r.close()
		return nil, err
	}
	r.markDown()
	return r, nil
}

// serverOf names the process that serves a memory node, for a message.
func (c *cluster) serverOf(id fabric.MemID) string {
	if pid := c.mn(id).pid.Load(); pid != 0 {
		return fmt.Sprintf(" by process %d", pid)
	}
	return ""
}

// create makes the file of a memory node, empty and locked. With a policy for
// huge pages it goes to where those are.
func (c *cluster) create(path string, o *Options) (*region, error) {
	if o.Path == "" && o.Huge != HugeOff {
		if mount := hugetlbMount(); mount != "" && freeHuge() >= o.Size+hugePageSize {
			path = filepath.Join(mount, c.hugeName(o.Mem))
			// A leftover that no pointer leads to any more.
			if !pathLocked(path) {
				_ = os.Remove(path)
			}
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	r := &region{file: f}
	if ok, err := tryLock(f); err != nil || !ok {
		r.close()
		return nil, errors.Join(fmt.Errorf("%w: %s was taken by another process", ErrInUse, path), err)
	}
	if err := c.point(c.mnPath(o.Mem), path); err != nil {
		_ = os.Remove(path)
		r.close()
		return nil, err
	}
	return r, nil
}

// point makes the file of a memory node lead to a path, if it is not there
// itself.
func (c *cluster) point(mnPath, path string) error {
	if mnPath == path {
		return nil
	}
	return os.WriteFile(mnPath, []byte(pointerPrefix+path+"\n"), 0o600)
}

// hugetlbMount returns a mounted hugetlbfs with 2 MiB pages in which this
// process may create files, or nothing.
func hugetlbMount() string {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 3 || fields[2] != "hugetlbfs" || unix.Access(fields[1], unix.W_OK) != nil {
			continue
		}
		var fs unix.Statfs_t
		if unix.Statfs(fields[1], &fs) == nil && fs.Bsize == hugePageSize {
			return fields[1]
		}
	}
	return ""
}

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }
