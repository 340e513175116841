package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What follows runs in the guest of scripts/verbs-test, on a real RDMA device.
const (
	programsEnv    = "DECLOCK_PROGRAMS"     // where the programs are, built before
	verbsGuestEnv  = "DECLOCK_VERBS_GUEST"  // set: there must be a device
	verbsEtcdEnv   = "DECLOCK_VERBS_ETCD"   // host:port for an etcd: the memory node is on another machine, and tries to reach it there
	verbsSecretEnv = "DECLOCK_VERBS_SECRET" // the file of their secret
	verbsGIDEnv    = "DECLOCK_VERBS_GID"    // the GID to use; empty: the best
)

// A memory node and two compute nodes, daemons over RDMA, replay a trace: every value that is read is one that was
// written for its key.
func TestReplayOverVerbs(t *testing.T) {
	if os.Getenv(verbsGuestEnv) == "" {
		t.Skip("no RDMA device here: scripts/verbs-test runs this in a virtual machine that has one")
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("what only the members of this cluster know\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	replayOverVerbs(t, "127.0.0.1:2379", secret, true)
}

// The same with the memory node on another machine, which has been started and looks for the cluster.
func TestReplayOverTwoMachines(t *testing.T) {
	listen := os.Getenv(verbsEtcdEnv)
	if listen == "" {
		t.Skip("there is one machine: scripts/verbs-test two runs this on two")
	}
	replayOverVerbs(t, listen, os.Getenv(verbsSecretEnv), false)
}

// replayOverVerbs starts what a cluster needs, an etcd at listen and own reports whether the memory node too, and replays a trace.
func replayOverVerbs(t *testing.T, listen, secret string, own bool) {
	w := newWorld(t)
	etcd := w.startBehind(nil, []string{etcdDir + "=" + t.TempDir(), etcdURL + "=http://" + listen}, "SELF")
	etcd.says("ready")
	with := func(args ...string) []string {
		return append(args, "--cluster", "verbs://"+listen+"/test", "--secret-file", secret, "--run-dir", "DIR", "--dead-after", "60s", "--gid", os.Getenv(verbsGIDEnv))
	}
	var daemons []*process
	daemon := func(args ...string) { // an etcd on an emulated machine may not answer within the time that is enough elsewhere
		p := w.start(with(append(args, "--wait", patience.String())...)...)
		p.says("ready")
		daemons = append(daemons, p)
	}
	if own {
		daemon("declock-mn", "--size", "64MiB", "--huge", "off")
	} else {
		there := func() bool { // it is on its way
			p := w.start(with("status")...)
			return p.wait() == 0 && strings.Contains(p.stdout.String(), "mn0")
		}
		if !eventually(there) {
			t.Fatal("the memory node does not come")
		}
	}
	for range 2 {
		daemon("declock-cn")
	}
	out, _ := w.run(0, with("replay", "--verify", "--fill", "--clients", "3", "--keys", "100", "--ops", "1k", "--json")...)
	r := decode(t, out)
	all := r.Rows[0]
	if r.Fabric != "verbs" || all["count"] != 1000.0 || all["verify_failures"] != 0.0 || all["errors"] != 0.0 || all["verified"] == 0.0 {
		t.Errorf("%s: %v", r.Fabric, all)
	}
	if all["cns"] != 2.0 {
		t.Errorf("%v compute nodes took part, want 2", all["cns"])
	}
	daemons = append([]*process{etcd}, daemons...)
	for i := range daemons {
		p := daemons[len(daemons)-1-i]
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if code := p.wait(); code != 0 {
			t.Errorf("%v ends with %d\n%s", p.cmd.Args, code, p.stderr.String())
		}
	}
}
