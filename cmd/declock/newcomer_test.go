package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A second Ctrl-C ends at once, and says so.
func TestSecondCtrlC(t *testing.T) {
	w := newWorld(t)
	p := w.start(endless...)
	w.measuring(p)
	children := append(w.processes("__cn"), w.processes("__mn")...)
	for _, pid := range children { // a process that is stopped does not end its part
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	defer func() {
		for _, pid := range children {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}()
	// Two signals that are sent at once may come as one: so until it ends.
	eventually(func() bool { _ = p.cmd.Process.Signal(syscall.SIGINT); return isDone(p) })
	if code := p.wait(); code != 130 {
		t.Errorf("exit code %d", code)
	}
	if text := p.stderr.String(); !strings.Contains(text, "asked a second time") {
		t.Errorf("it says %q", text)
	}
}

// A malformed line that ends the replay is not skipped, and the result says that it was stopped.
func TestCutTraceIsSaid(t *testing.T) {
	w := newWorld(t)
	bad := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(bad, []byte("0,key,3,5,1,set,0\n0,key,3,5,1,get,0\nrubbish\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr := w.run(7, "replay", bad, "--dir", "DIR", "--cns", "1", "--size", "64MiB", "--json")
	if all := decode(t, out).Rows[0]; all["count"] != 2.0 || all["skipped_lines"] != 0.0 || all["stopped"] != true {
		t.Errorf("%v\n%s", all, stderr)
	}
	out, stderr = w.run(7, "replay", bad, "--dir", "DIR", "--cns", "1", "--size", "64MiB")
	if !strings.Contains(out, "stopped before its end") || strings.Contains(out+stderr, "skipped") {
		t.Errorf("%s\n%s", out, stderr)
	}
	out, _ = w.runWith("\n\n", 7, "replay", "-", "--dir", "DIR")
	if out != "" {
		t.Errorf("%s", out)
	}
}

// The code of a memory node that dies does not depend on the node that notices first.
func TestKilledMemoryNodeOfARunningCluster(t *testing.T) {
	w := newWorld(t)
	up := w.up()
	p := w.start("replay", "--dir", "DIR", "--cluster", "shm:test", "--keys", "2000", "--ops", "1000000000000")
	w.measuring(p)
	kill(t, w.processes("__mn"), 1)
	if code := p.wait(); code != 13 {
		t.Errorf("replay: exit code %d, want 13\n%s", code, p.stderr.String())
	}
	if code := up.wait(); code != 13 {
		t.Errorf("up: exit code %d, want 13", code)
	}
}

// What check sees of a store at work is no fault. With --reclaim it finds what nobody has while others are alive, and at work.
func TestCheckOfABusyStore(t *testing.T) {
	w := newWorld(t)
	up := w.up()
	p := w.start("replay", "--dir", "DIR", "--cluster", "shm:test", "--keys", "200", "--ops", "1000000000000", "--preset", "cluster53")
	w.measuring(p)
	for _, more := range [][]string{nil, nil, {"--reclaim"}, {"--reclaim"}} {
		c := w.start(append([]string{"check", "--dir", "DIR", "--cluster", "shm:test"}, more...)...)
		switch code := c.wait(); {
		case code == 21 && strings.Contains(c.stderr.String(), "in use"):
		case code != 0:
			t.Errorf("check %v: exit code %d\n%s%s", more, code, c.stdout.String(), c.stderr.String())
		}
	}
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	p.wait()
	for _, more := range [][]string{nil, {"--reclaim"}} {
		if out, _ := w.run(0, append([]string{"check", "--dir", "DIR", "--cluster", "shm:test"}, more...)...); !strings.Contains(out, "sound") {
			t.Errorf("at rest: check %v: %s", more, out)
		}
	}
	w.down(up)
}
