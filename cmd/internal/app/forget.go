package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/daemon"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/node"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
	"github.com/urfave/cli/v2"
)

const forgetDescription = `A cluster expects each memory node back that it ever had: while one is down, compute nodes are not ready, and an alert fires. This command
says that it is not coming back. It changes no memory. It refuses a memory node that is up (stop it first), and without --force one on
which a store or tree may have a part: what was in that part is unreachable, and the rest goes on as while the memory node is down.

The copies of a memory node with replicas are dropped, and made anew on others. It is refused, also with --force, where nothing serves a number of which it has a
copy: that may be the only one ("declock mn abandon" gives such a number up).

A memory node that is started with that number later is a new one to the cluster, in a later epoch. To stop a memory node for good at once, run
declock-mn with --leave.

Examples:
   declock forget --cluster tcp://10.0.0.1:2379/prod mn7
   declock forget --config /etc/declock/declock-cn.yaml --force mn7`

func forgetCommand(env *command.Env) *cli.Command {
	var net node.Network
	var force bool
	return command.Complete(&cli.Command{
		Name: "forget", Usage: "take a memory node that is down out of a cluster for good", ArgsUsage: "MEMORY-NODE", Category: "run", Description: forgetDescription,
		Flags: append(net.Flags("`ADDRESS` of the cluster, as "+scheme.Forms()), &cli.BoolFlag{Name: "force", Usage: "also if a store or tree may have a part on it", Destination: &force}),
		Action: func(c *cli.Context) error {
			id, err := memoryNode(c.Args().First())
			if err != nil {
				return command.Usage(c, "%v", err)
			}
			at, err := net.Parse(c)
			if err != nil {
				return err
			}
			f, ok := at.(scheme.Forgetter)
			if !ok {
				return command.Usage(c, "%s has no coordinator: \"declock clean\" removes what crashed clusters left", at.Address())
			}
			return forget(c.Context, env, at, f, id, force)
		},
	})
}

// memoryNode reads the name of a memory node: mn7, or 7.
func memoryNode(s string) (fabric.MemID, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "mn"), 10, 16)
	if err != nil || n >= scheme.MaxMN {
		return 0, fmt.Errorf("%q is no memory node: want mn0 to mn%d", s, scheme.MaxMN-1)
	}
	return fabric.MemID(n), nil
}

func forget(ctx context.Context, env *command.Env, at scheme.Cluster, f scheme.Forgetter, id fabric.MemID, force bool) error {
	info, err := at.Describe(ctx)
	if err != nil {
		return err
	}
	others := false
	for _, m := range info.Memory {
		if m.Node == id.String() && m.Alive {
			return exit.Errorf(exit.InUse, "%v is up, at %s: stop it first, or run declock-mn with --leave, which takes it out when it is stopped", id, m.Path+m.Address)
		}
		others = others || m.Alive
	}
	copies := slices.ContainsFunc(info.Groups, func(g scheme.GroupInfo) bool {
		return slices.ContainsFunc(g.Copies, func(c scheme.ReplicaInfo) bool { return c.Node == id.String() })
	})
	listed := slices.ContainsFunc(info.Memory, func(m scheme.MemoryInfo) bool { return m.Node == id.String() })
	if !copies && !listed {
		return exit.Errorf(exit.NotFound, "%s expects no memory node %v: \"declock status --cluster %s\" shows those that it does", at.Address(), id, at.Address())
	}
	replicated := slices.ContainsFunc(info.Groups, func(g scheme.GroupInfo) bool { return g.Number == id.String() })
	if others && !force && listed && !replicated { // of what is replicated, the coordinator knows whether another memory node has it
		if err := checkParts(ctx, at, id); err != nil {
			return err
		}
	}
	if err := f.Forget(ctx, id); err != nil {
		return err
	}
	if copies {
		fmt.Fprintf(env.Stdout, "%s does not expect %v back. Other copies are made of what it had copies of, where there is room.\n", at.Address(), id)
		return nil
	}
	fmt.Fprintf(env.Stdout, "%s does not expect %v back. What was in its memory is gone, unless a memory node with that number brings it back.\n", at.Address(), id)
	return nil
}

// checkParts refuses to forget a memory node on which a store or tree may have a part.
func checkParts(ctx context.Context, at scheme.Cluster, id fabric.MemID) error {
	c, err := daemon.Open(ctx, at)
	if err != nil {
		return fmt.Errorf("looking at what has a part on %v (--force goes without): %w", id, err)
	}
	defer c.Close()
	s, err := c.Session()
	if err != nil {
		return err
	}
	defer s.Close()
	among := []fabric.MemID{id}
	var names []string
	for _, r := range c.Node().Regions() {
		if r.Memory() != id {
			among = append(among, r.Memory())
		}
	}
	for _, r := range c.Node().Regions() {
		if r.Memory() == id {
			continue
		}
		entries, err := r.List(s.Port())
		if err != nil {
			return fmt.Errorf("looking at what has a part on %v (--force goes without): %v: %w", id, r.Memory(), err)
		}
		for _, e := range entries {
			var nodes []fabric.MemID
			var err error
			switch e.Kind {
			case memory.KindStore:
				nodes, err = objstore.Stores.Find(s.Port(), e.Name, among)
			case memory.KindTree:
				nodes, err = btree.Trees.Find(s.Port(), e.Name, among)
			}
			if name := fmt.Sprintf("%v %q", e.Kind, e.Name); (err != nil || slices.Contains(nodes, id)) && !slices.Contains(names, name) {
				if err != nil && !errors.Is(err, fabric.ErrNodeDown) && !errors.Is(err, memory.ErrParts) {
					return fmt.Errorf("%s: %w", name, err)
				}
				names = append(names, name)
			}
		}
	}
	if len(names) > 0 {
		return exit.Errorf(exit.InUse, "%v may have a part of %s: what is in it can be used again only if %v comes back with its memory; --force forgets it all the same", id, strings.Join(names, ", "), id)
	}
	return nil
}
