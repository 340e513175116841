package app

import (
	"fmt"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/objstore"
	"github.com/declock/declock/region"
	"github.com/urfave/cli/v2"
)

const checkDescription = `It reads all object stores of a running cluster, and tells what is in them and what is wrong: the index, every object,
the memory lists. It takes no locks: NOBODY MAY USE THE STORES MEANWHILE, or it sees changes half done as faults.
Exit code 15 means that something is wrong.

Examples:
   declock check --cluster shm:demo
   declock check --cluster shm:demo --store replay --json`

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
		Name: "check", Usage: "check the object stores of a cluster that nobody uses", Category: "look", Description: checkDescription,
		Flags: append(i.net.flags("`ADDRESS` of the cluster, as "+scheme.Forms()), jsonFlag(&i.json),
			&cli.StringFlag{Name: "store", Usage: "check this store only", Destination: &i.store},
			&cli.BoolFlag{Name: "reclaim", Usage: "give memory back that compute nodes took with them when they died; no other may be alive", Destination: &reclaim},
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
	if n := l.cluster.Node().Fabric().View().Live; reclaim && n.Len() > 1 {
		return exit.Errorf(exit.InUse, "--reclaim: %d other compute nodes are alive, and may have memory of their own", n.Len()-1)
	}
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
		r, err := c.Check(objstore.CheckOptions{Reclaim: reclaim})
		c.Close()
		if err != nil {
			return err
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
	err = i.emit("check", rows, func() error {
		if len(rows) == 0 {
			_, err := fmt.Fprintln(i.env.Stdout, "no object stores")
			return err
		}
		return nil
	})
	if err == nil && unsound > 0 {
		return exit.Errorf(exit.Unsound, "%d of %d stores are not sound", unsound, len(rows))
	}
	return err
}

func (i *inspector) storeNames(l *looking) ([]string, error) {
	if i.store != "" {
		return []string{i.store}, nil
	}
	entries, err := l.cluster.Node().Regions()[0].List(l.session.Port())
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Kind == region.KindStore {
			names = append(names, e.Name)
		}
	}
	return names, nil
}
