package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The microbenchmark runs in two processes on shared memory, and leaves nothing.
func TestBenchMicroInProcesses(t *testing.T) {
	w := newWorld(t)
	stdout, _ := w.run(0, "declock-lab", "bench", "micro", "--cluster", "shm:", "--dir", w.dir, "--procs", "2", "--cns", "2", "--clients", "4", "--locks", "100",
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

// Ctrl-C at a terminal, which reaches all processes, and a signal to the first alone: what was measured is printed.
func TestCtrlCOfMicroInProcessesPrintsRows(t *testing.T) {
	for name, group := range map[string]bool{"parent only": false, "process group": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.start("declock-lab", "bench", "micro", "--cluster", "shm:", "--dir", w.dir, "--procs", "2", "--cns", "2", "--clients", "2", "--locks", "100",
				"--lock", "declock", "--window", "600s", "--warmup", "1ms", "--json")
			if !eventually(func() bool {
				pids := w.processes("micro-part")
				return len(pids) == 2 && ticks(pids[0]) > 10 && ticks(pids[1]) > 10 || isDone(p)
			}) {
				t.Fatal("it does not run")
			}
			pid := p.cmd.Process.Pid
			if group {
				pid = -pid
			}
			if err := syscall.Kill(pid, syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if code := p.wait(); code != 130 {
				t.Errorf("exit code %d, want 130\n%s", code, p.stderr.String())
			}
			var v struct {
				Config struct{ Cut bool }
				Rows   []struct{ Mops float64 }
			}
			out := p.stdout.String()
			if err := json.Unmarshal([]byte(out), &v); err != nil || len(v.Rows) != 1 || v.Rows[0].Mops <= 0 {
				t.Errorf("no rows: %v\n%s\n%s", err, out, p.stderr.String())
			}
		})
	}
}

// ticks returns the processor time that a process has had, in hundredths of a second.
func ticks(pid int) (n int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	for i, f := range strings.Fields(rest) {
		if i == 11 || i == 12 { // user and system: fields 14 and 15 of proc(5)
			v, _ := strconv.Atoi(f)
			n += v
		}
	}
	return n
}

// All contenders are measured, with what they cost.
func TestBenchTCP(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("memcached"); err != nil {
		t.Skip("no memcached (Debian: apt-get install memcached)")
	}
	w := newWorld(t)
	out, _ := w.run(0, "declock-lab", "bench", "tcp", "--run-dir", "DIR", "--rounds", "1", "--keys", "200", "--ops", "1k", "--burners", "1", "--json")
	rows := decode(t, out).Rows
	if len(rows) != 16 {
		t.Fatalf("%d rows, want eight with and eight without a burner:\n%s", len(rows), out)
	}
	calls := 0.0
	for _, row := range rows {
		if row["ops_per_s"].(float64) <= 0 || row["voluntary_switches_per_op"].(float64) <= 0 && !strings.HasPrefix(row["name"].(string), "tcp ") { // which may never wait
			t.Errorf("%v", row)
		}
		calls += row["syscalls_per_op"].(float64)
	}
	if calls == 0 { // that of one row of a few milliseconds may be
		t.Errorf("no row has system calls:\n%s", out)
	}
}

// No money is lost under DecLock's locks when processes are killed that hold them, and the check finds what is lost without locks.
func TestBank(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server (Debian: apt-get install redis-server)")
	}
	if _, err := exec.LookPath("go"); err != nil || testing.Short() {
		t.Skip("lab/peers is built with go, and the runs take seconds")
	}
	w := newWorld(t)
	out, _ := w.run(0, "declock-lab", "bench", "bank", "--run-dir", "DIR", "--source", "../..", "--runs", "2", "--clients", "8", "--window", "800ms", "--locks", "declock; no lock", "--json")
	var v struct{ Rows []map[string]any }
	if err := json.Unmarshal([]byte(out), &v); err != nil || len(v.Rows) != 2 {
		t.Fatalf("%d rows, %v:\n%s", len(v.Rows), err, out)
	}
	for i, row := range v.Rows {
		if lost := row["wrong"].(float64) > 0; lost != (i == 1) || row["transactions"].(float64) == 0 || row["faults"] != 4.0 {
			t.Errorf("%v", row)
		}
	}
}
