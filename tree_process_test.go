package declock_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/mn"
)

// treeChildDir is the directory of the cluster that a child process is to join.
const treeChildDir = "DECLOCK_TREE_CHILD"

// TestTreeChild is the body of the child processes of TestTreeProcesses: it puts keys, says each when it is put, and deletes
// some that nobody waits for.
func TestTreeChild(t *testing.T) {
	dir := os.Getenv(treeChildDir)
	if dir == "" {
		t.Skip("runs as a child of TestTreeProcesses")
	}
	c, err := declock.Open(context.Background(), "shm:trees", declock.WithDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	_, tc := treeClient(t, c)
	for i := range 400 {
		key := fmt.Sprintf("%04d-%d", i*7%400, os.Getpid())
		if err := tc.Put([]byte(key), []byte(key)); err != nil {
			t.Fatal(err)
		}
		gone := []byte(fmt.Sprintf("%04d-%d-gone", i*13%400, os.Getpid()))
		if err := tc.Put(gone, nil); err != nil {
			t.Fatal(err)
		}
		if err := tc.Delete(gone); err != nil {
			t.Fatal(err)
		}
		fmt.Println("put", key)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func treeClient(t *testing.T, c *declock.Cluster) (*declock.Session, *btree.Client) {
	t.Helper()
	tr, err := c.Tree(context.Background(), "trees", btree.Config{MaxKey: 32, NodeSize: 512, MaxInline: 32})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	tc, err := tr.Client(s)
	if err != nil {
		t.Fatal(err)
	}
	return s, tc
}

// Real processes on one tree, one of which is killed at work: nothing that was acknowledged is lost, and the
// tree is sound.
func TestTreeProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	so := shm.Options{Name: "trees", Dir: dir, Size: 64 << 20, Sparse: true}
	srv, err := shm.Serve(so)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mn.Start(srv, mn.Config{Participants: shm.DefaultMaxCN})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c, err := declock.Open(context.Background(), "shm:trees", declock.WithDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, tc := treeClient(t, c)
	acked := make(chan []string)
	for i := range 3 {
		go func() { acked <- runTreeChild(t, dir, i == 0) }()
	}
	var keys []string
	for range 3 {
		keys = append(keys, <-acked...)
	}
	for _, k := range keys {
		if v, err := tc.Get([]byte(k)); err != nil || string(v) != k {
			t.Errorf("%q was put: %q, %v", k, v, err)
		}
	}
	if len(keys) < 800 {
		t.Errorf("%d keys were put", len(keys))
	}
	r, err := tc.Check(btree.CheckOptions{Repair: true})
	if err != nil || !r.Clean() || r.Keys < uint64(len(keys)) || r.Keys > uint64(len(keys))+2 {
		t.Errorf("%d keys were put: %v, %v", len(keys), r, err)
	}
}

// runTreeChild runs a child and returns the keys that it said it put. One that is to be killed is so after some.
func runTreeChild(t *testing.T, dir string, kill bool) (keys []string) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestTreeChild$", "-test.v")
	cmd.Env = append(os.Environ(), treeChildDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Error(err)
		return nil
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var key string
		if n, _ := fmt.Sscanf(lines.Text(), "put %s", &key); n == 1 {
			keys = append(keys, key)
		}
		if kill && len(keys) == 100 {
			_ = cmd.Process.Kill()
		}
	}
	if err := cmd.Wait(); err != nil && !kill {
		t.Errorf("child: %v", err)
	}
	return keys
}
