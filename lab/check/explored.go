package check

import (
	"fmt"
	"strings"

	"github.com/declock/declock/lab/explore"
)

// An Explored is what came of an exploration.
type Explored struct {
	Exploration Exploration
	Report      explore.Report
}

// String is the report of an exploration that failed, for people: with the command that
// replays it, and the last operations of each client.
func (e *Explored) String() string {
	f := e.Report.Failure
	if f == nil {
		return fmt.Sprintf("%v: %v", e.Exploration, e.Report)
	}
	r := Rerun{e.Exploration, f.Schedule}
	return fmt.Sprintf("FAILED: %v\n  found as: %s\n%s", e.Exploration, ReplaySchedule(Rerun{e.Exploration, f.Found}), r.Run())
}

// A Rerun is one schedule of a program. Its text is that of the program, a semicolon, and that of the schedule.
type Rerun struct {
	Program  Exploration
	Schedule explore.Schedule
}

func (r Rerun) String() string { return fmt.Sprintf("%v; %v", r.Program, r.Schedule) }

// ParseRerun parses what Rerun.String prints.
func ParseRerun(text string) (Rerun, error) {
	program, schedule, ok := strings.Cut(text, ";")
	if !ok {
		return Rerun{}, fmt.Errorf("%w: %q is no PROGRAM; SCHEDULE", ErrScenario, text)
	}
	x, err := ParseExploration(strings.TrimSpace(program))
	if err != nil {
		return Rerun{}, err
	}
	s, err := explore.ParseSchedule(strings.TrimSpace(schedule))
	if err != nil {
		return Rerun{}, fmt.Errorf("%w: %w", ErrScenario, err)
	}
	return Rerun{x, s}, nil
}

// ReplaySchedule returns the command that runs a schedule again.
func ReplaySchedule(r Rerun) string {
	return "declock-lab sim explore --replay " + shellQuote(r.String())
}

// A Rerunning is what came of a schedule that was run again.
type Rerunning struct {
	Rerun   Rerun
	Outcome explore.Outcome
	Last    []ClientHistory
}

// Run runs the schedule.
func (r Rerun) Run() *Rerunning { return r.run(nil) }

func (r Rerun) run(d *drawing) *Rerunning {
	last := lastOps{}
	out := explore.Replay(r.Program.config(), r.Schedule, func(c *explore.Cluster) {
		clear(last)
		r.Program.buildWith(c, last, d)
	})
	return &Rerunning{r, out, last.histories()}
}

// String tells what happened, for people.
func (r *Rerunning) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  schedule: %v of %v\n  again: %s\n", r.Rerun.Schedule, r.Rerun.Program, ReplaySchedule(r.Rerun))
	if r.Outcome.Err != nil {
		fmt.Fprintf(&b, "  %v\n", r.Outcome.Err)
	} else {
		fmt.Fprintf(&b, "  holds, final state %#016x\n", r.Outcome.Final)
	}
	b.WriteString("what happens:\n")
	for _, l := range explore.Fold(r.Outcome.Trace) {
		fmt.Fprintf(&b, "  %s\n", l)
	}
	tellLast(&b, r.Last)
	return b.String()
}

// ExploreTable returns the table of explorations.
func ExploreTable(list []Explored) string {
	var b strings.Builder
	b.WriteString("| program | schedules | pruned | states | seconds | covered |\n|---|---|---|---|---|---|\n")
	for i := range list {
		r := &list[i].Report
		covered := "exhaustive"
		switch {
		case r.Failure != nil:
			covered = "FAILS: " + r.Failure.Err.Error()
		case !r.Exhaustive:
			covered = "up to a bound: " + r.Bound
		}
		fmt.Fprintf(&b, "| %v | %d | %d | %d | %.1f | %s |\n", list[i].Exploration, r.Schedules, r.Pruned, r.States, r.Wall.Seconds(), strings.ReplaceAll(covered, "\n", " "))
	}
	return b.String()
}
