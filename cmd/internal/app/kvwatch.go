package app

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/units"
	"github.com/urfave/cli/v2"
)

const watchStatsDescription = `A line a second, until Ctrl-C: what is in the store and, of all stores of the cluster, what the daemons do: "declock top" has it by node. Programs with the library are not asked.

Examples:
   declock kv watch-stats --cluster shm:demo --store sessions
   declock kv watch-stats --cluster shm:demo --count 10 >> stats.log`

func watchStatsCommand(env *command.Env) *cli.Command {
	var store string
	lines := 0
	t := &topView{write: func(w io.Writer, now, before *clusterRow, d time.Duration) {
		if lines%20 == 0 {
			fmt.Fprintf(w, "%-8s  %12s  %10s  %9s  %6s  %9s  %9s\n", "time", "objects", "takes", "gets/s", "hits", "stores/s", "evicted/s")
		}
		lines++
		writeStoreLine(w, store, now, before, d)
	}}
	return t.command(env, &cli.Command{Name: "watch-stats", Usage: "print once a second what is in a store, and what is done", Description: watchStatsDescription,
		Flags: []cli.Flag{&cli.StringFlag{Name: "store", Usage: "`NAME` of the store", Value: "kv", Destination: &store}}})
}

// writeStoreLine writes what is in a store, and what the nodes of its cluster have done since it was asked before.
func writeStoreLine(w io.Writer, store string, now, before *clusterRow, d time.Duration) {
	var items, taken uint64
	there, exact := false, true
	for _, m := range now.Regions {
		for _, e := range m.Entries {
			if e.Name != store || e.Kind != "store" {
				continue
			}
			there, taken = true, taken+e.Taken
			if e.Usage == nil {
				exact = false
				continue
			}
			items, exact = items+e.Usage.Items, exact && e.Usage.Exact
		}
	}
	objects, takes := "-", "-"
	if there {
		objects, takes = units.Count(items), units.Bytes(taken)
		if !exact {
			objects = "about " + objects
		}
	}
	var all, was control.Seen
	for _, n := range now.Compute {
		if old := n.before(before); n.Status != nil && old != nil {
			all, was = sumSeen(all, &n.Status.Seen), sumSeen(was, old)
		}
	}
	row := topRow("", &all, &was, d, 0)
	fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%-8s  %12s  %10s  %9s  %6s  %9s  %9s", time.Now().Format(time.TimeOnly), objects, takes, row[1], row[2], row[3], row[4]), " "))
}
