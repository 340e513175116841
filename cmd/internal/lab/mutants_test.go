package lab

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/declock/declock/lab/mutants"
)

// --apply and --revert name the files that they change, and leave a checkout as it was.
func TestApplyAndRevert(t *testing.T) {
	root, err := mutants.SourceTree(".")
	if err != nil {
		t.Fatal(err)
	}
	m, err := mutants.Find("no-refetch")
	if err != nil {
		t.Fatal(err)
	}
	name, dir := m.Hunks[0].File, t.TempDir()
	file := filepath.Join(dir, name)
	text, err := os.ReadFile(filepath.Join(root, name))
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o644),
		os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module github.com/declock/declock\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	out, err := labRun("mutants", "--apply", m.Name, "--dir", filepath.Dir(file))
	planted, _ := os.ReadFile(file)
	if err != nil || !strings.Contains(out, file) || !bytes.Contains(planted, []byte(m.Name)) {
		t.Errorf("apply: %q, %v", out, err)
	}
	if _, err := labRun("mutants", "--apply", m.Name, "--dir", dir); err == nil {
		t.Error("a bug is planted twice")
	}
	if out, err = labRun("mutants", "--revert", m.Name, "--dir", dir); err != nil || !strings.Contains(out, file) {
		t.Errorf("revert: %q, %v", out, err)
	}
	if back, err := os.ReadFile(file); err != nil || !bytes.Equal(back, text) {
		t.Errorf("%s is not as it was: %v", file, err)
	}
}
