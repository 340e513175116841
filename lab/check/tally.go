package check

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/declock/declock/fabric/sim"
)

// A Caught is what one oracle did to a mutant.
type Caught struct {
	Runs int    `json:"runs"` // to which it objected
	Seed uint64 `json:"seed"` // the first of them
	At   int    `json:"at"`   // which run that was, from 1
	What string `json:"what"`
}

// A Tally is what came of the runs of a mutant.
type Tally struct {
	Runs     int               `json:"runs"`
	Bad      int               `json:"bad"`
	ByJudge  map[string]Caught `json:"by_judge"`
	Schedule string            `json:"schedule"` // of an exploration that failed
	Scenario string            `json:"scenario"` // the first bad one
}

// hangTime is how long one run may take: the longest that do end take seconds,
// for the search for linearizations.
const hangTime = 20 * time.Second

// enough is how many bad runs Count makes.
const enough = 10

// Count runs the scenarios of seeds from 0 on until enough of them are bad. A run that does not
// end, outside of virtual time, cannot be stopped: onHang is called.
func Count(classes []Class, runs int, onHang func(Tally)) (Tally, error) {
	t := Tally{ByJudge: map[string]Caught{}}
	for t.Runs < runs && t.Bad < enough {
		s := Draw(uint64(t.Runs), classes...)
		t.Runs++
		hung := t
		hung.Bad++
		hung.ByJudge = maps.Clone(t.ByJudge)
		hung.ByJudge["hang"] = Caught{Runs: 1, Seed: s.Seed, At: t.Runs, What: "the run does not end"}
		timer := time.AfterFunc(hangTime, func() { onHang(hung) })
		r, err := Run(s)
		timer.Stop()
		if err != nil {
			return t, fmt.Errorf("%w: %s", err, s)
		}
		if !r.Bad() {
			continue
		}
		if t.Bad++; t.Bad == 1 {
			t.Scenario = s.String()
		}
		seen := map[string]bool{}
		for _, v := range r.Violations {
			if seen[v.Judge] {
				continue
			}
			seen[v.Judge] = true
			c := t.ByJudge[v.Judge]
			if c.Runs++; c.Runs == 1 {
				c.Seed, c.At, c.What = s.Seed, t.Runs, v.What
			}
			t.ByJudge[v.Judge] = c
		}
	}
	return t, nil
}

// CountExplored explores programs until one fails. Runs are schedules.
func CountExplored(match string, b Bounds) Tally {
	t := Tally{ByJudge: map[string]Caught{}}
	for _, x := range Explorations(false, match) {
		r := Explore(x, b)
		t.Runs += r.Schedules + r.Pruned
		if f := r.Failure; f != nil {
			t.Bad++
			judge, what, _ := strings.Cut(f.Err.Error(), ":")
			if before, _, ok := strings.Cut(judge, " at "); ok {
				judge = before
			}
			var stuck *sim.DeadlockError
			if errors.As(f.Err, &stuck) {
				judge, what = "lost grant", f.Err.Error()
			}
			t.ByJudge["explore ("+judge+")"] = Caught{Runs: 1, At: t.Runs, What: what}
			t.Scenario, t.Schedule = x.String(), f.Schedule.String()
			break
		}
	}
	return t
}
