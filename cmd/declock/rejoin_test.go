package main

import (
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shows waits until status of a cluster says all of some texts, and none of others that begin with "!".
func (w *world) shows(at []string, texts ...string) {
	w.t.Helper()
	var out string
	ok := eventually(func() bool {
		p := w.start(append([]string{"status"}, at...)...)
		p.wait()
		out = p.stdout.String()
		for _, text := range texts {
			unwanted, no := strings.CutPrefix(text, "!")
			if no && regexp.MustCompile(unwanted).MatchString(out) || !no && !regexp.MustCompile(text).MatchString(out) {
				return false
			}
		}
		return true
	})
	if !ok {
		w.t.Fatalf("status does not show %q:\n%s", texts, out)
	}
}

// The whole of "declock up" is suspended (Ctrl-Z) for longer than leases last: no process ends, nothing is lost, and it can be used again.
func TestSuspendedUp(t *testing.T) {
	if testing.Short() {
		t.Skip("leases run out")
	}
	t.Parallel()
	w := newWorld(t)
	up, at := w.overTCP("--cns", "2", "--mns", "2")
	w.run(0, append([]string{"replay", "--keys", "500", "--ops", "5k", "--verify"}, at...)...)
	group := -up.cmd.Process.Pid
	if err := syscall.Kill(group, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(8 * time.Second) // a lease lasts 5
	if err := syscall.Kill(group, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.shows(at, `mn0 .*yes +2 `, `mn1 .*yes +2 `, `cn\d.*yes`, `replay`)
	if isDone(up) {
		t.Fatalf("it has ended with %d\n%s", up.code, up.stderr.String())
	}
	// The store is there still: its geometry is refused where it differs.
	w.run(8, append([]string{"replay", "--keys", "500", "--ops", "1k", "--max-value", "7000"}, at...)...)
	w.run(0, append([]string{"replay", "--keys", "500", "--ops", "5k", "--verify"}, at...)...)
	w.down(up)
}

// A memory node that is not coming back is forgotten; one that is up is not. One with --leave says so itself when it is stopped.
func TestForget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	up, at := w.overTCP("--cns", "1", "--mns", "1")
	serve := func(args ...string) *process {
		p := w.start(append(append([]string{"declock-mn", "--size", "64MiB", "--mem", "7", "--listen", "127.0.0.1:0"}, args...), at...)...)
		p.says("ready node=mn7")
		return p
	}
	forget := append([]string{"forget"}, at...)
	p := serve()
	if _, said := w.run(4, append(forget, "mn7")...); !strings.Contains(said, "stop it first") {
		t.Errorf("a memory node that is up: %s", said)
	}
	// A store that has a part on it.
	w.run(0, append([]string{"replay", "--keys", "500", "--ops", "1k", "--store", "both", "--cns", "1"}, at...)...)
	w.terminate(p)
	w.shows(at, `mn7 .*NO`)
	if _, said := w.run(4, append(forget, "mn7")...); !strings.Contains(said, `"both"`) || !strings.Contains(said, "--force") {
		t.Errorf("a memory node with a part of a store: %s", said)
	}
	w.run(0, append(forget, "--force", "mn7")...)
	w.shows(at, `mn0 .*yes`, `!mn7`)
	w.run(19, append(forget, "mn7")...)
	w.run(19, append(forget, "mn9")...)
	w.run(2, append(forget, "cn1")...)
	w.run(2, "forget", "--cluster", "shm:x", "--dir", "DIR", "mn1")
	p = serve("--leave")
	w.shows(at, `mn7 .*yes +2 `)
	w.terminate(p)
	w.shows(at, `mn0 .*yes`, `!mn7`)
	w.down(up)
}

// etcd is silent: status says so, in the words of the compute nodes and in its own.
func TestSilentEtcdShows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	up, at := w.overTCP("--cns", "1")
	w.shows(at, `mn0 .*127\.0\.0\.1:\d+`, `cn1 .*127\.0\.0\.1:\d+`, `!etcd has not`)
	if err := up.cmd.Process.Signal(syscall.SIGSTOP); err != nil { // it has the etcd in it
		t.Fatal(err)
	}
	w.shows(at, `etcd has not answered cn1 for \d+ s`, `etcd does not answer: no node can join`, `mn0 .*yes`)
	if err := up.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.shows(at, `mn0 .*yes`, `cn\d .*yes`, `!etcd has not`)
	w.down(up)
}
