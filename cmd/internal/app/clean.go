package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
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
	names, err := clusterNames(dir)
	if err != nil {
		return err
	}
	removed := 0
	for _, name := range names {
		info, err := shm.Inspect(dir, name)
		if err != nil || info.Alive() {
			continue
		}
		kept := false
		for _, m := range info.Memory {
			kept = kept || m.Keep
		}
		if kept {
			fmt.Fprintf(env.Stdout, "left shm:%s, whose memory is to be kept: \"declock clean %s\" removes it\n", name, name)
			continue
		}
		if err := fleet.Remove(dir, name); err != nil {
			if exit.Of(err) == exit.InUse {
				continue // it has come to life
			}
			return err
		}
		fmt.Fprintf(env.Stdout, "removed shm:%s\n", name)
		removed++
	}
	base := etcdBase(runDir)
	for _, name := range fleet.RemoveDeadEtcds(base, "") {
		fmt.Fprintf(env.Stdout, "removed %s, the etcd of a cluster over tcp\n", filepath.Join(base, name))
		removed++
	}
	if removed == 0 {
		fmt.Fprintf(env.Stdout, "nothing to remove in %s and %s\n", dir, base)
	}
	return nil
}
