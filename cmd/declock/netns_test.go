package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock/coordinator/embedded"
)

// etcdDir in the environment makes the test program an etcd that listens on etcdURL, for a namespace of its own.
// With etcdTLS, a prefix of files as in the manual, it talks TLS.
const etcdDir, etcdURL, etcdTLS = "DECLOCK_TEST_ETCD_DIR", "DECLOCK_TEST_ETCD_URL", "DECLOCK_TEST_ETCD_TLS"

// beEtcd is an etcd until SIGTERM, and never returns, if that is what this process is for.
func beEtcd() {
	dir := os.Getenv(etcdDir)
	if dir == "" {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	o := embedded.Options{Dir: dir, Listen: os.Getenv(etcdURL)}
	if host := os.Getenv(etcdTLS); host != "" {
		o.CA, o.Cert, o.Key = filepath.Join(filepath.Dir(host), "ca.pem"), host+".pem", host+".key"
	}
	s, err := embedded.Start(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready", s.Endpoint())
	<-ctx.Done()
	_ = s.Close()
	os.Exit(0)
}

// slowLink in the environment makes the test program a link that delays: LISTEN,TO,DELAY.
const slowLink = "DECLOCK_TEST_SLOW_LINK"

// beSlowLink forwards connections, and delivers everything later, each way, if that is what this process is
// for. (The kernel's own netem is not in every kernel.)
func beSlowLink() {
	spec := strings.Split(os.Getenv(slowLink), ",")
	if len(spec) != 3 {
		return
	}
	delay, err := time.ParseDuration(spec[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	l, err := net.Listen("tcp", spec[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		if err != nil {
			os.Exit(0)
		}
		go func() {
			defer c.Close()
			to, err := net.Dial("tcp", spec[1])
			if err != nil {
				return
			}
			defer to.Close()
			var both sync.WaitGroup
			both.Go(func() { deliverLater(to, c, delay) })
			both.Go(func() { deliverLater(c, to, delay) })
			both.Wait()
		}()
	}
}

// deliverLater copies until one of both has ended, and ends both.
func deliverLater(to, from net.Conn, delay time.Duration) {
	type piece struct {
		due  time.Time
		what []byte
	}
	pieces := make(chan piece, 1024)
	var writer sync.WaitGroup
	writer.Go(func() {
		defer to.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.what); err != nil {
				from.Close()
			}
		}
	})
	for {
		b := make([]byte, 64<<10)
		n, err := from.Read(b)
		if n > 0 {
			pieces <- piece{time.Now().Add(delay), b[:n]}
		}
		if err != nil {
			break
		}
	}
	close(pieces)
	writer.Wait()
}

// A lan is hosts on a switch, each a network namespace with an address of its own.
type lan struct {
	w      *world
	prefix string
	hosts  []string    // addresses
	at     []string    // flags by which the cluster is found
	mns    [2]*process // memory nodes, on hosts from hostMN0 on
	cns    [3]*process // compute nodes, on hosts from hostCN on
	again  [3]int      // how often each had begun to join again before the present fault

	etcd    *process
	etcdDir string
}

// ip runs the ip command.
func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// newLAN makes n hosts, or skips the test with the reason.
func (w *world) newLAN(n int) *lan {
	w.t.Helper()
	x := &lan{w: w, prefix: fmt.Sprintf("dl%d", os.Getpid())}
	w.t.Cleanup(func() {
		for i := -1; i < len(x.hosts); i++ {
			_ = ip("netns", "del", x.name(i)) // its links go with it
		}
	})
	run := func(args ...string) {
		w.t.Helper()
		if err := ip(args...); err != nil {
			w.t.Skipf("no network namespaces here (they need root and the kernel's leave): %v", err)
		}
	}
	sw := x.name(-1)
	run("netns", "add", sw)
	run("-n", sw, "link", "add", "br0", "type", "bridge")
	run("-n", sw, "link", "set", "br0", "up")
	for i := range n {
		host, port := x.name(i), fmt.Sprintf("p%d", i)
		x.hosts = append(x.hosts, fmt.Sprintf("10.97.0.%d", i+1))
		run("netns", "add", host)
		run("-n", sw, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
		run("-n", sw, "link", "set", port, "master", "br0", "up")
		run("-n", host, "addr", "add", x.hosts[i]+"/24", "dev", "eth0")
		run("-n", host, "link", "set", "eth0", "up")
		run("-n", host, "link", "set", "lo", "up")
	}
	w.behind = []string{"ip", "netns", "exec", x.name(hostEtcd)} // from where nothing is cut
	return x
}

func (x *lan) name(i int) string {
	if i < 0 {
		return x.prefix + "sw"
	}
	return fmt.Sprintf("%sh%d", x.prefix, i)
}

// start starts a program on a host.
func (x *lan) start(host int, args ...string) *process {
	x.w.t.Helper()
	return x.startAs(host, nil, args...)
}

func (x *lan) startAs(host int, env []string, args ...string) *process {
	x.w.t.Helper()
	return x.w.startBehind([]string{"ip", "netns", "exec", x.name(host)}, env, args...)
}

// must does something to the network.
func (x *lan) must(args ...string) {
	x.w.t.Helper()
	if err := ip(args...); err != nil {
		x.w.t.Fatal(err)
	}
}

// cut drops what one host sends to another; heal ends that.
func (x *lan) cut(from, to int) {
	x.must("-n", x.name(from), "route", "add", "blackhole", x.hosts[to]+"/32")
}

func (x *lan) heal(from, to int) {
	x.must("-n", x.name(from), "route", "del", "blackhole", x.hosts[to]+"/32")
}

// unplug takes a host off the switch, both ways; plug puts it back.
func (x *lan) unplug(host int) {
	x.must("-n", x.name(-1), "link", "set", fmt.Sprintf("p%d", host), "down")
}
func (x *lan) plug(host int) {
	x.must("-n", x.name(-1), "link", "set", fmt.Sprintf("p%d", host), "up")
}

// Hosts of the test.
const (
	hostEtcd = iota
	hostMN0
	hostMN1 // behind a slow link
	hostCN  // and the two behind it
)

// flagAllFaults: tests of overtcp kill etcd, others kill memory nodes, and TestKilledComputeNodeOverTCP kills a compute node.
var flagAllFaults = flag.Bool("all-faults", false, "TestClusterOfNamespaces: kill a memory node, a compute node and etcd, too")

// deadAfter is the lease of the test's nodes.
const deadAfter = 2 * time.Second

// linkDelay is what the slow link adds, each way: ten times what a switch takes.
const linkDelay = "1ms"

// A fault is something that happens to a cluster under load.
type fault struct {
	name     string
	do, undo func()
	seen     func() bool // the cluster has found out
	healed   func() bool // and that it is over
	dies     int         // the compute node that is declared dead; -1: none
}

// A cluster of processes on hosts of their own, under a replay that checks every value, while the network is cut and processes are
// killed and stopped: what is stored stays right, the others go on, and no lock is stuck.
//
// A fault lasts until the cluster says that it has found out, and the next begins when this one is over: nothing is left to time.
func TestClusterOfNamespaces(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short")
	}
	t.Parallel()
	w := newWorld(t)
	x := w.newLAN(hostCN + 3)
	x.at = []string{"--cluster", "tcp://" + x.hosts[hostEtcd] + ":2379/ns", "--insecure", "--run-dir", "DIR", "--dead-after", deadAfter.String()}
	slow := x.startAs(hostMN1, []string{slowLink + "=" + x.hosts[hostMN1] + ":7590," + x.hosts[hostMN1] + ":7490," + linkDelay}, "SELF")
	slow.says("ready")
	x.mns = [2]*process{x.mn(0, "--path", "DIR/mn0"), x.mn(1, "--advertise", x.hosts[hostMN1]+":7590")}
	x.etcdDir = t.TempDir()
	x.startEtcd()
	for _, p := range x.mns {
		p.says("ready")
	}
	for i := range x.cns { // one after the other: their numbers are known
		x.cns[i] = x.cn(i)
	}
	for _, f := range x.faults() {
		for try := 1; !x.endure(f); try++ {
			if try == 3 {
				t.Fatalf("%s: compute nodes that nothing happens to are declared dead, again and again", f.name)
			}
		}
	}
	for _, p := range x.cns {
		if !isDone(p) {
			w.terminate(p)
		}
	}
	// No lock is stuck: new nodes use every one of the keys.
	after := x.start(hostCN, append([]string{"replay", "--listen", x.hosts[hostCN] + ":0", "--keys", "200", "--ops", "5k", "--cns", "2", "--verify", "--json"}, x.at...)...)
	if code := after.wait(); code != 0 {
		t.Fatalf("afterwards: exit code %d\n%s", code, after.stderr.String())
	}
	if all := decode(t, after.stdout.String()).Rows[0]; all["count"] != 5000.0 || all["errors"] != 0.0 || all["verify_failures"] != 0.0 {
		t.Errorf("afterwards: %v", all)
	}
	check := x.start(hostCN, append([]string{"check", "--listen", x.hosts[hostCN] + ":0"}, x.at...)...)
	if code := check.wait(); code != 0 {
		t.Errorf("check: exit code %d\n%s%s", code, check.stdout.String(), check.stderr.String())
	}
	for _, p := range append(x.mns[:], x.etcd) {
		w.terminate(p)
	}
	_ = slow.cmd.Process.Kill()
	slow.wait()
	if err := os.Remove(filepath.Join(w.dir, "mn0")); err != nil { // a memory that is kept is nobody's to remove
		t.Error(err)
	}
}

// faults are what happens to the cluster, one after the other.
func (x *lan) faults() []fault {
	memory := func(mem string, cut, heal func()) fault {
		lost, back := x.told(0, "memory node cannot be used", "memory="+mem), x.told(0, "memory node can be used again", "memory="+mem)
		return fault{do: cut, undo: heal, seen: lost, healed: back, dies: -1}
	}
	named := func(f fault, name string) fault { f.name = name; return f }
	died := x.told(1, "compute nodes changed", "died=1")
	diedToo := x.told(0, "compute nodes changed", "died=1")
	signal := func(i int, s syscall.Signal) func() {
		return func() { _ = syscall.Kill(x.cns[i].cmd.Process.Pid, s) } // ip has become the program
	}
	list := []fault{
		named(memory("mn0", func() { x.cut(hostCN, hostMN0) }, func() { x.heal(hostCN, hostMN0) }), "a compute node cannot send to a memory node"),
		named(memory("mn1", func() { x.cut(hostMN1, hostCN) }, func() { x.heal(hostMN1, hostCN) }), "a memory node cannot send to a compute node"),
		{"a compute node cannot send to another", func() { x.cut(hostCN+1, hostCN+2) }, func() { x.heal(hostCN+1, hostCN+2) },
			x.told(1, "connect to cn"), nil, -1},
		{"a compute node is cut off", func() { x.unplug(hostCN + 1) }, func() { x.plug(hostCN + 1) }, diedToo, nil, 1},
		{"a compute node is stopped", signal(0, syscall.SIGSTOP), signal(0, syscall.SIGCONT), died, nil, 0},
	}
	if *flagAllFaults {
		kill := named(memory("mn0", func() { x.kill(x.mns[0]) }, func() {
			x.mns[0] = x.mn(0, "--path", "DIR/mn0")
			x.mns[0].says("ready")
		}), "a memory node is killed, and comes back with its memory")
		list = append(slices.Insert(list, 3, kill), // while all compute nodes live
			fault{"a compute node is killed", signal(2, syscall.SIGKILL), func() {}, diedToo, nil, 2}, x.withoutEtcd())
	}
	return list
}

// withoutEtcd is that etcd is killed, stays away until all leases have run out, and comes back: no node joins or crashes
// meanwhile, and all go on.
func (x *lan) withoutEtcd() fault {
	var killed time.Time
	return fault{
		name: "etcd is killed, and comes back",
		do:   func() { x.kill(x.etcd); killed = time.Now() },
		undo: x.startEtcd,
		seen: func() bool { return time.Since(killed) > 2*deadAfter },
		dies: -1,
	}
}

// startEtcd starts etcd, with what it knew when it ended.
func (x *lan) startEtcd() {
	x.etcd = x.startAs(hostEtcd, []string{etcdDir + "=" + x.etcdDir, etcdURL + "=http://" + x.hosts[hostEtcd] + ":2379"}, "SELF")
	x.etcd.says("ready")
}

// kill kills a process, and waits for its end.
func (x *lan) kill(p *process) {
	_ = p.cmd.Process.Kill() // ip has become the program
	p.wait()
}

// told returns a question: whether compute node i has logged a line with some texts since the question was asked first.
func (x *lan) told(i int, texts ...string) func() bool {
	var of *process
	skip := 0
	return func() bool {
		p := x.cns[i]
		log := p.stderr.String()
		if of == nil {
			of, skip = p, len(log)
		}
		if of != p {
			of, skip = p, 0
		}
		for _, line := range strings.Split(log[skip:], "\n") {
			all := true
			for _, text := range texts {
				all = all && strings.Contains(line, text)
			}
			if all {
				return true
			}
		}
		return false
	}
}

// mn starts a memory node. It may be there before etcd is.
func (x *lan) mn(id int, more ...string) *process {
	host := hostMN0 + id
	args := []string{"declock-mn", "--mem", fmt.Sprint(id), "--size", "64MiB", "--wait", "5m", "--listen", x.hosts[host] + ":7490"}
	return x.start(host, append(append(args, more...), x.at...)...)
}

// cn starts a compute node, and waits until it is one.
func (x *lan) cn(i int) *process {
	p := x.start(hostCN+i, append([]string{"declock-cn", "--procs", "1", "--wait", "5m", "--listen", x.hosts[hostCN+i] + ":7493"}, x.at...)...)
	p.says("ready node=cn")
	return p
}

// endure has one fault happen under a load. It returns false if a node was declared dead to which nothing had happened: a
// machine with other things to do may keep a process waiting for so long.
func (x *lan) endure(f fault) bool {
	t := x.w.t
	t.Helper()
	began := time.Now()
	for i, p := range x.cns {
		if p == nil || isDone(p) {
			x.cns[i] = x.cn(i)
		}
		x.again[i] = again(x.cns[i])
	}
	load := x.start(hostEtcd, append([]string{"replay", "--keys", "200", "--ops", "1000000000", "--clients", "3", "--verify", "--max-errors", "0", "--json"}, x.at...)...)
	ok := x.w.beginsAt(load, x.at)
	if ok {
		f.seen() // and not of before
		f.do()
		ok = x.happens(f, f.seen) && x.goesOn(f, load)
		if f.healed != nil {
			f.healed()
		}
		f.undo()
		ok = ok && (f.healed == nil || x.happens(f, f.healed))
	}
	if ok && f.dies >= 0 { // it was declared dead, and joins again by itself when it hears of that, unless it was killed
		p := x.cns[f.dies]
		if !eventually(func() bool {
			return isDone(p) || again(p) > x.again[f.dies] && strings.Count(p.stderr.String(), "msg=joined ") > again(p)
		}) {
			t.Errorf("%s: it does not join again\n%s", f.name, p.stderr.String())
		}
		if isDone(p) && p.code != -1 {
			t.Errorf("%s: it ends with %d\n%s", f.name, p.code, p.stderr.String())
		}
	}
	ok = ok && x.goesOn(f, load)
	_ = load.cmd.Process.Signal(syscall.SIGINT)
	if code := load.wait(); !ok {
		for _, p := range x.cns {
			if isDone(p) {
				t.Logf("%s: once more, since %v has ended with %d\n%s", f.name, p.cmd.Args, p.wait(), p.stderr.String())
			}
		}
		return false
	} else if code != 130 {
		t.Errorf("%s: the replay ends with %d\n%s", f.name, code, load.stderr.String())
	}
	all := decode(t, load.stdout.String()).Rows[0]
	t.Logf("%s: %v operations, %v errors, %v values verified, %v resets, %v lost nodes (%v)", f.name, all["count"], all["errors"], all["verified"],
		all["resets"], all["lost_nodes"], time.Since(began).Round(time.Second))
	if all["verify_failures"] != 0.0 || all["verified"] == 0.0 {
		t.Errorf("%s: %v\n%s", f.name, all, load.stderr.String())
	}
	return true
}

// spared reports whether all compute nodes are there to which nothing has happened.
func (x *lan) spared(f fault) bool {
	for i, p := range x.cns {
		switch {
		case i == f.dies:
		case isDone(p):
			x.w.t.Fatalf("%s: compute node %d has ended with %d\n%s", f.name, i, p.code, p.stderr.String())
		case again(p) > x.again[i]:
			return false
		}
	}
	return true
}

// again returns how often a compute node was declared dead, and has begun to join again.
func again(p *process) int { return strings.Count(p.stderr.String(), `msg="joining again"`) }

// happens waits for something.
func (x *lan) happens(f fault, what func() bool) bool {
	x.w.t.Helper()
	if !eventually(func() bool { return what() || !x.spared(f) }) {
		for _, p := range x.cns {
			x.w.t.Logf("%v\n%s", p.cmd.Args, p.stderr.String())
		}
		x.w.t.Fatalf("%s: nobody finds out that it is so, or over", f.name)
	}
	return x.spared(f)
}

// goesOn waits until the compute nodes have done many acquisitions more.
func (x *lan) goesOn(f fault, load *process) bool {
	t := x.w.t
	t.Helper()
	before := x.w.acquires(x.at)
	if !eventually(func() bool {
		return isDone(load) || !x.spared(f) || x.w.acquires(x.at) >= before+500
	}) {
		t.Fatalf("%s: nobody goes on", f.name)
	}
	if isDone(load) && x.spared(f) {
		t.Fatalf("%s: the replay has ended with %d\n%s", f.name, load.code, load.stderr.String())
	}
	return x.spared(f)
}
