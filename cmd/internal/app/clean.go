package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/fleet"
	"github.com/declock/declock/fabric/shm"
	"github.com/urfave/cli/v2"
)

const cleanDescription = `It removes what a crashed cluster left in shared memory: files and control sockets, and memory that was to be kept
(--keep), but no file that --path named. Without NAME it removes all crashed clusters but those with memory that was to be kept, and what "up" and "replay" with
--fabric tcp left of their etcd when they were killed. Clusters that are in use are left alone.

Examples:
   declock clean
   declock clean demo`

func cleanCommand(env *command.Env) *cli.Command {
	var dir, runDir string
	return command.Complete(&cli.Command{
		Name: "clean", Usage: "remove what crashed clusters left", ArgsUsage: "[NAME]", Category: "run", Description: cleanDescription,
		Flags: []cli.Flag{command.DirFlag(&dir), &cli.StringFlag{Name: "run-dir", Usage: "the --run-dir of \"up\" and \"replay\", if they had one", Destination: &runDir}},
		Action: func(c *cli.Context) error {
			if c.NArg() == 1 {
				name := strings.TrimPrefix(c.Args().First(), "shm:")
				return removeOne(env, dir, name)
			}
			return cleanAll(env, dir, runDir)
		},
	})
}

func removeOne(env *command.Env, dir, name string) error {
	info, err := shm.Inspect(dir, name)
	if err != nil {
		return err
	}
	if err := fleet.Remove(dir, name); err != nil {
		return err
	}
	fmt.Fprintf(env.Stdout, "removed shm:%s\n", name)
	for _, m := range info.Memory {
		if _, err := os.Stat(m.Path); err == nil { // only what --path named is still there
			fmt.Fprintf(env.Stdout, "left %s, which --path named: remove it yourself if what is in it is not needed\n", m.Path)
		}
	}
	return nil
}

func cleanAll(env *command.Env, dir, runDir string) error {
	removed, err := removeDead(dir, "", func(name string) {
		fmt.Fprintf(env.Stdout, "left shm:%s, whose memory is to be kept: \"declock clean %s\" removes it\n", name, name)
	})
	base := etcdBase(runDir)
	for _, name := range fleet.RemoveDeadEtcds(base, "") {
		removed = append(removed, filepath.Join(base, name)+", the etcd of a cluster over tcp")
	}
	for _, what := range removed {
		fmt.Fprintf(env.Stdout, "removed %s\n", what)
	}
	if err == nil && len(removed) == 0 {
		fmt.Fprintf(env.Stdout, "nothing to remove in %s and %s\n", dir, base)
	}
	return err
}
