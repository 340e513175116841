package shm

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Locks are open file description locks: they belong to the open file, so that
// several nodes of one process have their own, and the kernel drops them when
// the process ends, however it ends. (Locks of fcntl's older kind belong to the
// process, and go when it closes any descriptor of the file.) Unlike flock,
// they can be looked at without being taken.

func wholeFile(kind int16) unix.Flock_t {
	return unix.Flock_t{Type: kind, Whence: unix.SEEK_SET}
}

// tryLock takes the exclusive lock of an open file. It is given back by unlock,
// or when the last descriptor and the last mapping of that open file are gone.
func tryLock(f *os.File) (bool, error) {
	lk := wholeFile(unix.F_WRLCK)
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lk)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return true, nil
}

func unlock(f *os.File) error {
	lk := wholeFile(unix.F_UNLCK)
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lk)
}

// isLocked reports whether another process, or another open file of this one, holds the lock of an open file.
func isLocked(f *os.File) (bool, error) {
	lk := wholeFile(unix.F_WRLCK)
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lk); err != nil {
		return false, fmt.Errorf("look at the lock of %s: %w", f.Name(), err)
	}
	return lk.Type != unix.F_UNLCK, nil
}

// pathLocked reports whether the file at a path exists and is locked: whether
// its owner exists. In doubt it does: out of descriptors is no proof of its end.
func pathLocked(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	locked, err := isLocked(f)
	return err != nil || locked
}
