package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock/coordinator/embedded"
)

// etcdDir in the environment makes the test program an etcd that listens on etcdURL, for a namespace of its own.
const etcdDir, etcdURL = "DECLOCK_TEST_ETCD_DIR", "DECLOCK_TEST_ETCD_URL"

// beEtcd is an etcd until SIGTERM, and never returns, if that is what this process is for.
func beEtcd() {
	dir := os.Getenv(etcdDir)
	if dir == "" {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := embedded.Start(ctx, embedded.Options{Dir: dir, Listen: os.Getenv(etcdURL)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready", s.Endpoint())
	<-ctx.Done()
	_ = s.Close()
	os.Exit(0)
}

// A lan is hosts on a switch, each a network namespace with an address of its own.
type lan struct {
	w      *world
	prefix string
	hosts  []string // addresses
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
	return x.w.startBehind([]string{"ip", "netns", "exec", x.name(host)}, nil, args...)
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
	hostMN1
	hostCN // and the two behind it
)

// cutTime is how long compute nodes are apart: longer than a node may be silent.
const cutTime = 3 * time.Second

var flagNamespaces = flag.Bool("namespaces", false, "run the test of a cluster in network namespaces")

// A cluster of processes on hosts of their own, under a replay that checks every value, while the network is cut and processes are
// killed and stopped: what is stored stays right, and no lock is stuck. (Delays need netem, which not every kernel has: what is
// slow is shown by stopped processes here.)
func TestClusterOfNamespaces(t *testing.T) {
	if !*flagNamespaces {
		t.Skip("a long run, and sensitive to other load: go test ./cmd/declock -run Namespaces -namespaces")
	}
	w := newWorld(t)
	x := w.newLAN(hostCN + 3)
	url := "http://" + x.hosts[hostEtcd] + ":2379"
	etcd := w.startBehind([]string{"ip", "netns", "exec", x.name(hostEtcd)}, []string{etcdDir + "=" + t.TempDir(), etcdURL + "=" + url}, "SELF")
	etcd.says("ready")
	at := []string{"--cluster", "tcp://" + x.hosts[hostEtcd] + ":2379/ns", "--insecure", "--run-dir", "DIR", "--dead-after", "2s"}
	mn := func(id int) *process {
		host := hostMN0 + id
		p := x.start(host, append([]string{"declock-mn", "--mem", fmt.Sprint(id), "--size", "64MiB", "--listen", x.hosts[host] + ":7490"}, at...)...)
		p.says("ready node=mn")
		return p
	}
	mns := []*process{mn(0), mn(1)}
	cn := func(i int) *process {
		p := x.start(hostCN+i, append([]string{"declock-cn", "--procs", "1", "--listen", x.hosts[hostCN+i] + ":7493"}, at...)...)
		p.says("ready node=cn")
		return p
	}
	cns := make([]*process, 3)
	pid := func(i int) int { return cns[i].cmd.Process.Pid } // ip has become the program
	for _, f := range []struct {
		name     string
		do, undo func()
		stalls   bool // the others may have to wait for the end of it
	}{
		{"a compute node cannot send to a memory node", func() { x.cut(hostCN, hostMN0) }, func() { x.heal(hostCN, hostMN0) }, false},
		{"a memory node cannot send to a compute node", func() { x.cut(hostMN1, hostCN) }, func() { x.heal(hostMN1, hostCN) }, false},
		// Both are live to all others, and locks pass from one to the other: these wait until they can.
		{"a compute node cannot send to another", func() { x.cut(hostCN+1, hostCN+2); time.Sleep(cutTime) }, func() { x.heal(hostCN+1, hostCN+2) }, true},
		{"a compute node is cut off", func() { x.unplug(hostCN + 1) }, func() { x.plug(hostCN + 1) }, false},
		{"a compute node is stopped", func() { _ = syscall.Kill(pid(0), syscall.SIGSTOP) }, func() { _ = syscall.Kill(pid(0), syscall.SIGCONT) }, false},
		{"a compute node is killed", func() { _ = syscall.Kill(pid(2), syscall.SIGKILL) }, func() { cns[2].wait() }, false},
	} {
		load := x.begin(at, func() {
			for i := range cns {
				if cns[i] == nil || isDone(cns[i]) {
					cns[i] = cn(i)
				}
			}
		})
		f.do()
		if !f.stalls {
			x.goesOn(load, at, 1000, f.name)
		}
		f.undo()
		x.goesOn(load, at, 1000, f.name+": afterwards")
		_ = load.cmd.Process.Signal(syscall.SIGINT)
		if code := load.wait(); code != 130 {
			t.Errorf("%s: the replay ends with %d\n%s", f.name, code, load.stderr.String())
		}
		all := decode(t, load.stdout.String()).Rows[0]
		t.Logf("%s: %v operations, %v errors, %v values verified, %v resets, %v lost nodes", f.name, all["count"], all["errors"], all["verified"], all["resets"], all["lost_nodes"])
		if all["verify_failures"] != 0.0 || all["verified"] == 0.0 {
			t.Errorf("%s: %v\n%s", f.name, all, load.stderr.String())
		}
	}
	for _, p := range cns { // whoever was declared dead has ended by itself
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if code := p.wait(); code != 0 && code != 13 && code != -1 {
			t.Errorf("%v: exit code %d\n%s", p.cmd.Args, code, p.stderr.String())
		}
	}
	// No lock is stuck: new nodes use every one of the keys.
	after := x.start(hostCN, append([]string{"replay", "--keys", "200", "--ops", "5k", "--cns", "2", "--verify", "--json"}, at...)...)
	if code := after.wait(); code != 0 {
		t.Fatalf("afterwards: exit code %d\n%s", code, after.stderr.String())
	}
	if all := decode(t, after.stdout.String()).Rows[0]; all["count"] != 5000.0 || all["errors"] != 0.0 || all["verify_failures"] != 0.0 {
		t.Errorf("afterwards: %v", all)
	}
	check := x.start(hostCN, append([]string{"check"}, at...)...)
	if code := check.wait(); code != 0 {
		t.Errorf("check: exit code %d\n%s%s", code, check.stdout.String(), check.stderr.String())
	}
	for _, p := range append(mns, etcd) {
		w.terminate(p)
	}
}

// begin starts a replay that goes on until it is told to end. A compute node that has been declared dead
// ends by itself, perhaps only when the replay uses it: then it is replaced, and the replay begins again.
func (x *lan) begin(at []string, replace func()) *process {
	x.w.t.Helper()
	var load *process
	for range 5 {
		replace()
		load = x.start(hostEtcd, append([]string{"replay", "--keys", "200", "--ops", "1000000000", "--clients", "3", "--verify", "--max-errors", "0", "--json"}, at...)...)
		if x.w.beginsAt(load, at) {
			return load
		}
	}
	x.w.t.Fatalf("replays end too early with %d\n%s", load.code, load.stderr.String())
	return nil
}

// goesOn waits until the compute nodes of a replay have done so many acquisitions more.
func (x *lan) goesOn(load *process, at []string, more float64, when string) {
	t := x.w.t
	t.Helper()
	x.w.measuringAt(load, at)
	before := x.w.acquires(at)
	if !eventually(func() bool {
		if isDone(load) {
			t.Fatalf("%s: the replay has ended with %d\n%s", when, load.code, load.stderr.String())
		}
		return x.w.acquires(at) >= before+more
	}) {
		t.Fatalf("%s: nobody goes on", when)
	}
}
