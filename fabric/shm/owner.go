package shm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A process maps the files of a cluster. A user that can truncate one of them takes the process out of the cluster, and one that can write to one changes what it
// does. So every file and directory of a cluster must belong to the user that runs the process, and to no other: each is looked
// at when it is opened. This holds for root, too: it opens no cluster of another user. A device that Options.Path names is the operator's choice.

// checkOwner refuses what others than this process's user may change.
func checkOwner(path string, st *unix.Stat_t) error {
	if me := os.Geteuid(); int(st.Uid) != me {
		return fmt.Errorf("%w: %s belongs to user %d, and this process runs as user %d: run it as that user, or take another name or directory",
			ErrForeign, path, st.Uid, me)
	}
	if st.Mode&0o022 != 0 {
		return fmt.Errorf("%w: %s has mode %#o, so that other users can write to it: take that away with chmod go-w, if it has not been made use of",
			ErrForeign, path, st.Mode&0o7777)
	}
	return nil
}

// checkFile refuses an open file that others may change.
func checkFile(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFCHR {
		return nil
	}
	return checkOwner(f.Name(), &st)
}

// openOwn opens a file of a cluster's directory for reading and writing, which is neither a symbolic link nor another user's.
func openOwn(path string) (*os.File, error) { return openFile(path, unix.O_NOFOLLOW) }

func openFile(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|flags, 0)
	if errors.Is(err, unix.ELOOP) {
		err = fmt.Errorf("%w: %s is a symbolic link", ErrForeign, path)
	}
	if err != nil {
		return nil, err
	}
	if err := checkFile(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// checkDir refuses the directory of a cluster if others may change what is in it, or put another in its place.
func checkDir(dir string) error {
	var st, parent unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
	case unix.S_IFLNK:
		return fmt.Errorf("%w: %s is a symbolic link", ErrForeign, dir)
	default:
		return fmt.Errorf("%w: %s is no directory", ErrForeign, dir)
	}
	if err := checkOwner(dir, &st); err != nil {
		return err
	}
	above := filepath.Dir(dir)
	if err := unix.Stat(above, &parent); err != nil {
		return &os.PathError{Op: "stat", Path: above, Err: err}
	}
	if parent.Mode&0o002 != 0 && parent.Mode&unix.S_ISVTX == 0 {
		return fmt.Errorf("%w: all users can replace directories in %s, which has mode %#o: set its sticky bit (chmod +t), or take another directory",
			ErrForeign, above, parent.Mode&0o7777)
	}
	return nil
}
