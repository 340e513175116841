package main

import (
	"encoding/json"
	"testing"
)

// The microbenchmark runs in two processes on shared memory, and leaves nothing.
func TestBenchMicroInProcesses(t *testing.T) {
	w := newWorld(t)
	stdout, _ := w.run(0, "bench", "micro", "--cluster", "shm:", "--dir", w.dir, "--procs", "2", "--cns", "2", "--clients", "4", "--locks", "100",
		"--lock", "cas,declock", "--window", "100ms", "--warmup", "5ms", "--json")
	var v struct {
		Fabric string
		Rows   []struct {
			Lock string
			Mops float64
		}
	}
	if err := json.Unmarshal([]byte(stdout), &v); err != nil {
		t.Fatalf("%v\n%s", err, stdout)
	}
	if v.Fabric != "shm" || len(v.Rows) != 2 || v.Rows[0].Lock != "cas" || v.Rows[1].Lock != "declock" {
		t.Errorf("%s", stdout)
	}
}
