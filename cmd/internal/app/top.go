package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/node"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/cmd/internal/units"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"
)

const topDescription = `It shows what each compute node does, once a second until Ctrl-C: operations on stores with their hit ratio, acquisitions of locks and how long they take, what holds and waits
for locks now, the locks that are acquired most, and the memory that is taken. It asks the same as "declock status": daemons, and none of the programs with the library.

Counters of sessions are as of the last acquisition that was timed, one in 64: of a node that does little they come in steps.

Examples:
   declock top --cluster shm:demo
   declock top --cluster tcp://10.0.0.1:2379/prod --interval 5s --count 1`

// A topView asks a cluster for what it does.
type topView struct {
	every time.Duration
	count int
	write func(w io.Writer, now, before *clusterRow, d time.Duration)
	page  bool // each takes the place of the one before, on a terminal
}

func topCommand(env *command.Env) *cli.Command {
	t := &topView{write: writeTop, page: true}
	return command.Complete(t.command(env, &cli.Command{Name: "top", Usage: "show what a cluster does, live", Category: "look", Description: topDescription}))
}

// command gives a command the view's flags, and has it show the view.
func (t *topView) command(env *command.Env, cmd *cli.Command) *cli.Command {
	var net node.Network
	cmd.Flags = append(cmd.Flags, net.Flags("`ADDRESS` of the cluster, as "+scheme.Forms())...)
	cmd.Flags = append(cmd.Flags, &cli.DurationFlag{Name: "interval", Usage: "`TIME` between two looks", Value: time.Second, Destination: &t.every},
		command.CountFlag(&t.count, "count", 0, 0, 1<<30, "show it so many times; 0: until Ctrl-C"))
	cmd.Action = func(c *cli.Context) error {
		if t.every < 10*time.Millisecond {
			return command.Usage(c, "--interval %v is too short: at least 10ms", t.every)
		}
		at, err := net.Parse(c)
		if err != nil {
			return err
		}
		return t.run(c.Context, env.Stdout, at)
	}
	return cmd
}

// run shows the cluster until ctx ends.
func (t *topView) run(ctx context.Context, w io.Writer, at scheme.Cluster) error {
	clear := ""
	if t.page && term.IsTerminal(int(os.Stdout.Fd())) {
		clear = "\x1b[H\x1b[J"
	}
	var last *clusterRow
	asked := time.Now()
	for shown := 0; ; {
		row, err := describe(ctx, at)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		now := time.Now()
		if last != nil {
			var b strings.Builder
			t.write(&b, row, last, now.Sub(asked))
			if _, err := io.WriteString(w, clear+b.String()); err != nil {
				return err
			}
			if shown++; shown == t.count {
				return nil
			}
		}
		last, asked = row, now
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(t.every):
		}
	}
}

// writeTop writes what a cluster has done since it was asked before.
func writeTop(w io.Writer, now, before *clusterRow, d time.Duration) {
	var used, size uint64
	for _, m := range now.Regions {
		used, size = used+m.Used, size+m.Size
	}
	fmt.Fprintf(w, "cluster %s is %s, %s", now.Cluster, now.State, time.Now().Format(time.TimeOnly))
	if size > 0 {
		fmt.Fprintf(w, ": %s of %s taken (%.0f%%)", units.Bytes(used), units.Bytes(size), 100*float64(used)/float64(size))
	}
	fmt.Fprintln(w)
	writeCoordinator(w, now)
	for _, m := range now.Memory {
		if !m.Alive {
			fmt.Fprintf(w, "  %s is down\n", m.Node)
		}
	}
	t := &report.Table{Head: []string{"compute node", "gets/s", "hits", "stores/s", "evicted/s", "locks/s", "waited", "in us", "held", "waiting", "resets", "local/s"}}
	var all, allBefore control.Seen
	var resets uint64
	for _, n := range now.Compute {
		was := n.before(before)
		if n.Status == nil || was == nil {
			t.Add(n.Node, "-", "-", "-", "-", "-", "-", "-", "-", "-", n.Note, "-")
			continue
		}
		t.Add(topRow(n.Node, &n.Status.Seen, was, d, n.Status.Resets.Led)...)
		all, allBefore, resets = sumSeen(all, &n.Status.Seen), sumSeen(allBefore, was), resets+n.Status.Resets.Led
	}
	if len(now.Compute) > 1 {
		t.Add(topRow("all", &all, &allBefore, d, resets)...)
	}
	t.Write(w)
	writeHot(w, now.Compute)
}

// before returns what the same compute node had done when the cluster was asked before; nil: it was another, or did not answer.
func (n *computeRow) before(row *clusterRow) *control.Seen {
	i := slices.IndexFunc(row.Compute, func(o computeRow) bool { return o.Node == n.Node && o.Pid == n.Pid && o.Status != nil })
	if i < 0 {
		return nil
	}
	return &row.Compute[i].Status.Seen
}

func sumSeen(a control.Seen, b *control.Seen) control.Seen {
	a.Store.Gets, a.Store.Hits, a.Store.Stores, a.Store.Evictions = a.Store.Gets+b.Store.Gets, a.Store.Hits+b.Store.Hits, a.Store.Stores+b.Store.Stores, a.Store.Evictions+b.Store.Evictions
	a.Locks.Acquires, a.Locks.Waits, a.Locks.LocalWaits = a.Locks.Acquires+b.Locks.Acquires, a.Locks.Waits+b.Locks.Waits, a.Locks.LocalWaits+b.Locks.LocalWaits
	a.LocalChains += b.LocalChains
	a.Acquisitions, a.AcquireNs, a.Held, a.Waiters = a.Acquisitions+b.Acquisitions, a.AcquireNs+b.AcquireNs, a.Held+b.Held, a.Waiters+b.Waiters
	return a
}

// topRow is what one compute node, or all, have done in a time.
func topRow(name string, now, was *control.Seen, d time.Duration, resets uint64) []string {
	since := func(now, was uint64) uint64 { return now - min(now, was) } // it may have joined again
	rate := func(now, was uint64) string { return units.Count(uint64(float64(since(now, was)) / d.Seconds())) }
	part := func(of, all uint64) string {
		if all == 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f%%", 100*float64(of)/float64(all))
	}
	acquires := since(now.Locks.Acquires, was.Locks.Acquires)
	waits := since(now.Locks.Waits+now.Locks.LocalWaits, was.Locks.Waits+was.Locks.LocalWaits)
	took := "-"
	if n := since(now.Acquisitions, was.Acquisitions); n > 0 {
		took = fmt.Sprintf("%.1f", float64(since(now.AcquireNs, was.AcquireNs))/float64(n)/1e3)
	}
	return []string{
		name, rate(now.Store.Gets, was.Store.Gets), part(since(now.Store.Hits, was.Store.Hits), since(now.Store.Gets, was.Store.Gets)), rate(now.Store.Stores, was.Store.Stores),
		rate(now.Store.Evictions, was.Store.Evictions), rate(now.Locks.Acquires, was.Locks.Acquires), part(waits, acquires), took,
		fmt.Sprint(now.Held), fmt.Sprint(now.Waiters), units.Count(resets), rate(now.LocalChains, was.LocalChains),
	}
}
