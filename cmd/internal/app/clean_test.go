package app

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/fabric/shm"
)

// declockRun runs a command in this process, and returns what it prints.
func declockRun(args ...string) (stdout string, err error) {
	var out bytes.Buffer
	env := &command.Env{Stdin: os.Stdin, Stdout: &out, Stderr: io.Discard}
	err = command.Run(Declock(env), env, append([]string{"declock"}, args...))
	return out.String(), err
}

// A file that --path named outlives the cluster: "clean" removes all else of it, and says where the file is.
func TestCleanLeavesWhatPathNamed(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "memory")
	s, err := shm.Serve(shm.Options{Name: "x", Dir: dir, Size: 1 << 20, Path: file})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := declockRun("clean", "--dir", dir); err != nil || !strings.Contains(out, "left shm:x, whose memory is to be kept") {
		t.Errorf("%q, %v", out, err)
	}
	out, err := declockRun("clean", "x", "--dir", dir)
	if err != nil || !strings.Contains(out, "removed shm:x\n") || !strings.Contains(out, "left "+file) {
		t.Errorf("%q, %v", out, err)
	}
	if list, _ := os.ReadDir(dir); len(list) != 0 {
		t.Errorf("left behind: %v", list)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// A dead cluster that cannot be removed is an error, and the others are removed all the same.
func TestCleanGoesPastWhatCannotBeRemoved(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		if err := os.MkdirAll(filepath.Join(dir, "declock-"+name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "declock-"+name, "cluster"), []byte("broken"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept := filepath.Join(dir, "declock-b", "not", "ours") // a directory in a cluster's is none of ours
	if err := os.MkdirAll(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := declockRun("clean", "--dir", dir)
	if err == nil || !strings.Contains(err.Error(), "declock-b") {
		t.Errorf("the error does not name what stays: %v", err)
	}
	if !strings.Contains(out, "removed shm:a\n") || !strings.Contains(out, "removed shm:c\n") || strings.Contains(out, "shm:b") {
		t.Errorf("it says %q", out)
	}
	list, _ := os.ReadDir(dir)
	if len(list) != 1 || list[0].Name() != "declock-b" {
		t.Errorf("left: %v", list)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}
