package app

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/node"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/urfave/cli/v2"
)

const mnDescription = `Moves of what memory nodes with --replicas serve and have copies of, one step after the other, while all goes on: another copy is made first, so no number ever has
fewer copies than it is to have. A compute node must be up: it copies. Ctrl-C ends a move between two steps; the same command goes on later.

drain takes all copies from a memory node, so that it can be stopped, and no others are put on it: until it is started again, or drain --undo, or rebalance. rebalance has each number
served by the memory node that has joined with it, and spreads copies. abandon gives up what a number had whose copies are all lost: it begins anew, empty.
adopt has a number served that waits since etcd has lost its data, by the memory node whose copy is to count.

A rolling restart, with at least one memory node more than there are copies: for each of them drain, restart, rebalance.

Examples:
   declock mn drain --cluster tcp://10.0.0.1:2379/prod mn2
   declock mn rebalance --cluster tcp://10.0.0.1:2379/prod
   declock mn abandon --cluster tcp://10.0.0.1:2379/prod --force mn0
   declock mn adopt --cluster tcp://10.0.0.1:2379/prod --from mn2 mn0`

// A mover is one of the commands of mn.
type mover struct {
	env   *command.Env
	net   node.Network
	force bool
	from  string
	undo  bool
}

func mnCommand(env *command.Env) *cli.Command {
	sub := func(name, usage, args string, do func(m *mover, ctx context.Context, at scheme.Mover, id fabric.MemID) error, flags ...func(*mover) cli.Flag) *cli.Command {
		m := &mover{env: env}
		cmd := &cli.Command{Name: name, Usage: usage, ArgsUsage: args, Description: mnDescription, Flags: m.net.Flags("`ADDRESS` of the cluster, as " + scheme.Forms())}
		for _, f := range flags {
			cmd.Flags = append(cmd.Flags, f(m))
		}
		cmd.Action = func(c *cli.Context) (err error) {
			var id fabric.MemID
			if args != "" {
				if id, err = memoryNode(c.Args().First()); err != nil {
					return command.Usage(c, "%v", err)
				}
			}
			at, err := m.net.Parse(c)
			if err != nil {
				return err
			}
			to, ok := at.(scheme.Mover)
			if !ok {
				return command.Usage(c, "%s has no copies to move: they need tcp", at.Address())
			}
			switch err = do(m, c.Context, to, id); {
			case errors.Is(err, member.ErrUnknown):
				return exit.Errorf(exit.NotFound, "%w", err)
			case errors.Is(err, member.ErrNoHost):
				return exit.Errorf(exit.NoSpace, "%w: start another memory node, or one with more --backup-room", err)
			}
			return err
		}
		return command.Complete(cmd)
	}
	return &cli.Command{Name: "mn", Usage: "move what memory nodes serve and have copies of", Category: "run", Description: mnDescription, Subcommands: []*cli.Command{
		sub("drain", "take all copies from a memory node, which is to be stopped", "MEMORY-NODE", (*mover).drain, func(m *mover) cli.Flag {
			return &cli.BoolFlag{Name: "undo", Usage: "copies are put on it again, as there is need: rebalance spreads them", Destination: &m.undo}
		}),
		sub("rebalance", "have each number served by its own memory node, and spread copies", "", (*mover).rebalance),
		sub("abandon", "give up what a number had whose copies are all lost", "MEMORY-NODE", (*mover).abandon, func(m *mover) cli.Flag {
			return &cli.BoolFlag{Name: "force", Usage: "a copy on a memory node that is only cut off is given up, too", Destination: &m.force}
		}),
		sub("adopt", "have a number served that waits since etcd has lost its data", "MEMORY-NODE", (*mover).adopt, func(m *mover) cli.Flag {
			return &cli.StringFlag{Name: "from", Usage: "the `MEMORY-NODE` whose copy counts: what others have is given up", Destination: &m.from}
		}),
	}}
}

// show shows a step.
func (m *mover) show(step member.Step, s *member.State) {
	switch {
	case step.Change != nil:
		fmt.Fprintln(m.env.Stdout, step.What)
	case len(s.CNs) == 0:
		fmt.Fprintf(m.env.Stdout, "waits until %s: a compute node must be up, which copies\n", step.What)
	default:
		fmt.Fprintf(m.env.Stdout, "waits until %s\n", step.What)
	}
}

func (m *mover) drain(ctx context.Context, at scheme.Mover, id fabric.MemID) error {
	undo := func(s *member.State) (member.Step, error) { return s.Undrain(id) }
	if m.undo {
		return at.Move(ctx, undo, m.show)
	}
	marked := false
	drain := func(s *member.State) (member.Step, error) {
		step, err := s.Drain(id)
		if again := step.Change != nil && step.Change.Kind == member.Drain; !again {
			marked = true
		} else if marked {
			return member.Step{}, exit.Errorf(exit.InUse, "the drain of %v was undone meanwhile, by a rebalance or by drain --undo", id)
		}
		return step, err
	}
	if err := at.Move(ctx, drain, m.show); err != nil {
		if errors.Is(err, member.ErrNoHost) { // it cannot be stopped, so copies are welcome there
			err = errors.Join(err, at.Move(ctx, undo, m.show))
		}
		return err
	}
	fmt.Fprintf(m.env.Stdout, "%v has no copies: stop it now\n", id)
	return nil
}

func (m *mover) rebalance(ctx context.Context, at scheme.Mover, _ fabric.MemID) error {
	if err := at.Move(ctx, (*member.State).Rebalance, m.show); err != nil {
		return err
	}
	fmt.Fprintln(m.env.Stdout, "nothing is to be moved")
	return nil
}

func (m *mover) abandon(ctx context.Context, at scheme.Mover, id fabric.MemID) error {
	var asked *member.Group
	err := at.Move(ctx, func(s *member.State) (member.Step, error) {
		g := waiting(s, id)
		switch {
		case asked != nil && (g == nil || g.Term > asked.Term):
			return member.Step{}, nil
		case g == nil:
			return member.Step{}, fmt.Errorf("%w: number %v has no copies", member.ErrUnknown, id)
		case !m.force:
			return member.Step{}, exit.Errorf(exit.InUse, "what %v had is lost for good then, also on memory nodes that are only cut off: --force does it", id)
		}
		asked = g
		return member.Step{Change: &member.Change{ID: id, Kind: member.Abandon, Seen: g.Changed}, What: fmt.Sprintf("give %v up", id)}, nil
	}, m.show)
	if err == nil {
		fmt.Fprintf(m.env.Stdout, "%v begins anew, when a memory node joins with this number\n", id)
	}
	return err
}

// waiting returns the group of a number, also of one that waits.
func waiting(s *member.State, id fabric.MemID) *member.Group {
	if i := slices.IndexFunc(s.Waiting, func(g *member.Group) bool { return g.ID == id }); i >= 0 {
		return s.Waiting[i]
	}
	return s.Group(id)
}

func (m *mover) adopt(ctx context.Context, at scheme.Mover, id fabric.MemID) error {
	from, err := memoryNode(m.from)
	if err != nil {
		return exit.Errorf(exit.Usage, "--from says whose copy counts: %w", err)
	}
	asked := false
	err = at.Move(ctx, func(s *member.State) (member.Step, error) {
		g := waiting(s, id)
		if asked && (g == nil || g.Lost == nil) {
			return member.Step{}, nil
		}
		host, ok := s.MN(from)
		switch {
		case g == nil || g.Lost == nil:
			return member.Step{}, fmt.Errorf("%w: number %v does not wait", member.ErrUnknown, id)
		case !ok:
			return member.Step{}, fmt.Errorf("%w: memory node %v is not up", member.ErrUnknown, from)
		}
		asked = true
		return member.Step{Change: &member.Change{ID: id, Kind: member.Adopt, Host: host.Incarnation, Seen: g.Changed}, What: fmt.Sprintf("have %v served by %v", id, from)}, nil
	}, m.show)
	if err == nil {
		fmt.Fprintf(m.env.Stdout, "%v is served by %v\n", id, from)
	}
	return err
}
