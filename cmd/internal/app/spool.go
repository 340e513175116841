package app

import (
	"errors"
	"io"
	"os"

	"github.com/declock/declock/cmd/internal/exit"
	"golang.org/x/sys/unix"
)

// spool copies standard input, as it is, to a temporary file without a name: every compute node
// reads it by itself, and nothing is left of it whatever happens.
func spool(in io.Reader) (*os.File, error) {
	dir := os.TempDir()
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, exit.Errorf(exit.Other, "no temporary file in %s for the trace from standard input (TMPDIR chooses another place): %w", dir, err)
	}
	f := os.NewFile(uintptr(fd), "trace from standard input")
	switch n, err := io.Copy(f, in); {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		_ = f.Close()
		return nil, exit.Errorf(exit.NoSpace, "the trace from standard input does not fit in %s: it was full after %d bytes; TMPDIR chooses another place", dir, n)
	case err != nil:
		_ = f.Close()
		return nil, exit.Errorf(exit.NoTrace, "reading the trace from standard input: %w", err)
	case n == 0:
		_ = f.Close()
		return nil, exit.Errorf(exit.BadTrace, "the trace from standard input is empty")
	}
	return f, nil
}
