package main

import (
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Of memory nodes with replicas, status shows what serves each number, and where its copies are; one that is killed is replaced, and the cluster goes on. One that is started in
// its place gets copies. A store there goes on, and keeps what it has, and the new copy has it, too.
func TestReplicas(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts many processes")
	}
	t.Parallel()
	w := newWorld(t)
	up, at := w.overTCP("--cns", "1", "--mns", "3", "--replicas", "2")
	w.shows(at, `mn0 +mn0 +yes +mn\d in sync +2 of 2 +1 `, `mn1 +mn1 +yes +mn\d in sync +2 of 2 +1 `, `mn2 +mn2 +yes +mn\d in sync +2 of 2 +1 `)
	tree := func(command string, args ...string) string {
		out, _ := w.run(0, append(append([]string{"tree", command}, at...), args...)...)
		return strings.TrimSpace(out)
	}
	reclaim := func() {
		var check *process
		if !eventually(func() bool {
			check = w.start(append([]string{"check", "--reclaim"}, at...)...) // cn1 has a store open while it copies it to a new backup
			return check.wait() == 0 || !strings.Contains(check.stderr.String(), "is in use")
		}) {
			status, _ := w.run(0, append([]string{"status"}, at...)...)
			t.Fatalf("the store stays in use: %s%s", check.stderr.String(), status)
		}
		if out := check.stdout.String(); check.code != 0 || !strings.Contains(out, "sound") || !strings.Contains(out, `tree "tree"`) {
			t.Errorf("check --reclaim: %d, %s%s", check.code, out, check.stderr.String())
		}
	}
	tree("put", "k", "1")
	tree("put", "large", strings.Repeat("v", 5000))
	replay := append([]string{"replay", "--keys", "500", "--ops", "5k", "--verify"}, at...)
	w.run(0, replay...)
	reclaim()
	pids := slices.DeleteFunc(w.processes("--mem"), func(pid int) bool {
		args := cmdline(pid)
		return args[slices.Index(args, "--mem")+1] != "0"
	})
	if len(pids) != 1 {
		t.Fatalf("%d processes are memory node 0", len(pids))
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.shows(at, `mn0 +mn[12] +yes +mn[12] in sync +2 of 2 +2 `, `is up`)
	w.run(0, replay...)
	tree("del", "large") // at what serves it now
	reclaim()
	if got := tree("get", "k"); got != "1" {
		t.Errorf("k is %q", got)
	}
	one := w.start(append([]string{"declock-mn", "--size", "64MiB", "--mem", "0", "--listen", "127.0.0.1:0"}, at...)...)
	if code := one.wait(); code != 8 || !strings.Contains(one.stderr.String(), "--replicas 2") || strings.Contains(one.stdout.String(), "ready") {
		t.Errorf("a memory node without replicas, of a number with copies: %d, %s%s", code, one.stdout.String(), one.stderr.String())
	}
	if isDone(up) {
		t.Fatalf("it has ended with %d\n%s", up.code, up.stderr.String())
	}
	p := w.start(append([]string{"declock-mn", "--size", "64MiB", "--mem", "0", "--replicas", "2", "--label", "rack-b", "--listen", "127.0.0.1:0"}, at...)...)
	p.says("ready node=mn0")
	w.shows(at, `!DOWN`, `!1 of 2`, `mn1 +mn1 +yes +mn\d in sync +2 of 2 +1 `)
	w.terminate(p)
	w.down(up)
}
