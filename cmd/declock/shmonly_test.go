package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSharedMemoryAlone: the program that README's first command compiles replays, and says what it lacks.
func TestSharedMemoryAlone(t *testing.T) {
	if testing.Short() || os.Getenv(programsEnv) != "" {
		t.Skip("builds a program")
	}
	program := filepath.Join(t.TempDir(), "declock")
	if out, err := exec.Command("go", "build", "-tags", "shmonly", "-ldflags=-s -w", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	w := newWorld(t)
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{0, "handovers", []string{"replay", "--dir", w.dir, "--cns", "2", "--keys", "1000", "--ops", "20000", "--size", "64MiB"}},
		{23, "-tags shmonly", []string{"up", "--fabric", "tcp", "--run-dir", w.dir}},
		{23, "-tags shmonly", []string{"status", "--cluster", "tcp://127.0.0.1:2379/demo", "--insecure"}},
		{23, "-tags shmonly", []string{"status", "--cluster", "verbs://127.0.0.1:2379/demo", "--insecure"}},
	} {
		cmd := exec.Command(program, c.args...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.says) {
			t.Errorf("declock %s: exit code %d, want %d and %q:\n%s", strings.Join(c.args, " "), code, c.code, c.says, out)
		}
	}
}
