package app

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
	"github.com/urfave/cli/v2"
)

const checkDescription = `It reads all object stores and trees of a running cluster, and tells what is in them and what is wrong: the index, every
object, every node, the memory lists. It takes no locks, so a change that is under way looks like a fault. Faults of a store or tree that no other
compute node has open mean that something is wrong (exit code 15); else check says that it is in use, and by which nodes (21).

Memory leaked by crashed compute nodes is found by the others that have the store or tree open, while they work. --reclaim looks for it now, and for
what failed operations could not give back: others may be alive, and take part. If one does not, it gives up after 30 s (21).

Examples:
   declock check --cluster shm:demo
   declock check --cluster shm:demo --store replay --json
   declock check --cluster shm:demo --tree users
   declock check --cluster shm:demo --reclaim`

// A storeRow is a store in the output of check.
type storeRow struct {
	Store string `json:"store"`
	Sound bool   `json:"sound"`
	*objstore.Report
}

// A treeRow is a tree in the output of check.
type treeRow struct {
	Tree   string        `json:"tree"`
	Sound  bool          `json:"sound"`
	Report *btree.Report `json:"report"`
}

func checkCommand(env *command.Env) *cli.Command {
	i := &inspector{env: env}
	var reclaim bool
	return command.Complete(&cli.Command{
		Name: "check", Usage: "check the object stores and trees of a cluster that is not in use", Category: "look", Description: checkDescription,
		Flags: append(i.net.Flags("`ADDRESS` of the cluster, as "+scheme.Forms()), command.JSONFlag(&i.json),
			&cli.StringFlag{Name: "store", Usage: "check this store only", Destination: &i.store},
			&cli.StringFlag{Name: "tree", Usage: "check this tree only", Destination: &i.tree},
			&cli.BoolFlag{Name: "reclaim", Usage: "give back now memory of stores and trees that no node has any more; others may be at work", Destination: &reclaim},
		),
		Action: func(c *cli.Context) error {
			return i.look(c, func(l *looking) error { return i.check(l, reclaim) })
		},
	})
}

func (i *inspector) check(l *looking, reclaim bool) error {
	var view func() fabric.View // set: reclaim
	if reclaim {
		view = l.cluster.Node().Fabric().View
	}
	var rows []any
	stores, badStores, err := i.checkEach(l, memory.KindStore, i.store, &rows, func(name string) (shared, checker, error) {
		c, err := l.openStore(name)
		return c, func() (any, any, bool, error) {
			r, err := c.Check(objstore.CheckOptions{Reclaim: view})
			if err != nil {
				return nil, nil, false, err
			}
			return storeRow{name, r.Sound(), r}, r, r.Sound(), nil
		}, err
	})
	if err != nil {
		return err
	}
	trees, badTrees, err := i.checkEach(l, memory.KindTree, i.tree, &rows, func(name string) (shared, checker, error) {
		c, err := l.openTree(name)
		return c, func() (any, any, bool, error) {
			r, err := c.Check(btree.CheckOptions{Reclaim: view})
			if err != nil {
				return nil, nil, false, err
			}
			return treeRow{Tree: name, Sound: r.Sound(), Report: r}, r, r.Sound(), nil
		}, err
	})
	if err != nil {
		return err
	}
	err = i.emit("check", rows, func(w io.Writer) {
		if len(rows) == 0 {
			fmt.Fprintln(w, "no object stores, no trees")
		}
	})
	if err == nil && badStores+badTrees > 0 {
		return exit.Errorf(exit.Unsound, "%d of %d stores and %d of %d trees are not sound", badStores, stores, badTrees, trees)
	}
	return err
}

// A checker checks a store or tree, and returns the result as a row and as text.
type checker func() (row, text any, sound bool, err error)

// checkEach checks the store or tree with a name; without one all of the kind, unless another kind is asked for by name. It appends their rows, and
// returns how many there are, and how many are not sound.
func (i *inspector) checkEach(l *looking, kind memory.Kind, name string, rows *[]any, open func(name string) (shared, checker, error)) (all, unsound int, err error) {
	names := []string{name}
	if name == "" {
		if names, err = i.rootNames(l, kind); err != nil {
			return 0, 0, err
		}
	}
	for _, name := range names {
		c, check, err := open(name)
		if err != nil {
			return 0, 0, err
		}
		var row, text any
		var sound bool
		err = l.examine(kind.String(), name, c, func() (_ bool, err error) {
			row, text, sound, err = check()
			return sound, err
		})
		if err != nil {
			return 0, 0, err
		}
		if !sound {
			unsound++
		}
		*rows = append(*rows, row)
		if !i.json {
			fmt.Fprintf(i.env.Stdout, "%v %q\n%v", kind, name, text)
		}
	}
	return len(names), unsound, nil
}

// rootNames returns the names of what there is of a kind: none if a store or tree is asked for by name.
func (i *inspector) rootNames(l *looking, kind memory.Kind) (names []string, err error) {
	if i.store != "" || i.tree != "" {
		return nil, nil
	}
	entries, err := l.cluster.Node().Regions()[0].List(l.session.Port())
	for _, e := range entries {
		if e.Kind == kind {
			names = append(names, e.Name)
		}
	}
	return names, err
}

// A shared is a client of a store or tree that other compute nodes may have open.
type shared interface {
	OpenOn() ([]fabric.CNID, error)
	Close()
}

// examine checks a store or tree with check, which returns whether it is sound, and closes its client. Faults that are seen while other compute nodes have it
// open may be their changes, half done: then the error says so, and names the nodes. If none has, this process's own reclaimer may just have been at work:
// only what is seen again is a fault.
func (l *looking) examine(what, name string, c shared, check func() (sound bool, err error)) error {
	defer c.Close()
	var users fabric.CNSet
	var err error
	for range looks { // a moment without changes does
		if err := l.addUsers(&users, c); err != nil {
			return err
		}
		var sound bool
		sound, err = check()
		corrupt := errors.Is(err, objstore.ErrCorrupt) || errors.Is(err, btree.ErrCorrupt)
		if err != nil && !corrupt || err == nil && sound {
			return err
		}
		if uerr := l.addUsers(&users, c); uerr != nil {
			return errors.Join(err, uerr)
		}
	}
	if users.Len() == 0 {
		return err
	}
	var names []string
	for cn, ok := users.Next(0); ok; cn, ok = users.Next(cn) {
		names = append(names, cn.String())
	}
	return exit.Errorf(exit.Busy, "%s %q is in use: %s also have it open, and what was found may be changes of theirs that are half done. "+
		"Check it when no other node has it open", what, name, strings.Join(names, ", "))
}

// looks is how often what seems wrong is checked, before it is called so, or in use.
const looks = 3

// addUsers adds the living compute nodes that have a store or tree open.
func (l *looking) addUsers(users *fabric.CNSet, c shared) error {
	list, err := c.OpenOn()
	if err != nil {
		return err
	}
	live := l.cluster.Node().Fabric().View().Live
	for _, cn := range list {
		if live.Has(cn) {
			users.Add(cn)
		}
	}
	return nil
}
