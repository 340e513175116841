package fleet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/cmd/internal/exit"
	"golang.org/x/sys/unix"
)

// A disk without room for an etcd is an error that names it, and nothing is left there.
func TestEtcdOnAFullDisk(t *testing.T) {
	if err := roomFor(t.TempDir(), 1<<60); exit.Of(err) != exit.NoSpace {
		t.Error(err)
	}
	base := t.TempDir()
	if err := unix.Mount("tmpfs", base, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no file system to fill: %v", err)
	}
	defer func() { _ = unix.Unmount(base, 0) }()
	dir := filepath.Join(base, "e", "x")
	_, err := StartEtcd(t.Context(), dir)
	if exit.Of(err) != exit.NoSpace || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "TMPDIR") {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory is left")
	}
}

// What a killed program left of its etcd is removed; that of one that lives stays, and so does what is not an etcd's.
func TestCrashedEtcdsAreRemoved(t *testing.T) {
	base := t.TempDir()
	for _, name := range []string{"dead", "alive", "other"} {
		if err := os.Mkdir(filepath.Join(base, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if name == "other" {
			continue
		}
		lock, err := lockDir(filepath.Join(base, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "dead" {
			lock.Close()
		} else {
			defer lock.Close()
		}
	}
	if removed := RemoveDeadEtcds(base, ""); !slices.Equal(removed, []string{"dead"}) {
		t.Errorf("removed %q", removed)
	}
	for name, stays := range map[string]bool{"dead": false, "alive": true, "other": true} {
		if _, err := os.Stat(filepath.Join(base, name)); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
}
