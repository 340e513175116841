package tcp

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// blocks returns how many bytes of a file the file system has set aside.
func blocks(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return uint64(st.Blocks) * 512
}

// A file of memory has all its blocks before it is served: a new one, and one that came with holes, of which
// nothing changes otherwise.
func TestFileHasItsBlocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory")
	const size = 1 << 20
	for range 2 {
		m, err := openMemory(&Options{Mem: 3, Size: size, File: path})
		if err != nil {
			t.Fatal(err)
		}
		m.close()
		if n := blocks(t, path); n < size+filePage {
			t.Fatalf("%d bytes are set aside for memory of %d", n, size)
		}
		// The next time with a hole, and something behind it.
		if err := os.Truncate(path, filePage); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, filePage+size); err != nil {
			t.Fatal(err)
		}
	}
}

// Where the file system cannot set blocks aside, they are written.
func TestRewriteFillsHoles(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size, text = 3<<20 + 100, "kept"
	if _, err := f.WriteAt([]byte(text), 2<<20+5); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(f, size); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil || len(b) != size || string(b[2<<20+5:][:len(text)]) != text {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if n := blocks(t, f.Name()); n < size {
		t.Errorf("%d bytes are set aside of %d", n, size)
	}
}

// A file system without room for the memory is an error of the start, and no SIGBUS later; what was begun is
// given back.
func TestFileSystemWithoutRoom(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("needs a small file system of its own: mount: %v", err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	path := filepath.Join(dir, "memory")
	if m, err := openMemory(&Options{Size: 8 << 20, File: path}); !errors.Is(err, ErrNoMemory) {
		t.Errorf("8 MiB of memory in 1 MiB: %v", err)
		if err == nil {
			m.close()
		}
	}
	m, err := openMemory(&Options{Size: 1 << 19, File: path})
	if err != nil {
		t.Fatalf("512 KiB afterwards: %v", err)
	}
	m.close()
}
