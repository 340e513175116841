package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// onEach runs a test on a cluster over shared memory and on one over TCP, with the flags by which they are found.
func onEach(t *testing.T, test func(w *world, at []string)) {
	t.Run("shm", func(t *testing.T) {
		w := newWorld(t)
		p := w.up()
		test(w, []string{"--cluster", "shm:test", "--dir", "DIR"})
		w.down(p)
	})
	t.Run("tcp", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		p, at := w.overTCP("--cns", "1")
		test(w, at)
		w.down(p)
	})
}

// args returns a command line: words of a command, how the cluster is found, the rest.
func args(command string, at []string, rest ...string) []string {
	return append(append(strings.Fields(command), at...), rest...)
}

// kv and tree store and print values byte for byte, from arguments and standard input, and say by exit code 1 that a key is not there.
func TestKeysInTheShell(t *testing.T) {
	onEach(t, func(w *world, at []string) {
		t := w.t
		says := func(want string, code int, command string, rest ...string) {
			t.Helper()
			out, stderr := w.run(code, args(command, at, rest...)...)
			if out != want || (code != 0) != (stderr != "") {
				t.Errorf("%s %q: %q, want %q; %q", command, rest, out, want, stderr)
			}
		}
		binary := "a\x00b\n\xff\r\n"
		for _, kind := range []string{"kv get", "kv del", "kv incr", "tree get", "tree del"} {
			says("", 1, kind, "none") // nor is there a store or tree
		}
		w.runWith(binary, 0, args("kv set", at, "k 1")...)
		w.runWith(binary, 0, args("tree put", at, "k 1")...)
		says(binary, 0, "kv get", "k 1")
		says(binary, 0, "tree get", "k 1")
		says("", 0, "kv set", "empty", "")
		says("", 0, "kv get", "empty")
		says("", 1, "kv get", "none")
		says("", 1, "kv set", "empty", "x", "--add")
		says("", 0, "kv set", "kept", "x", "--add", "--ttl", "1h")
		says("", 1, "kv incr", "n")
		says("7\n", 0, "kv incr", "n", "--initial", "7")
		says("10\n", 0, "kv incr", "n", "--by", "3", "--initial", "7")
		says("0\n", 0, "kv incr", "n", "--by=-30")
		says("", 2, "kv incr", "kept")
		says("", 2, "kv set", "k", "v", "--ttl=-1s")
		says("", 0, "kv set", "brief", "x", "--ttl", "1s")
		out, _ := w.run(0, args("kv scan", at)...)
		if n := strings.Count(out, "\n"); n != 5 || !strings.Contains(out, "kept\n") {
			t.Errorf("scan: %q", out)
		}
		says("kept\tx\n", 0, "kv scan", "--values", "--prefix", "ke")
		says("k 1\x00"+binary+"\x00", 0, "kv scan", "--values", "--null", "--prefix", "k ")
		says("", 0, "kv del", "kept")
		says("", 1, "kv del", "kept")
		if !eventually(func() bool { p := w.start(args("kv get", at, "brief")...); return p.wait() == 1 }) {
			t.Error("a key outlives its TTL")
		}
		if out, _ := w.run(0, args("kv scan", at, "--prefix", "brief")...); out != "" {
			t.Errorf("a scan has an expired key: %q", out)
		}
		for _, k := range []string{"b", "ba", "bb", "c"} {
			says("", 0, "tree put", k, "v"+k)
		}
		says("b\nba\nbb\n", 0, "tree scan", "--prefix", "b")
		says("bb\nba\n", 0, "tree scan", "--from", "ba", "--to", "bb", "--reverse")
		says("b\tvb\nba\tvba\n", 0, "tree scan", "--values", "--from", "b", "--limit", "2")
		says("", 0, "tree del", "b")
		says("", 1, "tree get", "b")
		says("", 2, "tree scan", "--prefix", "b", "--to", "c")
	})
}

// A command runs while the lock is held, with its fencing token, and the exit code is as that of flock.
func TestLockInTheShell(t *testing.T) {
	onEach(t, func(w *world, at []string) {
		t := w.t
		var last uint64
		for range 2 {
			out, _ := w.run(7, args("lock", at, "job", "--", "sh", "-c", "echo $DECLOCK_TOKEN; exit 7")...)
			token, err := strconv.ParseUint(strings.TrimSpace(out), 10, 64)
			if err != nil || token <= last {
				t.Errorf("token %q after %d", out, last)
			}
			last = token
		}
		w.run(128+9, args("lock", at, "job", "--", "sh", "-c", "kill -9 $$")...)
		w.run(69, args("lock", at, "job", "--", "DIR/none")...)
		w.run(2, args("lock", at, "job")...)
		// The lock is held once more by a command around: it would wait for itself.
		nested := append([]string{filepath.Join(programs, "declock")}, args("lock", at, "job", "echo", "never")...)
		w.run(21, args("lock", at, append([]string{"job", "--"}, nested...)...)...)

		held := w.start(args("lock", at, "job", "--", "sh", "-c", "echo held; exec sleep 1000")...)
		held.says("held")
		w.run(1, args("lock", at, "job", "--timeout", "0s", "true")...)
		w.run(9, args("lock", at, "job", "--timeout", "50ms", "--conflict-exit-code", "9", "true")...)
		w.run(1, args("lock", at, "job", "--shared", "--timeout", "50ms", "true")...)
		w.run(0, args("lock", at, "another", "--timeout", "0s", "true")...)
		next := w.start(args("lock", at, "job", "--", "echo", "next")...)
		time.Sleep(50 * time.Millisecond)
		_ = held.cmd.Process.Signal(syscall.SIGTERM)
		if code := held.wait(); code != 128+15 {
			t.Errorf("SIGTERM of the command: exit code %d", code)
		}
		if code := next.wait(); code != 0 || next.stdout.String() != "next\n" {
			t.Errorf("the next one: exit code %d, %q", code, next.stderr.String())
		}
		waits := w.start(args("lock", at, "--shared", "job", "--", "sh", "-c", "echo held; exec sleep 1000")...)
		waits.says("held")
		w.run(0, args("lock", at, "--shared", "job", "--timeout", "0s", "true")...)
		_ = waits.cmd.Process.Signal(syscall.SIGINT)
		if code := waits.wait(); code != 128+2 {
			t.Errorf("SIGINT of the command: exit code %d", code)
		}
	})
}

// A process that waits or holds is interrupted or killed: nothing stays held, and the command does not outlive the process that held its lock.
func TestKilledLockInTheShell(t *testing.T) {
	onEach(t, func(w *world, at []string) {
		t := w.t
		held := w.start(args("lock", at, "job", "--", "sh", "-c", "echo $$; exec sleep 1000 >/dev/null 2>&1")...)
		held.says("\n")
		pid, err := strconv.Atoi(strings.TrimSpace(held.stdout.String()))
		if err != nil {
			t.Fatal(err)
		}
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
			waits := w.start(args("lock", at, "job", "true")...)
			time.Sleep(100 * time.Millisecond)
			_ = waits.cmd.Process.Signal(sig)
			if code := waits.wait(); sig == syscall.SIGINT && code != 130 {
				t.Errorf("SIGINT of one that waits: exit code %d\n%s", code, waits.stderr.String())
			}
		}
		_ = held.cmd.Process.Kill()
		held.wait()
		if !eventually(func() bool { return zombie(pid) }) {
			t.Error("the command outlives the process that held its lock")
		}
		w.run(0, args("lock", at, "job", "true")...)
	})
}

// A signal tells the command that the lock is lost, and the exit code says so, too: 13.
func TestLostLockInTheShell(t *testing.T) {
	w := newWorld(t)
	serve := func() *process {
		p := w.start("declock-mn", "--cluster", "shm:l", "--size", "64MiB", "--dir", "DIR")
		p.says("ready node=mn0")
		return p
	}
	mn := serve()
	for _, x := range []struct{ signal, script string }{
		{"USR1", `trap 'echo told; exit 0' USR1; echo held; while :; do sleep 0.01; done`},
		{"none", `echo held; while [ ! -e "$0" ]; do sleep 0.01; done; echo told`},
	} {
		file := filepath.Join(t.TempDir(), "go-on")
		p := w.start("lock", "--cluster", "shm:l", "--dir", "DIR", "--on-lost", x.signal, "job", "--", "sh", "-c", x.script, file)
		p.says("held")
		_ = mn.cmd.Process.Kill()
		mn.wait()
		mn = serve()
		if !eventually(func() bool { return strings.Contains(p.stderr.String(), "is lost") }) {
			t.Errorf("nothing is said of the loss: %q", p.stderr.String())
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if code := p.wait(); code != 13 || p.stdout.String() != "held\ntold\n" {
			t.Errorf("%s: exit code %d, %q\n%s", x.signal, code, p.stdout.String(), p.stderr.String())
		}
	}
	w.terminate(mn)
}

// top shows what compute nodes do while a trace is replayed, and that they do nothing when it is not.
func TestTop(t *testing.T) {
	onEach(t, func(w *world, at []string) {
		t := w.t
		idle, _ := w.run(0, args("top", at, "--interval", "50ms", "--count", "2")...)
		if n := strings.Count(idle, "compute node  gets/s  hits"); n != 2 || !strings.Contains(idle, " taken (") {
			t.Errorf("idle, %d tables:\n%s", n, idle)
		}
		p := w.start(args("replay", at, "--ops", "100000000", "--keys", "1000")...)
		w.measuringAt(p, at)
		busy, _ := w.run(0, args("top", at, "--interval", "500ms", "--count", "1")...)
		_, row, _ := strings.Cut(busy, "\n  cn1")
		if f := strings.Fields(row); len(f) < 7 || f[0] == "0" || !strings.HasSuffix(f[1], "%") || f[4] == "0" || !strings.Contains(busy, "hot locks of") {
			t.Errorf("busy:\n%s", busy)
		}
		if out, _ := w.run(0, args("status", at, "--json")...); !strings.Contains(out, `"of": "store replay"`) || !strings.Contains(out, `"queued": `) {
			t.Errorf("no hot lock says what it is of:\n%s", out)
		}
		lines, _ := w.run(0, args("kv watch-stats", at, "--store", "replay", "--interval", "300ms", "--count", "2")...)
		rows := strings.Split(lines, "\n")
		if len(rows) != 4 || !strings.HasPrefix(rows[0], "time ") || !strings.Contains(rows[1], "iB") || !strings.Contains(rows[2], "%") {
			t.Errorf("watch-stats:\n%s", lines)
		}
		_ = p.cmd.Process.Signal(syscall.SIGINT)
		p.wait()
		w.run(2, args("top", at, "--interval", "1ns")...)
		endless := w.start(args("top", at, "--interval", "50ms")...)
		endless.says("compute node")
		_ = endless.cmd.Process.Signal(syscall.SIGINT)
		if code := endless.wait(); code != 0 {
			t.Errorf("Ctrl-C: exit code %d", code)
		}
	})
}
