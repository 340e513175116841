package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
)

// A ClusterInfo says what there is of a cluster.
type ClusterInfo struct {
	Name    string
	Dir     string // its directory
	MaxCN   int
	View    fabric.View
	Memory  []MemoryInfo
	Compute []ComputeInfo
	// Broken says why the cluster cannot be used, if so.
	Broken error
}

// A MemoryInfo says what there is of a memory node.
type MemoryInfo struct {
	fabric.Memory
	Path  string // the file or device with the memory
	PID   int    // of its server, even if that has crashed; 0 if it closed
	Alive bool
	Keep  bool // outlives its server
	// Broken says why the memory cannot be used, if so.
	Broken error
}

// A ComputeInfo says what there is of a compute node.
type ComputeInfo struct {
	ID          fabric.CNID
	PID         int
	Alive       bool
	Incarnation uint64
	Joined      fabric.Time
}

// Alive reports whether the cluster is in use.
func (i *ClusterInfo) Alive() bool {
	return slices.ContainsFunc(i.Memory, func(m MemoryInfo) bool { return m.Alive }) ||
		slices.ContainsFunc(i.Compute, func(c ComputeInfo) bool { return c.Alive })
}

// List returns the names of the clusters in a directory (DefaultDir if empty),
// in use or not.
func List(dir string) ([]string, error) {
	o := Options{Name: "list", Dir: dir}
	if err := o.check(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), dirPrefix)
		if ok && e.IsDir() && checkName(name) == nil && looksOurs(filepath.Join(o.Dir, e.Name())) {
			names = append(names, name)
		}
	}
	return names, nil
}

// looksOurs reports whether a directory has files that are a cluster's, or none.
func looksOurs(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if isOurs(e.Name()) {
			return true
		}
	}
	return len(entries) == 0
}

// isOurs reports whether a file name is one that shm gives.
func isOurs(name string) bool {
	var id int
	var rest string
	if name == clusterFile || strings.HasPrefix(name, clusterTemp) {
		return true
	}
	for _, kind := range []string{"mn%d%s", "cn%d%s"} {
		n, _ := fmt.Sscanf(name, kind, &id, &rest)
		if n == 1 || n == 2 && rest == bellSuffix {
			return true
		}
	}
	return false
}

// Inspect tells what there is of a cluster. It takes no lock and changes
// nothing.
func Inspect(dir, name string) (*ClusterInfo, error) {
	o := Options{Name: name, Dir: dir}
	if err := o.check(); err != nil {
		return nil, err
	}
	info := &ClusterInfo{Name: name, Dir: clusterDir(o.Dir, name)}
	c, err := loadCluster(&o)
	if errors.Is(err, os.ErrNotExist) {
		if _, errDir := os.Stat(info.Dir); errDir != nil {
			return nil, fmt.Errorf("%w: %q in %s", ErrNoCluster, name, o.Dir)
		}
	}
	if err != nil {
		info.Broken = err
		return info, nil
	}
	defer c.close()
	info.MaxCN = int(c.maxCN)
	info.View, _ = c.view()
	for id := fabric.MemID(0); id < MaxMN; id++ {
		if m, ok := c.inspectMN(id); ok {
			info.Memory = append(info.Memory, m)
		}
	}
	for id := range c.cns() {
		s := c.cn(id)
		if _, err := os.Lstat(c.cnPath(id)); err != nil {
			continue
		}
		info.Compute = append(info.Compute, ComputeInfo{
			ID: id, PID: int(s.pid.Load()), Alive: c.cnAlive(id),
			Incarnation: s.counter.Load(), Joined: fabric.Time(s.joined.Load()),
		})
	}
	info.Broken = c.damage()
	return info, nil
}

func (c *cluster) inspectMN(id fabric.MemID) (m MemoryInfo, ok bool) {
	path, err := regionPath(c.mnPath(id))
	if err != nil {
		return m, false
	}
	s := c.mn(id)
	m.ID, m.Size, m.Epoch = id, s.size.Load(), liveWord(s.live.Load()).epoch()
	m.Path, m.PID, m.Alive = path, int(s.pid.Load()), c.mnAlive(id)
	r, err := openRegion(path)
	if err == nil {
		m.Keep = r.flags&flagKeep != 0
		r.close()
	} else if errors.Is(err, ErrTruncated) {
		m.Broken = err
	}
	if err := c.truncated(id); err != nil {
		m.Broken = err
	}
	return m, true
}

// Remove removes what is left of a cluster, memory that was to be kept too, but
// no file that Options.Path named. It refuses with ErrInUse while it is in use.
func Remove(dir, name string) error {
	o := Options{Name: name, Dir: dir}
	if err := o.check(); err != nil {
		return err
	}
	c, err := openCluster(context.Background(), &o, false)
	if errors.Is(err, ErrFormat) || errors.Is(err, ErrNoCluster) {
		return removeBroken(&o, err)
	}
	if err != nil {
		return err
	}
	defer c.close()
	defer c.unlock()
	for id := range c.cns() {
		if c.cnAlive(id) {
			return fmt.Errorf("%w: %v of cluster %q is process %d", ErrInUse, id, name, c.cn(id).pid.Load())
		}
	}
	for id := fabric.MemID(0); id < MaxMN; id++ {
		if c.mnAlive(id) {
			return fmt.Errorf("%w: %v of cluster %q is served%s", ErrInUse, id, name, c.serverOf(id))
		}
	}
	for id := fabric.MemID(0); id < MaxMN; id++ {
		c.removeRegion(id)
	}
	c.sweep(noMN)
	return nil
}

// removeBroken removes a directory that cannot be read as a cluster, unless one
// of its files is locked.
func removeBroken(o *Options, cause error) error {
	dir := clusterDir(o.Dir, o.Name)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return cause
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !e.Type().IsRegular() {
			continue // a bell: to read it is to wait for its ringing
		}
		if target, err := regionPath(path); err == nil && pathLocked(target) {
			return fmt.Errorf("%w: another process has locked %s", ErrInUse, target)
		}
	}
	for _, e := range entries {
		if isOurs(e.Name()) && e.Name() != clusterFile {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	removeDir(dir)
	if _, err := os.Stat(dir); err == nil {
		return fmt.Errorf("%w: %s has files that are not of shm", ErrFormat, dir)
	}
	return nil
}
