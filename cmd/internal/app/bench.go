package app

import (
	"github.com/urfave/cli/v2"
)

const benchDescription = `Experiments of the DecLock paper on simulated NICs, and the microbenchmark.`

func benchCommand(env *Env) *cli.Command {
	return command(&cli.Command{
		Name: "bench", Usage: "compare locks: the paper's figures, and ours beside them", Category: "research", Description: benchDescription,
		Subcommands: []*cli.Command{microCommand(env)},
	})
}
