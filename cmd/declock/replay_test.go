package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// endless is a replay that only a signal ends.
var endless = []string{"replay", "--dir", "DIR", "--cns", "2", "--clients", "3", "--keys", "2000", "--ops", "1000000000000", "--size", "64MiB"}

func TestReplayVerifiesATraceFile(t *testing.T) {
	w := newWorld(t)
	for _, ext := range []string{"csv", "zst", "gz"} {
		trace := filepath.Join(t.TempDir(), "trace."+ext)
		w.run(0, "trace", "gen", "--ops", "20k", "--keys", "2000", "-o", trace)
		out, _ := w.run(0, "replay", trace, "--verify", "--fill", "--cns", "2", "--clients", "3", "--size", "64MiB", "--dir", "DIR", "--json")
		r := decode(t, out)
		all := r.Rows[0]
		if all["count"] != 20000.0 || all["verify_failures"] != 0.0 || all["errors"] != 0.0 || all["verified"] == 0.0 {
			t.Errorf("%s: %v", ext, all)
		}
	}
}

func TestReplayFromStandardInput(t *testing.T) {
	w := newWorld(t)
	trace, _ := w.run(0, "trace", "gen", "--ops", "3000", "--keys", "300", "-o", "-")
	out, _ := w.runWith(trace, 0, "replay", "-", "--verify", "--cns", "2", "--size", "64MiB", "--dir", "DIR", "--json")
	if all := decode(t, out).Rows[0]; all["count"] != 3000.0 || all["verify_failures"] != 0.0 {
		t.Errorf("%v", all)
	}
}

func TestReplayOfEveryPolicy(t *testing.T) {
	_, text := newWorld(t).run(12, "replay", "--lock", "none-such")
	names := regexp.MustCompile(`one of ([^:]*), or local-bound:N`).FindStringSubmatch(text)
	if names == nil {
		t.Fatalf("no list of policies in %q", text)
	}
	for _, policy := range append(strings.Split(names[1], ", "), "local-bound:2") {
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t)
			out, _ := w.run(0, "replay", "--dir", "DIR", "--cns", "2", "--clients", "4", "--keys", "500", "--ops", "10k", "--size", "64MiB",
				"--verify", "--lock", policy, "--json")
			if all := decode(t, out).Rows[0]; all["count"] != 10000.0 || all["verify_failures"] != 0.0 || all["errors"] != 0.0 || all["lock"] != policy {
				t.Errorf("%v", all)
			}
		})
	}
}

// Names that others read: design section 10.
func TestReplayJSONNames(t *testing.T) {
	w := newWorld(t)
	out, stderr := w.run(0, "replay", "--dir", "DIR", "--cns", "2", "--keys", "1000", "--ops", "5000", "--size", "64MiB", "--seed", "7", "--json")
	if stderr != "" {
		t.Errorf("progress although this is no terminal: %q", stderr)
	}
	r := decode(t, out)
	if r.Experiment != "replay" || r.Fabric != "shm" || r.Seed != 7 || r.Commit == "" {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"cns", "clients_per_cn", "lock", "preset", "keys", "ops", "verify"} {
		if _, ok := r.Config[name]; !ok {
			t.Errorf("config has no %q", name)
		}
	}
	for _, name := range []string{"op", "count", "lock", "clients", "ops_per_s", "hit_ratio", "errors", "mn_ops_per_acquire", "refetch_per_release",
		"handovers_local", "handovers_remote", "resets", "location_cache_hits", "evictions", "stopped"} {
		if _, ok := r.Rows[0][name]; !ok {
			t.Errorf("the row of all operations has no %q", name)
		}
	}
	ops := map[any]bool{}
	for _, row := range r.Rows[1:] {
		ops[row["op"]] = true
		for _, name := range []string{"op", "count", "p50_us", "p99_us", "p999_us", "errors"} {
			if _, ok := row[name]; !ok {
				t.Errorf("the row of %v has no %q", row["op"], name)
			}
		}
	}
	if !ops["get"] || !ops["set"] || !ops["delete"] {
		t.Errorf("rows of %v", ops)
	}
}

// Issue 2: a newcomer sees the table.
func TestReplayTable(t *testing.T) {
	w := newWorld(t)
	out, _ := w.run(0, "replay", "--dir", "DIR", "--keys", "1000", "--ops", "20000", "--size", "64MiB")
	for _, text := range []string{"operations", "throughput", "hit ratio", "MN operations", "handovers", "resets", "p50 us", "p99.9 us", "get", "4 processes x 8 clients"} {
		if !strings.Contains(out, text) {
			t.Errorf("no %q in\n%s", text, out)
		}
	}
}

func TestCtrlCPrintsWhatWasMeasured(t *testing.T) {
	for _, c := range []struct {
		name  string
		sig   syscall.Signal
		group bool
	}{{"parent only", syscall.SIGINT, false}, {"process group", syscall.SIGINT, true}, {"a service that is stopped", syscall.SIGTERM, true}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			p := w.start(endless...)
			w.measuring(p)
			pid := p.cmd.Process.Pid
			if c.group {
				pid = -pid
			}
			if err := syscall.Kill(pid, c.sig); err != nil {
				t.Fatal(err)
			}
			if code := p.wait(); code != 130 {
				t.Errorf("exit code %d, want 130\n%s", code, p.stderr.String())
			}
			out := p.stdout.String()
			if !strings.Contains(out, "stopped before its end") || !strings.Contains(out, "get") || strings.Contains(out, "lost nodes") {
				t.Errorf("no partial results:\n%s", out)
			}
			assertNoStack(t, p.stderr.String())
		})
	}
}

func TestCtrlCAtOnce(t *testing.T) {
	w := newWorld(t)
	p := w.start(endless...)
	eventually(func() bool { return len(w.processes("__mn")) > 0 || isDone(p) })
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT)
	if code := p.wait(); code != 130 {
		t.Errorf("exit code %d, want 130\n%s", code, p.stderr.String())
	}
}

func isDone(p *process) bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func TestKilledParentTakesItsChildrenDown(t *testing.T) {
	w := newWorld(t)
	p := w.start(endless...)
	w.measuring(p)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait()
	w.assertClean()
}

func TestKilledMemoryNodeEndsTheReplay(t *testing.T) {
	w := newWorld(t)
	p := w.start(endless...)
	w.measuring(p)
	kill(t, w.processes("__mn"), 1)
	if code := p.wait(); code != 13 {
		t.Errorf("exit code %d, want 13", code)
	}
	if text := p.stderr.String(); !strings.Contains(text, "memory node") || !strings.Contains(text, "killed") {
		t.Errorf("it does not say why:\n%s", text)
	}
	assertNoStack(t, p.stderr.String())
}

func TestKilledComputeNodeIsReported(t *testing.T) {
	w := newWorld(t)
	p := w.start(endless...)
	w.measuring(p)
	kill(t, w.processes("__cn")[:1], 1)
	// The next status does not list it any more as alive.
	eventually(func() bool { return len(w.processes("__cn")) == 1 })
	_ = syscall.Kill(p.cmd.Process.Pid, syscall.SIGINT)
	if code := p.wait(); code != 130 {
		t.Errorf("exit code %d, want 130\n%s", code, p.stderr.String())
	}
	if out := p.stdout.String(); !strings.Contains(out, "lost nodes") {
		t.Errorf("it does not say that a node was lost:\n%s\n%s", out, p.stderr.String())
	}
}

func kill(t *testing.T, pids []int, want int) {
	t.Helper()
	if len(pids) != want {
		t.Fatalf("%d processes to kill, want %d", len(pids), want)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

// When everything is killed, the next start removes what was left.
func TestNextReplayCleansUp(t *testing.T) {
	w := newWorld(t)
	p := w.start(endless...)
	w.measuring(p)
	// Stopped, so that none can react to the end of another. The parent goes last: when it
	// ends, the kernel continues what is stopped in its process group.
	all := append(w.processes("__cn"), w.processes("__mn")...)
	for _, pid := range append([]int{p.cmd.Process.Pid}, all...) {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	kill(t, all, 3)
	eventually(func() bool { return len(w.processes("__mn"))+len(w.processes("__cn")) == 0 })
	_ = p.cmd.Process.Kill()
	p.wait()
	// A process that is killed holds its locks until it has given its memory back.
	var rows []map[string]any
	if !eventually(func() bool {
		rows = w.status()
		return len(rows) == 1 && rows[0]["state"] == "dead"
	}) {
		t.Fatalf("status: %v", rows)
	}
	out, _ := w.run(0, "status", "--dir", "DIR")
	if !strings.Contains(out, "declock clean replay-") {
		t.Errorf("status does not say how to remove it:\n%s", out)
	}
	_, stderr := w.run(0, "replay", "--dir", "DIR", "--cns", "1", "--keys", "100", "--ops", "1000", "--size", "64MiB")
	if !strings.Contains(stderr, "removed what cluster shm:replay-") {
		t.Errorf("it does not say that it cleaned up: %q; before: %v", stderr, rows)
	}
}

func TestMemcachedTarget(t *testing.T) {
	memcached, err := exec.LookPath("memcached")
	if err != nil {
		t.Skip("no memcached on PATH to compare with")
	}
	// A unix socket: no port that could be taken.
	dir, err := os.MkdirTemp("", "mc")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	ctx, cancel := context.WithCancel(context.Background())
	args := []string{"-s", socket, "-a", "0700", "-m", "64"}
	if os.Getuid() == 0 {
		args = append(args, "-u", "root")
	}
	server := exec.CommandContext(ctx, memcached, args...)
	if err := server.Start(); err != nil {
		t.Skipf("memcached does not start: %v", err)
	}
	defer func() { cancel(); _ = server.Wait() }()
	if !eventually(func() bool {
		c, err := net.DialTimeout("unix", socket, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	}) {
		t.Fatal("memcached does not answer")
	}
	w := newWorld(t)
	out, _ := w.run(0, "replay", "--target", "memcached://"+socket, "--cns", "2", "--clients", "3", "--keys", "1000", "--ops", "10k", "--verify", "--json")
	r := decode(t, out)
	if all := r.Rows[0]; r.Fabric != "memcached" || all["count"] != 10000.0 || all["verify_failures"] != 0.0 || all["errors"] != 0.0 || all["warmed"] != 1000.0 {
		t.Errorf("%+v", r)
	}
}

// Without room for what its processes share, a replay against a target does not begin, and does not touch the target.
func TestTargetWithoutRoom(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no file system to fill: %v", err)
	}
	defer func() { _ = syscall.Unmount(dir, 0) }()
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	touched := make(chan struct{}, 1)
	go func() {
		if c, err := target.Accept(); err == nil {
			touched <- struct{}{}
			_ = c.Close()
		}
	}()
	_, stderr := w.run(5, "replay", "--target", "memcached://"+target.Addr().String(), "--dir", dir, "--ops", "10")
	if !strings.Contains(stderr, dir) || !strings.Contains(stderr, "--dir") {
		t.Errorf("it does not say where room is missing, and what to do:\n%s", stderr)
	}
	select {
	case <-touched:
		t.Error("the target was touched")
	default:
	}
	if list, _ := os.ReadDir(dir); len(list) != 0 {
		t.Errorf("left: %v", list)
	}
}
