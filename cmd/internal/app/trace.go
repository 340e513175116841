package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/cmd/internal/units"
	"github.com/declock/declock/traces"
	"github.com/urfave/cli/v2"
)

const traceDescription = `Traces are the 7-column CSV of the Twitter cache traces: time, key, key size, value size, client, operation, TTL.

Examples:
   declock trace presets
   declock trace gen --preset cluster14 --keys 100k --ops 1M -o cluster14.zst
   declock trace gen --ops 1000 -o - | declock trace stat -
   declock trace stat cluster14.zst --json`

func traceCommand(env *command.Env) *cli.Command {
	return command.Complete(&cli.Command{
		Name: "trace", Usage: "make and examine cache traces", Category: "traces", Description: traceDescription,
		Subcommands: []*cli.Command{traceGenCommand(env), traceStatCommand(env), tracePresetsCommand(env)},
	})
}

func traceGenCommand(env *command.Env) *cli.Command {
	var preset, out string
	var cfg traces.GenConfig
	return &cli.Command{
		Name: "gen", Usage: "make a trace from the published statistics of a cluster",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "preset", Usage: "cluster: see \"declock trace presets\"", Value: traces.IOPSBound, Destination: &preset},
			command.CountFlag(&cfg.Keys, "keys", 100_000, 1, traces.MaxKeys, "distinct keys that may be asked for"),
			command.CountFlag(&cfg.Requests, "ops", 1_000_000, 1, 1<<50, "requests"),
			command.CountFlag(&cfg.Seed, "seed", 1, 0, math.MaxUint64, "the same seed makes the same trace"),
			command.CountFlag(&cfg.Clients, "clients", 32, 1, 1<<20, "distinct clients"),
			&cli.StringFlag{Name: "o", Aliases: []string{"out"}, Usage: "`FILE` to write: .zst and .gz are compressed, - is standard output", Destination: &out},
		},
		Action: func(c *cli.Context) (err error) {
			if out == "" {
				return command.Usage(c, "where to? Give -o FILE, or -o - for standard output")
			}
			if cfg.Preset, err = traces.FindPreset(preset); err != nil {
				return err
			}
			g, err := traces.NewGenerator(cfg)
			if err != nil {
				return err
			}
			return generate(c.Context, env, g, out)
		},
	}
}

// generate writes the trace. A file is made or replaced only when it is complete: half a trace would pass for one.
func generate(ctx context.Context, env *command.Env, g *traces.Generator, out string) error {
	w, err := traces.Create(out)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return exit.With(exit.Denied, err)
		}
		return exit.With(exit.NoTrace, err)
	}
	n, err := w.WriteAll(&untilDone{Source: g.All(), ctx: ctx})
	if err != nil {
		w.Discard()
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if out != "-" {
		fmt.Fprintf(env.Stderr, "declock: wrote %s records to %s\n", units.Count(uint64(n)), out)
	}
	return nil
}

// untilDone ends a source with the context, which is its error then.
type untilDone struct {
	traces.Source
	ctx context.Context
	n   uint
}

// Next implements traces.Source.
func (u *untilDone) Next(rec *traces.Record) bool {
	if u.n++; u.n%1024 == 0 && u.ctx.Err() != nil {
		return false
	}
	return u.Source.Next(rec)
}

// Err implements traces.Source.
func (u *untilDone) Err() error {
	if u.ctx.Err() != nil {
		return exit.Errorf(exit.Interrupted, "interrupted")
	}
	return u.Source.Err()
}

func traceStatCommand(env *command.Env) *cli.Command {
	var asJSON bool
	var bad string
	return &cli.Command{
		Name: "stat", Usage: "print the statistics of a trace", ArgsUsage: "FILE",
		Flags: []cli.Flag{command.ChoiceFlag(&bad, "on-bad-line", "fail", "what a malformed line does", "fail", "skip"), command.JSONFlag(&asJSON)},
		Action: func(c *cli.Context) error {
			return traceStat(c.Context, env, c.Args().First(), bad == "skip", asJSON)
		},
	}
}

func traceStat(ctx context.Context, env *command.Env, path string, skip, asJSON bool) error {
	interrupted := exit.Errorf(exit.Interrupted, "interrupted while it waited for %s", path)
	var r *traces.Reader
	var err error
	if !untilInterrupted(ctx, func() { r, err = traces.Open(path, traces.ReaderOptions{SkipBad: skip}) }) {
		return interrupted
	}
	if err != nil {
		return exit.Trace(err)
	}
	defer r.Close()
	s := traces.NewStats(0)
	var readErr error
	if !untilInterrupted(ctx, func() { readErr = s.AddAll(&untilDone{Source: r, ctx: ctx}) }) {
		return interrupted
	}
	if readErr != nil && exit.Of(readErr) == exit.Other {
		readErr = exit.With(exit.NoTrace, readErr)
	}
	m := s.Summary()
	if m.Requests == 0 && readErr == nil {
		return exit.Errorf(exit.BadTrace, "%s has no records", path)
	}
	if m.Requests == 0 {
		return readErr
	}
	rep := report.Report{Experiment: "trace stat", Config: map[string]any{"trace": path}, Rows: []any{m}}
	if err := env.Print(asJSON, rep, func(w io.Writer) { writeSummary(w, path, &m) }); err != nil {
		return err
	}
	if n, first := r.Skipped(); n > 0 && readErr == nil {
		fmt.Fprintf(env.Stderr, "declock: %d lines skipped; the first: %v\n", n, first)
	}
	if readErr != nil {
		return fmt.Errorf("what is printed is up to the error: %w", readErr)
	}
	return nil
}

func writeSummary(w io.Writer, path string, m *traces.Summary) {
	fmt.Fprintf(w, "trace %s\n\n", path)
	line(w, "requests", "%s in %s s, %.2f thousand/s", units.Count(m.Requests), units.Count(m.DurationS), m.RateKQPS)
	line(w, "clients", "%d", m.Clients)
	counted := ""
	if m.Sampled < 1 {
		counted = fmt.Sprintf(" (reckoned from %.3g of them)", m.Sampled)
	}
	line(w, "keys", "%s%s, %.2f requests each, %.1f%% asked for once", units.Count(uint64(m.Keys)), counted, m.MeanFreq, 100*m.OneHitRatio)
	line(w, "mean sizes", "key %.1f B, value %.1f B, piece %.1f B", m.MeanKey, m.MeanValue, m.MeanPiece)
	line(w, "working set", "%s", units.Bytes(uint64(m.WorkingSet)))
	line(w, "miss ratio", "%.4f as the trace has it", m.TraceMisses)
	alpha := "not enough requests to tell"
	if m.Alpha != nil {
		alpha = fmt.Sprintf("alpha %.4f", *m.Alpha)
		if m.AlphaR2 != nil {
			alpha += fmt.Sprintf(", R2 %.4f", *m.AlphaR2)
		}
	}
	line(w, "Zipf", "%s", alpha)
	if m.OutOfOrder > 0 {
		line(w, "out of order", "%s records", units.Count(m.OutOfOrder))
	}
	fmt.Fprintln(w)
	ops := &report.Table{Head: []string{"op", "count", "share"}}
	for _, o := range m.Ops {
		ops.Add(o.Op, units.Count(o.Count), strconv.FormatFloat(o.Share, 'f', 4, 64))
	}
	ops.Write(w)
	fmt.Fprintln(w)
	ttls := &report.Table{Head: []string{"TTL s", "share of writes"}}
	for _, t := range m.TTLs {
		ttls.Add(fmt.Sprint(t.TTL), strconv.FormatFloat(t.Share, 'f', 4, 64))
	}
	ttls.Write(w)
}

func tracePresetsCommand(env *command.Env) *cli.Command {
	var asJSON bool
	return &cli.Command{
		Name: "presets", Usage: "list the clusters that traces can be made of", Flags: []cli.Flag{command.JSONFlag(&asJSON)},
		Action: func(c *cli.Context) error {
			return writePresets(env, asJSON)
		},
	}
}

// A presetRow is a preset in JSON, where there is no NaN.
type presetRow struct {
	Preset    string             `json:"preset"`
	MeanKey   *float64           `json:"mean_key"`
	MeanValue *float64           `json:"mean_value"`
	RateKQPS  *float64           `json:"rate_kqps"`
	Alpha     *float64           `json:"zipf_alpha"`
	Ops       map[string]float64 `json:"ops"`
	Missing   []string           `json:"missing"`
}

func writePresets(env *command.Env, asJSON bool) error {
	t := &report.Table{Head: []string{"preset", "key B", "value B", "kqps", "alpha", "operations"}}
	var rows []any
	for _, p := range traces.Presets() {
		row := presetRow{Preset: p.Name, MeanKey: known(p.KeySize), MeanValue: known(p.ValueSize), RateKQPS: known(p.RateKQPS), Alpha: known(p.Alpha),
			Ops: map[string]float64{}, Missing: append([]string{}, p.Missing()...)}
		text := ""
		for op, share := range p.Ops {
			if share > 0 {
				row.Ops[traces.Op(op).String()] = share
				text += fmt.Sprintf("%s %.2f  ", traces.Op(op), share)
			}
		}
		if len(row.Missing) > 0 {
			text += fmt.Sprintf("(cannot be generated: no %s)", row.Missing[0])
		}
		rows = append(rows, row)
		t.Add(p.Name, figure(p.KeySize), figure(p.ValueSize), figure(p.RateKQPS), figure(p.Alpha), text)
	}
	return env.Print(asJSON, report.Report{Experiment: "trace presets", Rows: rows}, t.Write)
}

func known(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

func figure(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}
