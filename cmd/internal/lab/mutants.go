package lab

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/lab/check"
	"github.com/declock/declock/lab/mutants"
	"github.com/urfave/cli/v2"
)

// mutantRow is a planted bug in the output of mutants.
type mutantRow struct {
	Mutant  string       `json:"mutant"`
	Breaks  string       `json:"breaks"`
	Caught  bool         `json:"caught"`
	Slow    bool         `json:"out_of_time"`
	Seconds float64      `json:"seconds"`
	Error   string       `json:"error,omitempty"`
	Tally   *check.Tally `json:"tally"`
}

func mutantsCommand(env *command.Env) *cli.Command {
	var names, plant, remove, dir string
	var asJSON bool
	var o mutants.Options
	return command.Complete(&cli.Command{
		Name: "mutants", Usage: "plant bugs, and see which oracle or test finds them", Category: "look for bugs",
		Description: "It needs the source and go: the working directory is in the module. With --apply and --revert nothing is run: they plant one bug\n" +
			"in a checkout, between comments that show what was there, and take it out again.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "only", Usage: "these `MUTANTS`, with commas", Destination: &names},
			&cli.StringFlag{Name: "apply", Usage: "plant the bug `NAME` in a checkout, and run nothing", Destination: &plant},
			&cli.StringFlag{Name: "revert", Usage: "take the bug `NAME` out of a checkout", Destination: &remove},
			&cli.StringFlag{Name: "dir", Usage: "the `CHECKOUT` of --apply and --revert", Value: ".", Destination: &dir},
			command.CountFlag(&o.Runs, "runs", 3000, 1, 1<<30, "scenarios for each mutant, at most"), command.JSONFlag(&asJSON),
		},
		Action: func(c *cli.Context) error {
			switch {
			case c.IsSet("dir") && plant == "" && remove == "", plant != "" && remove != "", plant+remove != "" && names != "":
				return command.Usage(c, "--apply NAME or --revert NAME, with or without --dir CHECKOUT, and nothing else")
			case plant != "":
				return changeCheckout(c, env, "--apply", plant, dir, (*mutants.Mutant).Plant)
			case remove != "":
				return changeCheckout(c, env, "--revert", remove, dir, (*mutants.Mutant).Remove)
			}
			root, err := mutants.SourceTree(".")
			if err != nil {
				return err
			}
			if names != "" {
				o.Names = strings.Split(names, ",")
			}
			kills, err := mutants.Run(c.Context, root, o)
			if errors.Is(err, mutants.ErrUnknown) {
				return command.Usage(c, "--only: %v", err)
			}
			var rows []any
			for i := range kills {
				k := &kills[i]
				row := mutantRow{Mutant: k.Mutant.Name, Breaks: k.Mutant.Breaks, Caught: k.Caught(), Slow: k.Slow, Seconds: k.Wall.Seconds(), Tally: &k.Tally}
				if k.Err != nil {
					row.Error = k.Err.Error()
				}
				rows = append(rows, row)
			}
			if e := emitSim(env, asJSON, "mutants", 0, map[string]any{"runs": o.Runs}, rows, mutants.Table(kills)); e != nil || err != nil {
				return errors.Join(e, err)
			}
			if slices.ContainsFunc(kills, func(k mutants.Kill) bool { return !k.Caught() || k.Err != nil }) {
				return exit.Errorf(exit.Unsound, "not all mutants are caught")
			}
			return nil
		},
	})
}

// changeCheckout plants a bug in a checkout, or takes it out.
func changeCheckout(c *cli.Context, env *command.Env, flag, name, dir string, change func(*mutants.Mutant, string) ([]string, error)) error {
	m, err := mutants.Find(name)
	if err != nil {
		return command.Usage(c, "%s: %v", flag, err)
	}
	root, err := mutants.SourceTree(dir)
	if err != nil {
		return err
	}
	files, err := change(&m, root)
	for _, f := range files {
		fmt.Fprintln(env.Stdout, "changed", f)
	}
	return err
}
