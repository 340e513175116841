package main

import (
	"testing"
	"time"

	"github.com/declock/declock/cmd/internal/usage"
)

// Nodes of a cluster that does nothing hardly ever wake: no loop polls, no timer is short. Context switches are counted, in which each wakeup ends; of those that
// are there some 10 a second are to be expected over shared memory and 60 over TCP.
func TestIdle(t *testing.T) {
	const (
		most   = 400 // a second, of each process
		window = 3 * time.Second
	)
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var up *process
			if fabric == "tcp" {
				up, _ = w.overTCP("--cns", "2")
			} else {
				up = w.up()
			}
			pids := append(w.processes("__mn"), w.processes("__cn")...)
			if len(pids) != 3 {
				t.Fatalf("%d processes of nodes, want 3", len(pids))
			}
			time.Sleep(time.Second) // what follows a start is over
			for _, pid := range pids {
				before, err := usage.Of(pid)
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				time.Sleep(window)
				after, err := usage.Of(pid)
				if err != nil {
					t.Fatal(err)
				}
				cost := after.Sub(before)
				rate := float64(cost.Voluntary) / time.Since(begun).Seconds()
				t.Logf("process %d: %.0f wakeups a second, %v of processor time in %v", pid, rate, cost.User+cost.Kernel, window)
				if rate > most {
					t.Errorf("process %d wakes %.0f times a second while nothing is to be done, want %d at most", pid, rate, most)
				}
			}
			w.down(up)
		})
	}
}
