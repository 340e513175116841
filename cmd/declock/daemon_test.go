package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// overTCP starts a cluster over TCP with an etcd of its own, and returns the flags by which others find it.
func (w *world) overTCP(args ...string) (*process, []string) {
	w.t.Helper()
	p := w.start(append([]string{"up", "--fabric", "tcp", "--run-dir", "DIR", "--name", "test", "--size", "64MiB"}, args...)...)
	p.says("Ctrl-C takes it down")
	return p, []string{"--cluster", "tcp://DIR/up/test/etcd.sock/test", "--insecure", "--run-dir", "DIR"}
}

func (w *world) terminate(p *process) {
	w.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		w.t.Errorf("%v: exit code %d\n%s", p.cmd.Args, code, p.stderr.String())
	}
}

// All commands work over TCP as they do over shared memory.
func TestOverTCP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	up, at := w.overTCP("--cns", "2", "--mns", "2")
	w.hasPages(up, 2, 2)
	out, _ := w.run(0, append([]string{"replay", "--keys", "500", "--ops", "5k", "--verify", "--json"}, at...)...)
	r := decode(t, out)
	if all := r.Rows[0]; r.Fabric != "tcp" || all["count"] != 5000.0 || all["cns"] != 2.0 || all["errors"] != 0.0 || all["verify_failures"] != 0.0 {
		t.Errorf("by its compute nodes: %v", all)
	}
	own := append([]string{"replay", "--keys", "500", "--ops", "5k", "--verify", "--json", "--cns", "1", "--lock", "declock-tf"}, at...)
	out, _ = w.run(0, own...)
	if all := decode(t, out).Rows[0]; all["count"] != 5000.0 || all["cns"] != 1.0 || all["errors"] != 0.0 || all["lock"] != "declock-tf" {
		t.Errorf("by one of its own: %v", all)
	}
	for _, args := range [][]string{at, {"--run-dir", "DIR", "--dir", "DIR"}} { // by its address, and as one that this machine knows of
		out, _ = w.run(0, append([]string{"status"}, args...)...)
		for _, text := range []string{"tcp://", "is up", "mn0", "mn1", "cn1", "cn2", "replay", "hot locks"} {
			if !strings.Contains(out, text) {
				t.Errorf("status has no %q:\n%s", text, out)
			}
		}
	}
	if out, _ = w.run(0, append([]string{"status", "--json"}, at...)...); strings.Count(out, `"local": true`) != 4 || strings.Contains(out, `"local": false`) {
		t.Errorf("two compute nodes are lent the memory of two memory nodes:\n%s", out)
	}
	if local := regexp.MustCompile(`mn[01] +cn1, cn2 +-\n`); len(local.FindAllString(up.stdout.String(), -1)) != 2 {
		t.Errorf("up does not say how memory is reached:\n%s", up.stdout.String())
	}
	if out, _ = w.run(0, append([]string{"check"}, at...)...); !strings.Contains(out, "sound") {
		t.Errorf("check:\n%s", out)
	}
	if out, _ = w.run(0, append([]string{"inspect", "superblock"}, at...)...); strings.Count(out, "64 MiB") != 2 {
		t.Errorf("superblock:\n%s", out)
	}
	w.run(4, "up", "--fabric", "tcp", "--run-dir", "DIR", "--name", "test")
	w.run(4, append([]string{"declock-mn", "--size", "64MiB", "--listen", "127.0.0.1:0"}, at...)...)
	w.down(up)
}

// Where the network is used, status and up say so, and why.
func TestLocalAccessInStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	up, at := w.overTCP("--cns", "1", "--local=false")
	out, _ := w.run(0, append([]string{"status"}, at...)...)
	for _, text := range []string{out, up.stdout.String()} {
		if !strings.Contains(text, "operations on") || !strings.Contains(text, "cn1 (the compute node was started without --local)") {
			t.Errorf("it does not say that operations go by the network:\n%s", text)
		}
	}
	w.down(up)
}

// Issue 5: compute nodes are restarted one after the other under load, and nobody else sees an error.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	up, at := w.overTCP("--cns", "1")
	cn := func() *process {
		p := w.start(append([]string{"declock-cn", "--procs", "1", "--wait", "5m", "--listen", "127.0.0.1:0"}, at...)...)
		p.says("ready node=")
		return p
	}
	nodes := []*process{cn(), cn()}
	load := w.start(append([]string{"replay", "--keys", "500", "--ops", "1000000000", "--verify", "--json", "--cns", "2", "--clients", "4"}, at...)...)
	w.measuringAt(load, at)
	for i := range nodes {
		w.terminate(nodes[i])
		nodes[i] = cn()
	}
	for _, p := range nodes {
		w.terminate(p)
	}
	_ = load.cmd.Process.Signal(syscall.SIGINT)
	if code := load.wait(); code != 130 {
		t.Errorf("replay: exit code %d\n%s", code, load.stderr.String())
	}
	all := decode(t, load.stdout.String()).Rows[0]
	if all["errors"] != 0.0 || all["verify_failures"] != 0.0 || all["resets"] != 0.0 || all["cns"] != 2.0 || all["count"] == 0.0 {
		t.Errorf("others saw it: %v\n%s", all, load.stderr.String())
	}
	w.down(up)
}

// measuringAt waits until a replay over a network measures.
func (w *world) measuringAt(p *process, at []string) {
	w.t.Helper()
	if !w.beginsAt(p, at) {
		w.t.Fatalf("ended too early with %d\n%s", p.code, p.stderr.String())
	}
}

// beginsAt is measuringAt, and false if the replay ends before.
func (w *world) beginsAt(p *process, at []string) bool {
	w.t.Helper()
	ended := false
	if !eventually(func() bool {
		if ended = isDone(p); ended {
			return true
		}
		out, _ := w.run(0, append([]string{"status", "--json"}, at...)...)
		for _, r := range decode(w.t, out).Rows {
			for _, c := range list(r["compute"]) {
				status, _ := c["status"].(map[string]any)
				job, _ := status["job"].(map[string]any)
				if ops, _ := job["ops"].(float64); ops > 0 {
					return true
				}
			}
		}
		return false
	}) {
		w.t.Fatalf("the replay does not begin to measure\n%s", p.stderr.String())
	}
	return !ended
}

// A compute node that is killed over TCP holds nobody up for ever: its locks are reset, what is stored stays right.
func TestKilledComputeNodeOverTCP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	up, at := w.overTCP("--cns", "1")
	load := w.start(append([]string{"replay", "--keys", "20", "--ops", "1000000000", "--verify", "--json", "--cns", "3", "--clients", "4"}, at...)...)
	w.measuringAt(load, at)
	var own []int // of the replay, not of up
	for _, pid := range w.processes("__cn") {
		if parent(pid) == load.cmd.Process.Pid {
			own = append(own, pid)
		}
	}
	kill(t, own[:1], 1)
	before := w.acquires(at)
	if !eventually(func() bool { return w.acquires(at) > before+5_000 }) { // hot keys: every lock of the killed node is among them
		t.Error("the others do not go on")
	}
	_ = load.cmd.Process.Signal(syscall.SIGINT)
	if code := load.wait(); code != 130 {
		t.Errorf("replay: exit code %d\n%s", code, load.stderr.String())
	}
	if all := decode(t, load.stdout.String()).Rows[0]; all["verify_failures"] != 0.0 || all["errors"] != 0.0 || all["lost_nodes"] != 1.0 {
		t.Errorf("%v\n%s", all, load.stderr.String())
	}
	out, _ := w.run(0, append([]string{"check"}, at...)...)
	if !strings.Contains(out, "sound") {
		t.Errorf("check:\n%s", out)
	}
	w.down(up)
}

func parent(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(f[1])
	return n
}

// acquires adds the acquisitions of all compute nodes here.
func (w *world) acquires(at []string) (n float64) {
	out, _ := w.run(0, append([]string{"status", "--json"}, at...)...)
	for _, r := range decode(w.t, out).Rows {
		for _, c := range list(r["compute"]) {
			status, _ := c["status"].(map[string]any)
			counters, _ := status["counters"].(map[string]any)
			locks, _ := counters["locks"].(map[string]any)
			a, _ := locks["acquires"].(float64)
			n += a
		}
	}
	return n
}

// The commands of the manual make certificates with which etcd and nodes let each other in, and nobody else.
func TestTLSAsInTheManual(t *testing.T) {
	t.Parallel()
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("no openssl on PATH")
	}
	manual, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```sh\n(openssl req -x509.*?)```").FindSubmatch(manual)
	if block == nil {
		t.Fatal("the manual has no commands for certificates")
	}
	commands := strings.ReplaceAll(string(block[1]), "10.0.0.", "127.0.0.") // where etcd is here
	certs := t.TempDir()
	for _, dir := range []string{certs, filepath.Join(certs, "other")} {
		_ = os.MkdirAll(dir, 0o700)
		sh := exec.Command("sh", "-e", "-c", commands)
		sh.Dir = dir
		if out, err := sh.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", openssl, err, out)
		}
	}
	w := newWorld(t)
	etcd := w.startBehind(nil, []string{etcdDir + "=" + t.TempDir(), etcdURL + "=https://127.0.0.1:0", etcdTLS + "=" + filepath.Join(certs, "host1")}, "SELF")
	etcd.says("ready https://")
	cluster := "tcp://" + strings.TrimPrefix(strings.TrimSpace(etcd.stdout.String()), "ready https://") + "/secure"
	as := func(kind, dir, host string) []string { // flags of TLS to nodes, or to etcd
		return []string{"--" + kind + "-ca", dir + "/ca.pem", "--" + kind + "-cert", dir + "/" + host + ".pem", "--" + kind + "-key", dir + "/" + host + ".key"}
	}
	flags := func(more ...[]string) []string {
		return slices.Concat(append([][]string{{"--cluster", cluster, "--run-dir", "DIR", "--listen", "127.0.0.1:0"}}, more...)...)
	}
	host := func(name string) []string { return flags(as("tls", certs, name), as("etcd", certs, name)) }
	mn := w.start(append([]string{"declock-mn", "--size", "64MiB"}, host("host1")...)...)
	mn.says("ready node=mn0")
	cn := w.start(append([]string{"declock-cn"}, host("host2")...)...)
	cn.says("ready node=cn")
	out, _ := w.run(0, append([]string{"replay", "--keys", "100", "--ops", "1000", "--json"}, host("host3")...)...)
	if all := decode(t, out).Rows[0]; all["count"] != 1000.0 || all["errors"] != 0.0 {
		t.Errorf("%v", all)
	}
	other := filepath.Join(certs, "other")
	strangers := map[string]*process{}
	for name, args := range map[string][]string{
		"another authority":             flags(as("tls", other, "host3"), as("etcd", certs, "host3")),
		"no certificate":                flags([]string{"--insecure"}, as("etcd", certs, "host3")),
		"another authority, for etcd":   flags(as("tls", certs, "host3"), as("etcd", other, "host3")),
		"no certificate for etcd":       flags(as("tls", certs, "host3"), as("etcd", certs, "host3")[:2]),
		"neither TLS nor etcd's, plain": flags([]string{"--insecure"}),
	} {
		strangers[name] = w.start(append([]string{"declock-cn"}, args...)...)
	}
	for name, p := range strangers {
		if code := p.wait(); code == 0 || strings.Contains(p.stdout.String(), "ready") {
			t.Errorf("%s: was let in: %s", name, p.stdout.String())
		}
	}
	w.terminate(cn)
	w.terminate(mn)
	w.terminate(etcd)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// A daemon with a configuration file, JSON logs and HTTP.
func TestDaemonFromItsConfiguration(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "mn.yaml")
	text := "cluster: shm:c\nsize: 64MiB\ndir: " + w.dir + "\nhttp: 127.0.0.1:0\nlog-format: json\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := w.run(0, "declock-mn", "--config", file, "--size", "1GiB", "--print-config")
	if !strings.Contains(out, `size: "1GiB"`) || !strings.Contains(out, `cluster: "shm:c"`) || !strings.Contains(out, `# max-cn: "0"`) {
		t.Errorf("flags go before the file:\n%s", out)
	}
	mn := w.start("declock-mn", "--config", file)
	mn.says("ready node=mn0")
	cn := w.start("declock-cn", "--cluster", "shm:c", "--dir", "DIR", "--http", "127.0.0.1:0", "--pprof", "--memcached", "127.0.0.1:0")
	cn.says("ready node=cn1")
	w.run(0, "replay", "--config", file, "--keys", "100", "--ops", "5000")
	for p, wants := range map[*process][]string{mn: {`declock_mn_size_bytes 6\.7108864e\+07`}, cn: {`declock_lock_acquires_total [1-9]`, `declock_memory_up\{memory="mn0"\} 1`,
		`declock_front_requests_total\{command="get",protocol="memcached",result="hit"\} 0`}} {
		addr := w.http(p)
		for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ok", "/status": "{"} {
			if code, body := get(t, "http://"+addr+path); code != 200 || !strings.HasPrefix(body, want) {
				t.Errorf("%s: %d, %s", path, code, body)
			}
		}
		_, body := get(t, "http://"+addr+"/metrics")
		for _, want := range wants {
			if !regexp.MustCompile(`(?m)^` + want).MatchString(body) {
				t.Errorf("no %q in the metrics", want)
			}
		}
		code, _ := get(t, "http://"+addr+"/debug/pprof/cmdline")
		if (code == 200) != (p == cn) {
			t.Errorf("pprof: %d", code)
		}
	}
	w.terminate(cn)
	w.terminate(mn)
	for _, line := range strings.Split(strings.TrimSpace(mn.stderr.String()), "\n") {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry["level"] == nil || entry["msg"] == nil {
			t.Errorf("no JSON log: %q", line)
		}
	}
	mn = w.start("declock-mn", "--config", file, "--size", "100TiB")
	if code := mn.wait(); code != 5 || !strings.Contains(mn.stderr.String(), `"cause":"no-space"`) {
		t.Errorf("code %d, %s", code, mn.stderr.String())
	}
}

// A daemon says that it starts, before there is a cluster, and that it drains, for as long as that takes; and it is well meanwhile.
func TestReadinessOfStartAndDrain(t *testing.T) {
	w := newWorld(t)
	cn := w.start("declock-cn", "--cluster", "shm:late", "--dir", "DIR", "--http", "127.0.0.1:0", "--wait", "10m")
	addr := w.http(cn)
	ready := func(code int, want string) bool {
		got, body := get(t, "http://"+addr+"/readyz")
		return got == code && strings.HasPrefix(body, want)
	}
	if !ready(503, "starting") {
		t.Error("it starts, and does not say so")
	}
	for path, want := range map[string]int{"/healthz": 200, "/metrics": 200, "/status": 503} {
		if code, body := get(t, "http://"+addr+path); code != want {
			t.Errorf("%s while it starts: %d, %s", path, code, body)
		}
	}
	mn := w.start("declock-mn", "--cluster", "shm:late", "--dir", "DIR", "--size", "64MiB")
	cn.says("ready node=cn1")
	if !eventually(func() bool { return ready(200, "ok") }) {
		t.Error("it does not become ready")
	}
	socket := regexp.MustCompile(`control=(\S+)`).FindStringSubmatch(cn.stdout.String())[1]
	asks, err := net.Dial("unix", socket) // a client that is about to ask something is waited for
	if err != nil {
		t.Fatal(err)
	}
	if !eventually(func() bool { return ready(200, "ok") }) {
		t.Error("it is not ready")
	}
	_ = cn.cmd.Process.Signal(syscall.SIGTERM)
	if !eventually(func() bool { return ready(503, "stopping") }) {
		t.Error("it drains, and does not say so")
	}
	if _, body := get(t, "http://"+addr+"/metrics"); !strings.Contains(body, "declock_sessions") {
		t.Error("it drains without metrics")
	}
	asks.Close()
	if code := cn.wait(); code != 0 {
		t.Errorf("code %d\n%s", code, cn.stderr.String())
	}
	w.terminate(mn)
}

// Counters of a daemon of another host are shown, too: here its control socket is out of reach.
func TestStatusOfAnotherHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	up, at := w.overTCP("--cns", "1")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	_ = free.Close()
	dir, err := os.MkdirTemp("", "far") // short: paths of sockets have a limit
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	far := append(slices.Clone(at[:len(at)-1]), dir)
	cn := w.start(append([]string{"declock-cn", "--procs", "1", "--wait", "5m", "--listen", "127.0.0.1:0", "--http", addr}, far...)...)
	cn.says("ready node=cn2")
	for _, args := range [][]string{at, append(slices.Clone(at[:len(at)-1]), dir+"/none")} { // beside a daemon of this host, and from one without
		out, _ := w.run(0, append([]string{"status", "--json"}, args...)...)
		pid := 0.0
		for _, c := range list(decode(t, out).Rows[0]["compute"]) {
			if s, ok := c["status"].(map[string]any); ok && c["node"] == "cn2" {
				pid, _ = s["pid"].(float64)
			}
		}
		if int(pid) != cn.cmd.Process.Pid {
			t.Errorf("%v: no status of cn2:\n%s", args, out)
		}
	}
	w.terminate(cn)
	w.down(up)
}

// After a power cut no node knows which starts first: a memory node waits for its etcd.
func TestMemoryNodeWaitsForEtcd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	args := []string{"declock-mn", "--cluster", "tcp://" + dir + "/e.sock/late", "--insecure", "--run-dir", "DIR", "--listen", "127.0.0.1:0", "--size", "1MiB"}
	mn := w.start(append(args, "--wait", "10m")...)
	if !eventually(func() bool { return isDone(mn) || strings.Contains(mn.stderr.String(), "waiting for the cluster") }) || isDone(mn) || !strings.Contains(mn.stderr.String(), "at_most=") {
		t.Fatalf("it does not say that it waits: %s", mn.stderr.String())
	}
	etcd := w.startBehind(nil, []string{etcdDir + "=" + dir, etcdURL + "=unix://" + dir + "/e.sock"}, "SELF")
	mn.says("ready node=mn0")
	w.terminate(mn)
	w.terminate(etcd)
}

// http returns where a daemon that logs serves HTTP.
func (w *world) http(p *process) string {
	w.t.Helper()
	re := regexp.MustCompile(`http"?[=:]"?(127\.0\.0\.1:[0-9]+)`)
	var m []string
	if !eventually(func() bool { m = re.FindStringSubmatch(p.stderr.String()); return m != nil }) {
		w.t.Fatalf("it does not say where: %s", p.stderr.String())
	}
	return m[1]
}

// A memory node that comes back without its memory: an idle compute node says so, and goes on with what is there.
func TestComputeNodesGoOnWithoutLostMemory(t *testing.T) {
	w := newWorld(t)
	serve := func() *process {
		p := w.start("declock-mn", "--cluster", "shm:l", "--size", "64MiB", "--dir", "DIR")
		p.says("ready node=mn0")
		return p
	}
	mn := serve()
	cn := w.start("declock-cn", "--cluster", "shm:l", "--dir", "DIR")
	cn.says("ready node=cn1")
	_ = mn.cmd.Process.Kill()
	mn.wait()
	mn = serve()
	if !eventually(func() bool { return strings.Contains(cn.stderr.String(), "without its memory") }) {
		t.Errorf("nothing is said of the loss\n%s", cn.stderr.String())
	}
	again := w.start("replay", "--cluster", "shm:l", "--dir", "DIR", "--keys", "100", "--ops", "1k", "--verify")
	if code := again.wait(); code != 0 {
		t.Errorf("a replay afterwards: exit code %d\n%s", code, again.stderr.String())
	}
	w.terminate(cn)
	w.terminate(mn)
}
