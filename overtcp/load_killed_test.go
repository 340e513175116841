package overtcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/memory"
)

// treeLoaderEnv makes this binary a compute node that loads trees, each in several parts, until it is killed: a name, the directory of the test, and the address of the cluster.
const treeLoaderEnv = "DECLOCK_TEST_TREE_LOADER"

const loadedKeys = 10_000

func serveTreeLoader(with string) (io.Closer, error) {
	var name, dir, address string
	if _, err := fmt.Sscan(with, &name, &dir, &address); err != nil {
		return nil, err
	}
	c, err := declock.Open(context.Background(), address)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "loads"+name))
	if err != nil {
		return nil, err
	}
	go func() {
		for n := 0; ; n++ {
			tree := fmt.Sprint(name, ".", n)
			_, _ = fmt.Fprintln(log, "begins", tree)
			what := "loaded"
			if err := loadTree(c, tree); err != nil {
				what = "failed: " + strings.ReplaceAll(err.Error(), "\n", " ")
			} else if n%2 == 0 && c.DropTree(context.Background(), tree) == nil { // the others stay until the test looks at them
				what = "dropped"
			}
			_, _ = fmt.Fprintln(log, what, tree)
		}
	}()
	return c, nil
}

// loadTree loads a tree, again if it has to.
func loadTree(c *declock.Cluster, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeOpLimit)
	defer cancel()
	t, err := c.Tree(ctx, name, declock.TreeConfig{MaxKey: 8, MaxInline: 8})
	for err == nil {
		var parts []iter.Seq2[[]byte, []byte]
		for i := range 4 {
			parts = append(parts, numbers(loadedKeys*i/4, loadedKeys*(i+1)/4))
		}
		err = t.BulkLoad(ctx, btree.BulkOptions{}, parts...)
		if err == nil || errors.Is(err, btree.ErrNotEmpty) { // the last try has come to its end
			return nil
		}
		if strings.Contains(err.Error(), "load again") {
			err = nil
		}
	}
	return err
}

// Processes that load trees are killed, and memory nodes with copies of these: each tree has all keys or none, and all if the load has succeeded.
func TestTreeLoadKilled(t *testing.T) {
	t.Parallel()
	x := newReplicas(t)
	c, s := open(t, x.address)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	whole, none, begun := 0, 0, 0
	for round := range *failovers + 1 {
		name := fmt.Sprint("t", round)
		worker := startSelf(t, fmt.Sprintf("%s=%s %s %s", treeLoaderEnv, name, x.dir, x.address))
		time.Sleep(time.Duration(200+rand.IntN(200)) * time.Millisecond)
		victim := x.primary()
		if round%2 == 1 {
			kill(t, x.mns[victim])
			x.await("another serves", func(s *member.State) bool { return s.Group(0).Serving && s.Group(0).Replicas[0].ID != victim })
			time.Sleep(time.Duration(100+rand.IntN(200)) * time.Millisecond)
		}
		kill(t, worker)
		log, err := os.ReadFile(filepath.Join(x.dir, "loads"+name))
		if err != nil {
			t.Fatal(err)
		}
		states := map[string]string{}
		for line := range strings.Lines(string(log)) {
			what, tree, _ := strings.Cut(strings.TrimSpace(line), " ")
			if strings.HasPrefix(what, "failed") {
				t.Error(line)
			}
			states[tree] = what
		}
		begun += len(states)
		for tree, what := range states {
			n, err := keysOf(ctx, c, s, tree)
			switch {
			case what == "dropped":
				continue
			case n == loadedKeys:
				whole++
			case n == 0 && what != "loaded":
				none++
			default:
				t.Errorf("tree %s, %s: %d keys, %v", tree, what, n, err)
			}
			err = c.DropTree(ctx, tree)
			if missing, half := errors.Is(err, memory.ErrNotFound), errors.Is(err, memory.ErrHalfCreated) && what != "loaded"; err != nil && !missing && !half { // the process was killed before it was made, or meanwhile, or had dropped it
				t.Error(err)
			}
		}
		if round%2 == 1 {
			x.start(victim)
			x.whole()
		}
	}
	t.Logf("of %d trees %d were looked at and whole, %d empty", begun, whole, none)
	if begun == 0 || whole+none == 0 {
		t.Error("that is too few")
	}
}

// keysOf counts the keys of a tree, if it is there and sound.
func keysOf(ctx context.Context, c *declock.Cluster, s *declock.Session, name string) (n int, err error) {
	tr, err := c.Tree(ctx, name, declock.TreeConfig{Existing: true})
	if err != nil {
		return 0, err
	}
	scan := tr.Scan(ctx, btree.Range{})
	for range scan.All() {
		n++
	}
	k, err := tr.Client(s)
	if err != nil {
		return n, err
	}
	defer k.Close()
	r, err := k.Check(btree.CheckOptions{})
	if err == nil && !r.Sound() {
		err = fmt.Errorf("%v", r)
	}
	if err = errors.Join(err, scan.Err()); err != nil {
		return -1, err
	}
	return n, nil
}
