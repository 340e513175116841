package overtcp_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/coordinator/embedded"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/mn"
	"github.com/declock/declock/overtcp"
)

// etcdAway is longer than two leases; the minute is: go test ./overtcp -run KilledEtcd -away 1m
var etcdAway = flag.Duration("away", 5*time.Second, "how long etcd is away after it was killed")

// deadAfter is the lease of this test's nodes.
const deadAfter = 2 * time.Second

// The etcd of the test is another process: this binary again, which is told its directory.
const etcdEnv = "DECLOCK_TEST_ETCD"

// A memory node may be one, too: it is told the address of its cluster.
const memoryEnv = "DECLOCK_TEST_MEMORY_NODE"

func TestMain(m *testing.M) {
	var start func(string) (io.Closer, error)
	var with string
	for role, f := range map[string]func(string) (io.Closer, error){etcdEnv: serveEtcd, memoryEnv: serveMemory, tightEnv: serveTight, holderEnv: hold, roomyEnv: serveRoomy, plainEnv: servePlain, replicaEnv: serveReplica, storeClientEnv: serveStoreClient, largeClientEnv: serveLargeClient, treeLoaderEnv: serveTreeLoader, rivalEnv: startRival, stillEnv: startStill} {
		if v := os.Getenv(role); v != "" {
			start, with = f, v
		}
	}
	if start == nil {
		os.Exit(m.Run())
	}
	s, err := start(with)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("serves")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := s.Close(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func serveEtcd(dir string) (io.Closer, error) {
	return embedded.Start(context.Background(), embedded.Options{Dir: dir})
}

// startEtcd starts an etcd in a process of its own.
func startEtcd(t testing.TB, dir string) *exec.Cmd {
	t.Helper()
	return startSelf(t, etcdEnv+"="+dir)
}

// startSelf starts this binary again as something else, and waits until it serves.
func startSelf(t testing.TB, as string) *exec.Cmd {
	t.Helper()
	return startSelfBehind(t, nil, as)
}

// startSelfBehind is startSelf by another program.
func startSelfBehind(t testing.TB, behind []string, as string) *exec.Cmd {
	t.Helper()
	args := append(behind, os.Args[0])
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), as)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // closed with this process
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line := bufio.NewScanner(out); !line.Scan() || line.Text() != "serves" {
		t.Fatalf("%s says %q", as, line.Text())
	}
	return cmd
}

// kill is kill -9.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

func open(t *testing.T, address string) (*declock.Cluster, *declock.Session) {
	t.Helper()
	c, err := declock.Open(context.Background(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

// etcd is killed, and is away for longer than leases last: locks pass between compute nodes all the time, a node that wants to
// join gets an error, and none is taken for crashed. When it is back, all are members still, and others can join.
func TestKilledEtcd(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("etcd is away for longer than leases last")
	}
	dir, err := os.MkdirTemp("", "declock-overtcp") // t.TempDir's is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	server := startEtcd(t, dir)
	ctx := context.Background()
	address := fmt.Sprintf("tcp://%s/test?insecure=true&listen=127.0.0.1:0&dead-after=%v", filepath.Join(dir, "etcd.sock"), deadAfter)
	o, err := overtcp.Parse(strings.TrimPrefix(address, "tcp:"))
	if err != nil {
		t.Fatal(err)
	}
	srv, err := o.Serve(ctx, overtcp.Memory{Size: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	m, err := mn.Start(srv, mn.Config{Participants: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	lockOf := func(c *declock.Cluster) declock.LockID {
		t.Helper()
		locks, err := c.Locks(ctx, "l", 1)
		if err != nil {
			t.Fatal(err)
		}
		return locks.At(0)
	}
	c, a := open(t, address)
	d, b := open(t, address)
	sessions := map[*declock.Session]declock.LockID{a: lockOf(c), b: lockOf(d)}
	last := uint64(0)
	pass := func() { // from one compute node to the other
		t.Helper()
		for _, s := range []*declock.Session{a, b} {
			g, err := s.Lock(ctx, sessions[s])
			if err != nil {
				t.Fatal(err)
			}
			if token := uint64(g.Token()); token <= last {
				t.Fatalf("token %d after %d", token, last)
			} else {
				last = token
			}
			if err := g.Unlock(); err != nil {
				t.Fatal(err)
			}
		}
	}
	pass()
	kill(t, server)
	passes := 0
	for began := time.Now(); time.Since(began) < *etcdAway; passes++ {
		pass()
		time.Sleep(time.Millisecond) // other tests want the processors, too
	}
	t.Logf("the lock went round %d times in the %v without etcd", passes, *etcdAway)
	short, cancel := context.WithTimeout(ctx, deadAfter)
	if _, err := declock.Open(short, address); !errors.Is(err, member.ErrUnreachable) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a join without etcd: %v", err)
	}
	cancel()
	startEtcd(t, dir)
	pass()
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := o.Members(bounded)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.CNs) != 2 || len(s.MNs) != 1 || s.Lost != 0 || len(s.Fencing) != 0 {
		t.Errorf("members after that: %+v", *s)
	}
	e, late := open(t, address)
	g, err := late.Lock(ctx, lockOf(e))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
	pass()
}
