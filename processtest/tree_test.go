package processtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/mn"
)

// put puts keys in the tree, says each when it is put, and puts and deletes others meanwhile.
func put(dir string) error {
	c, err := declock.Open(context.Background(), "shm:trees", declock.WithDir(dir))
	if err != nil {
		return err
	}
	tc, err := treeClient(c)
	if err != nil {
		return err
	}
	for i := range 400 {
		key := fmt.Sprintf("%04d-%d", i*7%400, os.Getpid())
		gone := fmt.Appendf(nil, "%04d-%d-gone", i*13%400, os.Getpid())
		if err := errors.Join(tc.Put([]byte(key), []byte(key)), tc.Put(gone, nil), tc.Delete(gone)); err != nil {
			return err
		}
		fmt.Println("put", key)
	}
	return c.Close()
}

func treeClient(c *declock.Cluster) (*btree.Client, error) {
	tr, err := c.Tree(context.Background(), "trees", declock.TreeConfig{MaxKey: 32, NodeSize: 512, MaxInline: 32})
	if err != nil {
		return nil, err
	}
	s, err := c.Session()
	if err != nil {
		return nil, err
	}
	return tr.Client(s)
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
	tc, err := treeClient(c)
	if err != nil {
		t.Fatal(err)
	}
	acked := make(chan []string)
	for i := range 3 {
		p := startChild(t, "put", dir)
		go func() { acked <- p.puts(i == 0) }()
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

// puts returns the keys that a child says it has put. One that is to be killed is killed after 100.
func (p *process) puts(kill bool) (keys []string) {
	for p.lines.Scan() {
		if key, ok := strings.CutPrefix(p.lines.Text(), "put "); ok {
			keys = append(keys, key)
		}
		if kill && len(keys) == 100 {
			_ = p.cmd.Process.Kill()
		}
	}
	if err := p.cmd.Wait(); err != nil && !kill {
		p.t.Errorf("child: %v, %q", err, p.lines.Text())
	}
	return keys
}
