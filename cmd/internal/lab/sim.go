package lab

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/check"
	"github.com/declock/declock/lab/explore"
	"github.com/urfave/cli/v2"
)

const simDescription = `It runs the code of locks and object store in the simulator, in virtual time, and has oracles judge what
happens. The exit code "unsound" (15) means that one objects.

Examples:
   declock-lab sim faults --seed 1 --runs 10000                 many scenarios, drawn from seeds
   declock-lab sim faults --class crash,zombie --runs 0         until Ctrl-C
   declock-lab sim faults --scenario 'class=locks cns=2 ...'    one scenario again, as a report prints it
   declock-lab sim explore                                      every schedule of small programs
   declock-lab sim explore --replay 'cql [1x 2x] x1, ...; 2.1'  one schedule again, as a report prints it
   declock-lab sim faults --scenario .. --html run.html         the picture of that run, for a browser
   declock-lab sim handover --lock mcs --html mcs.html          how a lock goes from one client to the next
   declock-lab sim starve                                       a writer beside many readers, by policy`

func simCommand(env *command.Env) *cli.Command {
	return command.Complete(&cli.Command{
		Name: "sim", Usage: "look for bugs in virtual time", Category: "look for bugs", Description: simDescription,
		Subcommands: []*cli.Command{simFaults(env), simExplore(env), simHandover(env), simStarve(env)},
	})
}

// emitSim prints rows as JSON, or text.
func emitSim(env *command.Env, asJSON bool, what string, seed uint64, config map[string]any, rows []any, text string) error {
	r := report.Report{Experiment: "sim " + what, Fabric: "sim", Seed: seed, Config: config, Rows: rows}
	return env.Print(asJSON, r, func(w io.Writer) { fmt.Fprint(w, text) })
}

// faultRow is a failing scenario in the output of sim faults.
type faultRow struct {
	Seed     uint64   `json:"seed"`
	Class    string   `json:"class"`
	Scenario string   `json:"scenario"`
	Plan     string   `json:"plan"`
	Again    string   `json:"again"`
	Objects  []string `json:"objects"`
	Shrunk   string   `json:"shrunk"`
}

func simFaults(env *command.Env) *cli.Command {
	var o check.Options
	var classes, scenario, html string
	var asJSON bool
	return &cli.Command{
		Name: "faults", Usage: "run scenarios of seeds, with faults", Description: "Classes: " + classNames(check.Classes()) + ". Only if they are asked for: " + classNames(check.ByName()) + ".",
		Flags: []cli.Flag{
			command.CountFlag(&o.First, "seed", 1, 0, math.MaxUint64, "the first seed"),
			command.CountFlag(&o.Runs, "runs", 1000, 0, 1<<50, "scenarios, each of its own seed; 0: until Ctrl-C"),
			&cli.StringFlag{Name: "class", Usage: "`CLASSES` of scenarios, with commas; none: those that must hold", Destination: &classes},
			&cli.StringFlag{Name: "scenario", Usage: "run this `LINE` only, as a report prints it", Destination: &scenario},
			command.CountFlag(&o.Keep, "keep", 1, 1, 1<<20, "failures after which to stop"),
			htmlFlag(&html, "--scenario"),
			&cli.BoolFlag{Name: "no-shrink", Usage: "do not look for a smaller scenario that fails", Destination: &o.NoShrink}, command.JSONFlag(&asJSON),
		},
		Action: func(c *cli.Context) error {
			if scenario != "" {
				return simScenario(c, env, scenario, html, !o.NoShrink, asJSON)
			}
			if html != "" {
				return command.Usage(c, "--html needs --scenario: the picture is of one run")
			}
			if o.Runs == 0 {
				o.Runs = 1 << 50
			}
			if classes != "" {
				var err error
				if o.Classes, err = check.ParseClasses(classes); err != nil {
					return command.Usage(c, "--class: %v", err)
				}
			}
			u, err := check.Faults(c.Context, o)
			if err != nil && !errors.Is(err, c.Context.Err()) {
				return err
			}
			config := map[string]any{"runs": u.Runs, "by_class": u.ByClass, "events": u.Events, "grants": u.Grants,
				"refused": u.Refused, "faults": u.Faults, "resets": u.Resets, "undecided": u.Undecided, "longest_wait_us": float64(u.LongestNs) / 1e3}
			effects := map[string]uint64{}
			for i, n := range u.Effects {
				effects[sim.FaultEffect(i).String()] = n
			}
			config["effects"] = effects
			return simVerdict(env, asJSON, o.First, config, u.Failures, u.String()+"\n", err)
		},
	}
}

func classNames(classes []check.Class) string {
	var names []string
	for _, k := range classes {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// simVerdict prints failures, and makes them the exit code.
func simVerdict(env *command.Env, asJSON bool, seed uint64, config map[string]any, failures []*check.Failure, text string, stopped error) error {
	rows := []any{}
	for _, f := range failures {
		s := f.Found.Scenario
		r := faultRow{Seed: s.Seed, Class: string(s.Class), Scenario: s.String(), Plan: s.Plan.String(), Again: check.Replay(s), Shrunk: f.Shrunk.Scenario.String()}
		for _, v := range f.Found.Violations {
			r.Objects = append(r.Objects, v.String())
		}
		rows = append(rows, r)
		text = f.String() + "\n" + text
	}
	if err := emitSim(env, asJSON, "faults", seed, config, rows, text); err != nil {
		return err
	}
	if len(failures) > 0 {
		return exit.Errorf(exit.Unsound, "%d scenarios fail", len(failures))
	}
	return interrupted(stopped)
}

// interrupted says what ended a run early in the words of other commands; nil: nothing did.
func interrupted(err error) error {
	if err == nil {
		return nil
	}
	return exit.Errorf(exit.Interrupted, "interrupted")
}

func simScenario(c *cli.Context, env *command.Env, line, html string, shrink, asJSON bool) error {
	s, err := check.ParseScenario(line)
	if err != nil {
		return command.Usage(c, "--scenario: %v", err)
	}
	if html != "" {
		_, t, err := check.Picture(s)
		if err != nil {
			return err
		}
		if err := writePicture(html, t.WriteHTML); err != nil {
			return err
		}
	}
	r, f, err := check.Judge(s, shrink)
	if err != nil {
		return err
	}
	config := map[string]any{"scenario": s.String(), "hash": fmt.Sprintf("%#016x", r.Hash), "events": r.Events}
	text := fmt.Sprintf("holds: %d grants, %d events, history hash %#016x\n", r.Grants, r.Events, r.Hash)
	var failures []*check.Failure
	if f != nil {
		failures, text = []*check.Failure{f}, ""
	}
	return simVerdict(env, asJSON, s.Seed, config, failures, text, nil)
}

// exploreRow is a program in the output of sim explore.
type exploreRow struct {
	Program    string  `json:"program"`
	Schedules  int     `json:"schedules"`
	Pruned     int     `json:"pruned"`
	States     int     `json:"states"`
	Seconds    float64 `json:"seconds"`
	Exhaustive bool    `json:"exhaustive"`
	Bound      string  `json:"bound,omitempty"`
	Failure    string  `json:"failure,omitempty"`
}

// exploreGC is by how much, in percent, the memory of explorations may grow before garbage is collected.
const exploreGC = 600

func simExplore(env *command.Env) *cli.Command {
	var match, again, html string
	var quick, asJSON bool
	var keep int
	wall := time.Minute
	return &cli.Command{
		Name: "explore", Usage: "try every schedule of small programs",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "match", Usage: "only programs whose line in the table contains `TEXT`", Destination: &match},
			&cli.DurationFlag{Name: "wall", Usage: "bound of each program, in real time", Value: wall, Destination: &wall},
			command.CountFlag(&keep, "keep", 1, 1, 1<<20, "programs that fail after which to stop"),
			&cli.StringFlag{Name: "replay", Usage: "run one schedule again, `'PROGRAM; SCHEDULE'` as a report prints it, or @FILE that holds that", Destination: &again},
			htmlFlag(&html, "--replay"),
			&cli.BoolFlag{Name: "quick", Usage: "only the programs that take less than a second", Destination: &quick}, command.JSONFlag(&asJSON),
		},
		Action: func(c *cli.Context) error {
			if again != "" {
				return simReplay(c, env, again, html, asJSON)
			}
			if html != "" {
				return command.Usage(c, "--html needs --replay: the picture is of one schedule")
			}
			debug.SetGCPercent(max(debug.SetGCPercent(-1), exploreGC)) // each execution leaves a cluster behind
			var rows []any
			var done []check.Explored
			failed := 0
			programs := check.Explorations(quick, match)
			if len(programs) == 0 {
				return exit.Errorf(exit.UnknownName, "no program has %q in its line: \"declock-lab sim explore --quick\" shows some", match)
			}
			for _, x := range programs {
				if c.Context.Err() != nil || failed >= keep {
					break
				}
				e := check.Explored{Exploration: x, Report: check.Explore(x, check.Bounds{Wall: wall})}
				done = append(done, e)
				rows = append(rows, exploreRowOf(&e))
				if e.Report.Failure != nil {
					failed++
					fmt.Fprint(env.Stderr, &e)
				}
			}
			if err := emitSim(env, asJSON, "explore", 0, map[string]any{"wall": wall.String(), "match": match}, rows, check.ExploreTable(done)); err != nil {
				return err
			}
			if failed > 0 {
				return exit.Errorf(exit.Unsound, "%d programs fail", failed)
			}
			return interrupted(c.Context.Err())
		},
	}
}

// simReplay runs one schedule again.
func simReplay(c *cli.Context, env *command.Env, text, html string, asJSON bool) error {
	if file, ok := strings.CutPrefix(text, "@"); ok {
		b, err := os.ReadFile(file)
		if err != nil {
			return command.Usage(c, "--replay: %v", err)
		}
		text = strings.TrimSpace(string(b))
	}
	r, err := check.ParseRerun(text)
	if err != nil {
		return command.Usage(c, "--replay: %v", err)
	}
	out := r.Run()
	if html != "" {
		_, t := r.Picture()
		if err := writePicture(html, t.WriteHTML); err != nil {
			return err
		}
	}
	row := map[string]any{"program": r.Program.String(), "schedule": r.Schedule.String(), "trace": out.Outcome.Trace, "failure": ""}
	if out.Outcome.Err != nil {
		row["failure"] = out.Outcome.Err.Error()
	}
	if err := emitSim(env, asJSON, "explore", 0, map[string]any{"replay": r.String()}, []any{row}, out.String()); err != nil {
		return err
	}
	switch {
	case errors.Is(out.Outcome.Err, explore.ErrSchedule):
		return command.Usage(c, "--replay: %v", out.Outcome.Err)
	case out.Outcome.Err != nil:
		return exit.Errorf(exit.Unsound, "the schedule fails")
	}
	return nil
}

func exploreRowOf(e *check.Explored) exploreRow {
	r := &e.Report
	row := exploreRow{Program: e.Exploration.String(), Schedules: r.Schedules, Pruned: r.Pruned, States: r.States,
		Seconds: r.Wall.Seconds(), Exhaustive: r.Exhaustive, Bound: r.Bound}
	if r.Failure != nil {
		row.Failure = r.Failure.Err.Error()
	}
	return row
}

func simStarve(env *command.Env) *cli.Command {
	var o check.StarveOptions
	var ms fabric.Time
	var asJSON bool
	var sharing cli.IntSlice
	return &cli.Command{
		Name: "starve", Usage: "one node that writes beside others that read one lock, by policy",
		Flags: []cli.Flag{
			command.ChoiceFlag(&o.NIC, "nic", "cx4", "model of the NICs", "cx4", "cx6", "ideal", "cxl"),
			command.CountFlag(&o.Nodes, "cns", 8, 2, 32, "compute nodes, one of which writes"),
			command.CountFlag(&o.Clients, "clients", 8, 1, 256, "clients of each"),
			command.CountFlag(&ms, "ms", 30, 1, 10_000, "milliseconds of virtual time"),
			command.CountFlag(&o.Seed, "seed", 1, 0, math.MaxUint64, "seed"),
			&cli.IntSliceFlag{Name: "sharing", Usage: "compare these bounds of shared tenure, in `MICROSECONDS`, with commas", Destination: &sharing}, command.JSONFlag(&asJSON),
		},
		Action: func(c *cli.Context) error {
			o.SpanNs = ms * fabric.Millisecond
			for _, us := range sharing.Value() {
				if us < 1 || us > 1_000_000 {
					return command.Usage(c, "--sharing: %d is no number of microseconds from 1 to 1000000", us)
				}
				o.SharingNs = append(o.SharingNs, fabric.Time(us)*fabric.Microsecond)
			}
			list, err := check.Starve(o)
			if err != nil && !errors.Is(err, sim.ErrBudget) {
				return err
			}
			var rows []any
			for _, s := range list {
				rows = append(rows, map[string]any{"lock": s.Policy, "readers": s.Load, "sharing_us": float64(s.SharingNs) / 1e3, "readers_shut_out": s.ShutOut,
					"clients": o.Nodes * o.Clients, "mops": s.Mops, "writes": s.Writes,
					"reads": s.Reads, "write_p50_us": float64(s.WriteP50) / 1e3, "write_p99_us": float64(s.WriteP99) / 1e3, "read_p99_us": float64(s.ReadP99) / 1e3})
			}
			config := map[string]any{"nic": o.NIC, "nic_model": "fitted, not measured", "cns": o.Nodes, "clients": o.Clients, "ms": ms}
			return emitSim(env, asJSON, "starve", o.Seed, config, rows, check.StarvationTable(list))
		},
	}
}
