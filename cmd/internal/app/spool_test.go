package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/traces"
	"golang.org/x/sys/unix"
)

const threeRecords = "0,a,1,5,1,get,0\n0,b,1,5,1,set,0\n1,c,1,5,1,get,0\n"

// records counts the records of a trace, as one compute node does.
func records(t *testing.T, path string) (n int) {
	t.Helper()
	r, err := traces.Open(path, traces.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for rec := (traces.Record{}); r.Next(&rec); n++ {
	}
	return n
}

// A trace that can be read only once, from a pipe of any kind, is read by every compute node whole.
func TestTracesFromPipes(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"standard input", "a named pipe", "a pipe of the shell", "a file as a descriptor"} {
		o := new(replayOptions)
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		switch what {
		case "standard input":
			o.trace = "-"
		case "a named pipe":
			o.trace = fifo
			out.Close()
			go func() {
				f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
				if err == nil {
					io.WriteString(f, threeRecords)
					f.Close()
				}
			}()
		case "a pipe of the shell": // <(zcat trace.gz)
			o.trace = fmt.Sprintf("/dev/fd/%d", in.Fd())
		case "a file as a descriptor": // /dev/stdin, which is another file in another process
			f, err := os.CreateTemp(t.TempDir(), "")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			io.WriteString(f, threeRecords)
			o.trace = fmt.Sprintf("/proc/self/fd/%d", f.Fd())
		}
		if o.trace != fifo {
			io.WriteString(out, threeRecords)
			out.Close()
		}
		if err := o.checkTrace(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		f, err := o.spool(t.Context(), in)
		if err != nil || f == nil {
			t.Fatalf("%s: %v, %v", what, f, err)
		}
		defer f.Close()
		for node := range 3 {
			if n := records(t, o.do.Path); n != 3 {
				t.Errorf("%s: compute node %d reads %d records", what, node, n)
			}
		}
	}
}

// Waiting for a pipe that nobody writes to can be interrupted.
func TestInterruptedWhileWaitingForAPipe(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	for name, wait := range map[string]func(ctx context.Context) error{
		"replay FIFO": func(ctx context.Context) error { _, err := spoolPath(ctx, fifo, fifo); return err },
		"replay -":    func(ctx context.Context) error { _, err := spool(ctx, in, "standard input"); return err },
		"stat FIFO": func(ctx context.Context) error {
			return traceStat(ctx, &command.Env{Stdout: io.Discard}, fifo, false, false)
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := wait(ctx); exit.Of(err) != exit.Interrupted {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	// Those that were left behind go on when the pipe has a writer.
	f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// A full disk is named, and nothing is left.
func TestSpoolOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4096"); err != nil {
		t.Skipf("no file system to fill: %v", err)
	}
	defer func() { _ = unix.Unmount(dir, 0) }()
	t.Setenv("TMPDIR", dir)
	_, err := spool(t.Context(), strings.NewReader(strings.Repeat(threeRecords, 10_000)), "standard input")
	if exit.Of(err) != exit.NoSpace || !strings.Contains(err.Error(), dir) {
		t.Error(err)
	}
}
