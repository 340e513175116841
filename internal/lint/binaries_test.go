package lint

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// No program that was built is checked in.
func TestNoBinaries(t *testing.T) {
	const root = "../.."
	out, err := exec.Command("git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("no git, or no checkout: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		f, err := os.Open(filepath.Join(root, name))
		if err != nil {
			continue // removed, and not committed yet
		}
		head := make([]byte, 4)
		_, err = io.ReadFull(f, head)
		_ = f.Close()
		if err == nil && string(head) == "\x7fELF" {
			t.Errorf("%s is a program: git rm --cached it", name)
		}
	}
}
