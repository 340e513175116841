package app

import (
	"fmt"
	"slices"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/objstore"
	"github.com/declock/declock/region"
	"github.com/urfave/cli/v2"
)

const checkDescription = `It reads all object stores and trees of a running cluster, and tells what is in them and what is wrong: the index, every
object, every node, the memory lists. It takes no locks: who uses a store meanwhile is seen with changes half done. Faults that come and go while
other compute nodes are alive mean that the store is in use (exit code 21); faults that stay, that something is wrong (15).

What a compute node has of a store's memory when it dies is found by the others that have the store open, while they work. --reclaim looks for it now, and for
what failed operations have left: others may be alive, and take part. If one does not, it gives up after 30 s (21).

Examples:
   declock check --cluster shm:demo
   declock check --cluster shm:demo --store replay --json
   declock check --cluster shm:demo --tree users
   declock check --cluster shm:demo --reclaim`

// A storeRow is a store in the output of check.
type storeRow struct {
	Store    string                `json:"store"`
	Sound    bool                  `json:"sound"`
	Nodes    []objstore.NodeReport `json:"nodes"`
	Problems []string              `json:"problems"`
	Omitted  int                   `json:"omitted"`
}

func checkCommand(env *Env) *cli.Command {
	i := &inspector{env: env}
	var reclaim bool
	return command(&cli.Command{
		Name: "check", Usage: "check the object stores and trees of a cluster that nobody uses", Category: "look", Description: checkDescription,
		Flags: append(i.net.flags("`ADDRESS` of the cluster, as "+scheme.Forms()), jsonFlag(&i.json),
			&cli.StringFlag{Name: "store", Usage: "check this store only", Destination: &i.store},
			&cli.StringFlag{Name: "tree", Usage: "check this tree only", Destination: &i.tree},
			&cli.BoolFlag{Name: "reclaim", Usage: "give back now what memory of stores and trees nobody has any more; others may be at work", Destination: &reclaim},
		),
		Action: func(c *cli.Context) error {
			if err := arguments(c, 0, 0); err != nil {
				return err
			}
			return i.look(c, func(l *looking) error { return i.check(l, reclaim) })
		},
	})
}

func (i *inspector) check(l *looking, reclaim bool) error {
	names, err := i.storeNames(l)
	if err != nil {
		return err
	}
	var rows []any
	unsound := 0
	for _, name := range names {
		c, err := l.openStore(name)
		if err != nil {
			return err
		}
		r, busy, err := i.examine(l, c, reclaim)
		c.Close()
		if err != nil {
			return err
		}
		if busy {
			return exit.Errorf(exit.Busy, "store %q is in use: faults were seen that come and go, as changes do that are half done; %d other compute nodes are alive. "+
				"Check it when nobody uses it", name, othersAlive(l))
		}
		if !r.Sound() {
			unsound++
		}
		row := storeRow{Store: name, Sound: r.Sound(), Nodes: r.Nodes, Omitted: r.Omitted, Problems: []string{}}
		for _, p := range r.Problems {
			row.Problems = append(row.Problems, p.String())
		}
		rows = append(rows, row)
		if !i.json {
			if _, err := fmt.Fprintf(i.env.Stdout, "store %q\n%v", name, r); err != nil {
				return err
			}
		}
	}
	trees, badTrees, err := i.checkTrees(l, reclaim, &rows)
	if err != nil {
		return err
	}
	err = i.emit("check", rows, func() error {
		if len(rows) == 0 {
			_, err := fmt.Fprintln(i.env.Stdout, "no object stores, no trees")
			return err
		}
		return nil
	})
	if err == nil && unsound+badTrees > 0 {
		return exit.Errorf(exit.Unsound, "%d of %d stores and %d of %d trees are not sound", unsound, len(rows)-trees, badTrees, trees)
	}
	return err
}

// othersAlive returns how many compute nodes there are besides this one.
func othersAlive(l *looking) int { return l.cluster.Node().Fabric().View().Live.Len() - 1 }

// looks is how often a fault must be seen, where others may be at work, to be one.
const looks = 3

// examine checks a store. It is busy if there are faults that do not stay while other compute nodes are alive.
func (i *inspector) examine(l *looking, c *objstore.Client, reclaim bool) (r *objstore.Report, busy bool, err error) {
	for n := 0; n < looks; n++ {
		o := objstore.CheckOptions{}
		if reclaim {
			o.Reclaim = l.cluster.Node().Fabric().View
		}
		again, err := c.Check(o)
		if err != nil {
			return nil, false, err
		}
		if r == nil {
			r = again
		} else {
			r.Problems = slices.DeleteFunc(r.Problems, func(p objstore.Problem) bool { return !slices.Contains(again.Problems, p) })
			busy = r.Sound()
		}
		if r.Sound() || othersAlive(l) == 0 {
			break
		}
	}
	return r, busy, nil
}

func (i *inspector) storeNames(l *looking) ([]string, error) {
	switch {
	case i.store != "":
		return []string{i.store}, nil
	case i.tree != "":
		return nil, nil
	}
	return rootNames(l, region.KindStore)
}
