package app

import (
	"fmt"
	"io"
	"runtime"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/node"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/urfave/cli/v2"
)

const description = `DecLock: locks, object stores and trees on disaggregated memory. Memory nodes lend their DRAM; clients on
compute nodes reach it by one-sided operations, queue for locks with one atomic, and pass locks on by messages.

Try it: "declock replay" starts a memory node and four compute nodes on this machine, replays a
generated Twitter cache trace against them, and prints what it measured.

Exit codes are distinct per cause: "declock exit-codes".`

// Declock returns the application declock.
func Declock(env *command.Env) *cli.App {
	a := command.New(env, "declock", "locks, object stores and trees on disaggregated memory", description)
	a.Commands = []*cli.Command{
		lockCommand(env), locksCommand(env), kvCommand(env), treeCommand(env), upCommand(env), replayCommand(env), statusCommand(env), topCommand(env), inspectCommand(env), checkCommand(env), cleanCommand(env),
		forgetCommand(env), mnCommand(env), dropCommand(env), flushCommand(env), traceCommand(env), completionCommand(env), manCommand(env), exitCodesCommand(env), VersionCommand(env),
	}
	a.Commands = append(a.Commands, node.Hidden(env)...)
	a.Action = command.UnknownCommand
	return a
}

func exitCodesCommand(env *command.Env) *cli.Command {
	return command.Complete(&cli.Command{
		Name: "exit-codes", Usage: "print the table of exit codes", Category: "other",
		Description: "Exit codes of declock, declock-mn and declock-cn:\n\n" + exit.Text(),
		Action: func(c *cli.Context) error {
			fmt.Fprint(env.Stdout, exit.Text())
			return nil
		},
	})
}

func VersionCommand(env *command.Env) *cli.Command {
	var asJSON bool
	return command.Complete(&cli.Command{
		Name: "version", Usage: "print the version", Category: "other", Flags: []cli.Flag{command.JSONFlag(&asJSON)},
		Action: func(c *cli.Context) error {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			row := map[string]string{"version": command.Version(), "go": runtime.Version(), "platform": platform}
			return env.Print(asJSON, report.Report{Experiment: "version", Rows: []any{row}}, func(w io.Writer) {
				fmt.Fprintf(w, "declock %s %s %s\n", command.Version(), runtime.Version(), platform)
			})
		},
	})
}
