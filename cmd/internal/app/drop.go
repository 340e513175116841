package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/memory"
	"github.com/urfave/cli/v2"
)

const dropDescription = `It removes an object store, a tree or locks by name: the name is free at once. Processes that have a store or tree open hear of it within about a
second; its memory is given back some seconds later, when no operation of theirs is under way. Locks stay what they are for those that have opened them; their
memory is that of the next locks that are made as many.

Examples:
   declock drop --cluster shm:demo store replay
   declock drop --cluster shm:demo tree users
   declock drop --cluster shm:demo locks accounts`

func dropCommand(env *command.Env) *cli.Command {
	cmd := &cli.Command{Name: "drop", Usage: "remove an object store, a tree or locks", ArgsUsage: "store|tree|locks NAME", Description: dropDescription}
	return removing(env, cmd, "dropped: want store, tree or locks", func(_ *inspector, l *looking, kind, name string) error {
		drop := map[string]func(context.Context, string) error{"store": l.cluster.DropStore, "tree": l.cluster.DropTree, "locks": l.cluster.DropLocks}
		err := drop[kind](l.ctx, name)
		if errors.Is(err, memory.ErrNotFound) {
			return fmt.Errorf("no %s %q: %w", kind, name, err)
		}
		return err
	})
}

// removing completes a command that removes something of a kind, by name: what it can remove is the first of its arguments.
func removing(env *command.Env, cmd *cli.Command, want string, do func(i *inspector, l *looking, kind, name string) error) *cli.Command {
	i := &inspector{env: env}
	cmd.Category, cmd.Flags = "run", i.net.Flags("`ADDRESS` of the cluster, as "+scheme.Forms())
	kinds, _, _ := strings.Cut(cmd.ArgsUsage, " ")
	cmd.Action = func(c *cli.Context) error {
		kind, name := c.Args().Get(0), c.Args().Get(1)
		if !slices.Contains(strings.Split(kinds, "|"), kind) {
			return command.Usage(c, "%q is nothing that can be %s", kind, want)
		}
		return i.look(c, func(l *looking) error { return do(i, l, kind, name) })
	}
	return command.Complete(cmd)
}

const flushDescription = `It removes all objects of a store, or all keys of a tree. Others may be at work: what they store meanwhile may stay.

Examples:
   declock flush --cluster shm:demo store replay
   declock flush --cluster shm:demo tree users`

// A flusher is a client of a store or tree.
type flusher interface {
	Flush() (removed uint64, err error)
	Close()
}

func flushCommand(env *command.Env) *cli.Command {
	cmd := &cli.Command{Name: "flush", Usage: "remove all that is in a store or tree", ArgsUsage: "store|tree NAME", Description: flushDescription}
	return removing(env, cmd, "flushed: want store or tree", (*inspector).flush)
}

// flush removes all that is in a store or tree.
func (i *inspector) flush(l *looking, kind, name string) (err error) {
	var k flusher
	what := "objects"
	if kind == "tree" {
		k, err = l.openTree(name)
		what = "keys"
	} else {
		k, err = l.openStore(name)
	}
	if err != nil {
		return err
	}
	defer k.Close()
	n, err := k.Flush()
	if err == nil {
		fmt.Fprintf(i.env.Stdout, "%d %s removed\n", n, what)
	}
	return err
}
