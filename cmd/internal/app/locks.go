package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/memory"
	"github.com/urfave/cli/v2"
)

const locksDescription = `Locks by name: those of "declock lock", and those of programs that use Cluster.Names (--table). A process records what it has held for longer than 100 ms; what is
held for less is not shown.

break declares the process dead that holds the lock, as if it had crashed: it loses all its locks, and reaches the cluster's memory no more. Over
shared memory it is killed. The lock goes to the next that waits, with a greater fencing token. If several share the lock, all of them are.

The exit code of holder and break is 1 if no process holds the lock.

Examples:
   declock locks list --cluster shm:demo
   declock locks holder --cluster shm:demo backup
   declock locks break --cluster tcp://10.0.0.1:2379/prod deploy`

// breakWait is how long break waits until a process is shut out: longer than what a memory node that does not answer is waited for.
const breakWait = 30 * time.Second

// A holderRow is a holder of a lock by name in the output of locks.
type holderRow struct {
	Name  string `json:"name"`
	Mode  string `json:"mode"`
	Node  string `json:"node"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Since string `json:"since"`
	Token uint64 `json:"token"`
}

// namedLocks is what the commands of locks have in common.
type namedLocks struct {
	inspector
	table string
}

func locksCommand(env *command.Env) *cli.Command {
	sub := func(cmd *cli.Command, do func(n *namedLocks, ctx context.Context, x *declock.Names, name string) error) *cli.Command {
		n := &namedLocks{inspector: inspector{env: env}}
		cmd.Flags = append(n.net.Flags("`ADDRESS` of the cluster, as "+scheme.Forms()), command.JSONFlag(&n.json),
			&cli.StringFlag{Name: "table", Usage: "`NAME` of the table of names", Value: "shell", Destination: &n.table})
		cmd.Action = func(c *cli.Context) error {
			return failedKeys(n.look(c, func(l *looking) error {
				x, err := l.cluster.OpenNames(l.ctx, n.table)
				if errors.Is(err, memory.ErrNotFound) {
					return errMissing("there is no table %q of locks by name", n.table)
				}
				if err != nil {
					return err
				}
				return do(n, l.ctx, x, c.Args().First())
			}))
		}
		return cmd
	}
	return command.Complete(&cli.Command{
		Name: "locks", Usage: "show what holds locks by name, and take them away", Category: "look", Description: locksDescription,
		Subcommands: []*cli.Command{
			sub(&cli.Command{Name: "list", Usage: "the locks that are held, and what holds them"}, (*namedLocks).list),
			sub(&cli.Command{Name: "holder", ArgsUsage: "NAME", Usage: "what holds a lock"}, (*namedLocks).holder),
			sub(&cli.Command{Name: "break", ArgsUsage: "NAME", Usage: "declare what holds a lock dead"}, (*namedLocks).breakLock),
		},
	})
}

// print prints holders.
func (n *namedLocks) print(what string, list []declock.Holder) error {
	var rows []any
	for _, h := range list {
		rows = append(rows, holderRow{Name: h.Name, Mode: h.Mode.String(), Node: h.Node.String(), Host: h.Host, PID: h.PID, Since: h.Since.Format(time.RFC3339Nano), Token: uint64(h.Token)})
	}
	r := report.Report{Experiment: "locks " + what, Fabric: n.at.Scheme(), Config: map[string]any{"cluster": n.at.Address(), "table": n.table}, Rows: rows}
	return n.env.Print(n.json, r, func(w io.Writer) {
		t := &report.Table{Head: []string{"lock", "mode", "compute node", "host", "process", "since", "for", "token"}}
		for _, h := range list {
			t.Add(fmt.Sprintf("%q", h.Name), h.Mode.String(), h.Node.String(), h.Host, fmt.Sprint(h.PID), h.Since.Format(time.DateTime), time.Since(h.Since).Round(100*time.Millisecond).String(), fmt.Sprint(h.Token))
		}
		t.Write(w)
	})
}

func (n *namedLocks) list(ctx context.Context, x *declock.Names, _ string) error {
	list, err := x.Holders(ctx)
	if len(list) == 0 {
		if err == nil && !n.json {
			fmt.Fprintf(n.env.Stdout, "no lock of table %q is held\n", n.table)
		}
		if err != nil || !n.json {
			return err
		}
	}
	return errors.Join(n.print("list", list), err)
}

func (n *namedLocks) holder(ctx context.Context, x *declock.Names, name string) error {
	list, err := x.Holders(ctx)
	list = slices.DeleteFunc(list, func(h declock.Holder) bool { return !h.Holds(name) })
	switch {
	case len(list) > 0:
		return n.print("holder", list)
	case err != nil:
		return err
	}
	return notHeld(name)
}

func (n *namedLocks) breakLock(ctx context.Context, x *declock.Names, name string) error {
	ctx, cancel := context.WithTimeout(ctx, breakWait)
	defer cancel()
	list, err := x.Break(ctx, name)
	if errors.Is(err, declock.ErrNotHeld) {
		return notHeld(name)
	}
	if err != nil {
		return err
	}
	return n.print("break", list)
}

func notHeld(name string) error {
	return errMissing("no process has held lock %q for longer than 100 ms", name)
}
