package fleet

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What a killed program left of its etcd is removed; that of one that lives stays, and so does what is not an etcd's.
func TestDeadEtcdsAreRemoved(t *testing.T) {
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
