package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A lockedOverTCP is a command under a lock, in a cluster of an etcd, a memory node and itself, each a process.
type lockedOverTCP struct {
	*world
	etcd, mn, p *process
	goOn        string // the command ends when this file is there
	address     string
}

// lockedLease is the lease of the nodes.
const lockedLease = 2 * time.Second

// lockOverTCP starts all of that. The command says "held", "told" at a signal, and "over" before it ends, with 7.
func lockOverTCP(t *testing.T) *lockedOverTCP {
	dir, err := os.MkdirTemp("", "declock") // t.TempDir's is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := newWorld(t)
	x := &lockedOverTCP{world: w, goOn: filepath.Join(dir, "go-on"), address: "tcp://" + dir + "/e.sock/outages"}
	x.etcd = w.startBehind(nil, []string{etcdDir + "=" + dir, etcdURL + "=unix://" + dir + "/e.sock"}, "SELF")
	x.etcd.says("ready")
	x.serve()
	x.p = w.start(x.args([]string{"lock"}, "job", "--", "sh", "-c",
		`trap 'echo told' TERM; echo held; while [ ! -e "$0" ]; do sleep 0.01; done; echo over; exit 7`, x.goOn)...)
	x.p.says("held")
	return x
}

// args returns the arguments of a program: its first, the cluster's, and the rest.
func (x *lockedOverTCP) args(first []string, rest ...string) []string {
	return slices.Concat(first, []string{"--cluster", x.address, "--insecure", "--run-dir", "DIR", "--listen", "127.0.0.1:0", "--dead-after", lockedLease.String()}, rest)
}

// serve starts the memory node.
func (x *lockedOverTCP) serve() {
	x.t.Helper()
	x.mn = x.start(x.args([]string{"declock-mn", "--size", "64MiB"})...)
	x.mn.says("ready node=mn0")
}

// kill kills a process, and waits for its end.
func (x *lockedOverTCP) kill(p *process) {
	_ = p.cmd.Process.Kill()
	p.wait()
}

// end lets the command end, and reports whether all is as demanded: the exit code of declock, what the command has said, and texts that declock has.
func (x *lockedOverTCP) end(code int, out string, says ...string) bool {
	x.t.Helper()
	if err := os.WriteFile(x.goOn, nil, 0o600); err != nil {
		x.t.Fatal(err)
	}
	got, stderr := x.p.wait(), x.p.stderr.String()
	assertNoStack(x.t, stderr)
	ok := got == code && x.p.stdout.String() == out && !slices.ContainsFunc(says, func(text string) bool { return !strings.Contains(stderr, text) })
	if !ok {
		x.t.Logf("exit code %d, %q, want %d, %q and %q\n%s", got, x.p.stdout.String(), code, out, says, stderr)
	}
	return ok
}

// A command under a lock while nodes that it needs are killed: it is notified when the lock may be another's, and not when it cannot be.
func TestLockWhileNodesAreKilled(t *testing.T) {
	for _, y := range []struct {
		name string
		run  func(x *lockedOverTCP) bool
	}{
		{"the memory node, which restarts", func(x *lockedOverTCP) bool {
			x.kill(x.mn)
			x.serve()
			x.p.says("told")
			return x.end(13, "held\ntold\nover\n", "is lost", "was lost while the command ran")
		}},
		{"the memory node", func(x *lockedOverTCP) bool {
			x.kill(x.mn)
			return x.end(7, "held\nover\n", "node is down: mn0")
		}},
		{"etcd, for longer than leases last", func(x *lockedOverTCP) bool {
			x.kill(x.etcd)
			time.Sleep(2 * lockedLease)
			return x.end(7, "held\nover\n", "etcd: leaving")
		}},
		{"both", func(x *lockedOverTCP) bool {
			x.kill(x.etcd)
			x.kill(x.mn)
			x.p.says("told")
			return x.end(13, "held\ntold\nover\n", "is lost", "was lost while the command ran")
		}},
	} {
		t.Run(y.name, func(t *testing.T) {
			t.Parallel()
			// A process that the machine keeps waiting for as long as a lease loses the lock by that: so it may be once.
			for range 3 {
				x := lockOverTCP(t)
				ok := y.run(x)
				x.kill(x.mn)
				x.kill(x.etcd)
				if ok {
					return
				}
			}
			t.Error("three times, see above")
		})
	}
}
