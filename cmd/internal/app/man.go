package app

import (
	"fmt"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/node"
	"github.com/urfave/cli/v2"
)

const manDescription = `It prints a manual page, made of what --help says.

Examples:
   declock man | man -l -
   declock man declock-cn > /usr/local/share/man/man1/declock-cn.1`

func manCommand(env *command.Env) *cli.Command {
	return command.Complete(&cli.Command{
		Name: "man", Usage: "print the manual page of declock, declock-mn or declock-cn", ArgsUsage: "[PROGRAM]", Category: "other", Description: manDescription,
		Action: func(c *cli.Context) error {
			program := c.Args().First()
			if program == "" {
				program = "declock"
			}
			build := map[string]func(*command.Env) *cli.App{"declock": Declock, "declock-mn": node.MN, "declock-cn": node.CN}[program]
			if build == nil {
				return command.Usage(c, "no program %q: want declock, declock-mn or declock-cn", program)
			}
			a := build(env)
			described(a.Commands)
			section := 8
			if program == "declock" {
				section = 1
			}
			page, err := a.ToManWithSection(section)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(env.Stdout, page)
			return err
		},
	})
}

// described has the descriptions of commands shown, which the cli package leaves out.
func described(list []*cli.Command) {
	for _, c := range list {
		c.UsageText = c.Description
		described(c.Subcommands)
	}
}
