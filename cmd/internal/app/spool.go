package app

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/declock/declock/cmd/internal/exit"
	"golang.org/x/sys/unix"
)

// readOnce reports whether a trace can be read only once, and only by this process: a pipe, a terminal, or what has another meaning in
// another process, as /dev/stdin and /dev/fd/63. What is not there, or is a directory, can be read again: it is the same error.
func readOnce(path string) bool {
	st, err := os.Stat(path)
	if err != nil || st.IsDir() {
		return false
	}
	return !st.Mode().IsRegular() || strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, "/proc/")
}

// spoolPath spools a trace that can be read only once. To open a named pipe waits for its writer.
func spoolPath(ctx context.Context, path, name string) (*os.File, error) {
	var in *os.File
	var err error
	if !untilInterrupted(ctx, func() { in, err = os.Open(path) }) {
		return nil, interruptedEarly()
	}
	if err != nil {
		return nil, exit.Errorf(exit.NoTrace, "cannot open the trace: %w", err)
	}
	defer in.Close()
	return spool(ctx, in, name)
}

// spool copies a trace that can be read only once, as it is, to a temporary file without a name: every compute node
// reads it by itself, and nothing is left of it whatever happens.
func spool(ctx context.Context, in io.Reader, name string) (*os.File, error) {
	dir := os.TempDir()
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return nil, exit.Errorf(exit.NoSpace, "no room in %s for the trace from %s: %w; TMPDIR chooses another place", dir, name, err)
	case err != nil:
		return nil, exit.Errorf(exit.Other, "no temporary file in %s for the trace from %s (TMPDIR chooses another place): %w", dir, name, err)
	}
	f := os.NewFile(uintptr(fd), "trace from "+name)
	var n int64
	if !untilInterrupted(ctx, func() { n, err = io.Copy(f, in) }) {
		return nil, interruptedEarly() // the copy may go on until the process ends: the file is its own
	}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		err = exit.Errorf(exit.NoSpace, "the trace from %s does not fit in %s: it was full after %d bytes; TMPDIR chooses another place", name, dir, n)
	case err != nil:
		err = exit.Errorf(exit.NoTrace, "reading the trace from %s: %w", name, err)
	case n == 0:
		err = exit.Errorf(exit.BadTrace, "the trace from %s is empty", name)
	default:
		return f, nil
	}
	_ = f.Close()
	return nil, err
}

func interruptedEarly() error {
	return exit.Errorf(exit.Interrupted, "interrupted before the replay began")
}

// lastWords is how long work that was interrupted may take to end by itself.
const lastWords = time.Second

// untilInterrupted runs f, which may wait for input that never comes, and reports whether f has ended. An f that does not end within a second
// after ctx is left behind.
func untilInterrupted(ctx context.Context, f func()) bool {
	over := make(chan struct{})
	go func() {
		defer close(over)
		f()
	}()
	select {
	case <-over:
		return true
	case <-ctx.Done():
	}
	select {
	case <-over:
		return true
	case <-time.After(lastWords):
		return false
	}
}
