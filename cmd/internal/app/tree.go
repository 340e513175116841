package app

import (
	"fmt"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/memory"
)

// A treeRow is a tree in the output of check.
type treeRow struct {
	Tree   string        `json:"tree"`
	Sound  bool          `json:"sound"`
	Report *btree.Report `json:"report"`
}

// checkTrees checks the trees of the cluster, prints them, and appends their rows. It returns how many there are
// and how many are not sound.
func (i *inspector) checkTrees(l *looking, reclaim bool, rows *[]any) (trees, unsound int, err error) {
	names, err := i.treeNames(l)
	if err != nil {
		return 0, 0, err
	}
	for _, name := range names {
		c, err := l.openTree(name)
		if err != nil {
			return 0, 0, err
		}
		o := btree.CheckOptions{}
		if reclaim {
			o.Reclaim = l.cluster.Node().Fabric().View
		}
		var r *btree.Report
		err = l.examine("tree", name, c, func() (bool, error) {
			r, err = c.Check(o)
			return err == nil && r.Sound(), err
		})
		if err != nil {
			return 0, 0, err
		}
		if !r.Sound() {
			unsound++
		}
		*rows = append(*rows, treeRow{Tree: name, Sound: r.Sound(), Report: r})
		if !i.json {
			if _, err := fmt.Fprintf(i.env.Stdout, "tree %q\n%v", name, r); err != nil {
				return 0, 0, err
			}
		}
	}
	return len(names), unsound, nil
}

// treeNames returns the names of the trees to check: none if only a store is asked for.
func (i *inspector) treeNames(l *looking) ([]string, error) {
	switch {
	case i.tree != "":
		return []string{i.tree}, nil
	case i.store != "":
		return nil, nil
	}
	return rootNames(l, memory.KindTree)
}

// rootNames returns the names of what there is of a kind.
func rootNames(l *looking, kind memory.Kind) ([]string, error) {
	entries, err := l.cluster.Node().Regions()[0].List(l.session.Port())
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Kind == kind {
			names = append(names, e.Name)
		}
	}
	return names, nil
}

// openTree opens a tree that is there; it makes none.
func (l *looking) openTree(name string) (*btree.Client, error) {
	if _, err := l.cluster.Node().Regions()[0].Lookup(l.session.Port(), name, memory.KindTree); err != nil {
		return nil, fmt.Errorf("tree %q: %w", name, err)
	}
	t, err := l.cluster.Tree(l.ctx, name, btree.Config{CacheBytes: -1})
	if err != nil {
		return nil, err
	}
	return t.Client(l.session)
}

// treeNode prints the node that a key belongs to.
func (i *inspector) treeNode(l *looking, key string) error {
	if i.tree == "" {
		return exit.Errorf(exit.Usage, "node: --tree NAME is missing: which tree?")
	}
	c, err := l.openTree(i.tree)
	if err != nil {
		return err
	}
	defer c.Close()
	d, err := c.Inspect([]byte(key), int(i.level.N))
	if err != nil {
		return err
	}
	return i.emit("node", []any{d}, func() error {
		_, err := fmt.Fprint(i.env.Stdout, d)
		return err
	})
}
