// Command runner runs the scenarios of many seeds, or explores programs, and prints as JSON which oracle objects to
// which. Package mutants builds it once for each mutant.
package main

import (
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
	classes = flag.String("classes", "", "classes of scenarios")
	runs    = flag.Int("runs", 100, "runs")
	explore = flag.String("explore", "", "explore the programs that contain this instead")
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
	var t check.Tally
	if *explore != "" {
		t = check.CountExplored(*explore, check.Bounds{Wall: 15 * time.Second})
	} else if t, err = check.Count(list, *runs, hang); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(t)
}
