package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// up starts a cluster and waits until it is there.
func (w *world) up(args ...string) *process {
	w.t.Helper()
	p := w.start(append([]string{"up", "--dir", "DIR", "--name", "test", "--cns", "2", "--size", "64MiB"}, args...)...)
	p.says("Ctrl-C takes it down")
	return p
}

// followsUp runs the commands that up has said can be run in another terminal.
func (w *world) followsUp(p *process) {
	w.t.Helper()
	lines := regexp.MustCompile(`(?m) declock ((status|inspect) .*)$`).FindAllStringSubmatch(p.stdout.String(), -1)
	if len(lines) != 2 {
		w.t.Errorf("up says\n%s", p.stdout.String())
	}
	for _, l := range lines {
		if out, _ := w.run(0, strings.Fields(l[1])...); l[2] == "status" && !strings.Contains(out, "/test is up") && !strings.Contains(out, ":test is up") {
			w.t.Errorf("declock %s:\n%s", l[1], out)
		}
	}
}

func (w *world) down(p *process) {
	w.t.Helper()
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT)
	if code := p.wait(); code != 0 {
		w.t.Errorf("up: exit code %d\n%s", code, p.stderr.String())
	}
}

// hasPages checks that up has said where all of its nodes have their pages, and that these are there.
func (w *world) hasPages(p *process, mns, cns int) {
	w.t.Helper()
	for kind, n := range map[string]int{"memory": mns, "compute": cns} {
		line := regexp.MustCompile("(?m)^In a browser, " + kind + " nodes: (.*)$").FindStringSubmatch(p.stdout.String())
		if line == nil {
			w.t.Fatalf("up does not say where the pages of %s nodes are:\n%s", kind, p.stdout.String())
		}
		list := strings.Split(line[1], ", ")
		if len(list) != n {
			w.t.Errorf("pages of %d %s nodes at %q", n, kind, list)
		}
		for _, at := range list {
			if code, page := get(w.t, at+"/"); code != 200 || !strings.Contains(page, "<h1>DecLock: "+kind+" node ") {
				w.t.Errorf("%s: %d\n%s", at, code, page)
			}
		}
	}
}

func TestUpReplayStatusInspectCheck(t *testing.T) {
	w := newWorld(t)
	p := w.up()
	w.hasPages(p, 1, 2)
	out, _ := w.run(0, "replay", "--dir", "DIR", "--cluster", "shm:test", "--keys", "1000", "--ops", "20k", "--limit", "40MiB", "--verify", "--json")
	r := decode(t, out)
	if all := r.Rows[0]; all["count"] != 20000.0 || all["verify_failures"] != 0.0 || all["cns"] != 2.0 || r.Config["cluster"] != "shm:test" {
		t.Errorf("%v", all)
	}
	out, _ = w.run(0, "status", "--dir", "DIR")
	for _, text := range []string{"cluster shm:test is up", "mn0", "cn1", "cn2", "declock", "replay", "store"} {
		if !strings.Contains(out, text) {
			t.Errorf("status has no %q:\n%s", text, out)
		}
	}
	acquires := 0.0
	for _, c := range list(w.status()[0]["compute"]) {
		counters := c["status"].(map[string]any)["counters"].(map[string]any)
		acquires += counters["locks"].(map[string]any)["acquires"].(float64)
	}
	sets := 0.0 // which take locks; gets need not
	for _, row := range r.Rows {
		if row["op"] == "set" {
			sets = row["count"].(float64)
		}
	}
	if sets == 0 || acquires < sets {
		t.Errorf("%v acquires in status, of %v sets", acquires, sets)
	}
	cluster := []string{"--dir", "DIR", "--cluster", "shm:test"}
	at := func(args ...string) string {
		t.Helper()
		out, _ := w.run(0, append(args, cluster...)...)
		return out
	}
	if out := at("inspect", "superblock"); !strings.Contains(out, "64 MiB") {
		t.Errorf("superblock:\n%s", out)
	}
	if out := at("inspect", "roots"); !regexp.MustCompile(`replay +store.* 40 MiB `).MatchString(out) { // its limit
		t.Errorf("roots:\n%s", out)
	}
	bucket := at("inspect", "bucket", "0")
	addr := regexp.MustCompile(`at (mn0\+0x[0-9a-f]+)\n`).FindStringSubmatch(bucket)
	if addr == nil {
		t.Fatalf("bucket:\n%s", bucket)
	}
	if out := at("inspect", "header", addr[1]); !strings.Contains(out, "free") || !strings.Contains(out, "qsize 0") {
		t.Errorf("header:\n%s", out)
	}
	if key := anyKey(at); key != "" {
		if out := at("inspect", "key", key); !strings.Contains(out, key) {
			t.Errorf("key:\n%s", out)
		}
	} else {
		t.Error("no key in any of the buckets")
	}
	if out := at("check"); !strings.Contains(out, "sound") || strings.Contains(out, "PROBLEM") {
		t.Errorf("check:\n%s", out)
	}
	w.run(4, "up", "--dir", "DIR", "--name", "test")
	w.run(4, "clean", "test", "--dir", "DIR")
	w.run(8, append([]string{"replay", "--max-value", "2MiB", "--keys", "10", "--ops", "10"}, cluster...)...)
	w.run(8, append([]string{"replay", "--limit", "2MiB", "--keys", "10", "--ops", "10"}, cluster...)...)
	w.run(8, append([]string{"replay", "--open-slots", "--keys", "10", "--ops", "10"}, cluster...)...)
	w.run(0, append([]string{"replay", "--open-slots", "--store", "open", "--keys", "10", "--ops", "1k", "--limit", "4MiB", "--verify"}, cluster...)...)
	w.run(19, append([]string{"inspect", "key", "no-such-key"}, cluster...)...)
	w.run(19, append([]string{"inspect", "key", "x", "--store", "nosuch"}, cluster...)...)
	w.run(19, append([]string{"inspect", "bucket", "99999999"}, cluster...)...)
	w.run(9, append([]string{"inspect", "key", strings.Repeat("k", 251)}, cluster...)...)
	w.run(2, append([]string{"inspect", "header", "mn0+0xffffffffff"}, cluster...)...)
	if out := at("flush", "store", "replay"); !strings.Contains(out, "objects removed") || anyKey(at) != "" {
		t.Errorf("flush:\n%s", out)
	}
	at("drop", "store", "replay")
	w.run(19, append([]string{"drop", "store", "replay"}, cluster...)...)
	w.down(p)
}

// anyKey returns a key that is in the store.
func anyKey(at func(...string) string) string {
	for _, bucket := range []string{"0", "1", "2", "3", "4", "5"} {
		if m := regexp.MustCompile(`key "([^"]+)", value`).FindStringSubmatch(at("inspect", "bucket", bucket)); m != nil {
			return m[1]
		}
	}
	return ""
}

// Issue 2: a memory node that is stopped must not matter.
func TestStoppedMemoryNodeServes(t *testing.T) {
	w := newWorld(t)
	p := w.up()
	mn := w.processes("__mn")
	if len(mn) != 1 {
		t.Fatalf("%d memory nodes", len(mn))
	}
	if err := syscall.Kill(mn[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	out, _ := w.run(0, "replay", "--dir", "DIR", "--cluster", "shm:test", "--keys", "1000", "--ops", "50k", "--verify", "--json")
	if all := decode(t, out).Rows[0]; all["count"] != 50000.0 || all["errors"] != 0.0 || all["verify_failures"] != 0.0 {
		t.Errorf("%v", all)
	}
	w.run(0, "status", "--dir", "DIR")
	w.down(p) // also while it is stopped
}

func TestUpGoesOnWithoutAComputeNode(t *testing.T) {
	w := newWorld(t)
	p := w.up()
	cns := w.processes("__cn")
	kill(t, cns[:1], 1)
	if !eventually(func() bool { return strings.Contains(p.stderr.String(), "the others go on") }) {
		t.Errorf("up does not say that a compute node died: %q", p.stderr.String())
	}
	out, _ := w.run(0, "replay", "--dir", "DIR", "--cluster", "shm:test", "--keys", "100", "--ops", "1000", "--json")
	if all := decode(t, out).Rows[0]; all["cns"] != 1.0 {
		t.Errorf("%v", all)
	}
	w.down(p)
}

func TestUpEndsWithItsMemoryNode(t *testing.T) {
	w := newWorld(t)
	p := w.up()
	kill(t, w.processes("__mn"), 1)
	if code := p.wait(); code != 13 {
		t.Errorf("exit code %d, want 13\n%s", code, p.stderr.String())
	}
	if text := p.stderr.String(); !strings.Contains(text, "the cluster is lost") {
		t.Errorf("it says %q", text)
	}
}

func TestKilledUpTakesItsChildrenDown(t *testing.T) {
	w := newWorld(t)
	p := w.up()
	_ = p.cmd.Process.Kill()
	p.wait()
	w.assertClean()
}

func TestDaemons(t *testing.T) {
	w := newWorld(t)
	mn := w.start("declock-mn", "--cluster", "shm:d", "--size", "64MiB", "--dir", "DIR")
	mn.says("ready node=mn0")
	_, stderr := w.run(4, "declock-mn", "--cluster", "shm:d", "--size", "64MiB", "--dir", "DIR")
	if !strings.Contains(stderr, "in use") {
		t.Errorf("a second memory node on the same memory: %q", stderr)
	}
	second := w.start("declock-mn", "--cluster", "shm:d", "--mem", "1", "--size", "64MiB", "--dir", "DIR")
	second.says("ready node=mn1")
	cn := w.start("declock-cn", "--cluster", "shm:d", "--dir", "DIR", "--procs", "1")
	cn.says("ready node=cn1")
	out, _ := w.run(0, "replay", "--dir", "DIR", "--cluster", "shm:d", "--keys", "100", "--ops", "5000", "--verify", "--json")
	if all := decode(t, out).Rows[0]; all["count"] != 5000.0 || all["errors"] != 0.0 {
		t.Errorf("%v", all)
	}
	socket, err := os.Stat(filepath.Join(w.dir, "declock-d", "cn1.sock"))
	if err != nil || socket.Mode().Perm() != 0o600 {
		t.Errorf("control socket: %v, %v", socket, err)
	}
	for _, p := range []*process{cn, second, mn} {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if code := p.wait(); code != 0 {
			t.Errorf("%v: exit code %d\n%s", p.cmd.Args, code, p.stderr.String())
		}
	}
}

func TestKilledDaemonsAreCleanedUpByTheNext(t *testing.T) {
	w := newWorld(t)
	mn := w.start("declock-mn", "--cluster", "shm:d", "--size", "64MiB", "--dir", "DIR")
	mn.says("ready")
	cn := w.start("declock-cn", "--cluster", "shm:d", "--dir", "DIR")
	cn.says("ready")
	for _, p := range []*process{cn, mn} {
		_ = p.cmd.Process.Kill()
		p.wait()
	}
	if !eventually(func() bool { rows := w.status(); return len(rows) == 1 && rows[0]["state"] == "dead" }) {
		t.Errorf("status: %v", w.status())
	}
	again := w.start("declock-mn", "--cluster", "shm:d", "--size", "64MiB", "--dir", "DIR")
	again.says("ready node=mn0")
	_ = again.cmd.Process.Kill()
	again.wait()
	w.run(0, "clean", "--dir", "DIR")
	w.run(3, "clean", "d", "--dir", "DIR")
}

func TestKeptMemoryIsServedAgain(t *testing.T) {
	w := newWorld(t)
	for _, epoch := range []string{"epoch=1", "epoch=2"} {
		mn := w.start("declock-mn", "--cluster", "shm:k", "--size", "64MiB", "--keep", "--dir", "DIR")
		mn.says(epoch)
		_ = mn.cmd.Process.Signal(syscall.SIGTERM)
		if code := mn.wait(); code != 0 {
			t.Errorf("exit code %d\n%s", code, mn.stderr.String())
		}
	}
	out, _ := w.run(0, "clean", "--dir", "DIR")
	if !strings.Contains(out, "to be kept") {
		t.Errorf("clean says %q", out)
	}
	w.run(0, "clean", "k", "--dir", "DIR")
}
