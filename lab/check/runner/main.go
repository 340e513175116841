// Command runner runs the scenarios of many seeds and prints, as JSON, which oracle objects to
// which; or it reports a failure, or runs one again, as "declock-lab sim" does. Package check builds it once for each mutant.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/declock/declock/lab/check"
)

// hang ends a run that does not end by itself.
func hang(t check.Tally) {
	if err := json.NewEncoder(os.Stdout).Encode(t); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(0)
}

var (
	classes  = flag.String("classes", "", "classes of scenarios")
	first    = flag.Uint64("first", 0, "first seed")
	runs     = flag.Int("runs", 100, "runs")
	explore  = flag.String("explore", "", "explore the programs that contain this instead")
	keep     = flag.Int("keep", 10, "failing runs after which to stop")
	report   = flag.Bool("report", false, "report the first failure for people, shrunk")
	scenario = flag.String("scenario", "", "run this scenario, and report")
	replay   = flag.String("replay", "", "run this PROGRAM; SCHEDULE, and report")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	list, err := check.ParseClasses(*classes)
	if err != nil {
		return err
	}
	switch {
	case *scenario != "":
		s, err := check.ParseScenario(*scenario)
		if err != nil {
			return err
		}
		_, f, err := check.Judge(s, false)
		if f != nil {
			fmt.Print(f)
		}
		return err
	case *replay != "":
		r, err := check.ParseRerun(*replay)
		if err == nil {
			fmt.Print(r.Run())
		}
		return err
	case *report && *explore != "":
		for _, x := range check.Explorations(false, *explore) {
			if e := (check.Explored{Exploration: x, Report: check.Explore(x, bounds)}); e.Report.Failure != nil {
				fmt.Print(&e)
				return nil
			}
		}
		return nil
	case *report:
		u, err := check.Faults(context.Background(), check.Options{Classes: list, First: *first, Runs: *runs, Workers: 1})
		for _, f := range u.Failures {
			fmt.Print(f)
		}
		return err
	}
	var t check.Tally
	if *explore != "" {
		t = check.CountExplored(*explore, bounds)
	} else if t, err = check.Count(list, *first, *runs, *keep, hang); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(t)
}

var bounds = check.Bounds{Wall: 15 * time.Second}
