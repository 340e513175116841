package lab

import (
	"github.com/declock/declock/cmd/internal/app"
	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/node"
	"github.com/urfave/cli/v2"
)

const labDescription = `For those who compare locks, and those who look for bugs in them. What it needs of a cluster it starts itself.

Try it: "declock-lab bench all --quick" prints every figure of the DecLock paper beside ours, from a simulated cluster.

Exit codes are those of declock: "declock exit-codes".`

// Lab returns the application declock-lab.
func Lab(env *command.Env) *cli.App {
	a := command.New(env, "declock-lab", "compare locks, and look for bugs in them", labDescription)
	a.Commands = append([]*cli.Command{benchCommand(env), simCommand(env), mutantsCommand(env), peersCommand(env), app.VersionCommand(env)}, node.Hidden(env)...)
	a.Action = command.UnknownCommand
	return a
}
