package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/cmd/internal/units"
	"github.com/declock/declock/coordinator/embedded"
	"golang.org/x/sys/unix"
)

// An Etcd is an etcd in this process, for an embedded cluster over a network. Its directory is gone with it.
type Etcd struct {
	Dir    string
	server *embedded.Server
	lock   *os.File
}

const (
	etcdLock = "lock"
	// etcdRoom is what an etcd takes on disk at its start: two segments of its log, of 64 MB each, and a database.
	etcdRoom = 160 << 20
)

// roomFor refuses a directory with less free room than is needed: an etcd that finds none panics.
func roomFor(dir string, need uint64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("how much room is in %s: %w", dir, err)
	}
	if free := st.Bavail * uint64(st.Bsize); free < need {
		return exit.Errorf(exit.NoSpace, "the etcd of the cluster takes %s in %s, where %s are free: make room, or choose another place with TMPDIR or --run-dir",
			units.Bytes(need), dir, units.Bytes(free))
	}
	return nil
}

// StartEtcd starts an etcd in a directory, and removes first what a dead one left there.
func StartEtcd(ctx context.Context, dir string) (*Etcd, error) {
	if err := scheme.PrivateDir(dir); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	e := &Etcd{Dir: dir, lock: lock}
	if err = e.empty(); err == nil {
		err = roomFor(dir, etcdRoom)
	}
	if err == nil {
		e.server, err = embedded.Start(ctx, embedded.Options{Dir: dir})
	}
	if e.server == nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// lockDir locks a directory against other processes, for as long as the file is open.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, etcdLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, exit.Errorf(exit.InUse, "%s is in use by another process", dir)
	}
	return f, nil
}

// empty removes all but the lock.
func (e *Etcd) empty() error {
	list, err := os.ReadDir(e.Dir)
	for _, f := range list {
		if f.Name() != etcdLock {
			err = errors.Join(err, os.RemoveAll(filepath.Join(e.Dir, f.Name())))
		}
	}
	return err
}

// Socket returns the path of the socket on which it listens.
func (e *Etcd) Socket() string { return filepath.Join(e.Dir, "etcd.sock") }

// Close stops it, and removes its directory.
func (e *Etcd) Close() error {
	var err error
	if e.server != nil {
		err = e.server.Close()
	}
	err = errors.Join(err, os.RemoveAll(e.Dir), e.lock.Close())
	_ = os.Remove(filepath.Dir(e.Dir)) // fails as long as anything is in it
	return err
}

// RemoveDeadEtcds removes the directories that dead etcds of this program left below a directory, by the prefix of their
// names. What is not one of theirs stays.
func RemoveDeadEtcds(base, prefix string) (removed []string) {
	list, _ := os.ReadDir(base)
	for _, d := range list {
		dir := filepath.Join(base, d.Name())
		if !strings.HasPrefix(d.Name(), prefix) {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, etcdLock)); err != nil {
			continue
		}
		lock, err := lockDir(dir)
		if err != nil {
			continue // alive
		}
		if os.RemoveAll(dir) == nil {
			removed = append(removed, d.Name())
		}
		_ = lock.Close()
	}
	return removed
}
