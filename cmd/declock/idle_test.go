package main

import (
	"slices"
	"testing"
	"time"

	"github.com/declock/declock/cmd/internal/usage"
)

// Nodes that have nothing to do wake up some tens of times a second, and take next to no processor time.
func TestIdleNodes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			dir := "--dir"
			if fabric == "tcp" {
				dir = "--run-dir"
			}
			up := w.start("up", "--fabric", fabric, dir, "DIR", "--name", "idle", "--cns", "2", "--size", "64MiB")
			up.says("Ctrl-C takes it down")
			time.Sleep(3 * time.Second)
			pids := slices.Concat(w.processes("__cn"), w.processes("__mn"))
			if len(pids) != 3 {
				t.Fatalf("%d nodes", len(pids))
			}
			const window = 6 * time.Second
			before := make([]usage.Cost, len(pids))
			for i, pid := range pids {
				before[i] = costOf(t, pid)
			}
			time.Sleep(window)
			for i, pid := range pids {
				c := costOf(t, pid).Sub(before[i])
				wakeups := float64(c.Voluntary+c.Involuntary) / window.Seconds()
				t.Logf("process %d: %.0f wakeups a second, %v of processor time in %v", pid, wakeups, c.User+c.Kernel, window)
				if wakeups > 150 || c.User+c.Kernel > window/100 {
					t.Errorf("process %d wakes up %.0f times a second, and takes %v in %v", pid, wakeups, c.User+c.Kernel, window)
				}
			}
			w.down(up)
		})
	}
}

func costOf(t *testing.T, pid int) usage.Cost {
	t.Helper()
	c, err := usage.Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
