package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/lab/bench"
	"github.com/urfave/cli/v2"
)

const benchDescription = `Every figure of the DecLock paper, from one command: "declock-lab bench all". It runs the locks on a simulated cluster whose NICs are
a model with constants that were fitted to the paper, prints what came out beside the paper's figures, and says which of the paper's claims
come out. Nothing is tuned to make them. Each run is measured when a test says that it is in a steady state, and is marked if it
never is. With --out it writes plots, one HTML report and the claims in Markdown. The same seed gives the same figures.
Ctrl-C prints what was measured so far (exit code 130).

Examples:
   declock-lab bench all --quick                  all figures in some 4 minutes on 2 cores; all of it takes some 30
   declock-lab bench fig12b --out /tmp/fig12b     one figure, with plots
   declock-lab bench micro --lock cas,declock     any point`

// nics are the models of NICs.
var nics = []string{"cx4", "cx5", "cx6", "ideal", "cxl"}

// benchOptions are the flags of bench.
type benchOptions struct {
	bench.Config
	out  string
	json bool
}

func benchCommand(env *command.Env) *cli.Command {
	cmd := &cli.Command{Name: "bench", Usage: "compare locks: the paper's figures, and ours beside them", Category: "compare locks", Description: benchDescription}
	all := slices.DeleteFunc(bench.Experiments(), func(e *bench.Experiment) bool { return e.Long || e.Apart })
	cmd.Subcommands = append(cmd.Subcommands, experimentCommand(env, "all", "every experiment but those that take hours, and those of locks that few ask for", all))
	for _, e := range bench.Experiments() {
		cmd.Subcommands = append(cmd.Subcommands, experimentCommand(env, e.Name, e.Title, []*bench.Experiment{e}))
	}
	cmd.Subcommands = append(cmd.Subcommands, microCommand(env), microPartCommand(env), benchTxnCommand(env), benchTCPCommand(env), benchMemcachedCommand(env), benchReplicasCommand(env), benchBankCommand(env))
	return command.Complete(cmd)
}

// allOut is where "all" writes its report by default.
const allOut = "declock-bench"

func experimentCommand(env *command.Env, name, usage string, list []*bench.Experiment) *cli.Command {
	o := new(benchOptions)
	if name == "all" {
		o.out = allOut
	}
	var about []string
	for _, e := range list {
		about = append(about, fmt.Sprintf("%s: %s", e.Name, e.Paper))
	}
	return &cli.Command{
		Name: name, Usage: usage, Description: strings.Join(about, "\n"),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "quick", Usage: "fewer points, fewer seeds", Destination: &o.Quick},
			command.CountFlag(&o.Seed, "seed", 1, 0, 1<<62, "the first seed"),
			command.CountFlag(&o.Seeds, "seeds", 0, 0, 1000, "runs of each point, each of its own seed; 0: 1, or more, without --quick, of points that claims compare by a bar near them"),
			command.CountFlag(&o.Workers, "workers", 0, 0, 1024, "runs at a time; 0: one for each core. Figures do not depend on it"),
			&cli.StringFlag{Name: "kept", Usage: "keep measurements in `FILE`, and do not repeat those that it has: a long run can be interrupted", Destination: &o.Kept},
			command.ChoiceFlag(&o.NIC, "nic", "cx4", "model of the NICs", nics...),
			&cli.StringFlag{Name: "out", Usage: "write report.html, results.json, claims.md, reasons.md and plots (SVG) to `DIR`", Value: o.out, Destination: &o.out}, command.JSONFlag(&o.json),
		},
		Action: func(c *cli.Context) error {
			return runBench(c.Context, env, name, list, o)
		},
	}
}

// runBench measures, prints and writes files, also of what there is when ctx ends.
func runBench(ctx context.Context, env *command.Env, name string, list []*bench.Experiment, o *benchOptions) error {
	cfg := o.Config
	if o.out != "" { // it must not turn out in the end that there is no room
		if err := os.MkdirAll(o.out, 0o777); err != nil {
			return exit.With(exit.Usage, fmt.Errorf("--out: %w", err))
		}
	}
	line := command.NewLine(env.Stderr)
	cfg.Progress = func(p bench.Progress) { // in parts of the work, not of the measurements: some take longer
		line.Show(false, fmt.Sprintf("measuring %3.0f%%", 100*p.Cost/max(p.TotalCost, 1)), p.Experiment)
	}
	began := time.Now()
	out, stopped := bench.Run(ctx, list, cfg)
	line.Clear()
	run := bench.Document{Name: name, Commit: report.Commit(), Config: cfg, Wall: time.Since(began).Round(time.Second), Outcomes: out}
	if err := env.Print(o.json, benchReport(&run), func(w io.Writer) { _ = run.WriteText(w) }); err != nil {
		return errors.Join(err, stopped)
	}
	if o.out != "" {
		if err := writeBench(env, o.out, &run); err != nil {
			return errors.Join(err, stopped)
		}
	}
	if ctx.Err() != nil {
		return interrupted(ctx.Err())
	}
	return stopped
}

// benchReport is the object that --json prints.
func benchReport(d *bench.Document) report.Report {
	r := report.Report{Experiment: d.Name, Fabric: "sim", Seed: d.Config.Seed, Commit: d.Commit, Config: map[string]any{
		"quick": d.Config.Quick, "seeds": d.Config.Seeds, "nic": d.Config.NIC, "nic_model": bench.ModelNote, "go": runtime.Version()}}
	claims, cut := []bench.Claim{}, false
	for _, o := range d.Outcomes {
		cut = cut || o.Cut
		for _, row := range o.Rows {
			r.Rows = append(r.Rows, row)
		}
		claims = append(claims, o.Claims...)
	}
	r.Config["cut"] = cut // short: not all was measured
	r.Claims = claims
	return r
}

// writeBench writes the report, the rows and the plots into a directory.
func writeBench(env *command.Env, dir string, d *bench.Document) error {
	files := map[string]func(f *os.File) error{
		"report.html":  func(f *os.File) error { return d.WriteHTML(f) },
		"results.json": func(f *os.File) error { r := benchReport(d); return r.WriteJSON(f) },
		"claims.md":    func(f *os.File) error { return d.WriteClaims(f) },
		"reasons.md":   func(f *os.File) error { return d.WriteReasons(f) },
	}
	for _, p := range d.Plots() {
		files[p.Name+".svg"] = func(f *os.File) error { return p.WriteSVG(f) }
	}
	for name, write := range files {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return exit.With(exit.Usage, fmt.Errorf("--out: %w", err))
		}
		if err := errors.Join(write(f), f.Close()); err != nil {
			return fmt.Errorf("--out: %s: %w", name, err)
		}
	}
	_, err := fmt.Fprintf(env.Stderr, "%s: report.html, results.json, claims.md, reasons.md and %d plots\n", dir, len(files)-4)
	return err
}
